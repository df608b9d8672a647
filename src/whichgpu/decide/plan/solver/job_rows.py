"""Jobs as rows of the program: on machines rented for them, or on owned GPUs that serve nothing meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from whichgpu.decide.plan.solver.problem import Job, Problem

if TYPE_CHECKING:
    from whichgpu.decide.plan.solver.program import LinearProgram

INFINITE = 1e30


def job_rows(
    problem: Problem, rows: LinearProgram, machines: Mapping[tuple[int, int, int], int], pools: Sequence[int]
) -> dict[tuple[int, int], int]:
    """Every job is done, whole or in shares; the places of these by job and pool."""
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
            if np.isfinite(option.most):
                owned.setdefault(p, []).append((k, place))
        rows.row(terms, 1.0, 1.0)
    for p, mine in owned.items():
        _beside(problem, rows, machines, p, mine)
    return places


def _beside(
    problem: Problem, rows: LinearProgram, machines: Mapping[tuple[int, int, int], int], p: int, mine: Sequence[tuple[int, int]]
) -> None:
    """Jobs on owned machines run in hours of a level, on all the machines they need at once; so many serve nothing then.

    A job that cannot be split fits into its level's hours until the deadline; several share those that are kept free for them.
    """
    pool = problem.pools[p]
    most = sum(option.most for option in pool.options)
    parts: dict[int, list[tuple[int, float]]] = {k: [] for k, _ in mine}
    for level in range(problem.levels):
        kept = rows.variable(0.0, most, whole=True)
        busy = []
        for k, _ in mine:
            job = problem.jobs[k]
            there = float(problem.hours[level]) * min(job.window, problem.horizon)
            if not job.divisible and job.wall[p] > there:
                continue
            part = rows.variable(0.0, 1.0, whole=not job.divisible)
            parts[k].append((part, 1.0))
            busy.append((part, float(job.hours[p]) / there))
            rows.row([(part, at_once(job, p)), (kept, -1.0)], -INFINITE, 0.0)
        rows.row([*busy, (kept, -1.0)], -INFINITE, 0.0)
        held = [(machines[level, p, w], 1.0) for w in range(len(pool.options))]
        rows.row([*held, (kept, 1.0)], -INFINITE, most)
    for k, place in mine:
        rows.row([*parts[k], (place, -1.0)], 0.0, 0.0)


def at_once(job: Job, p: int) -> float:
    """Machines of a pool a job keeps busy while it runs; one that is split can do with one at a time."""
    return 1.0 if job.divisible else max(1.0, round(float(job.hours[p] / job.wall[p])))
