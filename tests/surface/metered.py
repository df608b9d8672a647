"""Commands about this machine's GPUs as processes of their own, on GPUs that are none."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.surface.cli import ROOT, Reply, environment


def fake(names: str, *argv: str) -> list[str]:
    return [sys.executable, "-m", "tests.fake_gpus", names, *argv]


def variables(**changes: str) -> dict[str, str]:
    return environment(**changes) | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PYTHONUNBUFFERED": "1"}


def run(names: str, *argv: str, **changes: str) -> Reply:
    done = subprocess.run(
        fake(names, *argv), capture_output=True, encoding="utf-8", env=variables(**changes), timeout=60, check=False, cwd=ROOT
    )
    return Reply(done.returncode, done.stdout, done.stderr)
