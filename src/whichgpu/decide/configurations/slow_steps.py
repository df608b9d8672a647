"""A simulated replica whose steps are slower or faster than estimated: its latencies, and how likely its objectives hold."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from whichgpu.decide.configurations.configuration import ReplicaSimulation
from whichgpu.decide.configurations.ranges import TimeRange
from whichgpu.estimate.serving.service_times import ServiceTimes
from whichgpu.estimate.serving.tpot_tail import scaled_waits, tpot_tail
from whichgpu.workload.workload import Workload

MIN_HEADROOM = 1.15  # A service of low risk sustains at least this many times its request rate, however narrow the range is.
SAFE_PROBABILITY = 0.9  # Probability with which a candidate of low risk keeps its limits (set by judgement).
FARTHEST = 0.999  # Slower steps than at this quantile are not tried.
BISECTIONS = 8  # The largest slowdown is found to within 1/256 of the interval's logarithm.
Waits = tuple[float, float]  # TTFT and TPOT in seconds
BACKLOG_REQUESTS = 400  # Requests that have arrived when the wait behind a growing queue is stated, as many as are simulated.


def waits_with(workload: Workload, times: ServiceTimes, latencies: ReplicaSimulation, factor: float) -> Waits:
    """Return TTFT and TPOT in seconds if steps take `factor` times as long."""
    now = latencies.ttft, latencies.tpot
    return scaled_waits(times, latencies.rate, workload.percentile, now, factor, BACKLOG_REQUESTS, latencies.replicas)


def holds_with(workload: Workload, times: ServiceTimes, latencies: ReplicaSimulation, factor: float) -> bool:
    """Return whether the objectives hold, and the queue does not grow, if steps take `factor` times as long."""
    if factor == 1.0:
        return True
    if latencies.rate * factor > max(times.saturation, latencies.rate):
        return False
    ttft, tpot = waits_with(workload, times, latencies, factor)
    return _within(ttft, workload.ttft_max) and _within(tpot, workload.tpot_max)


def may_hold_with(
    workload: Workload, times: ServiceTimes, rate: float, replicas: int, factor: float, leeway: float = 1.0
) -> bool:
    """Return whether one of `replicas`, each at a request rate, may keep its objectives if steps take `factor` times as long.

    Formulas say so; only then is it simulated. `leeway` is a factor on rate and limits.
    """
    if rate * factor > leeway * times.saturation or not _within(float(times.curve[1][0]) * factor, workload.ttft_max):
        return False
    limit = workload.tpot_max
    return limit is None or tpot_tail(times.scaled(factor), rate, workload.percentile, replicas) <= leeway * limit


def with_probability(
    latencies: ReplicaSimulation, evidence: TimeRange, holds: Callable[[float], bool], waits: Callable[[float], Waits],
    bisections: int = BISECTIONS,
) -> ReplicaSimulation:  # fmt: skip
    """Return the latencies with their 90% range, the largest slowdown within the objectives, and the probability of less.

    `holds` says whether the objectives hold if steps take a factor as long, `waits` gives TTFT and TPOT in seconds then.
    """
    low, high = latencies.max_slowdown, evidence.factor.quantile(FARTHEST)
    if holds(high):
        low = high
    else:
        for _ in range(bisections):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if holds(middle) else (low, middle)
    fast, slow = waits(evidence.low), waits(evidence.high)
    keeps = evidence.factor.probability_below(low)
    return replace(latencies, fast=fast, slow=slow, max_slowdown=low, keeps=keeps)


def _within(seconds: float, limit: float | None) -> bool:
    return limit is None or seconds <= limit
