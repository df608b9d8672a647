"""Rows of the program for jobs: on machines rented for them, or on owned GPUs that serve no requests meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from whichgpu.decide.plan.solver.linear_program import INFINITE, LinearProgram
from whichgpu.decide.plan.solver.problem import Job, Problem


def job_rows(
    problem: Problem, rows: LinearProgram, machines: Mapping[tuple[int, int, int], int], pools: Sequence[int]
) -> dict[tuple[int, int], int]:
    """Add rows that require every job to be done, whole or in shares; return the share variables by job and pool."""
    places: dict[tuple[int, int], int] = {}
    owned: dict[int, list[tuple[int, int]]] = {}
    for k, job in enumerate(problem.jobs):
        terms = []
        for p in pools:
            hours = float(job.hours[p])
            if not np.isfinite(hours) or (not job.divisible and job.wall[p] > job.window):
                continue
            option = min(problem.pools[p].options, key=lambda one: one.price if not one.committed else np.inf)
            if option.committed:
                continue
            place = rows.variable(option.price * hours / problem.horizon, 1.0, whole=not job.divisible)
            places[k, p] = place
            terms.append((place, 1.0))
            if np.isfinite(option.limit):
                owned.setdefault(p, []).append((k, place))
        rows.row(terms, 1.0, 1.0)
    for p, mine in owned.items():
        _owned_rows(problem, rows, machines, p, mine)
    return places


def _owned_rows(
    problem: Problem, rows: LinearProgram, machines: Mapping[tuple[int, int, int], int], p: int, mine: Sequence[tuple[int, int]]
) -> None:
    """Add rows for jobs (`mine`) on owned machines of pool `p`, which serve no requests while a job runs on them.

    A job runs during the hours of one load level, on all its machines at once. An indivisible job must fit into the level's hours
    before its deadline; several jobs share the machines reserved for jobs.
    """
    pool = problem.pools[p]
    max_machines = sum(option.limit for option in pool.options)
    parts: dict[int, list[tuple[int, float]]] = {k: [] for k, _ in mine}
    for level in range(problem.levels):
        reserved = rows.variable(0.0, max_machines, whole=True)
        work = []
        for k, _ in mine:
            job = problem.jobs[k]
            window = float(problem.hours[level]) * min(job.window, problem.horizon)
            if not job.divisible and job.wall[p] > window:
                continue
            part = rows.variable(0.0, 1.0, whole=not job.divisible)
            parts[k].append((part, 1.0))
            work.append((part, float(job.hours[p]) / window))
            rows.row([(part, machines_needed(job, p)), (reserved, -1.0)], -INFINITE, 0.0)
        rows.row([*work, (reserved, -1.0)], -INFINITE, 0.0)
        serving = [(machines[level, p, w], 1.0) for w in range(len(pool.options))]
        rows.row([*serving, (reserved, 1.0)], -INFINITE, max_machines)
    for k, place in mine:
        rows.row([*parts[k], (place, -1.0)], 0.0, 0.0)


def machines_needed(job: Job, p: int) -> float:
    """Return the machines of pool `p` that a job occupies while it runs; a divisible job needs one at a time."""
    return 1.0 if job.divisible else max(1.0, round(float(job.hours[p] / job.wall[p])))
