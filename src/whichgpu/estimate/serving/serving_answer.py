"""Serving under load as figures with ranges: what users wait, what the server gets done, how much more it could take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from whichgpu.base.errors import NoAnswer
from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message, msg
from whichgpu.estimate.serving.curve import FULL, Objectives, RatePoint, saturation_rate, throughput_curve
from whichgpu.estimate.serving.load import Load, mean_lengths
from whichgpu.estimate.serving.load_screen import LoadScreen, screen_load
from whichgpu.estimate.serving.scheduler_limits import SchedulerLimits
from whichgpu.estimate.serving.server import Server
from whichgpu.estimate.serving.simulator import SimulationOutcome
from whichgpu.estimate.serving.summary import PERCENTILES, BatchSizeBand, LatencyPercentiles, Summary, enough_requests, summarise

SOURCE = "serving-simulation"
Told = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class LoadOrigin:
    """How a load was made: by a seed, or from a trace."""

    rate: float
    requests: int
    trace: str | None
    seed: int
    burstiness: float
    mean_prompt: float
    mean_output: float


@dataclass(frozen=True, slots=True)
class ServingAnswer:
    """Times are seconds by percentile (`p50` …) and `mean`; rates are per second over all GPUs."""

    load: LoadOrigin
    copies: int
    routing: str
    limits: SchedulerLimits
    ttft_no_load: Figure
    tpot_no_load: Figure
    ttft: Mapping[str, Figure]
    tpot: Mapping[str, Figure]
    latency: Mapping[str, Figure]
    throughput: Figure
    answered_rate: Figure
    goodput: Figure | None
    met: float | None
    saturated: bool
    sustainable_rate: Figure
    allowed_rate: Figure | None
    busy: float
    mean_batch: float
    peak_cache: float
    preempted: int
    refused: int
    cached_share: float
    screen: LoadScreen
    concurrency: tuple[BatchSizeBand, ...]
    curve: tuple[RatePoint, ...]
    warnings: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class StepRange:
    """The 90% range of step times as factors, and what they rest on."""

    like: Figure

    @property
    def factors(self) -> tuple[float, float]:
        """Of the fastest and the slowest."""
        return self.like.relative_range

    def figure(self, value: float, low: float, high: float, unit: str) -> Figure:
        """A value between what fast and slow steps give, in whichever order they come."""
        ends = min(low, high, value), max(low, high, value)
        return Figure(value, *ends, unit, self.like.basis, (*self.like.sources, SOURCE))


def serving_answer(
    server: Server, load: Load, goals: Objectives, like: Figure, drawn: bool = True, progress: Told | None = None
) -> ServingAnswer:
    """Simulate a load, also with steps as fast and as slow as they may be; `drawn`: with the curve."""
    spread = StepRange(like)
    percentiles = tuple(sorted({*PERCENTILES, goals.percentile})) if goals.any else PERCENTILES
    runs: list[tuple[SimulationOutcome, Summary]] = []
    for place, factor in enumerate((1.0, *spread.factors)):
        own = server if factor == 1.0 else server.scaled(factor)
        outcome = own.run(load.arrivals(), hash_tokens=load.hash_tokens)
        if not outcome.answered.any():
            raise NoAnswer("all-refused", msg("serving.refused", n=outcome.refused, requests=len(outcome.arrived)))
        runs.append((outcome, summarise(outcome, load, goals.ttft_max, goals.tpot_max, percentiles, goals.latency_max)))
        if progress:
            progress((place + 1) / 6)
    (outcome, told), (_, fast), (_, slow) = runs
    limit = saturation_rate(server, load)
    low, high = spread.factors
    whole = throughput_curve(server, load, goals, limit, progress=_second_half(progress)) if drawn else None
    allowed = _allowed(server, load, goals, limit, spread, whole.allowed) if whole and whole.allowed is not None else None
    saturated = told.growing or load.rate > FULL * limit
    ttft, tpot = _alone(server, outcome)
    return ServingAnswer(
        load=LoadOrigin(
            load.rate,
            len(outcome.arrived),
            load.trace.name if load.trace else None,
            load.seed,
            load.burstiness,
            *mean_lengths(load),
        ),
        copies=server.copies,
        routing="least",
        limits=server.limits,
        ttft_no_load=spread.figure(ttft, ttft * low, ttft * high, "s"),
        tpot_no_load=spread.figure(tpot, tpot * low, tpot * high, "s"),
        ttft=latency_figures((told, fast, slow), lambda one: one.ttft, spread),
        tpot=latency_figures((told, fast, slow), lambda one: one.tpot, spread),
        latency=latency_figures((told, fast, slow), lambda one: one.latency, spread),
        throughput=spread.figure(told.throughput, slow.throughput, fast.throughput, "output tokens/s"),
        answered_rate=spread.figure(told.answered_rate, slow.answered_rate, fast.answered_rate, "requests/s"),
        goodput=None if told.goodput is None else spread.figure(told.goodput, slow.goodput or 0, fast.goodput or 0, "requests/s"),
        met=told.met,
        saturated=saturated,
        sustainable_rate=spread.figure(limit, limit / high, limit / low, "requests/s"),
        allowed_rate=allowed,
        busy=outcome.busy,
        mean_batch=told.mean_batch,
        peak_cache=outcome.peak_cache,
        preempted=outcome.preempted,
        refused=outcome.refused,
        cached_share=outcome.cached / max(1, int(outcome.prompts.sum())),
        screen=screen_load(server, load),
        concurrency=told.concurrency,
        curve=whole.points if whole else (),
        warnings=tuple(_warnings(outcome, told, load, limit, saturated, goals)),
    )


def _second_half(progress: Told | None) -> Told | None:
    return (lambda done: progress(0.5 + done / 2)) if progress else None


def _allowed(server: Server, load: Load, goals: Objectives, limit: float, spread: StepRange, found: float) -> Figure:
    """The largest rate under the objectives, also with steps as fast and as slow as they may be."""
    ends = [throughput_curve(server.scaled(factor), load, goals, limit / factor).allowed or 0.0 for factor in spread.factors]
    return spread.figure(found, ends[1], ends[0], "requests/s")


def _alone(server: Server, outcome: SimulationOutcome) -> tuple[float, float]:
    """Seconds to the first token and between tokens of a request of mean length with the server to itself."""
    done = outcome.answered
    prompt, output = round(float(outcome.prompts[done].mean())), max(2, round(float(outcome.outputs[done].mean())))
    alone = server.run([(0.0, max(1, prompt), output, ())])
    return float(alone.first[0]), float(alone.finished[0] - alone.first[0]) / (output - 1)


def latency_figures(
    summaries: Sequence[Summary], of: Callable[[Summary], LatencyPercentiles], spread: StepRange
) -> dict[str, Figure]:
    """A time by percentile and on average: of the first of the runs, between the least and the most of them all."""
    names = [*(f"p{one:g}" for one in summaries[0].percentiles), "mean"]
    rows = [[*of(one).at, of(one).mean] for one in summaries]
    return {name: spread.figure(values[0], min(values), max(values), "s") for name, *values in zip(names, *rows, strict=True)}


def _warnings(
    outcome: SimulationOutcome, told: Summary, load: Load, limit: float, saturated: bool, goals: Objectives
) -> list[Message]:
    """What a reader should know before using the numbers."""
    found = []
    if saturated:
        found.append(msg("serving.saturated", rate=f"{load.rate:.3g}", most=f"{limit:.3g}"))
    thin = [one for one in told.percentiles if not enough_requests(told.requests, one)]
    if thin:
        found.append(msg("serving.too-few", n=told.requests, percentiles=tuple(f"p{one:g}" for one in thin)))
    if outcome.refused:
        found.append(msg("serving.refused", n=outcome.refused, requests=len(outcome.arrived)))
    if outcome.preempted:
        found.append(msg("serving.preempted", n=outcome.preempted, requests=len(outcome.arrived)))
    if told.met is not None and told.met < goals.percentile / 100:
        found.append(msg("serving.missed", met=f"{100 * told.met:.0f}", percentile=f"{goals.percentile:g}"))
    return found
