"""Dominated columns and pools: those that another can replace for every bucket at no higher cost."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from whichgpu.decide.plan.solver.problem import Bools, Floats, Pool, Problem

MAX_JUDGES = 64  # Only the best columns by throughput per price are tested as dominating others.
ROUNDING = 1e-9  # Tolerance of the fast test of pools, whose rates and prices are per GPU.
MAX_POOLS = 400  # Pools are compared pairwise up to this number.


def undominated(problem: Problem) -> Bools:
    """Return a mask of the kinds of replica (columns) that no other matches for every request bucket at no higher cost.

    Only columns that fill a machine of a pool without limits are compared, at both the rented and the committed price.
    """
    count = len(problem.columns)
    remaining = np.ones(count, dtype=bool)
    if problem.quotas or problem.current is not None:
        return remaining
    rented, committed, free = _prices(problem)
    judged = np.flatnonzero(free)
    demanded: Bools = np.any(problem.demand > 0, axis=0)
    rates = _compared_rates(problem, demanded)
    if not len(judged) or not demanded.any():
        return remaining
    score = (rates[judged] / np.maximum(rates.max(axis=0), 1e-300)).sum(axis=1) / np.maximum(rented[judged], 1e-300)
    judges = judged[np.argsort(-score, kind="stable")[:MAX_JUDGES]]
    for k in judges.tolist():
        if not remaining[k]:
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            times = rates[judged] / rates[k][None, :]
        times = np.where(rates[judged] > 0, times, 0.0)
        longest = np.max(times, axis=1)
        able = np.isfinite(longest)  # A bucket that k cannot serve is served by no number of k's replicas, even if k is free.
        needed = np.where(able, np.maximum(1.0, np.ceil(longest - 1e-9)), 1.0)
        dominated = able & (needed * rented[k] <= rented[judged]) & (needed * committed[k] <= committed[judged])
        alike = dominated & (needed == 1) & (rented[judged] == rented[k]) & (committed[judged] == committed[k])
        same = alike & (rates[judged] == rates[k][None, :]).all(axis=1)
        remaining[judged[dominated & ~(same & (judged <= k))]] = False
        remaining[k] = True
    return remaining


def _compared_rates(problem: Problem, demanded: Bools) -> Floats:
    """Return the rates to compare columns by: of demanded buckets on time and, if that is allowed, at best, on time or late."""
    rates = [problem.rates[:, demanded]] + ([problem.best_rates[:, demanded]] if problem.late is not None else [])
    return np.concatenate(rates, axis=1)


def _prices(problem: Problem) -> tuple[Floats, Floats, Bools]:
    """Return rented and committed machine prices of each kind of replica, and which kinds fill machines of unlimited supply."""
    rented, committed = np.full(len(problem.columns), np.inf), np.full(len(problem.columns), np.inf)
    free = np.zeros(len(problem.columns), dtype=bool)
    for j, p in enumerate(problem.pool_of.tolist()):
        pool = problem.pools[p]
        rented[j] = min((option.price for option in pool.options if not option.committed), default=np.inf)
        committed[j] = min((option.price for option in pool.options if option.committed), default=np.inf)
        bounded = any(np.isfinite(option.limit) or (option.term == "spot" and problem.spot_share < 1) for option in pool.options)
        free[j] = problem.uses[j] == pool.size and not bounded
    return rented, committed, free


def dominated_pools(problem: Problem) -> Bools:
    """Return a mask of the pools of unlimited equal machines that another pool's machines can always replace.

    The other has the same GPU count, costs no more on any kind of term, is under no further quota, and for every replica here it
    has replicas that are as fast on no more GPUs. Unlike `undominated` this also holds with commitments, several models or spot.
    """
    count = len(problem.pools)
    dominated = np.zeros(count, dtype=bool)
    if count > MAX_POOLS:
        return dominated
    columns: dict[int, list[int]] = defaultdict(list)
    for j, p in enumerate(problem.pool_of.tolist()):
        columns[p].append(j)
    quotas = [frozenset(q for q, quota in enumerate(problem.quotas) if p in quota.pools) for p in range(count)]
    demanded: Bools = np.any(problem.demand > 0, axis=0)
    rates = _compared_rates(problem, demanded)
    free = np.array([all(not np.isfinite(option.limit) for option in pool.options) for pool in problem.pools], dtype=bool)
    may_replace = _may_replace(problem, rates)
    for p in range(count):
        if not free[p] or not columns[p]:
            continue
        for q in np.flatnonzero(free & may_replace[p]).tolist():
            if q == p or not quotas[q] <= quotas[p] or not _no_dearer(problem.pools[q], problem.pools[p]):
                continue
            if problem.current is not None and problem.pools[q].gpu != problem.pools[p].gpu:
                continue
            if _covers(rates, problem, columns[q], columns[p]) and not (
                q > p
                and _no_dearer(problem.pools[p], problem.pools[q])
                and quotas[p] == quotas[q]
                and _covers(rates, problem, columns[p], columns[q])
            ):
                dominated[p] = True  # Of two pools that dominate each other, the first stays.
                break
    return dominated


def _may_replace(problem: Problem, rates: Floats) -> Bools:
    """Return which pools [replaced, replacing] are no dearer per GPU and no slower per GPU at any bucket, if only at their best.

    It is a fast test that a pool which replaces another always passes.
    """
    price = np.array([min((option.price for option in pool.options), default=np.inf) / pool.size for pool in problem.pools])
    fastest = np.zeros((len(problem.pools), rates.shape[1]))
    np.maximum.at(fastest, problem.pool_of, rates / problem.uses[:, None])
    faster = (fastest[None, :, :] * (1.0 + ROUNDING) >= fastest[:, None, :]).all(axis=2)
    return faster & (price[None, :] <= price[:, None] * (1.0 + ROUNDING))


def _no_dearer(here: Pool, there: Pool) -> bool:
    """Return whether each price of pool `there` is matched by one of `here`, no higher per GPU, on no more restrictive a term."""
    if there.size % here.size:
        return False
    times = there.size // here.size
    return all(
        any(
            times * mine.price <= option.price
            and (not mine.committed or option.committed)
            and (mine.term != "spot" or option.term == "spot")
            for mine in here.options
        )
        for option in there.options
    )


def _covers(rates: Floats, problem: Problem, here: list[int], there: list[int]) -> bool:
    """Return whether, for every kind of replica in `there`, `here` has one as fast for every bucket on no more GPUs."""
    for j in there:
        served = np.flatnonzero(rates[j])
        if not len(served):
            continue
        able = np.array([k for k in here if rates[k, served[0]] > 0 and problem.uses[k] <= problem.uses[j]], dtype=np.int64)
        times = problem.uses[j] // problem.uses[able]
        if not len(able) or not (rates[np.ix_(able, served)] * times[:, None] >= rates[j, served][None, :]).all(axis=1).any():
            return False
    return True
