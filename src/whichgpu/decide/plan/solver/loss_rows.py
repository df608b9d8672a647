"""Rows of the mixed-integer program that keep a load served after the loss of a machine."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from whichgpu.decide.plan.solver.linear_program import INFINITE, LinearProgram
from whichgpu.decide.plan.solver.problem import BOTH, DECODE, Floats, Ints, Problem

MAX_REPLICAS = 5000.0  # Most replicas of one kind that are left after a loss.
Terms = list[tuple[int, float]]


def loss_rows(problem: Problem, rows: LinearProgram, chosen: Ints, counts: Mapping[tuple[int, int], int], loads: Floats) -> None:
    """Add, for each loss of the problem, shares of the buckets that the replicas left serve, at their full capacity.

    `counts` are the variables of replicas by level and index in `chosen`; `loads` are [levels, chosen, buckets].
    """
    index = {int(j): at for at, j in enumerate(chosen)}
    for level, j in problem.losses:
        if j in index:
            left = _replicas_left(rows, counts[level, index[j]], problem.replicas_lost(j))
            capacity = {at: left if at == index[j] else counts[level, at] for at in range(len(chosen))}
            _served(problem, rows, chosen, capacity, level, loads[level])


def _replicas_left(rows: LinearProgram, count: int, lost: int) -> int:
    """Add a variable for the replicas of a column that are left: at most `count` less those lost, none if there are fewer."""
    left, some = rows.variable(0.0, whole=True), rows.variable(0.0, 1.0, whole=True)
    rows.row([(left, 1.0), (some, -MAX_REPLICAS)], -INFINITE, 0.0)
    rows.row([(left, 1.0), (count, -1.0), (some, float(lost))], -INFINITE, 0.0)
    return left


def _served(problem: Problem, rows: LinearProgram, chosen: Ints, capacity: Mapping[int, int], level: int, loads: Floats) -> None:
    """Add rows that require every bucket of a level to be served by `capacity` (variables of replicas, by index in `chosen`)."""
    width = problem.demand.shape[1]
    able = np.isfinite(loads) & np.resize(problem.demand[level] > 0, loads.shape[1])[None, :]
    by_bucket: dict[int, Terms] = {b: [] for b in np.flatnonzero(problem.demand[level] > 0).tolist()}
    by_column: dict[int, Terms] = {at: [] for at in capacity}
    flows: dict[tuple[int, int], Terms] = {}
    late: dict[int, Terms] = {}
    workers = problem.workers
    for at, item in np.argwhere(able).tolist():
        place, b, j = rows.variable(0.0, 1.0), item % width, int(chosen[at])
        role = BOTH if workers is None else int(workers.roles[j])
        by_column[at].append((place, float(loads[at, item])))
        if role != DECODE:
            by_bucket[b].append((place, 1.0))
        if workers is not None and role != BOTH:
            flows.setdefault((int(workers.links[j]), b), []).append((place, 1.0 if role == DECODE else -1.0))
        if problem.late is not None and item >= width:
            late.setdefault(int(problem.late.model_of[b]), []).append((place, float(problem.demand[level, b])))
    for terms in by_bucket.values():
        rows.row(terms, 1.0, 1.0)
    for terms in flows.values():
        rows.row(terms, 0.0, 0.0)
    for at, terms in by_column.items():
        rows.row([*terms, (capacity[at], -1.0)], -INFINITE, 0.0)
    limits = problem.late_limits()
    for model, terms in late.items():
        rows.row(terms, -INFINITE, limits[level, model][1])
