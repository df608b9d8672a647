"""The same targets under atheris, which follows what of our code an input reaches; needs `pip install atheris`."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.fuzz.judging import judge
from tests.fuzz.running import CORPUS, keep
from tests.fuzz.target import Target


def guided(name: str, seconds: float) -> int:
    """Feed a target; ends the process itself when the time is over. Failing inputs are saved, and the search continues."""
    try:
        import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        print("atheris is not installed: pip install atheris, or leave --atheris out", file=sys.stderr)
        return 2
    with atheris.instrument_imports(include=["whichgpu"]):
        from tests.fuzz.targets import TARGETS
    target: Target = TARGETS[name]
    names: set[str] = set()

    def feed(data: bytes) -> None:
        _, finding = judge(target, data)
        if finding is not None and finding.where not in names:
            names.add(finding.where)
            print(f"  {finding.where}: {finding.what} -> {keep(finding)}", file=sys.stderr, flush=True)

    _start(atheris, feed, _inputs(name), seconds)
    return 0


def _inputs(name: str) -> Path:
    """A copy of the corpus, to which atheris adds what reaches new code."""
    folder = Path(tempfile.mkdtemp()) / name
    shutil.copytree(CORPUS / name, folder)
    return folder


def _start(atheris: Any, feed: Any, folder: Path, seconds: float) -> None:
    argv = [sys.argv[0], str(folder), f"-max_total_time={seconds:.0f}", "-timeout=0", "-rss_limit_mb=0", "-max_len=65536"]
    atheris.Setup(argv, feed)
    atheris.Fuzz()
