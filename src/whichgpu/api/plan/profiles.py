"""`plan --profiles`: the cheapest mix for throughput somebody measured, at his prices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import numpy as np

from whichgpu.api.plan.extras import alone_rows, reproduce
from whichgpu.api.plan.request import PlanRequest, spelled
from whichgpu.base.errors import NoAnswer
from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import significant
from whichgpu.decide.candidate import Cost
from whichgpu.decide.plan.first_failure import breaks_load
from whichgpu.decide.plan.plan_answer import BillRow, GroupRow, LevelRow, PlanAnswer, Serves, money
from whichgpu.decide.plan.profiles import read_profiles
from whichgpu.decide.plan.refusal import named_buckets, servable_share
from whichgpu.decide.plan.solver.growth import max_growth, utilisation
from whichgpu.decide.plan.solver.problem import Problem, Solution
from whichgpu.decide.plan.solver.program import servable
from whichgpu.decide.plan.solver.solve import solve
from whichgpu.price.terms import MONTH_HOURS
from whichgpu.workload.workload import Parallel

CURRENCY = "USD"
PROVEN = 1e-6  # small problems are solved to the end
SECONDS, GAP = 4.0, 0.05  # of a trial: whether there is a plan at all


def plan_profiles(request: PlanRequest, day: date) -> PlanAnswer:
    """The optimum of a file of profiles; no headroom unless asked for."""
    assert request.profiles is not None
    profiles = read_profiles(request.profiles)
    limits = dict(request.quotas)
    for one in request.owned:
        limits[one.gpu] = float(one.gpus)
    problem = profiles.problem(request.rate, request.headroom or 0.0, request.slices, limits)
    solution = solve(problem, request.time_limit, PROVEN if len(problem.columns) <= 64 else 0.01)
    if solution is None:
        raise _nothing(request, problem, day)
    rows = _groups(problem, solution)
    cost = money(solution.cost, CURRENCY)
    names = {pool.gpu: pool.name for pool in problem.pools}
    what = tuple(f"{row.gpus}x {row.gpu_name}" for row in rows)
    full = max_growth(problem, solution.copies[0], 0, room=1.0)
    return PlanAnswer(
        request=spelled(request),
        as_of=day.isoformat(),
        sentence=msg(
            "plan.sentence",
            what=what,
            hour=significant(solution.cost),
            month=significant(solution.cost * MONTH_HOURS),
            served=(msg("plan.traffic", rate=significant(float(problem.demand.sum())), model=profiles.name),),
            currency=CURRENCY,
            gap=f"{solution.gap:.1%}",
            free=f"{problem.headroom:.0%}",
        ),
        cost_per_hour=Cost(cost.amount, cost.amount, cost.amount, CURRENCY),
        cost_per_month=money(solution.cost * MONTH_HOURS, CURRENCY),
        cost=money(solution.cost * request.horizon, CURRENCY),
        horizon_hours=request.horizon,
        bound=money(solution.bound, CURRENCY),
        gap=solution.gap,
        optimum_per_hour=cost,
        headroom=problem.headroom,
        groups=rows,
        bill=_bill(problem, solution),
        levels=(LevelRow(1.0, {profiles.name: float(problem.demand.sum())}, int(solution.copies.sum()), cost),),
        alone=alone_rows(problem, names, CURRENCY, list(names), most=len(names) if len(names) <= 12 else 6),
        jobs=(),
        owned=(),
        breaks_first=(breaks_load(full.factor, tuple(problem.columns[j] for j in full.full)),),
        simulation=(),
        curve=(),
        timeline=(),
        own=(),
        hints=(),
        offers=len(problem.pools),
        columns=len(problem.columns),
        program=solution.kept,
        seconds=solution.seconds,
        assumptions=(msg("assumed.plan-profiles", name=profiles.name, share=f"{1 - problem.headroom:.0%}"),),
        warnings=(),
        reproduce=reproduce(request, day.isoformat()),
    )


def _groups(problem: Problem, solution: Solution) -> tuple[GroupRow, ...]:
    work = utilisation(problem, solution.copies[0].astype(float), solution.shares[0], 0)
    rows = []
    for j in np.flatnonzero(solution.copies[0] > 0).tolist():
        count, way = int(solution.copies[0, j]), problem.pools[j].options[0]
        rates = problem.demand[0] * solution.shares[0, j]
        amount = money(way.price * count, CURRENCY).amount
        serves = tuple(
            Serves(problem.buckets[b], float(solution.shares[0, j, b]), float(rates[b]))
            for b in np.flatnonzero(solution.shares[0, j] > 1e-6).tolist()
        )
        rows.append(
            GroupRow(
                model="",
                gpu=problem.pools[j].gpu,
                gpu_name=problem.pools[j].name,
                gpus=count,
                copies=count,
                gpus_per_copy=1,
                machines=count,
                provider="",
                instance="",
                region="",
                term="on-demand",
                precision="",
                parallel=Parallel(dp=count),
                batch=0,
                rate=float(rates.sum()),
                capacity=Figure.exact(float(rates.sum() / work[j]) if work[j] > 0 else 0.0, "requests/s", "measured"),
                utilisation=float(work[j]),
                cost_per_hour=Cost(amount, amount, amount, CURRENCY),
                serves=serves,
                copies_by_level=(count,),
                because=(),
            )
        )
    return tuple(rows)


def _bill(problem: Problem, solution: Solution) -> tuple[BillRow, ...]:
    rows = []
    for (_, p, w), n in solution.machines.items():
        pool, price = problem.pools[p], problem.pools[p].options[w].price
        facts: dict[str, Any] = dict.fromkeys(("provider", "instance", "region", "price_observed_at", "source"), "")
        rows.append(
            BillRow(
                gpu=pool.gpu,
                gpu_name=pool.name,
                gpus_per_machine=1,
                term="on-demand",
                machines=n,
                machines_by_level=(n,),
                price=money(price, CURRENCY),
                cost_per_hour=money(price * n, CURRENCY),
                cost_per_month=money(price * n * MONTH_HOURS, CURRENCY),
                **facts,
            )
        )
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class _Size:
    """A size of request of the file, and its share of all requests."""

    name: str
    share: float


def _nothing(request: PlanRequest, problem: Problem, day: date) -> NoAnswer:
    """Which sizes nothing serves, or that the limits are too few; and what of it can be served."""
    lost = np.flatnonzero(~servable(problem))
    if len(lost):
        mix = problem.demand[0] / problem.demand[0].sum()
        why = msg("plan.no-profile", **named_buckets([_Size(problem.buckets[b], float(mix[b])) for b in lost.tolist()]))
        rest = problem.demand.copy()
        rest[:, lost] = 0.0
        answered = rest.any() and solve(replace(problem, demand=rest), SECONDS, GAP) is not None
        change = {"mix": {problem.buckets[b]: 0.0 for b in lost.tolist()}, "rate": float(rest.sum())}
        return _refused(why, msg("plan.relax-profile"), {"throughput": len(problem.columns)}, change if answered else None)
    limited = tuple(f"{pool.name} {pool.options[0].most:g}" for pool in problem.pools if np.isfinite(pool.options[0].most))
    why = msg("plan.no-counts", what=limited)
    share = servable_share(problem)
    if share is None:
        return _refused(why, msg("plan.relax-counts"), {"quota": len(limited)}, None)
    rate = float(f"{problem.demand.sum() * share * 0.995:.3g}")
    command = reproduce(replace(request, rate=rate), day.isoformat())
    return _refused(why, msg("plan.relax-counts"), {"quota": len(limited)}, {"rate": f"{rate:g}/s"}, command)


def _refused(
    why: Message, hint: Message, rejected: dict[str, int], change: dict[str, Any] | None, command: str | None = None
) -> NoAnswer:
    message = msg("error.because", what=msg("error.no-plan"), why=(why,))
    relaxation = None if change is None else {"change": change, "command": command}
    return NoAnswer("no-plan", message, hint, rejected=rejected, relaxation=relaxation)
