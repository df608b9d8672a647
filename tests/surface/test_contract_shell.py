"""The frame: bare call, help, version, and completion in three shells."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.surface.cli import call, environment, process

COMMANDS = ["gpus", "instances", "cpus", "regions", "compare", "catalog", "report-error", "completion"]
FLAGS = (
    "--vendor --arch --min-memory --min-bandwidth --supports --compute-capability --form-factor --sort "
    "--json --csv --markdown --as-of --catalog-as-known --lang --config"
).split()


def test_the_bare_command_greets_with_three_things_that_work() -> None:
    reply = call()
    assert reply.code == 0
    tries = re.findall(r"^\s+whichgpu (\S.*)$", reply.out, re.MULTILINE)
    assert len(tries) == 3
    for line in tries:
        assert call(*line.split()).code == 0, line


def test_the_bare_command_as_a_process_points_to_help() -> None:
    reply = process()
    assert reply.code == 0
    assert "--help" in reply.out
    assert reply.err == ""


def test_help_lists_every_command_and_the_exit_codes() -> None:
    reply = call("--help")
    assert reply.code == 0
    assert [name for name in COMMANDS if not re.search(rf"^\s+{name}\s", reply.out, re.MULTILINE)] == []
    assert reply.err == ""


@pytest.mark.parametrize("command", [[name] for name in COMMANDS] + [["catalog", "status"], ["catalog", "check"]], ids=" ".join)
def test_every_command_explains_itself(command: list[str]) -> None:
    for flag in ("--help", "-h"):
        reply = call(*command, flag)
        assert reply.code == 0
        assert f"whichgpu {' '.join(command)}" in reply.out
        assert reply.err == ""


@pytest.mark.parametrize("flag", FLAGS)
def test_help_of_gpus_names_every_flag_of_the_contract(flag: str) -> None:
    assert re.search(rf"{flag}\b", call("gpus", "--help").out)


def test_examples_in_help_work() -> None:
    for command in COMMANDS:
        text = call(command, "--help").out.partition("Example")[2]
        for line in re.findall(r"^\s+whichgpu ([^|>\n]*)", text, re.MULTILINE):
            argv = re.findall(r'"[^"]*"|\S+', line)
            assert call(*[word.strip('"') for word in argv]).code == 0, line


def test_version_is_name_and_number() -> None:
    assert re.fullmatch(r"whichgpu \d+\.\d+\.\d+\S*\n", process("--version").out)


def test_help_survives_a_catalog_that_is_not_there() -> None:
    reply = process("--help", WHICHGPU_CATALOG="/no/such/folder")
    assert reply.code == 0


# Completion


def complete(line: str, place: int, shell: str = "bash") -> list[str]:
    word = line.split(" ")[place] if shell == "fish" else str(place)
    reply = process(_WHICHGPU_COMPLETE=f"{shell}_complete", COMP_WORDS=line, COMP_CWORD=word)
    assert reply.code == 0
    assert "Traceback" not in reply.err
    if shell == "zsh":
        return reply.out.splitlines()[1::3]
    return [entry.split(",", 1)[1].split("\t")[0] for entry in reply.out.splitlines()]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_gpu_names_complete_in_every_shell(shell: str) -> None:
    assert set(complete("whichgpu gpus h100", 2, shell)) == {"h100-pcie", "h100-sxm", "h100-nvl"}


@pytest.mark.parametrize(
    ("line", "place", "expected"),
    [
        ("whichgpu gpus H100-S", 2, {"h100-sxm"}),
        ("whichgpu compare t4 a100-sxm", 3, {"a100-sxm-40gb", "a100-sxm-80gb"}),
        ("whichgpu instances --gpu h100-s", 3, {"h100-sxm"}),
        ("whichgpu instances --provider ", 3, {"aws", "gcp", "azure", "oci", "lambda", "runpod"}),
        ("whichgpu regions --provider g", 3, {"gcp"}),
        ("whichgpu instances p3dn", 2, {"p3dn.24xlarge"}),
        ("whichgpu gpus --vendor a", 3, {"amd", "aws", "apple"}),
        ("whichgpu gpus --min", 2, {"--min-memory", "--min-bandwidth"}),
        ("whichgpu ", 1, set(COMMANDS)),
        ("whichgpu catalog ", 2, {"status", "check"}),
        ("whichgpu completion ", 2, {"bash", "zsh", "fish"}),
        ("whichgpu report-error mi300", 2, {"mi300x", "mi300a"}),
    ],
)
@pytest.mark.sweep(2)
def test_names_and_flags_complete(line: str, place: int, expected: set[str]) -> None:
    completions = complete(line, place)
    assert expected <= set(completions)
    prefix = line.split(" ")[place].lower()
    assert [word for word in completions if not word.lower().startswith(prefix)] == []


def test_completed_gpu_names_have_no_spaces_and_are_understood() -> None:
    names = complete("whichgpu gpus rtx", 2)
    assert len(names) > 20
    assert [name for name in names if " " in name] == []
    assert call("gpus", *names, "--json").code == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_calls_back_and_is_data_on_stdout(shell: str) -> None:
    reply = call("completion", shell)
    assert reply.code == 0
    assert f"{shell}_complete" in reply.out
    assert reply.err == ""
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=reply.out, encoding="utf-8", check=True, timeout=30)


def test_bash_completes_through_the_script() -> None:
    script = call("completion", "bash").out + (
        'whichgpu() { "$PYTHON" -m whichgpu "$@"; }\n'
        'COMP_WORDS=(whichgpu gpus h100-n); COMP_CWORD=2; env() { local -x "${@:1:$#-1}"; whichgpu; }\n'
        "_whichgpu_completion whichgpu; printf '%s\\n' \"${COMPREPLY[@]}\"\n"
    )
    done = subprocess.run(
        ["bash", "--norc"],
        input=script,
        capture_output=True,
        encoding="utf-8",
        env=environment(PYTHON=sys.executable),
        timeout=60,
        check=False,
    )
    assert done.stdout == "h100-nvl\n", done.stderr


def test_completion_in_json_is_a_document() -> None:
    assert json.loads(call("completion", "bash", "--json").out)


def test_a_broken_catalog_does_not_break_completion() -> None:
    reply = process(
        _WHICHGPU_COMPLETE="bash_complete", COMP_WORDS="whichgpu gpus h100", COMP_CWORD="2", WHICHGPU_CATALOG="/no/such/folder"
    )
    assert "Traceback" not in reply.err
    assert "error" not in reply.out


# Streams that fail


def run_with(stderr: int | None, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "whichgpu", *argv]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=stderr, text=True, check=False, timeout=60)


def test_closed_stderr_loses_neither_data_nor_exit_code() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        result = run_with(writer, "gpus", "T4", "--csv")
        assert (result.returncode, result.stdout.startswith("id,name,")) == (0, True)
        assert run_with(writer, "gpus", "nosuchgpu").returncode == 2
    finally:
        os.close(writer)


def test_escape_codes_in_input_are_not_echoed_to_the_terminal() -> None:
    for argv in (["--\x1b[2J"], ["gpus", "--catalog", "/n\x1b[2J"], ["gpus", "\x1b[2J"]):
        assert "\x1b" not in run_with(subprocess.STDOUT, *argv).stdout
