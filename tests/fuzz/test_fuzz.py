"""No untrusted input breaks a parser: no traceback, no hang, no excessive memory; and the judge detects each of these."""

from __future__ import annotations

import time
from collections.abc import Hashable

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.fuzz.judging import judge
from tests.fuzz.running import Run, corpus, run
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS
from whichgpu.base.errors import UsageError, WhichGpuError
from whichgpu.base.messages import msg

SECONDS = 0.5  # of each target: a quarter of a minute in all
LONG = 600.0  # of all targets together


def assert_nothing_broke(run: Run) -> None:
    assert run.inputs >= len(corpus(run.target.name)) > 0
    assert not run.findings, [(one.where, one.what, one.data[:200]) for one in run.findings.values()]


@pytest.mark.long
@pytest.mark.parametrize("name", TARGETS)
def test_no_input_crashes_a_parser(name: str) -> None:
    assert_nothing_broke(run(TARGETS[name], SECONDS))


@pytest.mark.long
@pytest.mark.parametrize("name", TARGETS)
def test_no_input_crashes_a_parser_in_ten_minutes(name: str) -> None:
    assert_nothing_broke(run(TARGETS[name], LONG / len(TARGETS), time.time_ns()))


def target(feed: object, seconds: float = 2.0) -> Target:
    assert callable(feed)
    return Target("any", feed, st.just(b""), seconds=seconds)


def fails(_: bytes) -> Hashable:
    raise KeyError("x")


def hangs(_: bytes) -> Hashable:
    while True:
        try:
            sum(range(1000))
        except Exception:
            continue


def waits(_: bytes) -> Hashable:
    time.sleep(60)
    return None


def grows(_: bytes) -> Hashable:
    return len(b"x" * (400 << 20)) * 0


def miscounts(_: bytes) -> Hashable:
    return bool(np.zeros(1) / np.zeros(1))


def refuses(_: bytes) -> Hashable:
    raise UsageError("bad-date", msg("error.bad-date", text="x"), msg("hint.bad-date"))


def is_rude(_: bytes) -> Hashable:
    raise UsageError("bad-date", msg("error.bad-date", text="x"))


def is_broken(_: bytes) -> Hashable:
    raise WhichGpuError("internal", msg("error.internal", what="KeyError"), msg("hint.internal"))


@pytest.mark.parametrize(
    ("feed", "seconds", "verdict"),
    [(fails, 2.0, "KeyError"), (hangs, 0.1, "more than"), (waits, 0.01, "more than"), (grows, 5.0, "memory"),
     (miscounts, 2.0, "invalid"), (is_rude, 2.0, "no hint"), (is_broken, 2.0, "Rude")],
)  # fmt: skip
def test_the_judge_sees(feed: object, seconds: float, verdict: str) -> None:
    _, finding = judge(target(feed, seconds), b"")
    assert finding is not None
    assert verdict in finding.what


def test_two_bugs_behind_one_error_are_distinguished() -> None:
    def broken(data: bytes) -> Hashable:
        raise WhichGpuError("internal", msg("error.internal", what=data.decode()), msg("hint.internal"))

    run = Run(target(broken))
    for data in (b"KeyError", b"KeyError", b"ValueError"):
        run.feed(data)
    assert len(run.findings) == 2


def test_a_refusal_in_our_words_is_no_finding() -> None:
    assert judge(target(refuses), b"") == (("bad-date", "error.bad-date"), None)
