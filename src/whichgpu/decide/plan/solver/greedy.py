"""A plan to begin with: the machine that earns most for its price, again and again; then fewer and cheaper ones, while it holds.

Small fleets of many kinds to choose from are where a search tree is slow and this is quick: each trial is a linear program of the
few columns in use.
"""

from __future__ import annotations

from time import monotonic

import numpy as np

from whichgpu.decide.plan.solver.growth import max_growth
from whichgpu.decide.plan.solver.problem import Bools, Floats, Ints, Problem

COLUMNS = 400  # that are looked at, best first
MOST = 60  # machines beyond which rounding the relaxation does as well
SWAPS = 30  # cheaper columns tried in the place of one in use
DONE = 1e-9


def greedy_applies(problem: Problem) -> bool:
    """Whether it is a problem this can begin: one level, machines without limits, nothing beside serving."""
    bounded = any(np.isfinite(option.most) for pool in problem.pools for option in pool.options)
    filled = all(problem.uses[j] == problem.pools[int(p)].size for j, p in enumerate(problem.pool_of))
    beside = (
        problem.quotas or problem.jobs or problem.current is not None or problem.budget is not None or problem.slices is not None
    )
    spot = problem.spot_share < 1 and any(option.term == "spot" for pool in problem.pools for option in pool.options)
    return problem.levels == 1 and not bounded and filled and not beside and not spot


def greedy_start(problem: Problem, loads: Floats, prices: Floats, each: Floats, free: Bools, end: float) -> Ints | None:
    """Copies of every column, made by earnings at these prices and then bettered until `end`; None where there would be many."""
    density = np.divide(prices[None, :], loads, out=np.zeros_like(loads), where=loads > 0)
    worth = np.where(free, density.max(axis=1) / np.maximum(each, 1e-12), 0.0)
    chosen = np.argsort(-worth, kind="stable")[: min(COLUMNS, int((worth > 0).sum()))]
    counts = _greedy(loads[chosen], density[chosen], prices, each[chosen], problem.room)
    if counts is None:
        return None
    copies = np.zeros(len(problem.columns), dtype=np.int64)
    copies[chosen] = counts
    return _better(problem, copies, each, chosen, end) if _holds(problem, copies) else None


def _greedy(loads: Floats, density: Floats, prices: Floats, each: Floats, room: float) -> Ints | None:
    order = np.argsort(-density, axis=1, kind="stable")
    ranked = np.take_along_axis(np.where(np.isfinite(loads), loads, 0.0), order, axis=1)
    able = np.take_along_axis(density > 0, order, axis=1)
    paid = np.where(able, prices[order], 0.0)
    left = np.where(prices > 0, 1.0, 0.0)
    counts = np.zeros(len(loads), dtype=np.int64)
    for _ in range(MOST):
        mine = left[order] * able
        work = ranked * mine
        before = np.cumsum(work, axis=1) - work
        taken = np.clip((room - before) / np.maximum(work, 1e-300), 0.0, 1.0) * mine
        best = int(np.argmax((taken * paid).sum(axis=1) / each))
        counts[best] += 1
        left[order[best]] -= taken[best]
        if left.max() <= DONE:
            return counts
    return None


def _better(problem: Problem, copies: Ints, each: Floats, chosen: Ints, end: float) -> Ints:
    """Drop what is not needed, dearest first; then put something cheaper in the place of each, while that helps."""
    copies = _dropped(problem, copies, each, end)
    gained = True
    while gained and monotonic() < end:
        gained = False
        for j in sorted(np.flatnonzero(copies).tolist(), key=lambda one: -each[one]):
            cheaper = [int(k) for k in chosen if each[k] < each[j] * (1 - 1e-6)][:SWAPS]
            for k in sorted(cheaper, key=lambda one: each[one]):
                if monotonic() > end:
                    return copies
                trial = copies.copy()
                trial[j] -= 1
                trial[k] += 1
                if _holds(problem, trial):
                    copies, gained = _dropped(problem, trial, each, end), True
                    break
            if gained:
                break
    return copies


def _dropped(problem: Problem, copies: Ints, each: Floats, end: float) -> Ints:
    for j in sorted(np.flatnonzero(copies).tolist(), key=lambda one: -each[one]):
        while copies[j] and monotonic() < end:
            trial = copies.copy()
            trial[j] -= 1
            if not _holds(problem, trial):
                break
            copies = trial
    return copies


def _holds(problem: Problem, copies: Ints) -> bool:
    return bool(copies.any()) and max_growth(problem, copies, 0).factor >= 1 - 1e-9
