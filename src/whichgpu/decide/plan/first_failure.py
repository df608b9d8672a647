"""What fails first: how much more load a fleet can serve, and what share of its load after losing one machine."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np

from whichgpu.base.messages import Message, msg
from whichgpu.decide.plan.solver.build import Formulation
from whichgpu.decide.plan.solver.growth import max_growth
from whichgpu.decide.plan.solver.problem import Ints, Solution


def breaks_first(formulation: Formulation, solution: Solution, level: int) -> tuple[Message, ...]:
    """Return messages on how much the load may grow and what the loss of one machine does, at a level of load."""
    problem, counts = formulation.problem, solution.counts[level]
    messages = []
    more = max_growth(problem, counts, level, room=1.0)
    full = [formulation.gpu_pools[formulation.columns[j].pool_index].gpu.name for j in more.full]
    if more.factor > 0:
        messages.append(breaks_load(more.factor, tuple(dict.fromkeys(full))))
    left = [
        (max_growth(problem, fewer, level, room=1.0).factor, name, _unserved(formulation, fewer))
        for name, fewer in _without_one(formulation, counts)
    ]
    if left:
        share, machine, unserved = min(left)
        if unserved and len(formulation.models) > 1:
            return (*messages, msg("plan.breaks-models", machine=machine, models=unserved))
        id = "plan.breaks-machine" if share < 1 else "plan.tolerates-machine"
        messages.append(msg(id, machine=machine, share=f"{max(0.0, min(share, 1.0)):.0%}"))
    return tuple(messages)


def _unserved(formulation: Formulation, counts: Ints) -> tuple[str, ...]:
    """Return the names of models that have no replica left, at these numbers of replicas."""
    there = {formulation.columns[j].model for j in np.flatnonzero(counts > 0)}
    return tuple(one.name for m, one in enumerate(formulation.models) if m not in there)


def _without_one(formulation: Formulation, counts: Ints) -> Iterator[tuple[str, Ints]]:
    """Yield a name for each kind of machine, and the replicas left after losing one such machine (or one owned-GPU replica)."""
    problem = formulation.problem
    for p in sorted({int(problem.pool_of[j]) for j in np.flatnonzero(counts)}):
        gpu_pool, size, start = formulation.gpu_pools[p], problem.pools[p].size, 0
        on_machine: dict[int, Counter[int]] = defaultdict(Counter)  # Replicas of each column, by the machine they run on.
        for j in np.flatnonzero((problem.pool_of == p) & (counts > 0)).tolist():
            uses = int(problem.uses[j])
            if gpu_pool.owned:
                yield f"{uses}x {gpu_pool.gpu.name}", _less(counts, {j: 1})
                continue
            for _ in range(int(counts[j])):
                for machine in range(start // size, -(-(start + uses) // size)):
                    on_machine[machine][j] += 1
                start += uses
        for lost in {tuple(sorted(one.items())) for one in on_machine.values()}:
            yield f"{size}x {gpu_pool.gpu.name}", _less(counts, dict(lost))


def _less(counts: Ints, lost: dict[int, int]) -> Ints:
    left = counts.copy()
    for j, count in lost.items():
        left[j] -= count
    return left


def breaks_load(factor: float, full: tuple[str, ...]) -> Message:
    """Return a message on the multiple of the load that fills the fleet (`factor`), and which GPUs are full first."""
    more = f"{max(0.0, factor - 1):.0%}"
    return msg("plan.breaks-load", more=more, gpus=full) if full else msg("plan.breaks-load-all", more=more)
