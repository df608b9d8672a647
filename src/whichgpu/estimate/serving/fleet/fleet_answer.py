"""A fleet under load as figures with ranges: latencies, throughput, utilisation of its pools and hours of its machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from whichgpu.base.errors import NoAnswer
from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message, msg
from whichgpu.estimate.serving.curve import Objectives
from whichgpu.estimate.serving.fleet.event_loop import simulate_fleet
from whichgpu.estimate.serving.fleet.fleet_outcome import FleetOutcome, PoolUse, Transfers
from whichgpu.estimate.serving.fleet.pools import Fleet
from whichgpu.estimate.serving.fleet.spot_machines import HOUR
from whichgpu.estimate.serving.load import Load
from whichgpu.estimate.serving.serving_answer import Progress, StepRange, few_requests_warnings, summary_figures
from whichgpu.estimate.serving.simulator import SimulationOutcome
from whichgpu.estimate.serving.summary import WARM_UP_SHARE, Summary, summarise


class PoolAnswer(msgspec.Struct, frozen=True):
    """Use of one pool of equal replicas; hours are summed over its machines and the time simulated."""

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


class FleetAnswer(msgspec.Struct, frozen=True):
    """Result of a simulated fleet: times in seconds by percentile, rates per second of all pools, and `hours` simulated.

    `met` is the share of all requests, rejected and lost ones too, that met every objective.
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
    fleet: Fleet, load: Load, goals: Objectives, like: Figure, ranges: bool = True, progress: Progress | None = None
) -> FleetAnswer:
    """Simulate a load, with `ranges` also at the fastest and slowest steps within the 90% range of `like`, a step time."""
    steps = StepRange(like)
    factors = (1.0, *steps.factors) if ranges else (1.0,)
    outcomes: list[FleetOutcome] = []
    for index, factor in enumerate(factors):
        one = simulate_fleet(fleet if factor == 1.0 else fleet.scaled(factor), load.arrivals(), load.hash_tokens)
        if not one.served.answered.any():
            raise NoAnswer("all-refused", msg("serving.refused", n=one.served.refused, requests=len(one.served.arrived)))
        outcomes.append(one)
        if progress:
            progress((index + 1) / len(factors))
    warm_up = WARM_UP_SHARE if load.steady else 0.0
    summaries = [
        summarise(one.served, load, goals.ttft_max, goals.tpot_max, goals.percentiles, goals.latency_max) for one in outcomes
    ]
    outcome, summary, met = outcomes[0], summaries[0], [share_within_objectives(one, goals, warm_up) for one in outcomes]
    return FleetAnswer(
        requests=len(outcome.served.arrived),
        rate=load.rate,
        hours=outcome.seconds / HOUR,
        **summary_figures(summaries, steps, goals),
        met=steps.figure(met, "share") if goals.any else None,
        growing=summary.growing,
        refused=outcome.served.refused,
        lost=outcome.lost,
        retried=outcome.retried,
        interruptions=outcome.interruptions,
        preempted=outcome.served.preempted,
        stations=tuple(_pool_answer(uses, steps) for uses in zip(*(one.pools for one in outcomes), strict=True)),
        transfers=outcome.transfers,
        warnings=tuple(_warnings(outcome, summary, met[0], goals)),
    )


def share_within_objectives(outcome: FleetOutcome, goals: Objectives, warm_up: float = WARM_UP_SHARE) -> float:
    """Return the share of requests after the warm-up that met every objective; rejected and lost requests count as missed."""
    good = within_objectives(outcome.served, goals)
    start = int(warm_up * len(good))
    return float(good[start:].mean()) if len(good) > start else 0.0


def within_objectives(served: SimulationOutcome, goals: Objectives) -> np.ndarray:
    """Return whether each request met every objective, in order of arrival; rejected and lost ones did not."""
    tokens_after_first = np.maximum(1, served.outputs - 1)
    tpot = (served.finished - served.first) / tokens_after_first
    values = (served.first - served.arrived, tpot, served.finished - served.arrived)
    good = served.answered.copy()
    for value, limit in zip(values, (goals.ttft_max, goals.tpot_max, goals.latency_max), strict=True):
        if limit is not None:
            good &= value <= limit
    return good


def _pool_answer(uses: Sequence[PoolUse], steps: StepRange) -> PoolAnswer:
    one = uses[0]
    return PoolAnswer(
        name=one.name, role=one.role, copies=one.replicas, gpus=one.gpus, answered=one.answered,
        utilisation=steps.figure([use.utilisation for use in uses], "share"), mean_batch=one.mean_batch,
        peak_cache=one.peak_cache, on_demand_hours=one.on_demand_seconds / HOUR, spot_hours=one.spot_seconds / HOUR,
    )  # fmt: skip


def _warnings(outcome: FleetOutcome, summary: Summary, met: float, goals: Objectives) -> list[Message]:
    served, requests = outcome.served, len(outcome.served.arrived)
    warnings = [msg("fleet.growing")] if summary.growing else []
    warnings += few_requests_warnings(summary)
    if served.refused:
        warnings.append(msg("serving.refused", n=served.refused, requests=requests))
    if outcome.lost:
        warnings.append(msg("fleet.lost", n=outcome.lost, requests=requests))
    if goals.any and met < goals.percentile / 100:
        warnings.append(msg("serving.missed", met=f"{100 * met:.0f}", percentile=f"{goals.percentile:g}"))
    return warnings
