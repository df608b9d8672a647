"""Names of models, machines and regions, whatever characters they have, are nothing but words of the lines that launch them."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.decide.launch.test_launch_lines import OPTIONS
from tests.unit.decide.launch.test_picture_targets import PLAN as PICTURES
from whichgpu.base.errors import UsageError
from whichgpu.decide.launch.picture_targets import picture_files
from whichgpu.decide.launch.targets import LaunchPlan, launch_files, targets
from whichgpu.workload.decoding.speculative import Speculative

HARMLESS = "plainname"
PROGRAMS = "aws gcloud az docker vllm python trtllm-serve llama-server ollama srun scontrol pip touch"
RECORD = '#!/bin/sh\nprintf "%s\\0" "$(($# + 1))" "${0##*/}" "$@" >> "$CALLS"\n'
FRAGMENTS = ("$(touch X)", "`touch X`", "'", '"', "\n", ";touch X;", "&&", "|", "#", "-", "${HOME}", "$NODE_RANK", "$$(touch X)",
             "\\", "\\n", ">X", "<", "*", "~", "!", "{tokens}", "%s", " ", "a", "é", "\u2028", "\x7f", "${IMAGE:-x}", "<script>",
             "END_OF_FILE", "]}", ": ", "--trust-remote-code")  # fmt: skip
names = st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=6).map("".join)
PROVIDERS = {"cloud-cli": ("aws", "gcp", "azure"), "karpenter": ("aws", "azure")}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of programs that record the words they are called with, and nothing else but `cat` and `head`."""
    folder = tmp_path_factory.mktemp("programs")
    for name in PROGRAMS.split():
        (folder / name).write_text(RECORD)
        (folder / name).chmod(0o755)
    for name in ("cat", "head"):
        (folder / name).symlink_to(shutil.which(name) or name)
    return folder


def run(code: str, programs: Path) -> tuple[list[list[str]], dict[str, str]]:
    """Run shell code with the recording programs; return the words of each call, and the files that it wrote."""
    with TemporaryDirectory() as folder:
        calls = Path(folder, "calls")
        calls.touch()
        environment = {"PATH": str(programs), "CALLS": str(calls), "HOME": "/home", "ZONE": "a-zone", "RESOURCE_GROUP": "a-group"}
        shell = shutil.which("sh") or "/bin/sh"
        subprocess.run([shell], input=code.encode(), cwd=folder, env=environment, capture_output=True, timeout=20)
        words = iter(calls.read_bytes().decode().split("\0")[:-1])
        run = [[next(words) for _ in range(int(count))] for count in words]
        return run, {name: Path(folder, name).read_text() for name in os.listdir(folder) if name != "calls"}


def plan_of(name: str, provider: str, nodes: int = 1) -> LaunchPlan:
    options = replace(
        OPTIONS, model=name, instance=name, region=name, provider=provider, speculative=Speculative("draft", name), dtype="int4",
        nodes=nodes,
    )  # fmt: skip
    return LaunchPlan((options,), "vllm", (f"estimate of {name}",))


def check_alike(plain: Any, hostile: Any, name: str, programs: Path) -> None:
    """Check that two values differ in the name only: as texts, or in the words and files that come of them as shell code."""
    if isinstance(plain, dict):
        assert list(plain) == list(hostile)
        plain, hostile = list(plain.values()), list(hostile.values())
    if isinstance(plain, list):
        for one, other in zip_longest(plain, hostile):
            check_alike(one, other, name, programs)
    elif isinstance(plain, str) and hostile not in spellings(plain, name):
        calls, files = run(plain, programs)
        assert calls
        hostile_calls, hostile_files = run(hostile, programs)
        check_alike(calls, hostile_calls, name, programs)
        assert list(files) == list(hostile_files)
        for file in files:
            if file.endswith(".Modelfile"):  # Each line is one instruction.
                assert [line.split()[0] for line in files[file].split("\n")[:-1]] == [
                    line.split()[0] for line in hostile_files[file].split("\n")[:-1]
                ]
            else:
                check_alike(yaml.safe_load(files[file]), yaml.safe_load(hostile_files[file]), name, programs)
    elif not isinstance(plain, str):
        assert plain == hostile


def spellings(text: str, name: str) -> Iterator[str]:
    yield text.replace(HARMLESS, name)
    yield text.replace(HARMLESS, f"./{name}")  # a name that starts with a dash


def documents(file: str, content: str, target: str) -> Any:
    """Return the documents of a YAML file as they are read by its tool; other files are shell code."""
    if not file.endswith((".yaml", ".yml")):
        return content
    documents = list(yaml.safe_load_all(content))
    return _expanded(documents) if target in ("kubernetes", "karpenter") else documents


def _expanded(value: Any) -> Any:
    """Return a manifest with the commands of containers read as Kubernetes does; a variable that it would expand is marked."""
    if isinstance(value, dict):
        return {key: list(map(_command_word, one)) if key == "command" else _expanded(one) for key, one in value.items()}
    return list(map(_expanded, value)) if isinstance(value, list) else value


def _command_word(word: str) -> str:
    return re.sub(r"\$\$|\$\(", lambda match: "$" if match[0] == "$$" else "EXPANDED(", word)


def check_target(target: str, name: str, programs: Path, nodes: int = 1) -> None:
    for provider in PROVIDERS.get(target, ("aws",)):
        try:
            plain = launch_files(target, plan_of(HARMLESS, provider, nodes))
        except UsageError:  # No nodes in this target.
            continue
        hostile = launch_files(target, plan_of(name, provider, nodes))
        assert list(plain) == list(hostile)
        for file in plain:
            check_alike(documents(file, plain[file], target), documents(file, hostile[file], target), name, programs)


@pytest.mark.parametrize("target", sorted(targets()))
@settings(max_examples=4)
@given(name=names)
def test_a_name_changes_no_other_word_of_what_runs(target: str, name: str, programs: Path) -> None:
    check_target(target, name, programs)


@pytest.mark.parametrize("target", sorted(targets()))
def test_every_kind_of_hostile_character_at_once(target: str, programs: Path) -> None:
    check_target(target, "".join(FRAGMENTS), programs)
    check_target(target, "-" + "".join(reversed(FRAGMENTS)), programs, nodes=2)


def test_a_missing_variable_ends_the_script_before_any_name_is_run(programs: Path) -> None:
    script = launch_files("cloud-cli", plan_of("a$(touch X)}`touch X`", "gcp"))["cloud.sh"]
    assert run(f"unset ZONE\n{script}", programs) == ([], {})


@given(name=names)
@settings(max_examples=10)
def test_a_picture_script_names_the_model_as_a_text(name: str) -> None:
    plan = replace(PICTURES, pictures=replace(PICTURES.pictures, model=name))
    for content in picture_files("diffusers", plan).values():
        [value] = [
            one.value.args[1] for one in ast.parse(content).body
            if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "MODEL" and isinstance(one.value, ast.Call)
        ]  # fmt: skip
        assert ast.literal_eval(value) == name
