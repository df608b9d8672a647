"""Every code block of the documentation and the README does what it says: commands run, Python executes, TOML and JSON parse."""

from __future__ import annotations

import json
import os
import re
import shutil
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
from reference.blocks import TOOL, Block, blocks
from reference.outputs import WIDTH, pages, stale

from tests.surface.cli import ROOT, call

INPUTS = Path(__file__).parent / "inputs"
ALL = [block for page in pages() for block in blocks(page)]
SHELL = [block for block in ALL if block.language == "sh"]
PAGES_WITH_OUTPUT = sorted({block.path for block in ALL if block.shows})
LANGUAGES = {"sh", "python", "toml", "json", "csv", "text", "pycon"}


def place(block: Block) -> str:
    return f"{block.path.relative_to(ROOT)}:{block.line}"


def files_of(page: Path, folder: Path) -> None:
    """Small inputs, and the files a page writes down under their names, are there when its commands run."""
    shutil.copytree(INPUTS, folder, dirs_exist_ok=True)
    for block in blocks(page):
        if block.title:
            (folder / block.title).write_text(block.text + "\n", encoding="utf-8")


def run(block: Block, folder: Path) -> None:
    files_of(block.path, folder)
    for words in block.commands():
        if words and words[0] in TOOL:
            reply = call(*words[1:])
            assert reply.code in block.codes, f"{place(block)}: {' '.join(words)}\n{reply.err or reply.out}"
            assert "Traceback" not in reply.err


def test_blocks_are_of_languages_that_are_checked() -> None:
    assert {place(block): block.language for block in ALL if block.language not in LANGUAGES} == {}


def test_blocks_not_run_have_a_reason() -> None:
    unexplained = [place(block) for block in ALL if not block.is_run and len(block.remark) < len("not run: why it is so")]
    assert unexplained == []


@pytest.mark.parametrize("block", [one for one in SHELL if one.is_run and not one.is_long], ids=place)
@pytest.mark.sweep(3)
def test_commands_run(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(block, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("block", [one for one in SHELL if one.is_run and one.is_long], ids=place)
def test_long_commands_run(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(block, tmp_path)


def test_other_programs_named_in_shell_blocks_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    programs = {"git", "cd", "curl", "pip", "sudo", "eval"}
    for block in SHELL:
        for words in block.commands():
            if not words or words[0] in TOOL:
                continue
            if words[0] == "make":
                assert set(words[1:]) <= targets, f"{place(block)}: {words}"
            elif words[:2] in (["python", "-m"], ["python3", "-m"]):
                assert find_spec(words[2]), f"{place(block)}: {words}"
            else:
                assert words[0] in programs or (ROOT / words[-1]).exists() or not block.is_run, f"{place(block)}: {words}"


@pytest.mark.parametrize("block", [one for one in ALL if one.language == "python" and one.is_run], ids=place)
def test_python_executes(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files_of(block.path, tmp_path)
    exec(compile(block.text, place(block), "exec"), {"__name__": "__main__"})


def test_toml_and_json_parse() -> None:
    for block in ALL:
        if block.language == "toml" and block.is_run:
            assert tomllib.loads(block.text), place(block)
        elif block.language == "json" and block.is_run:
            json.loads(block.text)


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES_WITH_OUTPUT, ids=lambda page: str(page.relative_to(ROOT)))
def test_documented_outputs_equal_printed_ones(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "COLUMNS", WIDTH)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    assert [f"{place(block)} shows something else: run make docs" for block, _ in stale(page)] == []
