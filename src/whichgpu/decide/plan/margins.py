"""Safety margins of a plan: what the solver keeps free because it does not model queues between requests of different lengths.

A plan whose simulation misses an objective is solved again with a larger margin. The cheapest plan that holds is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.decide.plan.capacity import ReplicaCapacity
from whichgpu.decide.plan.inputs import DEFAULT_HEADROOM
from whichgpu.decide.plan.solver.build import Column, Formulation, ServedModel, table_of, with_headrooms
from whichgpu.decide.plan.solver.problem import Solution
from whichgpu.estimate.serving.curve import Objectives

# Headroom: shares of replicas' time kept free. The largest ones suit fleets of a few lightly used machines, where a smaller
# headroom changes nothing.
HEADROOMS = (DEFAULT_HEADROOM, 0.25, 0.35, 0.45, 0.6, 0.75, 0.9)
SMALL_HEADROOMS = (0.08, 0.0)  # Less headroom than the default, tried if that makes a plan whose objectives hold cheaper.
LATE_SHARES = (1.0, 0.5, 0.1)  # Shares of the requests beyond the percentile that the solver may serve late.
LIMIT_FACTORS = (1.0, 0.8, 0.6, 0.4)  # Factors on the limits of the objectives that the solver plans for.


# Headroom, late share and limit factor of ever larger margins, tried in turn if small steps give no fleet that holds.
LARGE_STEPS = ((0.25, 0.5, 0.8), (0.35, 0.5, 0.6), (0.45, 0.1, 0.6), (0.6, 0.1, 0.4), (0.9, 0.1, 0.4))


class Margins(msgspec.Struct, frozen=True):
    """The margins of one model: headroom, share of the permitted misses that are planned, factor on the limits of objectives.

    If `separate`, requests that are served late have replicas of their own, so that they do not delay the others.
    """

    headroom: float
    late_share: float = LATE_SHARES[0]
    limit_factor: float = LIMIT_FACTORS[0]
    separate: bool = False

    def larger(self, late: bool) -> Iterator[Margins]:
        """Yield the margins with one of them enlarged by a step, given whether some requests are served `late`.

        Late requests are separated first: on shared replicas their long prefills delay the others at almost any other margin.
        """
        if (more := _next(HEADROOMS, self.headroom)) is not None:
            yield replace(self, headroom=more)
        if late and not self.separate:
            yield replace(self, separate=True)
            return
        if late and (less := _next(LATE_SHARES, self.late_share)) is not None:
            yield replace(self, late_share=less)
        if (less := _next(LIMIT_FACTORS, self.limit_factor)) is not None:
            yield replace(self, limit_factor=less)

    def at_least(self, headroom: float, late_share: float, limit_factor: float) -> Margins:
        """Return margins that are nowhere smaller than these or those given, with replicas of their own for late requests."""
        return Margins(
            max(self.headroom, headroom), min(self.late_share, late_share), min(self.limit_factor, limit_factor), separate=True
        )


def _next(steps: tuple[float, ...], value: float) -> float | None:
    """Return the step that follows `value`, a step itself or a value before the first; None after the last."""
    rising = steps[-1] > steps[0]
    return next((step for step in steps if (step > value if rising else step < value)), None)


def planned_objectives(model: ServedModel, margins: Margins) -> ServedModel:
    """Return a model with the limits that the solver plans for: those of its objectives times the margin's factor."""
    factor, stated = margins.limit_factor, model.objectives
    if factor == 1.0:
        return model
    limits = (None if one is None else one * factor for one in (stated.ttft_max, stated.tpot_max, stated.latency_max))
    ttft, tpot, latency = limits
    return replace(model, objectives=Objectives(ttft, tpot, stated.percentile, latency))


def with_margins(formulation: Formulation, margins: Mapping[str, Margins]) -> Formulation:
    """Return the problem with each model's headroom and late service limited by its margins."""
    headrooms = {name: one.headroom for name, one in margins.items()}
    late = formulation.problem.late
    if late is None:
        return with_headrooms(formulation, headrooms)
    mine = [margins[one.name] for one in formulation.models]
    shares = late.shares * np.array([one.late_share for one in mine])
    changed = replace(formulation, problem=replace(formulation.problem, late=replace(late, shares=shares)))
    if any(one.separate for one in mine):
        changed = _separated(changed, [one.separate for one in mine])
    return with_headrooms(changed, headrooms)


def _separated(formulation: Formulation, separate: list[bool]) -> Formulation:
    """Return the problem in which replicas of some models serve requests either on time or late, not both."""
    columns: list[Column] = []
    for column in formulation.columns:
        replica = column.replica
        if replica.role != "both" or not separate[column.model] or replica.late_rates is None or not replica.late_rates.any():
            columns.append(column)
            continue
        none = np.zeros_like(replica.rates)
        if replica.rates.any():
            columns.append(replace(column, replica=replace(replica, late_rates=none)))
        columns.append(replace(column, replica=_late_only(replica)))
    return table_of(formulation, tuple(columns))


def _late_only(replica: ReplicaCapacity) -> ReplicaCapacity:
    none = np.zeros_like(replica.rates)
    batches = replica.batches if replica.late_batches is None else replica.late_batches
    return replace(replica, rates=none, batches=batches, late_rates=replica.best_rates)


def late_rates(formulation: Formulation, solution: Solution, model: int) -> np.ndarray:
    """Return requests per second of each of a model's buckets that the plan serves late, at the model's busiest load level."""
    level, buckets = formulation.busiest(model), formulation.buckets_of(model)
    if solution.late is None:
        return np.zeros(len(formulation.models[model].traffic.buckets))
    rates: np.ndarray = (solution.late[level, :, buckets] * formulation.problem.demand[level, buckets]).sum(axis=0)
    return rates
