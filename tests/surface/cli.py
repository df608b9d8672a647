"""How the black-box tests reach the tool: in this process for speed, or as a real process, a pipe or a terminal."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from whichgpu.surface.cli.main import main

ROOT = Path(__file__).resolve().parent.parent.parent
DATA = ROOT / "src" / "whichgpu" / "catalog" / "data"
COMMAND = [sys.executable, "-m", "whichgpu"]


@dataclass(frozen=True)
class Reply:
    """What came back from one call."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def csv(self) -> list[list[str]]:
        return list(csv.reader(io.StringIO(self.out)))

    def tsv(self) -> list[list[str]]:
        return [line.split("\t") for line in self.out.splitlines()]

    def markdown(self) -> list[list[str]]:
        return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in self.out.splitlines() if line]


def call(*argv: str) -> Reply:
    """Run the command line inside this process, its streams being no terminal."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(list(argv))
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return Reply(code, _text(out), _text(err))


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode("utf-8")


def rows(*argv: str) -> list[dict[str, Any]]:
    """The list inside a successful JSON answer of a catalog command, which is named first."""
    reply = call(*argv, "--json")
    assert reply.code == 0, reply.err or reply.out
    entries = reply.json()[argv[0]]
    assert isinstance(entries, list)
    return entries


def environment(**changes: str) -> dict[str, str]:
    """This process's environment with the source tree on the path."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), **changes}


def process(*argv: str, cwd: Path | None = None, **changes: str) -> Reply:
    """Run the tool as a process whose output is a pipe."""
    done = subprocess.run(
        [*COMMAND, *argv], capture_output=True, encoding="utf-8", env=environment(**changes), timeout=60, check=False, cwd=cwd
    )
    return Reply(done.returncode, done.stdout, done.stderr)


def terminal(*argv: str, env: Mapping[str, str]) -> Reply:
    """Run the tool with a terminal for both its streams; all it writes is in `out`."""
    try:
        leader, follower = pty.openpty()
    except OSError:
        pytest.skip("this system has no pseudo-terminals to give")
    settings = environment(**{"TERM": "xterm-256color", **env})
    with subprocess.Popen([*COMMAND, *argv], stdin=follower, stdout=follower, stderr=follower, env=settings) as child:
        os.close(follower)
        text = _drain(leader)
        code = child.wait(timeout=60)
    os.close(leader)
    return Reply(code, text, "")


def _drain(descriptor: int) -> str:
    parts = []
    while True:
        try:
            part = os.read(descriptor, 65536)
        except OSError:  # Linux reports the closed other end as an input error
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts).decode("utf-8").replace("\r\n", "\n")


def assert_refused(reply: Reply, code: int) -> None:
    """Words on stderr as `error:` then `hint:`, nothing on stdout, no traceback."""
    assert reply.code == code, reply
    assert reply.out == ""
    lines = reply.err.splitlines()
    assert lines[0].startswith("error: "), reply.err
    assert len(lines[0]) > len("error: ")
    assert any(line.startswith("hint: ") and len(line) > len("hint: ") for line in lines[1:]), reply.err
    assert "Traceback" not in reply.err


def assert_refused_json(reply: Reply, code: int) -> dict[str, Any]:
    """The same as a document on stdout, in the contract's shape; gives back the error. A plan that misses is shown with it."""
    assert reply.code == code, reply
    document = reply.json()
    assert document["ok"] is False
    error = document["error"]
    plans = error["kind"] in ("no-plan", "plan-misses")
    beside = {"rejected", "relaxation"} if plans or ("rejected" in document and code == 1) else set()
    assert set(document) >= {"ok", "error"} | beside
    assert error["kind"] == "plan-misses" or set(document) == {"ok", "error"} | beside
    assert set(error) == {"kind", "message", "hint", "choices"}
    assert isinstance(error["kind"], str)
    assert error["kind"]
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error["hint"], str)
    assert isinstance(error["choices"], list)
    assert all(isinstance(choice, str) for choice in error["choices"])
    assert isinstance(error, dict)
    return error
