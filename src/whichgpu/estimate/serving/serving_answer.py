"""Serving under load as figures with ranges: latencies, throughput, and remaining capacity."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from whichgpu.base.errors import NoAnswer
from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message, msg
from whichgpu.estimate.serving.curve import (
    SATURATED_SHARE,
    Objectives,
    RatePoint,
    allowed_rate,
    saturation_rate,
    throughput_curve,
)
from whichgpu.estimate.serving.load import Load, mean_lengths
from whichgpu.estimate.serving.load_screen import LoadScreen, screen_load
from whichgpu.estimate.serving.scheduler_limits import SchedulerLimits
from whichgpu.estimate.serving.server import Server
from whichgpu.estimate.serving.simulator import SimulationOutcome
from whichgpu.estimate.serving.summary import BatchSizeBand, Summary, enough_requests, summarise

SOURCE = "serving-simulation"
Progress = Callable[[float], None]  # called with the share of the work that is done


class LoadOrigin(msgspec.Struct, frozen=True):
    """Parameters of a load: drawn from a seed, or read from a trace."""

    rate: float
    requests: int
    trace: str | None
    seed: int
    burstiness: float
    mean_prompt: float
    mean_output: float


class ServingAnswer(msgspec.Struct, frozen=True):
    """Result of serving a load: times in seconds by percentile (`p50` …) and `mean`; rates per second over all GPUs."""

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


class StepRange(msgspec.Struct, frozen=True):
    """Derives the range of a result from the 90% range of step times; `like` is a step time with its range."""

    like: Figure

    @property
    def factors(self) -> tuple[float, float]:
        """Ratios of the fastest and of the slowest step time to the typical one."""
        return self.like.relative_range

    def figure(self, values: Sequence[float], unit: str) -> Figure:
        """Return a figure of the first value, with the lowest and the highest of all values as its range."""
        return Figure(values[0], min(values), max(values), unit, self.like.basis, (*self.like.sources, SOURCE))

    def time(self, seconds: float) -> Figure:
        """Return a figure of seconds that are proportional to the step times."""
        return self.figure((seconds, *(seconds * factor for factor in self.factors)), "s")

    def rate(self, rate: float) -> Figure:
        """Return a figure of requests per second, inversely proportional to the step times."""
        return self.figure((rate, *(rate / factor for factor in self.factors)), "requests/s")


def serving_answer(
    server: Server, load: Load, goals: Objectives, like: Figure, drawn: bool = True, progress: Progress | None = None
) -> ServingAnswer:
    """Simulate a load with typical, fastest and slowest steps (range of `like`, a step time); `drawn` adds the latency curve."""
    steps = StepRange(like)
    runs: list[tuple[SimulationOutcome, Summary]] = []
    for index, factor in enumerate((1.0, *steps.factors)):
        own = server if factor == 1.0 else server.scaled(factor)
        outcome = own.run(load.arrivals(), hash_tokens=load.hash_tokens)
        if not outcome.answered.any():
            raise NoAnswer("all-refused", msg("serving.refused", n=outcome.refused, requests=len(outcome.arrived)))
        one = summarise(outcome, load, goals.ttft_max, goals.tpot_max, goals.percentiles, goals.latency_max)
        runs.append((outcome, one))
        if progress:
            progress((index + 1) / 6)
    outcome, summary = runs[0]
    limit = saturation_rate(server, load)
    rest = (lambda done: progress(0.5 + done / 2)) if progress else None
    curve = throughput_curve(server, load, goals, limit, rest) if drawn else None
    saturated = summary.growing or load.rate > SATURATED_SHARE * limit
    ttft, tpot = _unloaded_latency(server, outcome)
    trace = load.trace.name if load.trace else None
    return ServingAnswer(
        load=LoadOrigin(load.rate, len(outcome.arrived), trace, load.seed, load.burstiness, *mean_lengths(load)),
        copies=server.replicas,
        routing="least",
        limits=server.limits,
        ttft_no_load=steps.time(ttft),
        tpot_no_load=steps.time(tpot),
        **summary_figures([one for _, one in runs], steps, goals),
        met=summary.met,
        saturated=saturated,
        sustainable_rate=steps.rate(limit),
        allowed_rate=_capacity(server, load, goals, limit, steps, curve.allowed) if curve and curve.allowed is not None else None,
        busy=outcome.busy,
        mean_batch=summary.mean_batch,
        peak_cache=outcome.peak_cache,
        preempted=outcome.preempted,
        refused=outcome.refused,
        cached_share=outcome.cached / max(1, int(outcome.prompts.sum())),
        screen=screen_load(server, load),
        concurrency=summary.concurrency,
        curve=curve.points if curve else (),
        warnings=tuple(_warnings(outcome, summary, load, limit, saturated, goals)),
    )


def _capacity(server: Server, load: Load, goals: Objectives, limit: float, steps: StepRange, typical: float) -> Figure:
    """Return the highest requests/s at which the objectives hold, with a range from the fastest and slowest steps."""
    ends = [allowed_rate(server.scaled(factor), load, goals, limit / factor) for factor in steps.factors]
    return steps.figure((typical, *ends), "requests/s")


def _unloaded_latency(server: Server, outcome: SimulationOutcome) -> tuple[float, float]:
    """Return TTFT and TPOT in seconds of a request of mean length that has the server to itself."""
    done = outcome.answered
    prompt, output = round(float(outcome.prompts[done].mean())), max(2, round(float(outcome.outputs[done].mean())))
    alone = server.run([(0.0, max(1, prompt), output, ())])
    return float(alone.first[0]), float(alone.finished[0] - alone.first[0]) / (output - 1)


def summary_figures(runs: Sequence[Summary], steps: StepRange, goals: Objectives) -> dict[str, Any]:
    """Return fields of an answer: latencies and rates of the first simulation (`runs`), with a range over all of them."""
    names = [*(f"p{one:g}" for one in runs[0].percentiles), "mean"]
    figures: dict[str, Any] = {}
    for kind in ("ttft", "tpot", "latency"):
        rows = [[*getattr(one, kind).at, getattr(one, kind).mean] for one in runs]
        figures[kind] = {name: steps.figure(values, "s") for name, *values in zip(names, *rows, strict=True)}
    figures["throughput"] = steps.figure([one.throughput for one in runs], "output tokens/s")
    figures["answered_rate"] = steps.figure([one.answered_rate for one in runs], "requests/s")
    figures["goodput"] = steps.figure([one.goodput or 0.0 for one in runs], "requests/s") if goals.any else None
    return figures


def few_requests_warnings(summary: Summary) -> list[Message]:
    """Return a warning if there are too few requests for some percentiles."""
    few = tuple(f"p{one:g}" for one in summary.percentiles if not enough_requests(summary.requests, one))
    return [msg("serving.too-few", n=summary.requests, percentiles=few)] if few else []


def _warnings(
    outcome: SimulationOutcome, summary: Summary, load: Load, limit: float, saturated: bool, goals: Objectives
) -> list[Message]:
    requests = len(outcome.arrived)
    warnings = [msg("serving.saturated", rate=f"{load.rate:.3g}", most=f"{limit:.3g}")] if saturated else []
    warnings += few_requests_warnings(summary)
    if outcome.refused:
        warnings.append(msg("serving.refused", n=outcome.refused, requests=requests))
    if outcome.preempted:
        warnings.append(msg("serving.preempted", n=outcome.preempted, requests=requests))
    if summary.met is not None and summary.met < goals.percentile / 100:
        warnings.append(msg("serving.missed", met=f"{100 * summary.met:.0f}", percentile=f"{goals.percentile:g}"))
    return warnings
