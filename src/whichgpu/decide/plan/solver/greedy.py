"""A greedy starting plan: add the machine that earns most for its price, then drop and replace machines while all is served.

It is fast where branch and bound is slow: small fleets with many kinds of machines. Each trial takes some milliseconds
(`capacity_test.py`).
"""

from __future__ import annotations

from time import monotonic

import numpy as np

from whichgpu.decide.plan.solver.capacity_test import CapacityTest
from whichgpu.decide.plan.solver.problem import Bools, Floats, Ints, Problem

MAX_COLUMNS = 400  # At most this many columns are considered, best first.
MAX_MACHINES = 60  # Larger fleets get no greedy plan, since rounding the linear relaxation does as well.
MAX_SWAPS = 40  # At most this many columns, best first, are tried in place of those in use.
MIN_SAVING = 1e-6  # A swap that saves less of the price is not tried.
DONE = 1e-9  # A bucket counts as served if less than this share is left.


def greedy_applies(problem: Problem) -> bool:
    """Return whether the greedy plan applies: one load level, no limits on machines, quotas or budget, no jobs or losses."""
    bounded = any(np.isfinite(option.limit) for pool in problem.pools for option in pool.options)
    filled = all(problem.uses[j] == problem.pools[int(p)].size for j, p in enumerate(problem.pool_of))
    limited = problem.current is not None or problem.budget is not None or problem.slices is not None
    constrained = problem.quotas or problem.jobs or problem.losses or limited
    spot = problem.spot_share < 1 and any(option.term == "spot" for pool in problem.pools for option in pool.options)
    return problem.levels == 1 and not bounded and filled and not constrained and not spot


def greedy_start(
    problem: Problem, loads: Floats, prices: Floats, each: Floats, free: Bools, test: CapacityTest, end: float
) -> Ints | None:
    """Return replicas of every kind (column), by what they earn at bucket prices, improved until `end`; None if too many."""
    loads = _typical_loads(loads, len(prices))
    density = np.divide(prices[None, :], loads, out=np.zeros_like(loads), where=loads > 0)
    score = np.where(free, density.max(axis=1) / np.maximum(each, 1e-12), 0.0)
    chosen = np.argsort(-score, kind="stable")[: min(MAX_COLUMNS, int((score > 0).sum()))]
    first = _greedy(loads[chosen], density[chosen], prices, each[chosen], problem.room)
    if first is None:
        return None
    counts = np.zeros(len(problem.columns), dtype=np.int64)
    counts[chosen], order = first
    return _improved(test, counts, each, chosen[order[:MAX_SWAPS]], end) if test.serves(counts) else None


def _typical_loads(loads: Floats, width: int) -> Floats:
    """Return the load of each bucket on each column: on time, or late if no column serves the bucket on time."""
    if loads.shape[1] == width:
        return loads
    on_time, late = loads[:, :width], loads[:, width:]
    return np.where(np.any(np.isfinite(on_time), axis=0, keepdims=True), on_time, late)


def _greedy(loads: Floats, density: Floats, prices: Floats, each: Floats, room: float) -> tuple[Ints, Ints] | None:
    """Return the replicas of each kind that earn most for their price, one after the other, and the kinds, best first."""
    order = np.argsort(-density, axis=1, kind="stable")
    ranked = np.take_along_axis(np.where(np.isfinite(loads), loads, 0.0), order, axis=1)
    able = np.take_along_axis(density > 0, order, axis=1)
    paid = np.where(able, prices[order], 0.0)
    left = np.where(prices > 0, 1.0, 0.0)
    counts = np.zeros(len(loads), dtype=np.int64)
    first: Ints | None = None
    for _ in range(MAX_MACHINES):
        mine = left[order] * able
        work = ranked * mine
        before = np.cumsum(work, axis=1) - work
        served = np.clip((room - before) / np.maximum(work, 1e-300), 0.0, 1.0) * mine
        earned = (served * paid).sum(axis=1) / each
        first = np.argsort(-earned, kind="stable") if first is None else first
        best = int(np.argmax(earned))
        counts[best] += 1
        left[order[best]] -= served[best]
        if left.max() <= DONE:
            return counts, first
    return None


def _improved(test: CapacityTest, counts: Ints, each: Floats, others: Ints, end: float) -> Ints:
    """Return the counts after dropping unneeded machines, costliest first, and replacing one or two by cheaper ones."""
    counts = _dropped(test, counts, each, end)
    gained = True
    while gained:
        gained = False
        for _, removed, added in _swaps(counts, each, others):
            if monotonic() > end:
                return counts
            trial = counts.copy()
            np.subtract.at(trial, list(removed), 1)
            trial[added] += 1
            if test.serves(trial):
                counts, gained = _dropped(test, trial, each, end), True
                break
    return counts


def _swaps(counts: Ints, each: Floats, others: Ints) -> list[tuple[float, tuple[int, ...], int]]:
    """Return swaps of one or two machines for a cheaper one (saving, removed, added), those that save least first."""
    used = np.flatnonzero(counts).tolist()
    removals: list[tuple[int, ...]] = [(j,) for j in used]
    removals += [(j, k) for at, j in enumerate(used) for k in used[at:] if j != k or counts[j] > 1]
    swaps = [(float(each[list(out)].sum() - each[k]), out, int(k)) for out in removals for k in others]
    return sorted(one for one in swaps if one[0] > MIN_SAVING * float(each[list(one[1])].sum()))


def _dropped(test: CapacityTest, counts: Ints, each: Floats, end: float) -> Ints:
    for j in sorted(np.flatnonzero(counts).tolist(), key=lambda one: -each[one]):
        while counts[j] and monotonic() < end:
            trial = counts.copy()
            trial[j] -= 1
            if not test.serves(trial):
                break
            counts = trial
    return counts
