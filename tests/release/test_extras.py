"""Extras are extras: without any of them the core answers, and what needs one says which to install."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from whichgpu.workload.models import trace_command

# What an extra brings that may be missing, and a command that needs it.
EXTRAS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "web": (("starlette", "uvicorn", "jinja2", "vl_convert"), ("web", "--port", "0")),
    "plot": (("vl_convert",), ("fit", "llama-3.1-8b", "--gpu", "L4", "--plot", "memory.svg")),
    "parquet": (("pyarrow",), ("catalog", "export", "prices.parquet")),
    "trace": (("torch", "torchvision", "timm"), ("fit", "python:mine:make", "--task", "train")),
    "plan-ray": (
        ("ray",),
        ("plan", "llama-3.1-8b", "--rate", "5/s", "--gpu", "L4", "--no-curve", "--ray", "local", "--sweep", "rate=1/s,2/s"),
    ),
    "dev": (("pytest", "hypothesis", "scipy", "playwright", "coverage", "hatchling", "build", "packaging"), ()),
    "long": (("schemathesis", "mkdocs", "nbclient", "ipykernel"), ()),
}
CORE = (
    ("gpus", "T4"),
    ("instances", "p3.2xlarge"),
    ("offers", "--gpu", "L4"),
    ("fit", "llama-3.1-8b", "--gpu", "L4"),
    ("estimate", "decode", "llama-3.1-8b", "--gpu", "L4"),
    ("recommend", "train", "resnet50", "--gpu", "T4,L4", "--duration", "1h"),
    ("doctor",),
    ("catalog", "status"),
)
CODE = """
import contextlib, io, json, sys
for name in json.loads(sys.argv[1]):
    sys.modules[name] = None
import whichgpu
from whichgpu.workload.models import trace_command
from whichgpu.surface.cli.main import main
replies = []
for argv in json.loads(sys.argv[2]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(argv)
    replies.append([code, out.getvalue()[:200], err.getvalue()])
print(json.dumps(replies))
"""


@pytest.mark.long
@pytest.mark.parametrize("extra", EXTRAS)
def test_the_core_answers_without_one(extra: str, tmp_path: Path) -> None:
    assert_core_answers_without([extra], tmp_path)


def test_the_core_answers_without_any(tmp_path: Path) -> None:
    assert_core_answers_without([*EXTRAS], tmp_path)


def assert_core_answers_without(extras: list[str], folder: Path) -> None:
    missing = [name for extra in extras for name in EXTRAS[extra][0]]
    needing = {extra: EXTRAS[extra][1] for extra in extras if EXTRAS[extra][1]}
    settings = os.environ | {"PYTHONPATH": str(ROOT / "src"), "WHICHGPU_DEBUG": ""}
    result = subprocess.run(
        [sys.executable, "-P", "-c", CODE, json.dumps(missing), json.dumps([*CORE, *needing.values()])],
        env=settings, cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    replies: list[list[Any]] = json.loads(result.stdout.splitlines()[-1])
    for argv, (code, _, err) in zip(CORE, replies, strict=False):
        assert code in ((0, 1) if argv == ("doctor",) else (0,)), (argv, err)
    for extra, (code, _, err) in zip(needing, replies[len(CORE) :], strict=True):
        assert code in (2, 3), (extra, err)
        # From a checkout, tracing is installed into the environment that ./whichgpu made; the message has that command.
        assert (trace_command("") if extra == "trace" else f"whichgpu[{extra}]") in err
