"""How much more a fleet bears: with its copies as they are, the largest multiple of the traffic, and what is full then."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whichgpu.decide.plan.solver.problem import Floats, Ints, Problem
from whichgpu.decide.plan.solver.program import INFINITE, LinearProgram, run


@dataclass(frozen=True, slots=True)
class Growth:
    """`factor` times the level's traffic can be served; `full` are columns without time left then."""

    factor: float
    full: tuple[int, ...]


def max_growth(
    problem: Problem, copies: Ints, level: int, buckets: np.ndarray | None = None, room: float | None = None
) -> Growth:
    """Of these copies; of some buckets' traffic alone while the rest stays as it is, where these are told."""
    rows, loads = LinearProgram(), problem.loads_at(level, copies > 0)
    grown = np.ones(problem.demand.shape[1], dtype=bool) if buckets is None else buckets
    factor = rows.variable(-1.0)
    used = np.flatnonzero(copies > 0)
    by_column: dict[int, list[tuple[int, float]]] = {j: [] for j in used.tolist()}
    for b in np.flatnonzero(problem.demand[level] > 0).tolist():
        terms = []
        for j in used.tolist():
            if np.isfinite(loads[j, b]):
                place = rows.variable(0.0)
                terms.append((place, 1.0))
                by_column[j].append((place, float(loads[j, b])))
        if grown[b]:
            rows.row([*terms, (factor, -1.0)], 0.0, INFINITE)
        else:
            rows.row(terms, 1.0, INFINITE)
    places = {}
    share = problem.room if room is None else room
    for j, terms in by_column.items():
        places[j] = rows.row(terms, -INFINITE, share * float(copies[j]))
    told = run(rows)
    if told is None:
        return Growth(0.0, ())
    values, duals = told
    full = tuple(j for j, row in places.items() if abs(duals[row]) > 1e-9)
    return Growth(float(values[factor]), full)


def utilisation(problem: Problem, copies: Floats, shares: Floats, level: int) -> Floats:
    """Share of its time each column is at work at a level; 0 where it has no copies."""
    loads = problem.loads()[level]
    loads = np.where(np.isfinite(loads), loads, 0.0)
    work = (loads * shares).sum(axis=1)
    told: Floats = np.divide(work, copies, out=np.zeros_like(work), where=copies > 0)
    return told
