"""The throughput-latency curve of a server, its saturation, and the largest rate that keeps the objectives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from whichgpu.estimate.serving.load import Load
from whichgpu.estimate.serving.load_screen import screen_load
from whichgpu.estimate.serving.server import Server
from whichgpu.estimate.serving.service_times import max_running
from whichgpu.estimate.serving.simulator import Arrival
from whichgpu.estimate.serving.summary import Summary, summarise

SHARES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 0.97, 1.1)  # of the saturating rate, at which the curve is drawn
LEAST, MOST = 600, 3000  # requests of a point: enough to fill the batch a few times over, no more than that takes
ROUNDS = 3  # times the slots are filled at saturation
FULL = 0.98  # of the saturating rate, from which no queue comes to rest
OBJECTIVE_MARGIN = 0.98  # of an objective: what so many requests may be off
CAUTIOUS, STEP = 8, 0.02  # steps back from there, and how far each goes
NARROWING = 6  # halvings that find the rate objectives allow
Told = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class RatePoint:
    """One rate and what it comes to; seconds, output tokens a second."""

    rate: float
    throughput: float
    ttft: tuple[float, ...]
    tpot: tuple[float, ...]
    latency: tuple[float, ...]
    mean_batch: float
    met: float | None
    saturated: bool


@dataclass(frozen=True, slots=True)
class ThroughputCurve:
    """Points by rate; requests a second at saturation, and those at which the objectives still hold (None without objectives)."""

    points: tuple[RatePoint, ...]
    saturation: float
    allowed: float | None


@dataclass(frozen=True, slots=True)
class Objectives:
    """Seconds not to be exceeded by so many percent of the requests."""

    ttft_max: float | None = None
    tpot_max: float | None = None
    percentile: float = 95.0
    latency_max: float | None = None

    @property
    def any(self) -> bool:
        """Whether there are some."""
        return not (self.ttft_max is None and self.tpot_max is None and self.latency_max is None)

    @property
    def spared(self) -> Objectives:
        """The same with a little to spare: what a few hundred or thousand requests may be off."""
        limits = (self.ttft_max, self.tpot_max, self.latency_max)
        ttft, tpot, latency = (None if most is None else OBJECTIVE_MARGIN * most for most in limits)
        return Objectives(ttft, tpot, self.percentile, latency)

    def hold(self, told: Summary) -> bool:
        """Whether enough requests met them."""
        return told.met is not None and told.met >= self.percentile / 100.0 and not told.growing


def saturation_rate(server: Server, load: Load) -> float:
    """Requests a second it answers when more wait than it can take: by simulation, since memory and chunks decide it."""
    told = screen_load(server, load)
    lanes = server.copies * server.stages
    count = max(LEAST, min(4 * MOST, ROUNDS * told.slots * lanes + LEAST))
    if load.trace is not None:  # its beginning need not be like the rest
        count = max(count, min(4 * MOST, len(load.trace)))
    flooded = load.at(100.0 * told.saturation, count)
    outcome = server.run(_at_once(flooded), hash_tokens=load.hash_tokens)
    # of all answers the middle: batches fill up before, and run dry after
    ends: list[float] = sorted(outcome.finished[outcome.answered].tolist())
    low, high = int(0.25 * len(ends)), int(0.75 * len(ends))
    if high - low < 2 or ends[high] <= ends[low]:
        return told.saturation
    return (high - low) / (ends[high] - ends[low])


def throughput_curve(
    server: Server, load: Load, goals: Objectives, most: float | None = None, progress: Told | None = None
) -> ThroughputCurve:
    """Simulated at shares of the saturating rate; between those that hold the objectives and those that do not, narrowed."""
    limit = most or saturation_rate(server, load)
    points = []
    for place, share in enumerate(SHARES):
        points.append(point(server, load, share * limit, goals, limit))
        if progress:
            progress((place + 1) / (len(SHARES) + (NARROWING if goals.any else 0)))
    return ThroughputCurve(tuple(points), limit, _allowed(server, load, goals, points, limit) if goals.any else None)


def point(server: Server, load: Load, rate: float, goals: Objectives, limit: float) -> RatePoint:
    """One rate, against that at which it saturates."""
    told = _simulated(server, load, rate, goals)
    full = told.growing or rate > FULL * limit
    return RatePoint(rate, told.throughput, told.ttft.at, told.tpot.at, told.latency.at, told.mean_batch, told.met, full)


def _simulated(server: Server, load: Load, rate: float, goals: Objectives, least: int = LEAST) -> Summary:
    lanes = server.copies * server.stages
    slots = max_running(server.lane, load.prompts.mean, load.outputs.mean) if load.trace is None else server.lane.max_sequences
    part = load.at(rate, max(least, min(MOST, 2 * slots * lanes)))
    outcome = server.run(part.arrivals(), hash_tokens=load.hash_tokens)
    return summarise(outcome, part, goals.ttft_max, goals.tpot_max, latency_max=goals.latency_max)


def _allowed(server: Server, load: Load, goals: Objectives, points: list[RatePoint], limit: float) -> float:
    """The largest rate at which the objectives hold; 0 where they never do.

    Few requests may only look as if they held: many are to say so, with a little to spare.
    """
    low = _narrowed(server, load, goals, points, limit)
    for _ in range(CAUTIOUS):
        if not low or goals.hold(_simulated(server, load, low, goals.spared, MOST)):
            break
        low *= 1.0 - STEP
    return low


def _narrowed(server: Server, load: Load, goals: Objectives, points: list[RatePoint], limit: float) -> float:
    """Between the last point that holds and the next.

    Never more than it can bear: above that, a drawn load that has not yet queued up only looks as if they held.
    """
    held = [one.rate for one in points if one.met is not None and one.met >= goals.percentile / 100 and not one.saturated]
    broken = [one.rate for one in points if one.rate > (max(held) if held else 0.0)]
    low, high = (max(held) if held else 0.0), min(limit, *broken, *(one.rate for one in points[-1:]))
    for _ in range(NARROWING):
        middle = (low + high) / 2
        low, high = (middle, high) if goals.hold(_simulated(server, load, middle, goals)) else (low, middle)
    return low


def _at_once(load: Load) -> Iterator[Arrival]:
    return ((0.0, prompt, output, hashes) for _, prompt, output, hashes in load.arrivals())
