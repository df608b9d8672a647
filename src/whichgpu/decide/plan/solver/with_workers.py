"""Plans with prefill and decode workers: the program over aggregated replicas and workers, started from aggregated serving."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import numpy as np
from msgspec.structs import replace

from whichgpu.decide.plan.solver.problem import Ints, Problem, Solution
from whichgpu.decide.plan.solver.program import Program, ProgramSolution, StartingPlan, servable
from whichgpu.decide.plan.solver.prune import dominated_pools, undominated
from whichgpu.decide.plan.solver.whole_program import MAX_WHOLE, share_variables, solve_whole

MIN_GAIN = 0.02  # Disaggregated serving must be cheaper by this share to be used.
WHOLE_TIME = 0.8  # Share of the time for the program of all columns; the rest is for the plan of aggregated replicas alone.
AGGREGATED_TIME = 0.6  # Share of the time in which the plan of aggregated replicas is solved.
MAX_RELAXED = 60_000  # With more share variables, workers are considered only if aggregated serving has no plan.
MIN_USED = 1e-6  # Fewer replicas of a column in the linear relaxation count as none.
Progress = Callable[[float], None]
Solve = Callable[[Problem, float, float, Progress], Solution | None]


def solve_with_workers(problem: Problem, seconds: float, gap: float, solve: Solve, progress: Progress) -> Solution | None:
    """Return the best plan of aggregated replicas, or one with prefill and decode workers if that costs `MIN_GAIN` less.

    `solve` solves the problem of aggregated columns. In a program of more than `MAX_RELAXED` variables workers are considered
    only if aggregated serving has no plan. The bound holds for both: it is that of the linear relaxation with all columns, or the
    program's if that has all columns.
    """
    start = monotonic()
    together = np.flatnonzero(problem.aggregated)
    plain = problem.of_columns(together)
    free = undominated(plain) & ~dominated_pools(plain)[plain.pool_of] if len(together) else np.zeros(0, dtype=bool)
    everything = np.union1d(together[free], np.flatnonzero(~problem.aggregated)).astype(np.int64)
    variables = share_variables(problem, everything)

    def left(share: float) -> float:
        return max(0.5, (seconds - (monotonic() - start)) * share)

    def aggregated(share: float) -> Solution | None:
        plan = solve(plain, left(share), gap, progress) if servable(plain).all() else None
        return None if plan is None else _of_columns(problem, together, plan)

    if variables <= MAX_WHOLE:
        result = solve_whole(problem, everything, left(WHOLE_TIME), gap)
        if result is not None:
            plan, bound = _of_columns(problem, everything, result[0]), result[1]
            if plan.counts[:, ~problem.aggregated].any():
                without = aggregated(1.0)
                plan = plan if without is None or plan.cost < without.cost * (1.0 - MIN_GAIN) else without
            progress(1.0)
            return replace(plan, bound=max(0.0, min(bound, plan.cost)), seconds=monotonic() - start)
    best = aggregated(AGGREGATED_TIME)
    if best is not None and variables > MAX_RELAXED:
        return best
    program = Program(problem, everything)
    relaxed = program.relaxed(left(0.5))
    if relaxed is None and best is None:
        return None
    bound = 0.0 if relaxed is None else relaxed.cost
    if best is None or bound < best.cost * (1.0 - MIN_GAIN):
        chosen = everything
        if relaxed is not None:
            used = np.zeros(0, dtype=np.int64) if best is None else np.flatnonzero(best.counts.any(axis=0))
            chosen = np.union1d(everything[relaxed.used > MIN_USED], used).astype(np.int64)
        initial = None if best is None else StartingPlan(best.counts, best.machines)
        solved = Program(problem, chosen).solve(left(1.0), gap, initial)
        if solved is not None and (best is None or solved.cost < best.cost * (1.0 - MIN_GAIN)):
            best = _of_columns(problem, chosen, solved)
    progress(1.0)
    return None if best is None else replace(best, bound=max(0.0, min(bound, best.cost)), seconds=monotonic() - start)


def _of_columns(problem: Problem, columns: Ints, solution: Solution | ProgramSolution) -> Solution:
    """Return a plan over some columns of a problem as one over all of them, with none of the others."""
    counts = np.zeros((problem.levels, len(problem.columns)), dtype=np.int64)
    shares = np.zeros((problem.levels, len(problem.columns), problem.demand.shape[1]))
    counts[:, columns], shares[:, columns] = solution.counts, solution.shares
    late = None
    if problem.late is not None:
        late = np.zeros_like(shares)
        if solution.late is not None:
            late[:, columns] = solution.late
    return Solution(
        solution.cost, solution.bound, counts, shares, solution.machines, solution.jobs, len(columns), 0.0, solution.change, late
    )
