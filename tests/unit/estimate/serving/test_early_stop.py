"""Simulations end early only if their objectives cannot hold, and their verdict is that of the whole simulation."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.serving_cases import DEFAULT_LIMITS, linear
from whichgpu.estimate.serving.curve import Objectives
from whichgpu.estimate.serving.early_stop import MissLimit
from whichgpu.estimate.serving.load import Lengths, Load
from whichgpu.estimate.serving.scheduler import RequestLog
from whichgpu.estimate.serving.summary import summarise


def log_of(*requests: tuple[float, int, float, float]) -> RequestLog:
    """Return a log of requests: arrival, output tokens, first token and finish in seconds, -1 before they happen."""
    log = RequestLog()
    for number, (arrived, outputs, first, finished) in enumerate(requests):
        log.add(arrived, 10, outputs)
        log.first[number], log.finished[number] = first, finished
    return log


@pytest.mark.parametrize(
    ("limits", "request_times", "missed"),
    [
        ({"ttft_max": 1.0}, (0.0, 5, 0.9, 9.0), False),
        ({"ttft_max": 1.0}, (0.0, 5, 1.1, 9.0), True),
        ({"ttft_max": 1.0}, (8.5, 5, -1.0, -1.0), False),  # It may still get its first token in time.
        ({"ttft_max": 1.0}, (8.0, 5, -1.0, -1.0), True),  # Its first token, if it comes now, is late.
        ({"tpot_max": 0.1}, (0.0, 11, 1.0, 1.9), False),
        ({"tpot_max": 0.1}, (0.0, 11, 1.0, 2.1), True),
        ({"tpot_max": 0.1}, (0.0, 11, 1.0, -1.0), False),  # Only a finished request has a time per output token.
        ({"latency_max": 5.0}, (0.0, 5, 1.0, 4.9), False),
        ({"latency_max": 5.0}, (3.5, 5, 4.0, -1.0), True),
        ({}, (0.0, 5, 8.0, 9.0), False),
    ],
)
def test_only_final_misses_count(limits: dict[str, float], request_times: tuple[float, int, float, float], missed: bool) -> None:
    none_may_miss = MissLimit.of(1, 0, 100.0, **limits)
    assert none_may_miss.exceeded(log_of(request_times), now=9.0, outside=0.05) is missed


def test_warm_up_is_not_counted_and_the_percentile_is_allowed_to_miss() -> None:
    late, early = (0.0, 5, 5.0, 9.0), (0.0, 5, 0.5, 9.0)
    limit = MissLimit.of(22, 2, 95.0, ttft_max=1.0)  # One in twenty may be late.
    assert not limit.exceeded(log_of(late, late, late, *[early] * 19), 9.0, 0.0)
    assert limit.exceeded(log_of(late, late, late, late, *[early] * 18), 9.0, 0.0)


def test_refused_requests_miss_nothing() -> None:
    log = log_of((0.0, 5, -1.0, -1.0))
    log.refused.append(0)
    assert not MissLimit.of(1, 0, 100.0, ttft_max=1.0).exceeded(log, 9.0, 0.0)


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("goals", [Objectives(ttft_max=0.05), Objectives(tpot_max=0.0035), Objectives(latency_max=0.2)])
def test_the_verdict_is_that_of_the_whole_simulation(goals: Objectives, stages: int) -> None:
    server = linear(replace(DEFAULT_LIMITS, request_latency=0.005), stages=stages, token=1e-5, sequence=2e-4)
    verdicts, ended_early = set(), 0
    for rate in (5.0, 40.0, 80.0, 120.0, 200.0, 400.0):
        load = Load(rate, Lengths(100, 0.5), Lengths(40, 0.5), 600, seed=3)
        summary = summarise(server.run(load.arrivals()), load, goals.ttft_max, goals.tpot_max, latency_max=goals.latency_max)
        stopped = server.run(load.arrivals(), misses=goals.miss_limit(load))
        assert stopped.complete or not goals.hold(summary)
        verdicts.add(goals.hold(summary))
        ended_early += not stopped.complete
    assert verdicts == {True, False}
    assert ended_early
