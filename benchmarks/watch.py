"""Cost of `whichgpu watch`: processor time of a reading on a recorded GPU; the goal is 1% of a core at one reading every 2 s."""

from __future__ import annotations

import contextlib
import io
import statistics
import time
from collections.abc import Iterator

from benchmarks.start import Result
from tests import fake_gpus
from tests.machines import JumpingClock
from whichgpu.surface.cli import watch
from whichgpu.surface.cli.main import main

READINGS, RUNS, EVERY = 500, 5, 2
SHARE = 0.01


def _clock(listening: bool = False) -> JumpingClock:  # noqa: ARG001 - as the real one takes it
    return JumpingClock()


def _used(*argv: str) -> float:
    """Processor seconds per reading, without start-up."""
    setattr(watch, "SystemClock", _clock)  # noqa: B010 - not a name the module gives out
    took = []
    for readings in (1, READINGS + 1):
        out = io.TextIOWrapper(io.BytesIO(), "utf-8")
        start = time.process_time()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            assert main(["watch", "--for", f"{EVERY * (readings - 1)}s", "--price", "2usd/h", *argv]) == 0
        took.append(time.process_time() - start)
    return (took[1] - took[0]) / READINGS


def results() -> Iterator[Result]:
    """Seconds for one GPU and for eight, as a line and as JSON."""
    for names, form in ((1, "--line"), (1, "--json"), (8, "--json"), (8, "--tsv")):
        fake_gpus.install(*["H200"] * names)
        used = [_used(form) for _ in range(RUNS)]
        yield Result(f"watch {form}, {names} GPUs, a reading", statistics.median(used), min(used), SHARE * EVERY)
