"""The value of owned GPUs in a plan: what it would cost without those of a kind, or with one more replica on them."""

from __future__ import annotations

import msgspec
import numpy as np

from whichgpu.decide.plan.solver.build import without_pools
from whichgpu.decide.plan.solver.linear_program import INFINITE
from whichgpu.decide.plan.solver.problem import Ints, Problem, Solution
from whichgpu.decide.plan.solver.program import Program
from whichgpu.decide.plan.solver.whole_program import likely_columns

SECONDS, GAP = 3.0, 0.005  # Solver seconds and relative gap of one program.


class AddedReplica(msgspec.Struct, frozen=True):
    """The cheapest plan with one more replica on a pool: its additional cost per hour, and the kind of replica (column)."""

    cost: float
    column: int


def saving(problem: Problem, solution: Solution, pool: int) -> float | None:
    """Return how much more per hour the plan would cost without the machines of a pool; None if there is no plan without."""
    without = without_pools(problem, frozenset([pool]))
    others = np.flatnonzero(problem.pool_of != pool)
    names = {name: place for place, name in enumerate(others.tolist())}
    used = np.array([names[j] for j in _used(solution).tolist() if j in names], dtype=np.int64)
    everything = np.arange(len(without.columns))
    solved = Program(without, likely_columns(without, everything, used)).solve(SECONDS, GAP)
    return None if solved is None else max(0.0, solved.cost - solution.cost)


def added_replica(problem: Problem, solution: Solution, pool: int, level: int) -> AddedReplica | None:
    """Return the cheapest change that uses one replica more of a pool's machines at a load level; None if none fits."""
    mine = np.flatnonzero((problem.pool_of == pool) & problem.aggregated)
    chosen = np.union1d(_used(solution), mine).astype(np.int64)
    gpus = int((solution.counts[level] * problem.uses)[problem.pool_of == pool].sum())
    program = Program(problem, chosen)
    on_pool = [(at, float(problem.uses[j])) for at, j in enumerate(chosen.tolist()) if problem.pool_of[j] == pool]
    program.rows.row([(program.counts[level, at], uses) for at, uses in on_pool], gpus + 1.0, INFINITE)
    solved = program.solve(SECONDS, GAP)
    if solved is None:
        return None
    counts = np.zeros(len(problem.columns), dtype=np.int64)
    counts[chosen] = solved.counts[level]
    added = np.where(problem.pool_of == pool, counts - solution.counts[level], -1)
    return AddedReplica(max(0.0, solved.cost - solution.cost), int(added.argmax()))


def _used(solution: Solution) -> Ints:
    return np.flatnonzero(solution.counts.any(axis=0))
