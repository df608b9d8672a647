"""Machines that start as the load rises through the hours: what they cost before they serve, and how long a start takes."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_duration, significant
from whichgpu.decide.configurations.generating import with_precision
from whichgpu.decide.plan.capacity import one_sequence, replica_memory
from whichgpu.decide.plan.solver.build import Column, Formulation
from whichgpu.decide.plan.solver.problem import OWNED, Solution
from whichgpu.estimate.startup import engine_startup
from whichgpu.workload.shapes import as_transformer

HOUR = 3600.0  # seconds


class Starts(msgspec.Struct, frozen=True):
    """Rented machines started in one pass through the hours of the load curve, and their cost per average hour.

    A machine is billed from its start, `seconds` before it serves. `costs` are by pool and price option.
    """

    machines: int
    hours: int  # hours of the load curve
    seconds: float
    costs: dict[tuple[int, int], float]

    @property
    def cost(self) -> float:
        """Return the cost of all starts per average hour."""
        return sum(self.costs.values())


def starts_of(formulation: Formulation, solution: Solution, seconds: float) -> Starts:
    """Return the starts of machines that the plan rents by the hour; each takes `seconds`. The load curve repeats."""
    problem, levels = formulation.problem, formulation.hour_level.tolist()
    started: dict[tuple[int, int], int] = {}
    for p, w in {(p, w) for _, p, w in solution.machines}:
        option = problem.pools[p].options[w]
        if not option.committed and option.term != OWNED:
            counts = [solution.machines.get((level, p, w), 0) for level in levels]
            started[p, w] = sum(max(0, n - before) for n, before in zip(counts, [counts[-1], *counts[:-1]], strict=True))
    costs = {(p, w): n * problem.pools[p].options[w].price * seconds / HOUR / len(levels) for (p, w), n in started.items() if n}
    return Starts(sum(started.values()), len(levels), seconds, costs)


def start_messages(formulation: Formulation, solution: Solution, starts: Starts, currency: str) -> Iterator[Message]:
    """Yield what the starts cost, what a request waits for if no machine runs, and the time of the engine alone."""
    if starts.machines:
        values = {"n": starts.machines, "hours": starts.hours, "time": format_duration(starts.seconds)}
        yield msg("plan.starts", cost=significant(starts.cost), currency=currency, **values)
    for m, model in enumerate(formulation.models):
        counts = solution.counts[:, [j for j, column in enumerate(formulation.columns) if column.model == m]]
        off = float(formulation.problem.hours[~counts.any(axis=1)].sum())
        if off > 0:
            yield msg("plan.scales-to-zero", model=model.name, share=f"{off:.0%}", time=format_duration(starts.seconds))
    for model_name, engine, seconds in _engine_starts(formulation, solution) if starts.machines else ():
        yield msg("plan.engine-start", model=model_name, engine=engine, time=format_duration(seconds))


def _engine_starts(formulation: Formulation, solution: Solution) -> Iterator[tuple[str, str, float]]:
    """Yield each model whose engine's start was measured, the engine, and the longest such start of its replicas in seconds."""
    for m, model in enumerate(formulation.models):
        used = [column for j, column in enumerate(formulation.columns) if column.model == m and solution.counts[:, j].any()]
        seconds = [one for column in used if (one := _engine_start(formulation, column)) is not None]
        if seconds and model.engine is not None:
            yield model.name, model.engine.name, max(seconds)


def _engine_start(formulation: Formulation, column: Column) -> float | None:
    request, gpu = formulation.models[column.model].request, formulation.gpu_pools[column.pool_index].gpu
    weights = replica_memory(request, column.replica, gpu).parts["weights"].value
    workload = one_sequence(with_precision(request.workload, column.replica.precision, request.stated), column.replica.tp)
    start = engine_startup(workload, as_transformer(request.shape), weights)
    return None if start is None else start.value
