"""Why there is no plan: which constraint stands in the way, and the smallest change that would give one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil

import numpy as np

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_seconds, significant
from whichgpu.decide.plan.build import Built
from whichgpu.decide.plan.problem import Problem, Quota, Solution
from whichgpu.decide.plan.program import servable
from whichgpu.decide.plan.solve import solve

SECONDS = 4.0  # a trial
Trial = tuple[Message, Message]


def refusal(built: Built, currency: str) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Reasons, and ways out, each enough by itself where nothing else is said."""
    unserved = np.flatnonzero(~servable(built.problem)).tolist()
    if unserved:
        return _unserved(built, unserved)
    reasons, ways_out = [], []
    for reason, way in (
        *_budget(built.problem, currency),
        *_quotas(built.problem),
        *_owned(built.problem),
        *_jobs(built.problem),
    ):
        reasons.append(reason)
        ways_out.append(way)
    if not reasons:
        reasons.append(msg("plan.no-together"))
    share = _share(built.problem)
    if share is not None:
        ways_out.append(msg("plan.relax-rate", share=f"{share:.0%}"))
    return tuple(reasons), tuple(ways_out)


def _unserved(built: Built, buckets: list[int]) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Buckets no copy can serve: for want of memory, or of speed; and how far the nearest is off."""
    reasons, ways_out = [], []
    for model in sorted({built.bucket(place)[0] for place in buckets}):
        one = built.served[model]
        mine = [built.bucket(place)[1] for place in buckets if built.bucket(place)[0] == model]
        share = sum(one.traffic.buckets[b].share for b in mine)
        hardest = max((one.traffic.buckets[b] for b in mine), key=lambda bucket: bucket.prompt + bucket.output)
        tried = [copy for row in built.copies[model] for copy in row]
        late = [copy for copy in tried if copy.short not in ("", "memory")]
        if late:
            nearest = min(late, key=lambda copy: copy.off)
            limit = getattr(one.goals, f"{nearest.short}_max")
            reasons.append(
                msg(
                    "plan.no-objective",
                    model=one.name,
                    share=f"{share:.1%}",
                    bucket=hardest.name,
                    goal=msg(f"plan.goal-{nearest.short}"),
                    limit=format_seconds(limit),
                )
            )
            wanted = format_seconds(_up(limit * (1 + nearest.off))).replace(" ", "")
            ways_out.append(msg("plan.relax-goal", flag=f"--{nearest.short}", value=wanted))
        elif not tried and one.engine is not None:
            reasons.append(msg("plan.no-engine", model=one.name, engine=one.engine.name))
            ways_out.append(msg("plan.relax-engine"))
        else:
            reasons.append(msg("plan.no-memory", model=one.name, share=f"{share:.1%}", bucket=hardest.name))
            ways_out.append(msg("plan.relax-memory"))
    return tuple(reasons), tuple(ways_out)


def _budget(problem: Problem, currency: str) -> list[Trial]:
    if problem.budget is None or (found := solve(replace(problem, budget=None), 2 * SECONDS, 0.005)) is None:
        return []
    value = f"{significant(_up(found.cost))}{currency.lower()}/h"
    reason = msg("plan.no-budget", budget=f"{problem.budget:.4g} {currency}/h", least=f"{significant(found.bound)} {currency}/h")
    return [(reason, msg("plan.relax-budget", value=value))]


def _quotas(problem: Problem) -> list[Trial]:
    told = []
    for place, quota in enumerate(problem.quotas):
        others = (*problem.quotas[:place], *problem.quotas[place + 1 :])
        found = _solved(replace(problem, quotas=others))
        if found is not None:

            def grown(most: float, quota: Quota = quota, others: tuple[Quota, ...] = others) -> Problem:
                return replace(problem, quotas=(*others, replace(quota, most=most)))

            needed = _least(grown, quota.most, _gpus(problem, found, quota.pools))
            told.append(
                (
                    msg("plan.no-quota", name=quota.name, most=f"{quota.most:g}"),
                    msg("plan.relax-quota", name=quota.name, most=needed),
                )
            )
    return told


def _owned(problem: Problem) -> list[Trial]:
    """More of what is owned, kind by kind."""
    told = []
    for p, pool in enumerate(problem.pools):
        if not any(way.term == "owned" for way in pool.ways):
            continue

        def grown(most: float, p: int = p) -> Problem:
            pool = problem.pools[p]
            ways = tuple(replace(way, most=most) for way in pool.ways)
            return replace(problem, pools=(*problem.pools[:p], replace(pool, ways=ways), *problem.pools[p + 1 :]))

        found = _solved(grown(1e4))
        if found is not None:
            needed = _least(grown, pool.ways[0].most, _gpus(problem, found, frozenset([p])))
            told.append(
                (
                    msg("plan.no-owned", gpu=pool.gpu, most=f"{pool.ways[0].most:g}"),
                    msg("plan.relax-owned", gpu=pool.gpu, most=needed),
                )
            )
    return told


def _jobs(problem: Problem) -> list[Trial]:
    told = []
    for job in problem.jobs:
        able = np.isfinite(job.wall)
        if not able.any():
            told.append((msg("plan.no-job-memory", name=job.name), msg("plan.relax-memory")))
        elif not job.divisible and float(job.wall[able].min()) > job.window:
            least = float(job.wall[able].min())
            told.append(
                (
                    msg("plan.no-deadline", name=job.name, deadline=f"{significant(job.window)} h"),
                    msg("plan.relax-deadline", name=job.name, value=f"{significant(_up(least))}h"),
                )
            )
    return told


def _share(problem: Problem) -> float | None:
    """How much of the traffic could be served: halved until it can."""
    low, high = 0.0, 1.0
    for _ in range(7):
        middle = (low + high) / 2
        low, high = (middle, high) if _solved(replace(problem, demand=problem.demand * middle)) else (low, middle)
    return low if low > 0 else None


def _least(grown: Callable[[float], Problem], low: float, high: float) -> int:
    """The smallest whole number between one that is too few and one that is enough."""
    few, enough = int(low), max(ceil(high), int(low) + 1)
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if _solved(grown(float(middle))) else (middle, enough)
    return enough


def _solved(problem: Problem) -> Solution | None:
    return solve(problem, SECONDS, 0.05)


def _gpus(problem: Problem, found: Solution, pools: frozenset[int]) -> float:
    """Most GPUs of some pools at any level."""
    told = [
        sum(n * problem.pools[p].size for (at, p, _), n in found.machines.items() if at == level and p in pools)
        for level in range(problem.levels)
    ]
    return float(max(told, default=0))


def _up(value: float) -> float:
    """Rounded up to three digits, so that it suffices."""
    if value <= 0:
        return 0.0
    scale = 10.0 ** (int(np.floor(np.log10(value))) - 2)
    return float(ceil(value / scale * (1 - 1e-9)) * scale)
