"""Spare capacity of a fleet: the largest multiple of its traffic it can serve, what is full then, and its utilisation."""

from __future__ import annotations

import msgspec
import numpy as np

from whichgpu.decide.plan.solver.linear_program import INFINITE, LinearProgram
from whichgpu.decide.plan.solver.problem import BOTH, Floats, Ints, Problem, Solution


class Growth(msgspec.Struct, frozen=True):
    """The largest multiple (`factor`) of a load level's traffic that a fleet can serve, and the kinds of replica then full."""

    factor: float
    full: tuple[int, ...]


def max_growth(problem: Problem, counts: Ints, level: int, room: float | None = None) -> Growth:
    """Return the largest servable multiple of a level's traffic if replicas may be busy the share `room` (None: 1 - headroom)."""
    program, loads = LinearProgram(), problem.loads_at(level, counts > 0)
    factor = program.variable(-1.0)
    by_column: dict[int, list[tuple[int, float]]] = {j: [] for j in np.flatnonzero(counts > 0).tolist()}
    width = problem.demand.shape[1]
    decodes, workers = problem.decodes_only, problem.workers
    flows: dict[tuple[int, int], list[tuple[int, float]]] = {}  # Prefill and decode variables by link and bucket.
    late: dict[int, list[int]] = {}  # Variables of the part of each bucket of requests that is served late.
    for b in np.flatnonzero(problem.demand[level] > 0).tolist():
        terms = []
        for j, mine in by_column.items():
            for item in range(b, loads.shape[1], width):
                if np.isfinite(loads[j, item]):
                    place = program.variable(0.0)
                    if not decodes[j]:
                        terms.append((place, 1.0))
                    if workers is not None and workers.roles[j] != BOTH:
                        flows.setdefault((int(workers.links[j]), b), []).append((place, 1.0 if decodes[j] else -1.0))
                    mine.append((place, float(loads[j, item])))
                    if item != b:
                        late.setdefault(b, []).append(place)
        program.row([*terms, (factor, -1.0)], 0.0, INFINITE)
    for (at, _), (demand, limit) in problem.late_limits().items():
        if at == level:
            missed = [(place, float(demand[b])) for b, places in late.items() if demand[b] > 0 for place in places]
            program.row([*missed, (factor, -limit)], -INFINITE, 0.0)
    for linked in flows.values():
        program.row(linked, 0.0, 0.0)
    share = problem.room if room is None else room
    rows = {j: program.row(terms, -INFINITE, share * float(counts[j])) for j, terms in by_column.items()}
    relaxed = program.relax()
    if relaxed is None:
        return Growth(0.0, ())
    return Growth(float(relaxed.values[factor]), tuple(j for j, row in rows.items() if abs(relaxed.row_duals[row]) > 1e-9))


def utilisation(problem: Problem, solution: Solution, level: int) -> Floats:
    """Return the share of time that the replicas of each column (a model on a kind of machine) are busy at a load level."""
    loads, shares, counts = problem.loads()[level], solution.shares[level], solution.counts[level].astype(float)
    if solution.late is not None:
        late = solution.late[level]
        shares = np.concatenate([shares - late, late], axis=1)
    work = (np.where(np.isfinite(loads), loads, 0.0) * shares).sum(axis=1)
    busy: Floats = np.divide(work, counts, out=np.zeros_like(work), where=counts > 0)
    return busy
