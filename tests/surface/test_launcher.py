"""The launcher's environment: it never removes what it did not make."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def environment(venv: Path) -> subprocess.CompletedProcess[str]:
    settings = os.environ | {"WHICHGPU_VENV": str(venv), "PIP_NO_INDEX": "1"}
    return subprocess.run(
        [ROOT / "tools" / "environment", "run"], env=settings, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_folder_of_somebody_elses_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    told = environment(tmp_path / "mine")
    assert told.returncode == 3
    assert "was not made by whichgpu" in told.stderr
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


def test_a_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert environment(tmp_path / "file").returncode == 3
    assert (tmp_path / "file").read_text() == "x"


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("ERROR: No matching distribution found for numpy==2.9", "constraints.txt pins"),
        ("Failed to establish a new connection\nERROR: No matching distribution found for numpy==2.9", "needs a package index"),
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("ERROR: something else", "pip says above"),
    ],
)
def test_the_hint_is_of_what_pip_said(tmp_path: Path, said: str, hint: str) -> None:
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / ".whichgpu").touch()
    (tmp_path / "said").write_text(said)
    pip = venv / "bin" / "python"
    pip.write_text(f'#!/bin/sh\ncase "$*" in *--version*) exit 0 ;; esac\ncat {tmp_path}/said >&2\nexit 1\n')
    pip.chmod(0o755)
    told = environment(venv)
    assert told.returncode == 3
    assert said in told.stderr
    assert hint in told.stderr.splitlines()[-1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    told = environment(tmp_path / "venv")
    assert told.returncode == 3
    assert "cannot be written" in told.stderr
