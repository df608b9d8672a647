"""What a simulated load amounts to: latencies by percentile, throughput, goodput, concurrency."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from whichgpu.estimate.serving.load import Load
from whichgpu.estimate.serving.simulator import SimulationOutcome

Array = np.ndarray
PERCENTILES = (50.0, 90.0, 99.0)
WARM_UP_SHARE = 0.1  # of drawn requests: they meet an empty server
MIN_REQUESTS_BEYOND = 10  # requests that must lie beyond a percentile for it to mean something
BATCH_POINTS = 12


@dataclass(frozen=True, slots=True)
class LatencyPercentiles:
    """Seconds by percentile, in the order of `Summary.percentiles`, and on average."""

    at: tuple[float, ...]
    mean: float


@dataclass(frozen=True, slots=True)
class BatchSizeBand:
    """Seconds between a sequence's tokens while so many were at work in one batch, and the share of the time they were."""

    batch: int
    tpot: float
    share: float


@dataclass(frozen=True, slots=True)
class Summary:
    """Of one run. Rates are per second, over the time in which requests came (all of it where they came at once)."""

    requests: int  # those counted
    percentiles: tuple[float, ...]
    ttft: LatencyPercentiles
    tpot: LatencyPercentiles
    latency: LatencyPercentiles
    throughput: float  # output tokens
    answered_rate: float  # requests
    goodput: float | None  # requests that met every objective
    met: float | None  # share of requests that did
    mean_batch: float
    concurrency: tuple[BatchSizeBand, ...]
    growing: bool  # the queue kept growing while requests came


def summarise(
    outcome: SimulationOutcome,
    load: Load | None = None,
    ttft_max: float | None = None,
    tpot_max: float | None = None,
    percentiles: tuple[float, ...] = PERCENTILES,
    latency_max: float | None = None,
    bands: bool = True,
) -> Summary:
    """Of a run; drawn loads without the first requests. Without `bands` it is not told how batches of each size did."""
    count = len(outcome.arrived)
    start = int(WARM_UP_SHARE * count) if load is not None and load.steady else 0
    chosen = outcome.answered & (np.arange(count) >= start)
    ttft = (outcome.first - outcome.arrived)[chosen]
    whole = (outcome.finished - outcome.arrived)[chosen]
    more = outcome.outputs[chosen] > 1
    tpot = (outcome.finished - outcome.first)[chosen] / np.maximum(1, outcome.outputs[chosen] - 1)
    counted = tpot[more] if more.any() else np.zeros(1)
    tokens, rate = _rates(outcome, start)
    met = None
    asked = (ttft, ttft_max), (tpot, tpot_max), (whole, latency_max)
    if any(most is not None for _, most in asked):
        good = np.logical_and.reduce([np.less_equal(found, np.inf if most is None else most) for found, most in asked])
        met = float(good.mean()) if len(good) else 0.0
    steps = outcome.batch_steps
    return Summary(
        requests=int(chosen.sum()),
        percentiles=percentiles,
        ttft=_latency(ttft, percentiles),
        tpot=_latency(counted, percentiles),
        latency=_latency(whole, percentiles),
        throughput=tokens,
        answered_rate=rate,
        goodput=None if met is None else met * rate,
        met=met,
        mean_batch=float((np.arange(len(steps)) * outcome.batch_seconds).sum() / max(1e-12, outcome.batch_seconds.sum())),
        concurrency=concurrency(outcome) if bands else (),
        growing=_growing(outcome, start),
    )


def enough_requests(requests: int, percentile: float) -> bool:
    """Whether so many requests tell a percentile: some must lie beyond it.

    >>> enough_requests(1000, 99), enough_requests(999, 99), enough_requests(100, 90)
    (True, False, True)
    """
    return requests * (100.0 - percentile) / 100.0 >= MIN_REQUESTS_BEYOND - 1e-9


def concurrency(outcome: SimulationOutcome) -> tuple[BatchSizeBand, ...]:
    """Seconds between tokens by the size of the batch, in a few bands; the prompts of others are in them."""
    steps, seconds = outcome.batch_steps, outcome.batch_seconds
    sizes = np.flatnonzero(steps[1:]) + 1
    if not len(sizes):
        return ()
    edges = np.unique(np.round(np.geomspace(1, sizes[-1] + 1, BATCH_POINTS + 1)).astype(int))
    found = []
    for low, high in pairwise(edges.tolist()):
        band = np.arange(low, high)
        turns = steps[band].sum()
        if turns:
            typical = round(float((band * steps[band]).sum() / turns))
            found.append(BatchSizeBand(typical, float(seconds[band].sum() / turns), float(seconds[band].sum() / seconds.sum())))
    return tuple(found)


def _latency(values: Array, percentiles: tuple[float, ...]) -> LatencyPercentiles:
    if not len(values):
        return LatencyPercentiles(tuple(0.0 for _ in percentiles), 0.0)
    last = len(values) - 1  # as `np.percentile` does it, in a fifth of its time
    at = np.interp(np.array(percentiles) / 100.0 * last, np.arange(last + 1), np.sort(values))
    return LatencyPercentiles(tuple(at.tolist()), float(values.mean()))


def _rates(outcome: SimulationOutcome, start: int) -> tuple[float, float]:
    """Output tokens and answers a second: from first to last arrival counted; to the last answer where all came at once."""
    done = outcome.answered
    if not done.any():
        return 0.0, 0.0
    begin, end = float(outcome.arrived[start]), float(outcome.arrived[-1])
    inside = done & (outcome.finished > begin) & (outcome.finished <= end)
    if end - begin < 0.5 * (float(outcome.finished.max()) - begin) or not inside.any():
        begin, end = float(outcome.arrived[0]), float(outcome.finished.max())
        inside = done
    seconds = max(1e-12, end - begin)
    return float(outcome.outputs[inside].sum() / seconds), float(inside.sum() / seconds)


def _growing(outcome: SimulationOutcome, start: int) -> bool:
    """Whether those who came late waited much longer than those who came in the middle: a queue without end."""
    done = np.flatnonzero(outcome.answered)
    done = done[done >= start]
    if len(done) < 40:
        return False
    waits = (outcome.first - outcome.arrived)[done]
    third = len(done) // 3
    middle, last = float(np.median(waits[third : 2 * third])), float(np.median(waits[2 * third :]))
    stay = float(np.median((outcome.finished - outcome.first)[done]))
    return last > 1.5 * middle and last - middle > 0.25 * stay
