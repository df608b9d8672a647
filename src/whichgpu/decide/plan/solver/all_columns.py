"""Solutions over all kinds of replica (columns) of a problem, from those of a program with some of them."""

from __future__ import annotations

import numpy as np

from whichgpu.decide.plan.solver.problem import Ints, Problem, Solution
from whichgpu.decide.plan.solver.program import ProgramSolution


def empty_solution(problem: Problem) -> Solution:
    """Return the plan of a problem without requests: no replicas, no cost."""
    counts = np.zeros((problem.levels, len(problem.columns)), dtype=np.int64)
    shares = np.zeros((problem.levels, len(problem.columns), problem.demand.shape[1]))
    return Solution(0.0, 0.0, counts, shares, {}, (), 0, 0.0, late=None if problem.late is None else np.zeros_like(shares))


def of_all_columns(problem: Problem, chosen: Ints, solved: ProgramSolution, bound: float, seconds: float) -> Solution:
    """Return a program's solution extended to all kinds of replica (columns), with none of those it left out."""
    counts = np.zeros((problem.levels, len(problem.columns)), dtype=np.int64)
    shares = np.zeros((problem.levels, len(problem.columns), problem.demand.shape[1]))
    counts[:, chosen], shares[:, chosen] = solved.counts, solved.shares
    late = None
    if solved.late is not None:
        late = np.zeros_like(shares)
        late[:, chosen] = solved.late
    proven = max(0.0, min(bound, solved.cost))
    return Solution(solved.cost, proven, counts, shares, solved.machines, solved.jobs, len(chosen), seconds, solved.change, late)
