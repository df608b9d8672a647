"""`plan --profiles`: the cheapest mix of GPUs for measured throughput, at the prices in the file."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import numpy as np
from msgspec.structs import replace

from whichgpu.base.errors import NoAnswer
from whichgpu.base.figure import Figure
from whichgpu.base.messages import msg
from whichgpu.base.units import significant
from whichgpu.decide.candidate import Cost
from whichgpu.decide.plan.comparisons import alone_rows
from whichgpu.decide.plan.first_failure import breaks_load
from whichgpu.decide.plan.plan_answer import BillRow, GroupRow, LevelRow, PlanAnswer, Serves, money, proof
from whichgpu.decide.plan.profiles import read_profiles
from whichgpu.decide.plan.question import PlanQuestion, echo
from whichgpu.decide.plan.refusal import Refusal, named_buckets, no_answer, servable_share, try_to_solve
from whichgpu.decide.plan.solver.growth import max_growth, utilisation
from whichgpu.decide.plan.solver.problem import Problem, Solution
from whichgpu.decide.plan.solver.program import servable
from whichgpu.decide.plan.solver.solve import solve
from whichgpu.price.terms import MONTH_HOURS
from whichgpu.workload.workload import Parallel

CURRENCY = "USD"
EXACT_GAP, EXACT_COLUMNS = 1e-6, 64  # Problems with at most this many columns are solved to this gap.
MAX_ALONE = 12  # With at most this many kinds of GPU, the cost of every kind alone is shown.


def plan_profiles(question: PlanQuestion, day: date, command: Callable[[PlanQuestion], str]) -> PlanAnswer:
    """Return the cheapest plan for measured throughput in a file, by default without headroom; `command` spells a question."""
    assert question.profiles is not None
    profiles = read_profiles(question.profiles)
    limits = {**question.quotas, **{one.gpu: float(one.gpus) for one in question.owned}}
    problem = replace(profiles.problem(question.rate, question.headroom or 0.0, question.slices, limits), spare=question.spare)
    solution = solve(problem, question.time_limit, EXACT_GAP if len(problem.columns) <= EXACT_COLUMNS else 0.01)
    if solution is None:
        raise _no_plan(question, problem, command)
    groups = _groups(problem, solution)
    cost, rate = money(solution.cost, CURRENCY), float(problem.demand.sum())
    names = {pool.gpu: pool.name for pool in problem.pools}
    growth = max_growth(problem, solution.counts[0], 0, room=1.0)
    return PlanAnswer(
        request=echo(question),
        as_of=day.isoformat(),
        sentence=msg(
            "plan.sentence",
            what=tuple(f"{row.gpus}x {row.gpu_name}" for row in groups),
            hour=significant(solution.cost),
            month=significant(solution.cost * MONTH_HOURS),
            served=(msg("plan.traffic", rate=significant(rate), model=profiles.name),),
            currency=CURRENCY,
            proof=proof(solution.gap),
            free=f"{problem.headroom:.0%}",
        ),
        cost_per_hour=_exact_cost(solution.cost),
        cost_per_month=money(solution.cost * MONTH_HOURS, CURRENCY),
        cost=money(solution.cost * question.horizon, CURRENCY),
        horizon_hours=question.horizon,
        bound=money(solution.bound, CURRENCY),
        gap=solution.gap,
        optimum_per_hour=cost,
        headroom=problem.headroom,
        groups=groups,
        bill=_bill(problem, solution),
        levels=(LevelRow(1.0, {profiles.name: rate}, int(solution.counts.sum()), cost),),
        alone=alone_rows(problem, names, CURRENCY, list(names), max_kinds=len(names) if len(names) <= MAX_ALONE else 6),
        breaks_first=(breaks_load(growth.factor, tuple(problem.columns[j] for j in growth.full)),),
        offers=len(problem.pools),
        columns=len(problem.columns),
        program=solution.program_columns,
        seconds=solution.seconds,
        assumptions=(msg("assumed.plan-profiles", name=profiles.name, share=f"{1 - problem.headroom:.0%}"),),
        reproduce=command(question),
    )


def _exact_cost(value: float) -> Cost:
    amount = money(value, CURRENCY).amount
    return Cost(amount, amount, amount, CURRENCY)


def _groups(problem: Problem, solution: Solution) -> tuple[GroupRow, ...]:
    work = utilisation(problem, solution, 0)
    rows = []
    for j in np.flatnonzero(solution.counts[0] > 0).tolist():
        count, pool = int(solution.counts[0, j]), problem.pools[j]
        rates = problem.demand[0] * solution.shares[0, j]
        serves = tuple(
            Serves(problem.buckets[b], float(solution.shares[0, j, b]), float(rates[b]))
            for b in np.flatnonzero(solution.shares[0, j] > 1e-6).tolist()
        )
        rows.append(
            GroupRow(
                gpu=pool.gpu,
                gpu_name=pool.name,
                gpus=count,
                copies=count,
                gpus_per_copy=1,
                machines=count,
                parallel=Parallel(dp=count),
                rate=float(rates.sum()),
                capacity=Figure.exact(float(rates.sum() / work[j]) if work[j] > 0 else 0.0, "requests/s", "measured"),
                utilisation=float(work[j]),
                cost_per_hour=_exact_cost(pool.options[0].price * count),
                serves=serves,
                copies_by_level=(count,),
            )
        )
    return tuple(rows)


def _bill(problem: Problem, solution: Solution) -> tuple[BillRow, ...]:
    rows = []
    for (_, p, w), n in solution.machines.items():
        pool, price = problem.pools[p], problem.pools[p].options[w].price
        rows.append(
            BillRow(
                gpu=pool.gpu,
                gpu_name=pool.name,
                gpus_per_machine=1,
                machines=n,
                machines_by_level=(n,),
                price=money(price, CURRENCY),
                cost_per_hour=money(price * n, CURRENCY),
                cost_per_month=money(price * n * MONTH_HOURS, CURRENCY),
            )
        )
    return tuple(rows)


def _no_plan(question: PlanQuestion, problem: Problem, command: Callable[[PlanQuestion], str]) -> NoAnswer:
    """Return why there is no plan (sizes no GPU serves, or too few GPUs), with the servable share as a relaxation if any."""
    lost = np.flatnonzero(~servable(problem)).tolist()
    if lost:
        mix = problem.demand[0] / problem.demand[0].sum()
        why = msg("plan.no-profile", **named_buckets([(problem.buckets[b], float(mix[b])) for b in lost]))
        rest = problem.demand.copy()
        rest[:, lost] = 0.0
        answered = rest.any() and try_to_solve(replace(problem, demand=rest)) is not None
        change = {"mix": {problem.buckets[b]: 0.0 for b in lost}, "rate": float(rest.sum())}
        partial: dict[str, Any] | None = {"change": change, "command": None} if answered else None
        return no_answer(Refusal((why,), {"throughput": len(problem.columns)}), msg("plan.relax-profile"), partial)
    options = [(pool.name, pool.options[0].limit) for pool in problem.pools]
    limited = tuple(f"{name} {limit:g}" for name, limit in options if np.isfinite(limit))
    share = servable_share(problem)
    relaxation: dict[str, Any] | None = None
    if share is not None:
        rate = float(f"{problem.demand.sum() * share * 0.995:.3g}")
        relaxation = {"change": {"rate": f"{rate:g}/s"}, "command": command(replace(question, rate=rate))}
    refusal = Refusal((msg("plan.no-counts", what=limited),), {"quota": len(limited)})
    return no_answer(refusal, msg("plan.relax-counts"), relaxation)
