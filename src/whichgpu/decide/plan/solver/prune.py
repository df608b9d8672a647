"""Fewer columns without losing a plan: pools that perform alike become one, and what another beats at every bucket goes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from whichgpu.decide.plan.solver.problem import Bools, Floats, Pool, PriceOption, Problem, Quota

DIGITS = 9  # to which rates are compared
JUDGES = 64  # columns that may rule others out
POOLS = 400  # that are compared each with each


def grouped(problem: Problem) -> Problem:
    """The same problem with pools of identical performance as one; of unlimited ways on one footing the cheapest is kept."""
    columns: dict[int, list[int]] = defaultdict(list)
    for j, p in enumerate(problem.pool_of.tolist()):
        columns[p].append(j)
    alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for p, pool in enumerate(problem.pools):
        mine = tuple((int(problem.uses[j]), _rounded(problem.rates[j]).tobytes()) for j in columns[p])
        quotas = tuple(q for q, quota in enumerate(problem.quotas) if p in quota.pools)
        times = tuple(round(float(job.hours[p]), 6) for job in problem.jobs)
        alike[pool.size, pool.gpu if problem.current else "", mine, quotas, times].append(p)
    if len(alike) == len(problem.pools):
        return problem
    places = list(alike.values())
    pools = tuple(_joined([problem.pools[p] for p in group]) for group in places)
    kept = [j for group in places for j in columns[group[0]]]
    pool_of = np.array([at for at, group in enumerate(places) for _ in columns[group[0]]], dtype=np.int64)
    limits = tuple(
        Quota(quota.name, frozenset(at for at, group in enumerate(places) if group[0] in quota.pools), quota.most)
        for quota in problem.quotas
    )
    first = [group[0] for group in places]
    return replace(
        problem,
        pools=pools,
        columns=tuple(problem.columns[j] for j in kept),
        pool_of=pool_of,
        uses=problem.uses[kept],
        rates=problem.rates[kept],
        quotas=limits,
        jobs=tuple(replace(job, hours=job.hours[first]) for job in problem.jobs),
    )


def _rounded(rates: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        scale = 10.0 ** (DIGITS - 1 - np.floor(np.log10(np.where(rates > 0, rates, 1.0))))
    told: Floats = np.round(rates * scale) / scale
    return told


def _joined(pools: list[Pool]) -> Pool:
    options: list[PriceOption] = []
    for committed in (False, True):
        mine = sorted(
            (option for pool in pools for option in pool.options if option.committed == committed),
            key=lambda option: option.price,
        )
        for option in mine:
            options.append(option)
            if not np.isfinite(option.most):
                break  # nothing dearer is ever taken
    return replace(pools[0], options=tuple(options))


def undominated(problem: Problem) -> Bools:
    """Columns that no whole number of another's copies beats: at every bucket at least as fast, in all no dearer.

    Judged are columns that fill a machine of a pool without limits, on what the pool costs in each of its ways.
    """
    count = len(problem.columns)
    kept = np.ones(count, dtype=bool)
    if problem.quotas or problem.current is not None:
        return kept
    plain, standing, free = _prices(problem)
    judged = np.flatnonzero(free)
    asked = (problem.demand > 0).any(axis=0)
    rates = problem.rates[:, asked]
    if not len(judged) or not asked.any():
        return kept
    worth = (rates[judged] / np.maximum(rates.max(axis=0), 1e-300)).sum(axis=1) / np.maximum(plain[judged], 1e-300)
    judges = judged[np.argsort(-worth, kind="stable")[:JUDGES]]
    for k in judges.tolist():
        if not kept[k]:
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            times = rates[judged] / rates[k][None, :]
        times = np.where(rates[judged] > 0, times, 0.0)
        most = np.max(times, axis=1)
        able = np.isfinite(most)  # No number of k's copies serves a bucket that k cannot serve, even if k is free of charge.
        needed = np.where(able, np.maximum(1.0, np.ceil(most - 1e-9)), 1.0)
        beaten = able & (needed * plain[k] <= plain[judged]) & (needed * standing[k] <= standing[judged])
        alike = beaten & (needed == 1) & (plain[judged] == plain[k]) & (standing[judged] == standing[k])
        same = alike & (rates[judged] == rates[k][None, :]).all(axis=1)
        kept[judged[beaten & ~(same & (judged <= k))]] = False
        kept[k] = True
    return kept


def _prices(problem: Problem) -> tuple[Floats, Floats, Bools]:
    """Of a whole machine of each column's pool, plain and committed; and which columns have it to themselves without limits."""
    plain, standing = np.full(len(problem.columns), np.inf), np.full(len(problem.columns), np.inf)
    free = np.zeros(len(problem.columns), dtype=bool)
    for j, p in enumerate(problem.pool_of.tolist()):
        pool = problem.pools[p]
        plain[j] = min((option.price for option in pool.options if not option.committed), default=np.inf)
        standing[j] = min((option.price for option in pool.options if option.committed), default=np.inf)
        bounded = any(np.isfinite(option.most) or (option.term == "spot" and problem.spot_share < 1) for option in pool.options)
        free[j] = problem.uses[j] == pool.size and not bounded
    return plain, standing, free


def dominated_pools(problem: Problem) -> Bools:
    """Pools without limits in whose place another's machines would always do: as many GPUs, no dearer in any way of having them,
    within the same quotas, and every copy there has copies here that are at least as fast on no more GPUs.

    Whatever ties levels, models or spot shares together still holds with the other's machines, which `undominated` cannot say.
    """
    count = len(problem.pools)
    beaten = np.zeros(count, dtype=bool)
    if count > POOLS:
        return beaten
    columns: dict[int, list[int]] = defaultdict(list)
    for j, p in enumerate(problem.pool_of.tolist()):
        columns[p].append(j)
    quotas = [frozenset(q for q, quota in enumerate(problem.quotas) if p in quota.pools) for p in range(count)]
    asked = (problem.demand > 0).any(axis=0)
    rates = problem.rates[:, asked]
    free = [all(not np.isfinite(option.most) for option in pool.options) for pool in problem.pools]
    for p in range(count):
        if not free[p] or not columns[p]:
            continue
        for q in range(count):
            if q == p or not free[q] or not quotas[q] <= quotas[p] or not _no_dearer(problem.pools[q], problem.pools[p]):
                continue
            if problem.current is not None and problem.pools[q].gpu != problem.pools[p].gpu:
                continue
            if _covers(rates, problem, columns[q], columns[p]) and not (
                q > p
                and _no_dearer(problem.pools[p], problem.pools[q])
                and quotas[p] == quotas[q]
                and _covers(rates, problem, columns[p], columns[q])
            ):
                beaten[p] = True  # of two that beat each other the first stays
                break
    return beaten


def _no_dearer(here: Pool, there: Pool) -> bool:
    """Whether every way of having machines there has one here that costs no more for as many GPUs and ties to no more."""
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
    """Whether every column there has one here whose copies, on no more GPUs, serve at least as much of everything."""
    for j in there:
        served = np.flatnonzero(rates[j])
        if not len(served):
            continue
        able = np.array([k for k in here if rates[k, served[0]] > 0 and problem.uses[k] <= problem.uses[j]], dtype=np.int64)
        times = problem.uses[j] // problem.uses[able]
        if not len(able) or not (rates[np.ix_(able, served)] * times[:, None] >= rates[j, served][None, :]).all(axis=1).any():
            return False
    return True
