"""Whether tests notice a fault: a process of its own for each, forked where everything but the two packages is imported."""

from __future__ import annotations

import gc
import importlib
import importlib.machinery
import os
import resource
import signal
import sys
import tempfile
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from mutating.mutants import Mutant
from mutating.record import OPTIONS, ROOT, Record

KILLED, SURVIVED, TIMEOUT, UNCOVERED = "killed", "survived", "timeout", "not covered"
BROKEN = "not run"
STATUSES = {10: KILLED, 11: SURVIVED, 12: BROKEN}  # with which processes exit
NOTICED, UNNOTICED, FAILED = STATUSES
# pytest would read and rewrite named modules itself, past the fault; of its plugins only what the tests need is worth the time.
PLAIN = ("--assert=plain", "-p", "_hypothesis_pytestplugin", "-p", "no:unraisableexception")
FIRST = 10  # tests that are asked before the modules of all others are imported
MEMORY = 8 << 30  # bytes of addresses: a fault may ask for any array
PATIENCE = 20.0  # seconds beyond three times what the tests take without a fault
WAITING = 15.0  # a process that waits rather than computes gets so many times as long


class FirstFailure:
    """A plugin of pytest: the first thing that fails, be it an import, ends the process; a test's name is written down."""

    def __init__(self, names: int) -> None:
        self.names = names

    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings

        settings.register_profile("faults", deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate))
        settings.load_profile("faults")  # no search for the smallest example

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            os._exit(NOTICED)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            os.write(self.names, f"{report.nodeid}\n".encode())
            os._exit(NOTICED)


def prepare() -> None:
    """Import what no fault is put into, so that the forked processes need not."""
    for name in ("_hypothesis_pytestplugin", "hypothesis.extra.numpy", "scipy.stats", "whichgpu.workload.traces"):
        importlib.import_module(name)
    from whichgpu.catalog.store import Catalog

    Catalog().gpus  # noqa: B018 - reads the tables
    changed = sorted(name for name in sys.modules if name.startswith(("whichgpu.estimate", "whichgpu.price")))
    if changed:
        raise RuntimeError(f"imported too early: {changed}")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    gc.collect()
    gc.freeze()  # what is there already is looked at no more


def put(file: str, source: str) -> None:
    """Have a changed source imported in place of the file."""
    path = str(ROOT / file)
    plain: Callable[[Any, str], types.CodeType | None] = importlib.machinery.SourceFileLoader.get_code

    def get_code(loader: Any, name: str) -> types.CodeType | None:
        return compile(source, path, "exec") if os.path.realpath(loader.path) == path else plain(loader, name)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[assignment,method-assign]


def chosen(mutant: Mutant, record: Record, most: float) -> tuple[list[str], float]:
    """The tests that are asked, the fastest first, and the seconds they take in all: at most so many.

    Cases of one test are much alike: its second counts as if it took twice as long, its third three times.
    """
    cases: Counter[str] = Counter()
    weighed: list[tuple[float, str]] = []
    for test in mutant.tests(record):
        name = test.partition("[")[0]
        cases[name] += 1
        weighed.append((cases[name] * record.seconds[test], test))
    taken: list[str] = []
    total = 0.0
    for _, test in sorted(weighed, key=lambda pair: pair[0]):
        if total + record.seconds[test] <= most or not taken:
            taken.append(test)
            total += record.seconds[test]
    return sorted(taken, key=lambda test: record.seconds[test]), total


def started(mutant: Mutant | None, tests: Sequence[str], seconds: float, names: int) -> int:
    """The id of a process that runs these tests with a fault, or with none."""
    pid = os.fork()
    if pid:
        return pid
    status = FAILED
    try:
        most = int(3 * seconds + PATIENCE)
        resource.setrlimit(resource.RLIMIT_CPU, (most, most + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        signal.alarm(int(most * WAITING))
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        if mutant:
            put(mutant.file, mutant.source)
        parts = (part for part in (tests[:FIRST], tests[FIRST:]) if part)
        if all(pytest.main([*OPTIONS, *PLAIN, *part], plugins=[FirstFailure(names)]) == pytest.ExitCode.OK for part in parts):
            status = UNNOTICED
    finally:
        os._exit(status)


def judged(mutants: Sequence[Mutant], record: Record, most: float, processes: int) -> Iterator[tuple[Mutant, str, float]]:
    """Every fault, what became of it and the seconds it took, as they come. Tests that failed must pass without a fault."""
    running: dict[int, tuple[Mutant, float]] = {}
    left = list(reversed(mutants))
    with tempfile.TemporaryFile() as failing:
        while left or running:
            while left and len(running) < processes:
                mutant = left.pop()
                tests, seconds = chosen(mutant, record, most)
                if tests:
                    running[started(mutant, tests, seconds, failing.fileno())] = (mutant, time.monotonic())
                else:
                    yield mutant, UNCOVERED, 0.0
            if running:
                pid, status, _ = os.wait3(0)
                mutant, start = running.pop(pid)
                yield mutant, verdict(status), time.monotonic() - start
        failing.seek(0)
        names = sorted({line.decode() for line in failing.read().splitlines()})
        if names:
            control = started(None, names, sum(record.seconds[name] for name in names), failing.fileno())
            if os.waitstatus_to_exitcode(os.waitpid(control, 0)[1]) != UNNOTICED:
                raise RuntimeError("tests that noticed a fault fail, or do not run, without one too")


def verdict(status: int) -> str:
    """What the end of its process says of a fault."""
    if os.WIFSIGNALED(status):
        return TIMEOUT if os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGALRM) else KILLED
    return STATUSES.get(os.WEXITSTATUS(status), BROKEN)
