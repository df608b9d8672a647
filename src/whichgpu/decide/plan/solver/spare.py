"""Plans that serve their load after the loss of any one machine (N+1)."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import numpy as np
from msgspec.structs import replace

from whichgpu.decide.plan.solver.growth import max_growth
from whichgpu.decide.plan.solver.problem import Problem, Solution

MAX_ROUNDS = 12  # At most this many programs are solved, each with more losses to tolerate.
ROUNDING = 1e-6  # Tolerance of the share of the load that is served.
Progress = Callable[[float], None]
Solve = Callable[[Problem, float, float, Progress], Solution | None]


def solve_with_spare(problem: Problem, seconds: float, gap: float, solve: Solve, progress: Progress) -> Solution | None:
    """Return the cheapest plan whose load is served after the loss of any one machine; None if none is found.

    Only losses that a plan does not tolerate become rows of the next program. The last one has all that matter to its plan, and
    fewer rows than the whole question, so its bound holds for the whole.
    """
    start, losses = monotonic(), frozenset[tuple[int, int]]()
    for done in range(MAX_ROUNDS):
        left = max(1.0, seconds - (monotonic() - start))
        solution = solve(replace(problem, spare=False, losses=tuple(sorted(losses))), left, gap, lambda _: None)
        progress((done + 1) / MAX_ROUNDS)
        if solution is None:
            return None
        missing = intolerable_losses(problem, solution)
        if not missing:
            return replace(solution, seconds=monotonic() - start)
        losses |= missing
    return None


def intolerable_losses(problem: Problem, solution: Solution) -> frozenset[tuple[int, int]]:
    """Return level and column of each machine without which the others cannot serve the level's load, busy all the time."""
    missing = set()
    for level, counts in enumerate(solution.counts):
        for j in np.flatnonzero(counts).tolist():
            left = counts.copy()
            left[j] = max(0, left[j] - problem.replicas_lost(j))
            if max_growth(problem, left, level, room=1.0).factor < 1.0 - ROUNDING:
                missing.add((level, j))
    return frozenset(missing)
