"""Throughput-latency curve of a server, its saturation, and its capacity: the highest rate at which the objectives hold."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

import msgspec

from whichgpu.estimate.serving.early_stop import MissLimit
from whichgpu.estimate.serving.load import Load
from whichgpu.estimate.serving.load_screen import screen_load
from whichgpu.estimate.serving.server import Server
from whichgpu.estimate.serving.service_times import max_running
from whichgpu.estimate.serving.summary import PERCENTILES, Summary, summarise, warm_up

CURVE_SHARES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 0.97, 1.1)  # rates simulated, as shares of the saturating rate
MIN_REQUESTS, MAX_REQUESTS = 600, 3000  # requests simulated per rate: enough to fill the batch a few times (assumed)
FILLS = 3  # how often the batch is filled when saturation is simulated
SATURATED_SHARE = 0.98  # share of the saturating rate above which the queue never empties (assumed)
OBJECTIVE_MARGIN = 0.98  # share of an objective that must hold in simulation, to allow for sampling error (assumed)
MAX_BACK_STEPS, BACK_STEP = 8, 0.02  # steps down from a rate that misses the objectives, and their size as a share of the rate
BISECTIONS = 6  # halvings of the interval between a rate that holds the objectives and one that does not
FLOOD_FACTOR = 100.0  # arrival rate that floods a server, as a multiple of the saturating rate by formula


class RatePoint(msgspec.Struct, frozen=True):
    """Simulation of one request rate: latencies in seconds by percentile, and output tokens per second."""

    rate: float
    throughput: float
    ttft: tuple[float, ...]
    tpot: tuple[float, ...]
    latency: tuple[float, ...]
    mean_batch: float
    met: float | None
    saturated: bool


class ThroughputCurve(msgspec.Struct, frozen=True):
    """Simulated request rates, the saturating rate, and the highest rate that holds the objectives (None without objectives)."""

    points: tuple[RatePoint, ...]
    saturation: float
    allowed: float | None


class Objectives(msgspec.Struct, frozen=True):
    """Latency limits in seconds that `percentile` percent of the requests must meet; None is no limit."""

    ttft_max: float | None = None
    tpot_max: float | None = None
    percentile: float = 95.0
    latency_max: float | None = None

    @property
    def any(self) -> bool:
        """Whether any limit is set."""
        return not (self.ttft_max is None and self.tpot_max is None and self.latency_max is None)

    @property
    def percentiles(self) -> tuple[float, ...]:
        """Percentiles to report: the usual ones and that of the objectives."""
        return tuple(sorted({*PERCENTILES, self.percentile})) if self.any else PERCENTILES

    @property
    def with_margin(self) -> Objectives:
        """Objectives tightened by a margin for the sampling error of a few hundred or thousand requests."""
        limits = (self.ttft_max, self.tpot_max, self.latency_max)
        ttft, tpot, latency = (None if limit is None else OBJECTIVE_MARGIN * limit for limit in limits)
        return Objectives(ttft, tpot, self.percentile, latency)

    def hold(self, summary: Summary) -> bool:
        """Whether enough requests met the objectives and the waiting queue does not grow."""
        return summary.met is not None and summary.met >= self.percentile / 100.0 and not summary.growing

    def miss_limit(self, load: Load) -> MissLimit | None:
        """Return how many requests of a drawn load may miss a limit before the objectives cannot hold; None without limits."""
        if not self.any:
            return None
        start = warm_up(load, load.requests)
        return MissLimit.of(load.requests, start, self.percentile, self.ttft_max, self.tpot_max, self.latency_max)


def saturation_rate(server: Server, load: Load) -> float:
    """Return the requests per second that a flooded server answers; simulated, because KV cache and chunks determine it."""
    screen = screen_load(server, load)
    count = max(MIN_REQUESTS, min(4 * MAX_REQUESTS, FILLS * screen.slots * server.batches + MIN_REQUESTS))
    if load.trace is not None:  # More requests are simulated: the beginning may not be typical.
        count = max(count, min(4 * MAX_REQUESTS, len(load.trace)))
    flood = load.at(FLOOD_FACTOR * screen.saturation, count).arrivals()
    outcome = server.run(((0.0, prompt, output, hashes) for _, prompt, output, hashes in flood), hash_tokens=load.hash_tokens)
    # Only the middle half of the finished requests counts: batches fill up before it and run empty after it.
    ends: list[float] = sorted(outcome.finished[outcome.answered].tolist())
    low, high = int(0.25 * len(ends)), int(0.75 * len(ends))
    if high - low < 2 or ends[high] <= ends[low]:
        return screen.saturation
    return (high - low) / (ends[high] - ends[low])


def throughput_curve(
    server: Server, load: Load, goals: Objectives, limit: float | None = None, progress: Callable[[float], None] | None = None
) -> ThroughputCurve:
    """Simulate several shares of the saturating rate (`limit` in requests/s; None finds it), and find the capacity."""
    limit = limit or saturation_rate(server, load)
    points = []
    for index, share in enumerate(CURVE_SHARES):
        points.append(rate_point(server, load, share * limit, goals, limit))
        if progress:
            progress((index + 1) / (len(CURVE_SHARES) + (BISECTIONS if goals.any else 0)))
    return ThroughputCurve(tuple(points), limit, _capacity(server, load, goals, points, limit) if goals.any else None)


def rate_point(server: Server, load: Load, rate: float, goals: Objectives, limit: float) -> RatePoint:
    """Return latencies and throughput simulated at `rate` requests per second; `limit` is the saturating rate."""
    one = _simulate_rate(server, load, rate, goals)
    saturated = one.growing or rate > SATURATED_SHARE * limit
    return RatePoint(rate, one.throughput, one.ttft.at, one.tpot.at, one.latency.at, one.mean_batch, one.met, saturated)


def _simulate_rate(server: Server, load: Load, rate: float, goals: Objectives) -> Summary:
    part = _load_at(server, load, rate, MIN_REQUESTS)
    outcome = server.run(part.arrivals(), hash_tokens=load.hash_tokens)
    return summarise(outcome, part, goals.ttft_max, goals.tpot_max, latency_max=goals.latency_max)


def _holds(server: Server, load: Load, rate: float, goals: Objectives, requests: int = MIN_REQUESTS) -> bool:
    """Whether the objectives hold at `rate` requests per second, by a simulation that ends once they no longer can."""
    part = _load_at(server, load, rate, requests)
    outcome = server.run(part.arrivals(), hash_tokens=load.hash_tokens, misses=goals.miss_limit(part))
    return outcome.complete and goals.hold(
        summarise(outcome, part, goals.ttft_max, goals.tpot_max, latency_max=goals.latency_max, bands=False)
    )


def _load_at(server: Server, load: Load, rate: float, requests: int) -> Load:
    """Return the load at another rate, with enough requests to fill the batch a few times."""
    slots = server.batch_limits.max_sequences
    if load.trace is None:
        slots = max_running(server.batch_limits, load.prompts.mean, load.outputs.mean)
    return load.at(rate, max(requests, min(MAX_REQUESTS, 2 * slots * server.batches)))


def _capacity(server: Server, load: Load, goals: Objectives, points: list[RatePoint], limit: float) -> float:
    """Return the highest rate (requests/s) at which the objectives hold; 0 if they never do."""
    return _checked_rate(server, load, goals, _bisected_rate(server, load, goals, points, limit))


def _checked_rate(server: Server, load: Load, goals: Objectives, rate: float) -> float:
    """Return the rate, or a little less, that holds the objectives with many requests and a margin.

    In a short simulation objectives may hold by chance.
    """
    for _ in range(MAX_BACK_STEPS):
        if not rate or _holds(server, load, rate, goals.with_margin, MAX_REQUESTS):
            break
        rate *= 1.0 - BACK_STEP
    return rate


def allowed_rate(server: Server, load: Load, goals: Objectives, limit: float) -> float:
    """Return the highest rate (requests/s) at which the objectives hold, without the curve: a few of its rates are simulated."""
    rates = [share * limit for share in CURVE_SHARES if share <= SATURATED_SHARE]
    misses = bisect_left(rates, True, key=lambda rate: not _holds(server, load, rate, goals))
    low, high = rates[misses - 1] if misses else 0.0, rates[misses] if misses < len(rates) else limit
    return _checked_rate(server, load, goals, _bisected(server, load, goals, low, high))


def _bisected_rate(server: Server, load: Load, goals: Objectives, points: list[RatePoint], limit: float) -> float:
    """Return a rate (requests/s) between the last point that holds the objectives and the next, below saturation.

    Above saturation a short simulation may seem to hold the objectives because its queue has not grown yet.
    """
    holding = (one.rate for one in points if one.met is not None and one.met >= goals.percentile / 100 and not one.saturated)
    low = max(holding, default=0.0)
    return _bisected(server, load, goals, low, min(limit, points[-1].rate, *(one.rate for one in points if one.rate > low)))


def _bisected(server: Server, load: Load, goals: Objectives, low: float, high: float) -> float:
    """Return the highest rate (requests/s) found to hold the objectives between `low`, which does, and `high`."""
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if _holds(server, load, middle, goals) else (low, middle)
    return low
