"""Forms of output: JSON, CSV, Markdown, TSV in a pipe, tables on a terminal; colours, widths and closed pipes."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.surface.cli import COMMAND, call, environment, process, terminal

COMMANDS = [
    ["gpus"],
    ["gpus", "H100 SXM"],
    ["instances", "--provider", "gcp"],
    ["instances", "p3dn.24xlarge"],
    ["cpus"],
    ["regions", "Seoul"],
    ["compare", "A100", "p4d.24xlarge"],
    ["catalog", "status"],
]
BOXES = re.compile("[\u2500-\u257f\x1b]")
IDS = [" ".join(command) for command in COMMANDS]
every_command = pytest.mark.parametrize("command", COMMANDS, ids=IDS)
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;\d+)*m")


@every_command
def test_json_is_one_document_on_stdout_and_nothing_on_stderr(command: list[str]) -> None:
    reply = call(*command, "--json")
    assert reply.code == 0
    assert isinstance(reply.json(), dict)
    assert reply.err == ""


@every_command
def test_csv_is_rectangular_with_unique_headers(command: list[str]) -> None:
    reply = call(*command, "--csv")
    assert reply.code == 0
    header, *body = reply.csv()
    assert body
    assert {len(row) for row in body} == {len(header)}
    assert len(set(header)) == len(header)
    assert not BOXES.search(reply.out)


@every_command
def test_csv_has_columns_of_members_only_and_none_of_the_group(command: list[str]) -> None:
    header = call(*command, "--csv").csv()[0]
    assert [name for name in header if any(other.startswith(f"{name}.") for other in header)] == []


@every_command
def test_tsv_in_a_pipe_is_rectangular_without_boxes_colours_or_padding(command: list[str]) -> None:
    reply = call(*command)
    assert reply.code == 0
    header, *body = reply.tsv()
    assert body
    assert {len(row) for row in body} == {len(header)}
    assert not BOXES.search(reply.out)
    assert "…" not in reply.out
    assert [cell for row in [header, *body] for cell in row if cell != cell.strip()] == []


@every_command
def test_markdown_is_a_table_with_a_rule_under_its_header(command: list[str]) -> None:
    reply = call(*command, "--markdown")
    assert reply.code == 0
    header, rule, *body = reply.markdown()
    assert body
    assert all(re.fullmatch(r":?-{3,}:?", cell) for cell in rule)
    assert {len(row) for row in [rule, *body]} == {len(header)}
    assert not BOXES.search(reply.out)


def test_csv_and_json_agree_on_rows_and_base_units() -> None:
    listed = call("gpus", "--json").json()["gpus"]
    header, *body = call("gpus", "--csv").csv()
    identity, bandwidth = header.index("id"), header.index("memory_bandwidth")
    assert [(row[identity], row[bandwidth]) for row in body] == [(row["id"], str(row["memory_bandwidth"])) for row in listed]


def test_csv_columns_do_not_depend_on_the_rows_selected() -> None:
    assert call("gpus", "T4", "--csv").csv()[0] == call("gpus", "H100 SXM", "--csv").csv()[0]


def test_csv_has_money_as_amount_and_currency() -> None:
    header, row = call("gpus", "RTX 4090", "--csv").csv()
    cells = dict(zip(header, row, strict=True))
    assert (cells["launch_price.amount"], cells["launch_price.currency"]) == ("1599", "USD")


def test_columns_chooses_and_orders_the_columns() -> None:
    reply = call("gpus", "T4", "H100 SXM", "--columns", "memory_bandwidth,id", "--csv")
    assert reply.csv()[0] == ["memory_bandwidth", "id"]
    assert {row[1]: row[0] for row in reply.csv()[1:]} == {"t4": "320000000000", "h100-sxm": "3350000000000"}


def test_columns_never_yields_one_header_twice() -> None:
    header = call("gpus", "--columns", "name,launch_price").tsv()[0]
    assert len(set(header)) == len(header)


def test_all_columns_are_to_be_had_in_a_pipe() -> None:
    header, *body = call("gpus", "A100", "--columns", "all").tsv()
    assert len(header) > 30
    assert {len(row) for row in body} == {len(header)}


def test_a_published_size_is_not_rounded_away_in_a_pipe() -> None:
    reply = call("instances", "p5.48xlarge", "p4d.24xlarge", "--columns", "instance,ram_bytes")
    sizes = {row[0]: row[1].replace(",", "") for row in reply.tsv()[1:]}
    assert sizes == {"p5.48xlarge": "2048 GiB", "p4d.24xlarge": "1152 GiB"}


def test_two_forms_at_once_are_refused() -> None:
    assert call("gpus", "T4", "--json", "--csv").code == 2


def test_messages_go_to_stderr_and_stdout_is_data() -> None:
    reply = call("gpus", "A100")
    assert "A100 SXM 80GB" in reply.out
    assert "GPUs" not in reply.out.splitlines()[-1]
    assert reply.err != ""


def test_json_is_the_same_from_a_real_process_in_any_folder(tmp_path: Path) -> None:
    assert process("gpus", "A100", "--json", cwd=tmp_path).out == call("gpus", "A100", "--json").out


def test_output_is_utf8_even_in_the_c_locale() -> None:
    reply = process("gpus", "H100 SXM", "--json", LC_ALL="C", LANG="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert reply.code == 0, reply.err
    assert reply.json()["gpus"][0]["id"] == "h100-sxm"
    assert process("--help", LC_ALL="C", LANG="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0").code == 0


@pytest.mark.parametrize("variables", [{"COLUMNS": "40"}, {"NO_COLOR": "1"}, {"FORCE_COLOR": "1", "COLUMNS": "20"}])
def test_width_and_colour_variables_do_not_change_what_a_pipe_gets(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = call("gpus", "A100", "--columns", "all").out
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert call("gpus", "A100", "--columns", "all").out == plain


# A terminal


def written(command: list[str], columns: int) -> Counter[str]:
    """Every mark of the terminal's text but spaces and rules: folding a cell keeps them, cutting it does not."""
    reply = terminal(*command, env={"COLUMNS": str(columns), "NO_COLOR": "1"})
    assert reply.code == 0
    return Counter(mark for mark in re.sub(r"\x1b\[[\d;]*m", "", reply.out) if not mark.isspace() and not BOXES.match(mark))


@pytest.mark.parametrize(
    "command", [["gpus", "A100"], ["instances", "p3dn.24xlarge"], ["compare", "T4", "V100", "A100"]], ids=" ".join
)
@pytest.mark.sweep(3)
def test_a_narrow_terminal_loses_no_data(command: list[str]) -> None:
    lost = written(command, 400) - written(command, 40)  # a narrow one may repeat headings, row by row
    assert set(lost) <= {"–"}  # the sign for an empty cell


def test_table_fits_the_terminal_width() -> None:
    reply = terminal("gpus", "A100", "T4", env={"COLUMNS": "60", "NO_COLOR": "1"})
    table = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in reply.out.splitlines() if "GiB" in line]
    assert table
    assert max(len(line) for line in table) <= 60
    assert "\t" not in reply.out


@pytest.mark.parametrize("command", [["gpus", "A100"], ["gpus", "nosuchgpu"], ["--help"]], ids=" ".join)
def test_no_color_means_no_colour_codes_on_a_terminal(command: list[str]) -> None:
    assert not COLOUR.search(terminal(*command, env={"NO_COLOR": "1"}).out)


def test_a_dumb_terminal_gets_no_escape_codes() -> None:
    assert "\x1b" not in terminal("gpus", "nosuchgpu", env={"TERM": "dumb"}).out


# Pipes that close and disks that fill


@pytest.mark.parametrize("command", [["gpus"], ["gpus", "--json"], ["gpus", "--csv"], ["--help"]], ids=" ".join)
def test_closed_pipe_is_no_error(command: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        done = subprocess.run(
            [*COMMAND, *command],
            stdout=pipe,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env=environment(),
            timeout=60,
            check=False,
        )
    assert "Traceback" not in done.stderr
    assert "error" not in done.stderr.lower()
    assert done.returncode in {0, 141, -13}, "exit 1, 2 and 3 mean something else"


def test_output_piped_to_head_ends_without_an_error() -> None:
    line = f"'{COMMAND[0]}' -m whichgpu gpus --json | head -1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, encoding="utf-8", env=environment(), timeout=60, check=False)
    assert done.stdout == "{\n"
    assert "Traceback" not in done.stderr
    assert "rror" not in done.stderr


@pytest.mark.parametrize("form", ["--json", "--csv", "--tsv"])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_an_error_without_a_traceback(form: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "gpus", form],
            stdout=full,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env=environment(),
            timeout=60,
            check=False,
        )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "error" in done.stderr


@pytest.mark.parametrize("form", ["--json", "--tsv"])
def test_a_closed_stdout_is_an_error_without_a_traceback(form: str) -> None:
    line = f"'{COMMAND[0]}' -m whichgpu gpus {form} >&-"
    done = subprocess.run(
        ["bash", "-c", line], stderr=subprocess.PIPE, encoding="utf-8", env=environment(), timeout=60, check=False
    )
    assert (done.returncode, "Traceback" in done.stderr) == (3, False)
    assert done.stderr.startswith("error: cannot write the answer")
