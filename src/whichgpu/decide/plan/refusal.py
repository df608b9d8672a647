"""Why there is no plan: which constraint stands in the way, and the smallest change that would give one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, Protocol

import numpy as np

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_seconds, significant
from whichgpu.decide.plan.capacity import Goals, ReplicaCapacity
from whichgpu.decide.plan.solver.build import Formulation, ServedModel
from whichgpu.decide.plan.solver.problem import Problem, Quota, Solution
from whichgpu.decide.plan.solver.program import servable
from whichgpu.decide.plan.solver.solve import solve
from whichgpu.decide.plan.verify import SimulatedModel

SECONDS = 4.0  # a trial
MOST_BUCKETS = 3  # of those nobody serves, named one by one


@dataclass(frozen=True, slots=True)
class Relaxation:
    """One change that may give a plan, in words and by its part of the request.

    `part` is goals, headroom, budget, quota, owned, deadline or rate. `values` are by name: of goals, seconds by model and
    objective; of quotas, owned GPUs and deadlines, the new number; of the budget its text, of the rate the share that is left.
    """

    message: Message | None
    part: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reasons why there is no plan, how many configurations each removed, and changes of which each may be enough alone.

    `advice` is for people, where no change of a number helps.
    """

    reasons: tuple[Message, ...]
    rejected: Mapping[str, int]
    relaxations: tuple[Relaxation, ...] = ()
    advice: tuple[Message, ...] = ()


Trial = tuple[str, int, Message, Relaxation | Message]  # reason for programs, its count, reason for people, what would help


def refusal(formulation: Formulation, currency: str) -> Refusal:
    """Why this problem has no solution."""
    unserved = np.flatnonzero(~servable(formulation.problem)).tolist()
    if unserved:
        return _unserved(formulation, unserved)
    problem = formulation.problem
    trials = [*_budget(problem, currency), *_quotas(problem), *_owned(problem), *_jobs(problem)]
    rejected: Counter[str] = Counter()
    for name, count, _, _ in trials:
        rejected[name] += count
    reasons = tuple(reason for _, _, reason, _ in trials) or (msg("plan.no-together"),)
    relaxations = [change for *_, change in trials if isinstance(change, Relaxation)]
    share = servable_share(problem)
    if share is not None:
        relaxations.append(Relaxation(msg("plan.relax-rate", share=f"{share:.0%}"), "rate", {"share": share}))
    advice = tuple(change for *_, change in trials if isinstance(change, Message))
    return Refusal(reasons, dict(rejected) or {"limits": len(problem.columns)}, tuple(relaxations), advice)


def missed(checked: Sequence[SimulatedModel], served: Sequence[ServedModel], fleets: Mapping[str, int], fixed: bool) -> Refusal:
    """Changes for a fleet whose simulation misses objectives: another headroom if that is `fixed`, and the seconds it keeps.

    `fleets` counts those simulated by the objective they missed.
    """
    goals = {one.name: one.goals for one in served}
    needed = {one.model: _kept(one, goals[one.model]) for one in checked if not one.holds}
    relaxations = [Relaxation(msg("relax.without", flag="--headroom"), "headroom", {"headroom": None})] if fixed else []
    if all(needed.values()):
        relaxations.append(Relaxation(None, "goals", needed))
    return Refusal((), fleets, tuple(relaxations))


def _kept(one: SimulatedModel, goals: Goals) -> dict[str, float]:
    """Seconds at the percentile of each objective that is missed; none where requests were refused."""
    limits = {name: limit for name in ("ttft", "tpot", "latency") if (limit := getattr(goals, f"{name}_max")) is not None}
    seconds = {name: float(getattr(one, name)) for name in limits}
    if not all(np.isfinite(value) for value in seconds.values()):
        return {}
    over = {name: value for name, value in seconds.items() if value > limits[name]}
    if limits and not over:  # Each objective holds by itself, and too few requests meet all of them.
        over = {one.worst: limits[one.worst]}
    return {name: rounded_up(value) for name, value in over.items()}


@dataclass(slots=True)
class _Found:
    """What is put together model by model."""

    reasons: list[Message] = field(default_factory=list)
    advice: list[Message] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)
    goals: dict[str, dict[str, float]] = field(default_factory=dict)


def _unserved(formulation: Formulation, buckets: list[int]) -> Refusal:
    """Buckets no replica can serve, for want of memory or of speed, each with its share of the requests."""
    found = _Found()
    for model in sorted({formulation.bucket(place)[0] for place in buckets}):
        one = formulation.served[model]
        mine = [formulation.bucket(place)[1] for place in buckets if formulation.bucket(place)[0] == model]
        tried = [copy for row in formulation.copies[model] for copy in row]
        if not tried and one.engine is not None:
            found.reasons.append(msg("plan.no-engine", model=one.name, engine=one.engine.name))
            found.advice.append(msg("plan.relax-engine"))
            found.rejected["engine"] += len(formulation.copies[model])
            continue
        fits = np.array([any(copy.shortfall is not None and copy.shortfall.fits[b] for copy in tried) for b in mine])
        long, late = ([b for b, some in zip(mine, fits, strict=True) if some == which] for which in (False, True))
        if long:
            found.reasons.append(msg("plan.no-memory", model=one.name, **named_buckets([one.traffic.buckets[b] for b in long])))
            found.advice.append(msg("plan.relax-memory"))
            found.rejected["memory"] += len(tried)
        if late:
            _too_late(one, late, tried, found)
    enough = found.goals and not found.advice
    relaxations = (Relaxation(None, "goals", found.goals),) if enough else ()
    return Refusal(tuple(found.reasons), dict(found.rejected), relaxations, tuple(found.advice))


def _too_late(one: ServedModel, buckets: list[int], tried: Sequence[ReplicaCapacity], found: _Found) -> None:
    """Buckets that fit some GPU and miss the objectives on all of them."""
    limits = {name: limit for name in ("ttft", "tpot", "latency") if (limit := getattr(one.goals, f"{name}_max")) is not None}
    short = [copy.shortfall for copy in tried if copy.shortfall is not None]
    alone = {name: max(min(float(copy.least[name][b]) for copy in short) for b in buckets) for name in limits}
    goal = min(alone, key=lambda name: alone[name] / limits[name])
    needed = {goal: alone[goal]}
    if not np.isfinite(alone[goal]):  # No objective is enough by itself: all of them, by the smallest common factor.
        needed = dict.fromkeys(limits, 0.0)
        for b in buckets:
            nearest = min(short, key=lambda copy: max(float(copy.together[name][b]) / limits[name] for name in limits))
            needed = {name: max(value, float(nearest.together[name][b])) for name, value in needed.items()}
        needed = {name: value for name, value in needed.items() if value > limits[name]}
        goal = max(needed, key=lambda name: needed[name] / limits[name])
    found.goals[one.name] = {name: rounded_up(value) for name, value in needed.items()}
    found.reasons.append(
        msg(
            "plan.no-objective",
            model=one.name,
            **named_buckets([one.traffic.buckets[b] for b in buckets]),
            goal=msg(f"plan.goal-{goal}"),
            limit=format_seconds(limits[goal]),
            best=format_seconds(needed[goal]),
        )
    )
    hardest = max(buckets, key=lambda b: one.traffic.buckets[b].prompt + one.traffic.buckets[b].output)
    found.rejected.update(_lacking(copy, limits, hardest) for copy in tried)


def _lacking(copy: ReplicaCapacity, limits: Mapping[str, float], bucket: int) -> str:
    """Memory, or the objective a replica misses by the largest factor, at the batch that suits all of them best."""
    lack = copy.shortfall
    if lack is None or not lack.fits[bucket]:
        return "memory"
    return max(limits, key=lambda name: float(lack.together[name][bucket]) / limits[name])


class Sized(Protocol):
    """Anything with a name and a share of all requests."""

    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def share(self) -> float:
        """From 0 to 1."""


def named_buckets(buckets: Sequence[Sized]) -> dict[str, Any]:
    """The share of all requests that some buckets hold, and the names of the largest, each with its own share."""
    largest = sorted(buckets, key=lambda bucket: -bucket.share)[:MOST_BUCKETS]
    shown: list[Message | str] = [msg("plan.bucket", bucket=one.name, share=_percent(one.share)) for one in largest]
    if len(buckets) == 1:
        shown = [largest[0].name]
    elif len(buckets) > MOST_BUCKETS:
        shown.append("…")
    return {"share": _percent(sum(bucket.share for bucket in buckets)), "buckets": tuple(shown)}


def _percent(share: float) -> str:
    """A share of requests with one decimal, or two digits where it is less than that shows."""
    return f"{share:.1%}" if share >= 0.001 else f"{100 * share:.2g}%"


def _budget(problem: Problem, currency: str) -> list[Trial]:
    if problem.budget is None or (found := solve(replace(problem, budget=None), 2 * SECONDS, 0.005)) is None:
        return []
    value = f"{significant(rounded_up(found.cost))}{currency.lower()}/h"
    reason = msg("plan.no-budget", budget=f"{problem.budget:.4g} {currency}/h", least=f"{significant(found.bound)} {currency}/h")
    change = Relaxation(msg("plan.relax-budget", value=value), "budget", {"budget": value})
    return [("budget", len(problem.columns), reason, change)]


def _columns_of(problem: Problem, pools: frozenset[int]) -> int:
    return int(np.isin(problem.pool_of, list(pools)).sum())


def _quotas(problem: Problem) -> list[Trial]:
    told: list[Trial] = []
    for place, quota in enumerate(problem.quotas):
        others = (*problem.quotas[:place], *problem.quotas[place + 1 :])
        found = _solved(replace(problem, quotas=others))
        if found is not None:

            def grown(most: float, quota: Quota = quota, others: tuple[Quota, ...] = others) -> Problem:
                return replace(problem, quotas=(*others, replace(quota, most=most)))

            needed = _least(grown, quota.most, _gpus(problem, found, quota.pools))
            reason = msg("plan.no-quota", name=quota.name, most=f"{quota.most:g}")
            change = Relaxation(msg("plan.relax-quota", name=quota.name, most=needed), "quota", {quota.name: needed})
            told.append(("quota", _columns_of(problem, quota.pools), reason, change))
    return told


def _owned(problem: Problem) -> list[Trial]:
    """More of what is owned, kind by kind."""
    told: list[Trial] = []
    for p, pool in enumerate(problem.pools):
        if not any(option.term == "owned" for option in pool.options):
            continue

        def grown(most: float, p: int = p) -> Problem:
            pool = problem.pools[p]
            options = tuple(replace(option, most=most) for option in pool.options)
            return replace(problem, pools=(*problem.pools[:p], replace(pool, options=options), *problem.pools[p + 1 :]))

        found = _solved(grown(1e4))
        if found is not None:
            needed = _least(grown, pool.options[0].most, _gpus(problem, found, frozenset([p])))
            reason = msg("plan.no-owned", gpu=pool.gpu, most=f"{pool.options[0].most:g}")
            change = Relaxation(msg("plan.relax-owned", gpu=pool.gpu, most=needed), "owned", {pool.gpu: needed})
            told.append(("owned", _columns_of(problem, frozenset([p])), reason, change))
    return told


def _jobs(problem: Problem) -> list[Trial]:
    told: list[Trial] = []
    for job in problem.jobs:
        able = np.isfinite(job.wall)
        if not able.any():
            told.append(("memory", len(job.wall), msg("plan.no-job-memory", name=job.name), msg("plan.relax-memory")))
        elif not job.divisible and float(job.wall[able].min()) > job.window:
            least = float(job.wall[able].min())
            reason = msg("plan.no-deadline", name=job.name, deadline=f"{significant(job.window)} h")
            hours = rounded_up(least)
            message = msg("plan.relax-deadline", name=job.name, value=f"{significant(hours)}h")
            told.append(("deadline", int(able.sum()), reason, Relaxation(message, "deadline", {job.name: hours})))
    return told


def servable_share(problem: Problem) -> float | None:
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


def rounded_up(value: float) -> float:
    """Rounded up to three digits, so that it suffices."""
    if value <= 0:
        return 0.0
    scale = 10.0 ** (int(np.floor(np.log10(value))) - 2)
    return float(ceil(value / scale * (1 - 1e-9)) * scale)
