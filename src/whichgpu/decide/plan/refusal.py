"""Why there is no plan: the constraints that rule it out, and the smallest change to each that would give one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_seconds, significant
from whichgpu.decide.plan.capacity import ReplicaCapacity, stated_limits
from whichgpu.decide.plan.simulate import SimulatedModel
from whichgpu.decide.plan.solver.build import Formulation, ServedModel
from whichgpu.decide.plan.solver.problem import Problem, Quota, Solution
from whichgpu.decide.plan.solver.program import servable
from whichgpu.decide.plan.solver.solve import solve
from whichgpu.decide.relax import round_up, rounded_up
from whichgpu.estimate.serving.curve import Objectives

TRIAL_SECONDS, TRIAL_GAP = 4.0, 0.05  # Solver seconds and relative gap in one trial.
MAX_BUCKETS = 3  # At most this many unserved buckets are named.
MAX_OWNED = 1e4  # GPUs of a kind; if even this many give no plan, the number owned is not the reason.


class Relaxation(msgspec.Struct, frozen=True):
    """A change of one part of the question after which there may be a plan: a sentence for the user, the part, and new values.

    `part` is goals, headroom, budget, max_latency, quota, owned, deadline or rate. `values` has for goals the seconds by model
    and objective; for quota, owned and deadline the new number by name; for budget and max_latency the new text; for rate the
    share that can be served.
    """

    message: Message | None
    part: str
    values: Mapping[str, Any]


class Refusal(msgspec.Struct, frozen=True):
    """Why there is no plan: the reasons, how many configurations each rejected, and changes each of which may be enough.

    `advice` has sentences on what the user could do if no change of a number in the question would give a plan.
    """

    reasons: tuple[Message, ...]
    rejected: Mapping[str, int]
    relaxations: tuple[Relaxation, ...] = ()
    advice: tuple[Message, ...] = ()


# Machine-readable reason, number of configurations it rejects, readable reason, and the change that helps or advice.
Trial = tuple[str, int, Message, Relaxation | Message]


def no_answer(refusal: Refusal, hint: Message | None = None, relaxation: Mapping[str, Any] | None = None) -> NoAnswer:
    """Return the error that reports why there is no plan, with a hint and a changed request if given."""
    message = msg("error.no-plan")
    if refusal.reasons:
        message = msg("error.because", what=message, why=refusal.reasons)
    if hint is None:
        hint = msg("hint.advice", what=refusal.advice) if refusal.advice else msg("hint.relax-filters")
    return NoAnswer("no-plan", message, hint, rejected=refusal.rejected, relaxation=relaxation)


def refusal(formulation: Formulation, currency: str) -> Refusal:
    """Return why the solver's problem has no solution, with the changes that would give one."""
    problem = formulation.problem
    unserved = np.flatnonzero(~servable(problem)).tolist()
    if unserved:
        return _unserved(formulation, unserved)
    trials = [*_budget(problem, currency), *_quotas(problem), *_owned(problem), *_jobs(problem)]
    rejected: Counter[str] = Counter()
    for name, count, _, _ in trials:
        rejected[name] += count
    reasons = tuple(reason for _, _, reason, _ in trials) or (msg("plan.no-together"),)
    relaxations = [change for *_, change in trials if isinstance(change, Relaxation)]
    share = servable_share(problem)
    if share is not None:
        relaxations.append(rate_of(share))
    advice = tuple(change for *_, change in trials if isinstance(change, Message))
    return Refusal(reasons, dict(rejected) or {"limits": len(problem.columns)}, tuple(relaxations), advice)


def missed(simulated: Sequence[SimulatedModel], models: Sequence[ServedModel], fleets: Mapping[str, int], fixed: bool) -> Refusal:
    """Return the refusal of a fleet that misses objectives in simulation: drop the headroom if `fixed`, or relax objectives.

    `fleets` counts simulated fleets by the objective they missed.
    """
    objectives = {one.name: one.objectives for one in models}
    needed = {one.model: _needed(one, objectives[one.model]) for one in simulated if not one.holds}
    relaxations = [Relaxation(msg("relax.without", flag="--headroom"), "headroom", {"headroom": None})] if fixed else []
    if all(needed.values()):
        relaxations.append(Relaxation(None, "goals", needed))
    return Refusal((), fleets, tuple(relaxations))


def _needed(one: SimulatedModel, objectives: Objectives) -> dict[str, float]:
    """Return the simulated seconds of each missed objective, rounded up; empty if requests were refused."""
    limits = stated_limits(objectives)
    seconds = {name: float(getattr(one, name)) for name in limits}
    if not all(np.isfinite(value) for value in seconds.values()):
        return {}
    over = {name: value for name, value in seconds.items() if value > limits[name]}
    if limits and not over:  # Each objective holds by itself, but too few requests meet all of them.
        over = {one.worst: limits[one.worst]}
    return {name: rounded_up(value) for name, value in over.items()}


class _Findings(msgspec.Struct):
    """Reasons why buckets of requests cannot be served, advice, and objectives that would be met, collected over all models."""

    reasons: list[Message] = msgspec.field(default_factory=list)
    advice: list[Message] = msgspec.field(default_factory=list)
    rejected: Counter[str] = msgspec.field(default_factory=Counter)
    objectives: dict[str, dict[str, float]] = msgspec.field(default_factory=dict)  # achievable seconds by model and objective


def _unserved(formulation: Formulation, buckets: list[int]) -> Refusal:
    """Return the refusal for buckets of requests that no replica serves for lack of memory or speed, with their shares."""
    findings = _Findings()
    places = [formulation.bucket(b) for b in buckets]
    for m in sorted({m for m, _ in places}):
        model = formulation.models[m]
        mine = [b for at, b in places if at == m]
        replicas = [replica for row in formulation.replicas[m] for replica in row]
        if not replicas and model.engine is not None:
            findings.reasons.append(msg("plan.no-engine", model=model.name, engine=model.engine.name))
            findings.advice.append(msg("plan.relax-engine"))
            findings.rejected["engine"] += len(formulation.replicas[m])
            continue
        late = [b for b in mine if any(one.shortfall is not None and one.shortfall.fits[b] for one in replicas)]
        too_long = [b for b in mine if b not in late]
        if too_long:
            bucket_values = named_buckets(model.traffic.named_shares(too_long))
            findings.reasons.append(msg("plan.no-memory", model=model.name, **bucket_values))
            findings.advice.append(msg("plan.relax-memory"))
            findings.rejected["memory"] += len(replicas)
        if late:
            _too_late(model, late, replicas, findings)
    objectives_suffice = findings.objectives and not findings.advice
    relaxations = (Relaxation(None, "goals", findings.objectives),) if objectives_suffice else ()
    return Refusal(tuple(findings.reasons), dict(findings.rejected), relaxations, tuple(findings.advice))


def _too_late(model: ServedModel, buckets: list[int], replicas: Sequence[ReplicaCapacity], findings: _Findings) -> None:
    """Add a finding for buckets of requests that fit in some GPU's memory but miss the objectives on every one."""
    limits = stated_limits(model.objectives)
    short = [one.shortfall for one in replicas if one.shortfall is not None]
    alone = {name: max(min(float(one.min_limits[name][b]) for one in short) for b in buckets) for name in limits}
    worst = min(alone, key=lambda name: alone[name] / limits[name])
    needed = {worst: alone[worst]}
    if not np.isfinite(alone[worst]):  # If relaxing one objective is not enough, all are relaxed by the smallest common factor.
        needed = dict.fromkeys(limits, 0.0)
        for b in buckets:
            nearest = min(short, key=lambda one: max(float(one.together[name][b]) / limits[name] for name in limits))
            needed = {name: max(value, float(nearest.together[name][b])) for name, value in needed.items()}
        needed = {name: value for name, value in needed.items() if value > limits[name]}
        worst = max(needed, key=lambda name: needed[name] / limits[name])
    findings.objectives[model.name] = {name: rounded_up(value) for name, value in needed.items()}
    findings.reasons.append(
        msg(
            "plan.no-objective",
            model=model.name,
            **named_buckets(model.traffic.named_shares(buckets)),
            goal=msg(f"plan.goal-{worst}"),
            limit=format_seconds(limits[worst]),
            best=format_seconds(needed[worst]),
        )
    )
    hardest = max(buckets, key=lambda b: model.traffic.buckets[b].prompt + model.traffic.buckets[b].output)
    findings.rejected.update(_lacking(one, limits, hardest) for one in replicas)


def _lacking(replica: ReplicaCapacity, limits: Mapping[str, float], bucket: int) -> str:
    """Return "memory", or the objective that a replica exceeds by the largest factor for a bucket of requests."""
    lack = replica.shortfall
    if lack is None or not lack.fits[bucket]:
        return "memory"
    return max(limits, key=lambda name: float(lack.together[name][bucket]) / limits[name])


def named_buckets(shares: Sequence[tuple[str, float]]) -> dict[str, Any]:
    """Return message values: the share of all requests in these (name, share) buckets, and the names of the largest buckets."""
    largest = sorted(shares, key=lambda one: -one[1])[:MAX_BUCKETS]
    names: list[Message | str] = [msg("plan.bucket", bucket=name, share=_percent(share)) for name, share in largest]
    if len(shares) == 1:
        names = [largest[0][0]]
    elif len(shares) > MAX_BUCKETS:
        names.append("…")
    return {"share": _percent(sum(share for _, share in shares)), "buckets": tuple(names)}


def _percent(share: float) -> str:
    """Return a share as a percentage with one decimal, or with two significant digits below 0.1%."""
    return f"{share:.1%}" if share >= 0.001 else f"{100 * share:.2g}%"


def _budget(problem: Problem, currency: str) -> list[Trial]:
    if problem.budget is None or (freed := solve(replace(problem, budget=None), 2 * TRIAL_SECONDS, 0.005)) is None:
        return []
    reason = msg("plan.no-budget", budget=f"{problem.budget:.4g} {currency}/h", least=f"{significant(freed.bound)} {currency}/h")
    return [("budget", len(problem.columns), reason, budget_of(freed.cost, currency))]


def budget_of(cost: float, currency: str) -> Relaxation:
    """Return the change to a budget that pays this cost per hour."""
    value = f"{round_up(cost)}{currency.lower()}/h"
    return Relaxation(msg("plan.relax-budget", value=value), "budget", {"budget": value})


def quota_of(name: str, gpus: int) -> Relaxation:
    """Return the change to a quota of this many GPUs."""
    return Relaxation(msg("plan.relax-quota", name=name, most=gpus), "quota", {name: gpus})


def owned_of(gpu: str, gpus: int) -> Relaxation:
    """Return the change to this many owned GPUs of a kind."""
    return Relaxation(msg("plan.relax-owned", gpu=gpu, most=gpus), "owned", {gpu: gpus})


def rate_of(share: float) -> Relaxation:
    """Return the change to a share of the traffic."""
    return Relaxation(msg("plan.relax-rate", share=f"{share:.0%}"), "rate", {"share": share})


def _columns_of(problem: Problem, pools: frozenset[int]) -> int:
    return int(np.isin(problem.pool_of, list(pools)).sum())


def _quotas(problem: Problem) -> list[Trial]:
    trials: list[Trial] = []
    for place, quota in enumerate(problem.quotas):
        others = (*problem.quotas[:place], *problem.quotas[place + 1 :])

        def grown(limit: float, quota: Quota = quota, others: tuple[Quota, ...] = others) -> Problem:
            return replace(problem, quotas=(*others, replace(quota, limit=limit)))

        freed = try_to_solve(replace(problem, quotas=others))
        if freed is not None:
            needed = _fewest(grown, quota.limit, freed.max_gpus(problem, quota.pools))
            reason = msg("plan.no-quota", name=quota.name, most=f"{quota.limit:g}")
            trials.append(("quota", _columns_of(problem, quota.pools), reason, quota_of(quota.name, needed)))
    return trials


def _owned(problem: Problem) -> list[Trial]:
    """Return, for each kind of owned GPU of which more would give a plan, how many are needed."""
    trials: list[Trial] = []
    for p, pool in enumerate(problem.pools):
        if not any(option.term == "owned" for option in pool.options):
            continue

        def grown(limit: float, p: int = p) -> Problem:
            options = tuple(replace(option, limit=limit) for option in problem.pools[p].options)
            more = replace(problem.pools[p], options=options)
            return replace(problem, pools=(*problem.pools[:p], more, *problem.pools[p + 1 :]))

        freed = try_to_solve(grown(MAX_OWNED))
        if freed is not None:
            needed = _fewest(grown, pool.options[0].limit, freed.max_gpus(problem, {p}))
            reason = msg("plan.no-owned", gpu=pool.gpu, most=f"{pool.options[0].limit:g}")
            trials.append(("owned", _columns_of(problem, frozenset([p])), reason, owned_of(pool.gpu, needed)))
    return trials


def _jobs(problem: Problem) -> list[Trial]:
    trials: list[Trial] = []
    for job in problem.jobs:
        able = np.isfinite(job.wall)
        if not able.any():
            trials.append(("memory", len(job.wall), msg("plan.no-job-memory", name=job.name), msg("plan.relax-memory")))
        elif not job.divisible and float(job.wall[able].min()) > job.window:
            reason = msg("plan.no-deadline", name=job.name, deadline=f"{significant(job.window)} h")
            hours = rounded_up(float(job.wall[able].min()))
            message = msg("plan.relax-deadline", name=job.name, value=f"{significant(hours)}h")
            trials.append(("deadline", int(able.sum()), reason, Relaxation(message, "deadline", {job.name: hours})))
    return trials


def servable_share(problem: Problem) -> float | None:
    """Return the largest share of the traffic for which a plan exists, found by bisection; None if it is below 1%."""
    low, high = 0.0, 1.0
    for _ in range(7):
        middle = (low + high) / 2
        low, high = (middle, high) if try_to_solve(replace(problem, demand=problem.demand * middle)) else (low, middle)
    return low if low > 0 else None


def _fewest(grown: Callable[[float], Problem], low: float, high: float) -> int:
    """Return the smallest whole number with which `grown` gives a plan, by bisection from `low` (too small) to `high`."""
    few, sufficient = int(low), max(ceil(high), int(low) + 1)
    while sufficient - few > 1:
        middle = (few + sufficient) // 2
        few, sufficient = (few, middle) if try_to_solve(grown(float(middle))) else (middle, sufficient)
    return sufficient


def try_to_solve(problem: Problem) -> Solution | None:
    """Return a plan found in a few seconds, possibly far from the optimum; None if there is none."""
    return solve(problem, TRIAL_SECONDS, TRIAL_GAP)
