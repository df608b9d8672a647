"""The program of all columns, started from a plan of the few columns that are most likely in the optimum.

Owned GPUs nearly always are, and so are the machines that serve some bucket at the least cost, or that are cheapest to rent for
the requests that owned GPUs leave over. Started from a plan of these, HiGHS proves the optimum of several models over a day in
seconds; started from nothing it may find no plan that uses the owned GPUs well.
"""

from __future__ import annotations

from time import monotonic

import numpy as np

from whichgpu.decide.plan.solver.problem import Ints, Problem
from whichgpu.decide.plan.solver.program import Program, ProgramSolution, StartingPlan

MAX_WHOLE = 12_000  # Up to this many share variables, the program of all columns is solved.
FIRST_SHARE = 0.4  # Share of the time for the program of the likely columns.
PER_BUCKET = 1  # Columns per bucket of requests: of lowest cost per request, and as many of lowest price per machine.
MIN_USED = 1e-6  # Fewer replicas of a column in the linear relaxation count as none.


def share_variables(problem: Problem, columns: Ints) -> int:
    """Return the number of share variables of a program over these columns: pairs of a column and a bucket it serves."""
    demanded = np.tile((problem.demand > 0).sum(axis=0), 1 if problem.late is None else 2)
    return int(((problem.all_rates[columns] > 0) * demanded[None, :]).sum())


def solve_whole(
    problem: Problem, everything: Ints, seconds: float, gap: float, initial: StartingPlan | None = None
) -> tuple[ProgramSolution, float] | None:
    """Return the best plan over the columns `everything`, in the program's own columns, and a lower bound; None if not found.

    The search starts from `initial`, else from the plan of the likely columns.
    """
    start = monotonic()
    program = Program(problem, everything)
    relaxed = program.relaxed(seconds / 2)
    if relaxed is None:
        return None
    first: ProgramSolution | None = None
    if initial is None:
        likely = likely_columns(problem, everything, everything[relaxed.used > MIN_USED])
        first = Program(problem, likely).solve(FIRST_SHARE * seconds, gap / 2)
        if first is not None:
            first = _widened(first, likely, everything)
            initial = StartingPlan(_in_problem(problem, first.counts, everything), first.machines)
    solved = program.solve(max(0.5, seconds - (monotonic() - start)), gap, initial)
    best = min((one for one in (solved, first) if one is not None), key=lambda one: one.cost, default=None)
    if best is None:
        return None
    bound = max(relaxed.cost, -np.inf if solved is None else solved.bound)
    return best, min(bound, best.cost)


def likely_columns(problem: Problem, everything: Ints, used: Ints) -> Ints:
    """Return aggregated columns: on limited machines, `used` by the relaxation, or the cheapest for a bucket of requests."""
    limited = np.array([any(np.isfinite(option.limit) for option in pool.options) for pool in problem.pools], dtype=bool)
    prices = np.array([min(option.price for option in pool.options) for pool in problem.pools])[problem.pool_of]
    owned = limited[problem.pool_of]
    together = problem.aggregated
    chosen = {*used[together[used]].tolist(), *everything[(owned & together)[everything]].tolist()}
    chosen = chosen or set(used.tolist())
    rented = everything[(~owned & together)[everything]]
    costs = problem.cost_per_request()[rented]
    for b in np.flatnonzero(problem.demand.any(axis=0)).tolist():
        able = np.flatnonzero(np.isfinite(costs[:, b]))
        for order in (costs[able, b], prices[rented[able]]):
            chosen.update(rented[able[np.argsort(order, kind="stable")[:PER_BUCKET]]].tolist())
    return np.array(sorted(chosen), dtype=np.int64)


def _in_problem(problem: Problem, counts: Ints, columns: Ints) -> Ints:
    """Return numbers of replicas of some columns as numbers of all columns of the problem."""
    every = np.zeros((problem.levels, len(problem.columns)), dtype=np.int64)
    every[:, columns] = counts
    return every


def _widened(solution: ProgramSolution, columns: Ints, everything: Ints) -> ProgramSolution:
    """Return a program's solution as one of a program with more columns (`everything`), with none of the others."""
    places = np.searchsorted(everything, columns)
    counts = np.zeros((len(solution.counts), len(everything)), dtype=np.int64)
    counts[:, places] = solution.counts
    parts = []
    for part in (solution.shares, solution.late):
        wide = None if part is None else np.zeros((len(part), len(everything), part.shape[2]))
        if wide is not None and part is not None:
            wide[:, places] = part
        parts.append(wide)
    shares, late = parts
    assert shares is not None
    return ProgramSolution(solution.cost, solution.bound, counts, shares, solution.machines, solution.jobs, solution.change, late)
