"""What breaks first: how much more load a fleet bears, and what is left of its service without one of its machines."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from whichgpu.base.messages import Message, msg
from whichgpu.decide.plan.solver.build import Formulation
from whichgpu.decide.plan.solver.growth import max_growth
from whichgpu.decide.plan.solver.problem import Ints, Solution


def breaks_first(formulation: Formulation, solution: Solution, level: int) -> tuple[Message, ...]:
    """What more load, or a machine less, does to a level."""
    problem, copies = formulation.problem, solution.copies[level]
    said = []
    more = max_growth(problem, copies, level, room=1.0)
    full = [formulation.gpu_pools[formulation.columns[j].pool_index].gpu.name for j in more.full]
    if more.factor > 0:
        said.append(breaks_load(more.factor, tuple(dict.fromkeys(full))))
    left = [
        (max_growth(problem, fewer, level, room=1.0).factor, name, _unserved(formulation, fewer))
        for name, fewer in _without_one(formulation, copies)
    ]
    if left:
        share, machine, unserved = min(left)
        if unserved and len(formulation.served) > 1:
            return (*said, msg("plan.breaks-models", machine=machine, models=unserved))
        id = "plan.breaks-machine" if share < 1 else "plan.bears-machine"
        said.append(msg(id, machine=machine, share=f"{max(0.0, min(share, 1.0)):.0%}"))
    return tuple(said)


def _unserved(formulation: Formulation, copies: Ints) -> tuple[str, ...]:
    """Models without a copy."""
    there = {formulation.columns[j].model for j in np.flatnonzero(copies > 0)}
    return tuple(one.name for m, one in enumerate(formulation.served) if m not in there)


def _without_one(formulation: Formulation, copies: Ints) -> Iterator[tuple[str, Ints]]:
    """The copies left when a machine goes with all that stands on it, for every kind of machine; of what is owned, a copy."""
    problem = formulation.problem
    for p in sorted({int(problem.pool_of[j]) for j in np.flatnonzero(copies)}):
        gpu_pool, size, start = formulation.gpu_pools[p], problem.pools[p].size, 0
        standing: dict[int, dict[int, int]] = {}  # by machine: copies of each column that it has a part in
        for j in np.flatnonzero((problem.pool_of == p) & (copies > 0)).tolist():
            uses = int(problem.uses[j])
            if gpu_pool.owned:
                yield f"{uses}x {gpu_pool.gpu.name}", _less(copies, {j: 1})
                continue
            for _ in range(int(copies[j])):  # one after the other, as they are told
                for machine in range(start // size, -(-(start + uses) // size)):
                    standing.setdefault(machine, {})[j] = standing.setdefault(machine, {}).get(j, 0) + 1
                start += uses
        for lost in {tuple(sorted(one.items())) for one in standing.values()}:
            yield f"{size}x {gpu_pool.gpu.name}", _less(copies, dict(lost))


def _less(copies: Ints, lost: dict[int, int]) -> Ints:
    told = copies.copy()
    for j, count in lost.items():
        told[j] -= count
    return told


def breaks_load(factor: float, full: tuple[str, ...]) -> Message:
    """How much more load fills the fleet, and which of it first, where some is."""
    more = f"{max(0.0, factor - 1):.0%}"
    return msg("plan.breaks-load", more=more, gpus=full) if full else msg("plan.breaks-load-all", more=more)
