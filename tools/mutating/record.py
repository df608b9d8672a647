"""Which test runs which line, and how long each takes: asked once, with every memory of the code emptied between tests."""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("estimate", "price")
# What answers questions in this process. Servers, browsers and programs started anew are not seen by a change made in this one.
TESTS = ("src/whichgpu/estimate", "src/whichgpu/price", "tests/unit", "tests/properties", "tests/seeds", "tests/data",
         "tests/truth", "tests/surface")  # fmt: skip
OPTIONS = ("-q", "-m", "not long", "-p", "no:randomly", "--continue-on-collection-errors")
REMEMBERING = ("whichgpu.estimate", "whichgpu.price", "whichgpu.decide", "whichgpu.api")


@dataclass(frozen=True)
class Record:
    """Seconds of processor time of every test that passed; tests by line, by file (relative to the root)."""

    seconds: dict[str, float]
    touched: dict[str, dict[int, list[str]]]

    def tests(self, file: str, first: int, last: int) -> list[str]:
        """Tests that run one of these lines, the fastest first."""
        lines = self.touched.get(file, {})
        found = {test for line in range(first, last + 1) for test in lines.get(line, ())}
        return sorted(found, key=lambda test: (self.seconds[test], test))

    def ran(self, file: str, first: int, last: int) -> bool:
        """Whether one of these lines was run at all, be it by no test but at import."""
        return any(line in self.touched.get(file, {}) for line in range(first, last + 1))

    def tests_of(self, file: str) -> list[str]:
        """Tests that run anything of a file once it is imported."""
        lines = self.touched.get(file, {0: []})
        return self.tests(file, min(lines), max(lines))


class Recorder:
    """A plugin of pytest: tells coverage whose lines come next. Those of fixtures may be shared: the whole file's."""

    def __init__(self, cover: Any) -> None:
        self.cover = cover
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        forget()
        self.cover.switch_context(item.nodeid.partition("::")[0])
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self.cover.switch_context(item.nodeid)
        started = time.process_time()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = round(time.process_time() - started, 3)
            self.cover.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and not report.passed:
            self.failed.append(report.nodeid)


def forget() -> None:
    """Empty what functions remember: else only the first test that asks would be seen to run them."""
    for name, module in list(sys.modules.items()):
        if name.startswith(REMEMBERING):
            for value in list(vars(module).values()):
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()


def record(paths: tuple[str, ...]) -> Record:
    """Run these tests once."""
    import coverage

    wanted = [str(ROOT / "src" / "whichgpu" / package / "*") for package in PACKAGES]
    cover = coverage.Coverage(data_file=None, include=wanted, config_file=False, messages=False)
    recorder = Recorder(cover)
    cover.start()
    pytest.main([*OPTIONS, *paths], plugins=[recorder])
    cover.stop()
    seconds = {test: spent for test, spent in recorder.seconds.items() if test not in recorder.failed}
    by_file: dict[str, list[str]] = {}
    for test in seconds:
        by_file.setdefault(test.partition("::")[0], []).append(test)
    touched: dict[str, dict[int, list[str]]] = {}
    data = cover.get_data()
    for path in data.measured_files():
        lines = touched.setdefault(str(Path(path).relative_to(ROOT)), {})
        for line, contexts in data.contexts_by_lineno(path).items():
            tests = {test for context in contexts for test in (by_file.get(context, ()) if "::" not in context else (context,))}
            lines[line] = sorted(tests & seconds.keys())
    return Record(seconds, touched)


def write(found: Record, path: Path) -> None:
    """Keep a record; tests are numbered, as there are many."""
    names = list(found.seconds)
    number = {name: place for place, name in enumerate(names)}
    touched = {
        file: {line: [number[test] for test in tests] for line, tests in lines.items()} for file, lines in found.touched.items()
    }
    path.write_text(json.dumps({"seconds": found.seconds, "touched": touched}), encoding="utf-8")


def read(path: Path) -> Record:
    """A record that was kept."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    names = list(kept["seconds"])
    touched = {
        file: {int(line): [names[place] for place in places] for line, places in lines.items()}
        for file, lines in kept["touched"].items()
    }
    return Record(kept["seconds"], touched)
