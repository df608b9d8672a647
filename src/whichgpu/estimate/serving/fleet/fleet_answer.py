"""A fleet under load as figures with ranges: what users wait, what gets done, what machines do and for how long they are held."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from whichgpu.base.errors import NoAnswer
from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message, msg
from whichgpu.estimate.serving.curve import Objectives
from whichgpu.estimate.serving.fleet.event_loop import simulate_fleet
from whichgpu.estimate.serving.fleet.fleet_outcome import FleetOutcome, PoolUse, Transfers
from whichgpu.estimate.serving.fleet.pools import Fleet
from whichgpu.estimate.serving.load import Load
from whichgpu.estimate.serving.serving_answer import StepRange, latency_figures
from whichgpu.estimate.serving.summary import PERCENTILES, WARM_UP_SHARE, Summary, enough_requests, summarise

HOUR = 3600.0
Told = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class PoolAnswer:
    """Of one station; machines are its copies, hours those of them all over the time simulated."""

    name: str
    role: str
    copies: int
    gpus: int
    answered: int
    utilisation: Figure
    mean_batch: float
    peak_cache: float
    on_demand_hours: float
    spot_hours: float


@dataclass(frozen=True, slots=True)
class FleetAnswer:
    """Times are seconds by percentile and on average; rates are per second over the whole fleet; `hours` those simulated.

    `met` is the share of all requests, refused and lost ones too, that met every objective.
    """

    requests: int
    rate: float
    hours: float
    ttft: Mapping[str, Figure]
    tpot: Mapping[str, Figure]
    latency: Mapping[str, Figure]
    throughput: Figure
    answered_rate: Figure
    goodput: Figure | None
    met: Figure | None
    growing: bool
    refused: int
    lost: int
    retried: int
    interruptions: int
    preempted: int
    stations: tuple[PoolAnswer, ...]
    transfers: Transfers
    warnings: tuple[Message, ...]


def fleet_answer(
    fleet: Fleet, load: Load, goals: Objectives, like: Figure, ranges: bool = True, progress: Told | None = None
) -> FleetAnswer:
    """Simulate a load; with `ranges` also with steps as fast and as slow as they may be, `like` a time with the steps' range."""
    spread = StepRange(like)
    percentiles = tuple(sorted({*PERCENTILES, goals.percentile})) if goals.any else PERCENTILES
    factors = (1.0, *spread.factors) if ranges else (1.0,)
    runs: list[tuple[FleetOutcome, Summary, float]] = []
    for place, factor in enumerate(factors):
        outcome = simulate_fleet(fleet if factor == 1.0 else fleet.scaled(factor), load.arrivals(), load.hash_tokens)
        if not outcome.served.answered.any():
            raise NoAnswer("all-refused", msg("serving.refused", n=outcome.served.refused, requests=len(outcome.served.arrived)))
        told = summarise(outcome.served, load, goals.ttft_max, goals.tpot_max, percentiles, goals.latency_max)
        runs.append((outcome, told, share_within_objectives(outcome, goals, WARM_UP_SHARE if load.steady else 0.0)))
        if progress:
            progress((place + 1) / len(factors))
    return _answer(load, goals, runs, spread)


def share_within_objectives(outcome: FleetOutcome, goals: Objectives, empty: float = WARM_UP_SHARE) -> float:
    """Share of requests that met every objective, without the first ones: who was refused or lost did not."""
    served = outcome.served
    done = served.answered
    more = np.maximum(1, served.outputs - 1)
    values = (served.first - served.arrived, (served.finished - served.first) / more, served.finished - served.arrived)
    good = done.copy()
    for value, most in zip(values, (goals.ttft_max, goals.tpot_max, goals.latency_max), strict=True):
        if most is not None:
            good &= value <= most
    start = int(empty * len(done))
    return float(good[start:].mean()) if len(good) > start else 0.0


def _answer(load: Load, goals: Objectives, runs: list[tuple[FleetOutcome, Summary, float]], spread: StepRange) -> FleetAnswer:
    (outcome, told, met), summaries = runs[0], [one for _, one, _ in runs]

    def ranged(of: Callable[[Summary], float], unit: str) -> Figure:
        values = [of(one) for one in summaries]
        return spread.figure(values[0], min(values), max(values), unit)

    mets = [one for _, _, one in runs]
    answered = ranged(lambda one: one.answered_rate, "requests/s")
    goods = [one.goodput or 0.0 for one in summaries]  # of those answered, who met every objective
    return FleetAnswer(
        requests=len(outcome.served.arrived),
        rate=load.rate,
        hours=outcome.seconds / HOUR,
        ttft=latency_figures(summaries, lambda one: one.ttft, spread),
        tpot=latency_figures(summaries, lambda one: one.tpot, spread),
        latency=latency_figures(summaries, lambda one: one.latency, spread),
        throughput=ranged(lambda one: one.throughput, "output tokens/s"),
        answered_rate=answered,
        goodput=spread.figure(goods[0], min(goods), max(goods), "requests/s") if goals.any else None,
        met=spread.figure(met, min(mets), max(mets), "share") if goals.any else None,
        growing=told.growing,
        refused=outcome.served.refused,
        lost=outcome.lost,
        retried=outcome.retried,
        interruptions=outcome.interruptions,
        preempted=outcome.served.preempted,
        stations=tuple(_station([one[0].stations[place] for one in runs], spread) for place in range(len(outcome.stations))),
        transfers=outcome.transfers,
        warnings=tuple(_warnings(outcome, told, met, goals)),
    )


def _station(uses: list[PoolUse], spread: StepRange) -> PoolAnswer:
    one, shares = uses[0], [use.utilisation for use in uses]
    return PoolAnswer(
        name=one.name, role=one.role, copies=one.copies, gpus=one.gpus, answered=one.answered,
        utilisation=spread.figure(shares[0], min(shares), max(shares), "share"), mean_batch=one.mean_batch,
        peak_cache=one.peak_cache, on_demand_hours=one.on_demand_seconds / HOUR, spot_hours=one.spot_seconds / HOUR,
    )  # fmt: skip


def _warnings(outcome: FleetOutcome, told: Summary, met: float, goals: Objectives) -> list[Message]:
    served, found = outcome.served, []
    count = len(served.arrived)
    if told.growing:
        found.append(msg("fleet.growing"))
    thin = [one for one in told.percentiles if not enough_requests(told.requests, one)]
    if thin:
        found.append(msg("serving.too-few", n=told.requests, percentiles=tuple(f"p{one:g}" for one in thin)))
    if served.refused:
        found.append(msg("serving.refused", n=served.refused, requests=count))
    if outcome.lost:
        found.append(msg("fleet.lost", n=outcome.lost, requests=count))
    if goals.any and met < goals.percentile / 100:
        found.append(msg("serving.missed", met=f"{100 * met:.0f}", percentile=f"{goals.percentile:g}"))
    return found
