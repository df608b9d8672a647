"""Summary of a simulated load: latencies by percentile, throughput, goodput, batch sizes."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import numpy as np

from whichgpu.estimate.serving.load import Load
from whichgpu.estimate.serving.simulator import SimulationOutcome

Array = np.ndarray
PERCENTILES = (50.0, 90.0, 99.0)
WARM_UP_SHARE = 0.1  # share of the first drawn requests, left out because they meet an empty server (assumed)
MIN_REQUESTS_BEYOND = 10  # requests that must lie beyond a percentile for it to be reported without a warning (assumed)
MAX_BATCH_BANDS = 12  # rows of the table of time by batch size (assumed)
MIN_REQUESTS_FOR_TREND = 40  # finished requests needed to judge whether the queue grows (assumed)


class LatencyPercentiles(msgspec.Struct, frozen=True):
    """Seconds by percentile, in the order of `Summary.percentiles`, and their mean."""

    at: tuple[float, ...]
    mean: float


class BatchSizeBand(msgspec.Struct, frozen=True):
    """TPOT in seconds at about `batch` running sequences, and the share of time with that many."""

    batch: int
    tpot: float
    share: float


class Summary(msgspec.Struct, frozen=True):
    """Summary of one simulation; rates are per second while requests arrived, or over all of it if they arrived at once."""

    requests: int  # number of requests after the warm-up
    percentiles: tuple[float, ...]
    ttft: LatencyPercentiles
    tpot: LatencyPercentiles
    latency: LatencyPercentiles
    throughput: float  # output tokens per second
    answered_rate: float  # finished requests per second
    goodput: float | None  # requests per second that met every objective
    met: float | None  # share of requests that met every objective
    mean_batch: float
    concurrency: tuple[BatchSizeBand, ...]
    growing: bool  # the waiting queue kept growing while requests arrived


def summarise(
    outcome: SimulationOutcome,
    load: Load | None = None,
    ttft_max: float | None = None,
    tpot_max: float | None = None,
    percentiles: tuple[float, ...] = PERCENTILES,
    latency_max: float | None = None,
    bands: bool = True,
) -> Summary:
    """Return latencies and rates of a simulation without its warm-up if arrivals were drawn; `bands` adds TPOT by batch size."""
    count = len(outcome.arrived)
    start = warm_up(load, count)
    chosen = outcome.answered & (np.arange(count) >= start)
    ttft = (outcome.first - outcome.arrived)[chosen]
    latency = (outcome.finished - outcome.arrived)[chosen]
    several = outcome.outputs[chosen] > 1
    tpot = (outcome.finished - outcome.first)[chosen] / np.maximum(1, outcome.outputs[chosen] - 1)
    tokens, rate = _rates(outcome, start)
    met = None
    limits = (ttft, ttft_max), (tpot, tpot_max), (latency, latency_max)
    if any(limit is not None for _, limit in limits):
        good = np.logical_and.reduce([np.less_equal(values, np.inf if limit is None else limit) for values, limit in limits])
        met = float(good.mean()) if len(good) else 0.0
    seconds = outcome.batch_seconds
    return Summary(
        requests=int(chosen.sum()),
        percentiles=percentiles,
        ttft=_percentiles(ttft, percentiles),
        tpot=_percentiles(tpot[several] if several.any() else np.zeros(1), percentiles),
        latency=_percentiles(latency, percentiles),
        throughput=tokens,
        answered_rate=rate,
        goodput=None if met is None else met * rate,
        met=met,
        mean_batch=float((np.arange(len(seconds)) * seconds).sum() / max(1e-12, seconds.sum())),
        concurrency=batch_size_bands(outcome) if bands else (),
        growing=_growing(outcome, start),
    )


def warm_up(load: Load | None, requests: int) -> int:
    """Return how many of the first requests of a simulation are not counted: none unless their arrival times are drawn."""
    return int(WARM_UP_SHARE * requests) if load is not None and load.steady else 0


def enough_requests(requests: int, percentile: float) -> bool:
    """Whether there are enough requests for a percentile: some must lie beyond it.

    >>> enough_requests(1000, 99), enough_requests(999, 99), enough_requests(100, 90)
    (True, False, True)
    """
    return requests * (100.0 - percentile) / 100.0 >= MIN_REQUESTS_BEYOND - 1e-9


def batch_size_bands(outcome: SimulationOutcome) -> tuple[BatchSizeBand, ...]:
    """Return the TPOT by number of running sequences, in a few bands; it includes prefills of other requests."""
    steps, seconds = outcome.batch_steps, outcome.batch_seconds
    sizes = np.flatnonzero(steps[1:]) + 1
    if not len(sizes):
        return ()
    edges = np.unique(np.round(np.geomspace(1, sizes[-1] + 1, MAX_BATCH_BANDS + 1)).astype(int))
    bands = []
    for low, high in pairwise(edges.tolist()):
        band = np.arange(low, high)
        turns = steps[band].sum()
        if turns:
            typical = round(float((band * steps[band]).sum() / turns))
            bands.append(BatchSizeBand(typical, float(seconds[band].sum() / turns), float(seconds[band].sum() / seconds.sum())))
    return tuple(bands)


def _percentiles(values: Array, percentiles: tuple[float, ...]) -> LatencyPercentiles:
    if not len(values):
        return LatencyPercentiles(tuple(0.0 for _ in percentiles), 0.0)
    last = len(values) - 1  # This equals `np.percentile` but takes a fifth of its time.
    at = np.interp(np.array(percentiles) / 100.0 * last, np.arange(last + 1), np.sort(values))
    return LatencyPercentiles(tuple(at.tolist()), float(values.mean()))


def _rates(outcome: SimulationOutcome, start: int) -> tuple[float, float]:
    """Return output tokens and finished requests per second, up to the last arrival, or the last finish if all came at once."""
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
    """Whether late requests waited much longer than those in the middle, so that the queue grows without end."""
    done = np.flatnonzero(outcome.answered)
    done = done[done >= start]
    if len(done) < MIN_REQUESTS_FOR_TREND:
        return False
    waits = (outcome.first - outcome.arrived)[done]
    third = len(done) // 3
    middle, last = _median(waits[third : 2 * third]), _median(waits[2 * third :])
    stay = _median((outcome.finished - outcome.first)[done])
    return last > 1.5 * middle and last - middle > 0.25 * stay


def _median(values: Array) -> float:
    """Return the middle one of some numbers; `np.median` would import numpy.ma, which takes 15 ms."""
    ordered, count = np.sort(values), len(values)
    return float((ordered[(count - 1) // 2] + ordered[count // 2]) / 2)
