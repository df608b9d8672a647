"""A solved plan as an answer: sentence, tables, what it would cost otherwise, what to start it with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from whichgpu.api.plan.extras import alone_rows, cost_curve, hints_of, own_rows, reproduce
from whichgpu.api.plan.request import spelled
from whichgpu.api.plan.roles import designs_of, policies_of, roles_of
from whichgpu.api.recommend.verification import verify_command
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_seconds, significant
from whichgpu.catalog.engines.engine import engine_support
from whichgpu.catalog.engines.registry import default_engine
from whichgpu.decide.candidate import Cost
from whichgpu.decide.plan.first_failure import breaks_first
from whichgpu.decide.plan.plan_answer import (
    BillRow,
    CheckRow,
    GroupRow,
    JobRow,
    PlanAnswer,
    format_range,
    money,
)
from whichgpu.decide.plan.plan_rows import AnswerRows, sure_of
from whichgpu.decide.plan.refusal import named_buckets
from whichgpu.decide.plan.solver.build import Formulation
from whichgpu.decide.work import running_sequences, work_of
from whichgpu.estimate.serving.summary import enough_requests
from whichgpu.price.asof import STALE_DAYS
from whichgpu.price.run import SPOT_SOURCES
from whichgpu.price.terms import MONTH_HOURS
from whichgpu.workload.context_limit import beyond_context
from whichgpu.workload.workload import Parallel

if TYPE_CHECKING:
    from whichgpu.api.plan.plan import Solved


def answered(told: Solved, progress: Callable[[str, float], None]) -> PlanAnswer:
    """The whole of it."""
    found, constraints, solution, formulation = told.selection, told.selection.constraints, told.solution, told.formulation
    currency = constraints.currency
    telling = AnswerRows(formulation, solution, found.market, currency)
    groups, bill, jobs = telling.groups(), telling.bill(), telling.jobs()
    simulation = _simulation(told)
    verify, verify_note = _verify(told, groups)
    cost = Cost(money(solution.bill, currency).amount, *(_ends(groups, solution.bill, currency)), currency)
    return PlanAnswer(
        request=spelled(told.request),
        as_of=constraints.day.isoformat(),
        sentence=_warned(_sentence(told, groups, cost), simulation),
        cost_per_hour=cost,
        cost_per_month=money(solution.bill * MONTH_HOURS, currency),
        cost=money(solution.bill * told.request.horizon, currency),
        horizon_hours=told.request.horizon,
        bound=money(max(0.0, solution.bound - solution.change), currency),
        gap=solution.gap,
        optimum_per_hour=money(max(0.0, told.optimum - solution.change), currency),
        headroom=told.headroom,
        groups=groups,
        bill=bill,
        levels=telling.levels(),
        alone=alone_rows(formulation.problem, _names(formulation), currency, _in_plan(groups)),
        jobs=jobs,
        owned=telling.owned(),
        breaks_first=(*breaks_first(formulation, solution, telling.busiest), *_margins(told)),
        simulation=simulation,
        curve=cost_curve(told, progress),
        timeline=telling.timeline(),
        own=own_rows(told),
        hints=hints_of(told, groups),
        offers=told.supply.offers,
        columns=len(formulation.columns),
        program=solution.kept,
        seconds=solution.seconds,
        assumptions=tuple(_assumptions(told)),
        warnings=(
            *_warnings(told),
            *_unsure(told, simulation),
            *_engines(told, groups),
            *_stale(constraints.day, (*bill, *jobs)),
        ),
        sources=_sources(told, bill),
        verify=verify,
        verify_note=verify_note,
        reproduce=reproduce(told.request, constraints.day.isoformat(), told.overlay, told.lookups.own),
        changes=_changes(told),
        roles=roles_of(told, progress) if told.request.roles else None,
        designs=designs_of(told, groups, progress) if told.request.roles else (),
        policies=policies_of(told, progress) if told.request.policies else (),
    )


def _ends(groups: Sequence[GroupRow], cost: float, currency: str) -> tuple[Decimal, Decimal]:
    """The bill were GPUs as fast, or as slow, as their ranges allow: as many more or fewer of them."""
    low, high = (sum(float(getattr(row.cost_per_hour, end)) for row in groups) for end in ("low", "high"))
    whole = sum(float(row.cost_per_hour.amount) for row in groups)
    if whole <= 0:
        return money(cost, currency).amount, money(cost, currency).amount
    return money(cost * min(1.0, low / whole), currency).amount, money(cost * max(1.0, high / whole), currency).amount


def _sentence(told: Solved, groups: Sequence[GroupRow], cost: Cost) -> Message:
    kinds: dict[str, int] = {}
    for row in groups:
        name = f"{row.gpu_name} ({row.provider})" if row.provider != "owned" else row.gpu_name
        kinds[name] = kinds.get(name, 0) + row.gpus
    what = tuple(f"{n}x {name}" for name, n in kinds.items())
    served = tuple(msg("plan.traffic", rate=significant(one.traffic.peak), model=one.name) for one in told.formulation.served)
    values: dict[str, Any] = {
        "hour": significant(float(cost.amount)),
        "month": significant(float(cost.amount) * MONTH_HOURS),
        "currency": cost.currency,
        "gap": f"{told.solution.gap:.1%}",
    }
    if not served:
        return msg("plan.sentence-jobs", n=len(told.request.jobs), **values)
    return msg("plan.sentence", what=what, served=served, free=f"{told.headroom:.0%}", **values)


def _warned(sentence: Message, simulation: Sequence[CheckRow]) -> Message:
    """The sentence, with what the simulation says where that is no."""
    failing = [one for one in simulation if one.met is not None and not one.holds]
    if not failing:
        return sentence
    worst = min(failing, key=lambda one: one.met or 0.0)
    return msg("plan.sentence-fails", what=sentence, model=worst.model, met=f"{worst.met or 0.0:.1%}")


def _names(formulation: Formulation) -> dict[str, str]:
    return {gpu_pool.gpu.id: gpu_pool.gpu.name for gpu_pool in formulation.gpu_pools}


def _in_plan(groups: Sequence[GroupRow]) -> list[str]:
    return list(dict.fromkeys(row.gpu for row in groups))


def _simulation(told: Solved) -> tuple[CheckRow, ...]:
    """Percentiles with the range of the step times behind them."""
    rows = []
    for place, (one, model) in enumerate(zip(told.checked, told.formulation.served, strict=False)):
        level = told.formulation.busiest(place)
        gpu_pools = [
            (told.formulation.gpu_pools[column.pool_index], column.replica.tp)
            for j, column in enumerate(told.formulation.columns)
            if told.solution.copies[level, j] > 0 and column.model == place
        ]
        sure = sure_of(model.asked, *gpu_pools[0])
        figures = {name: sure.seconds(getattr(one, name)) for name in ("ttft", "tpot", "latency")}
        limits = {name: getattr(model.goals, f"{name}_max") for name in figures}
        unsure = tuple(name for name, told in figures.items() if limits[name] and told.value <= limits[name] < told.high)
        met, holds = one.met, one.holds
        rows.append(
            CheckRow(
                one.model,
                one.percentile,
                **figures,
                met=met,
                holds=holds,
                requests=one.requests,
                unsure=unsure,
                foresight=one.foresight,
            )
        )
    return tuple(rows)


def _margins(told: Solved) -> list[Message]:
    """The objective that is nearest its limit."""
    near = [one for one in told.checked if one.worst]
    if not near:
        return []
    one = min(near, key=lambda checked: checked.margin)
    id = "plan.breaks-goal" if one.margin >= 0 else "plan.breaks-goal-missed"
    return [msg(id, model=one.model, goal=msg(f"plan.goal-{one.worst}"), margin=f"{abs(one.margin):.0%}")]


def _assumptions(told: Solved) -> list[Message]:
    said = []
    if told.request.headroom is None and told.spare:
        said.append(msg("assumed.plan-headroom", share=f"{min(told.spare.values()):.0%}"))
    for one in told.formulation.served:
        workload, traffic = one.asked.workload, one.traffic
        if traffic.peak_of == "parts":
            said.append(msg("assumed.plan-parts", model=one.name, rate=significant(traffic.peak), mean=significant(traffic.mean)))
        if "engine" not in one.asked.given:
            said.append(msg("assumed.engine", engine=workload.engine or default_engine()))
        if not {"seq_in", "seq_out"} & one.asked.given and traffic.trace is None and len(traffic.buckets) == 1:
            said.append(msg("assumed.sequence", seq_in=workload.seq_in or 0, seq_out=workload.seq_out or 0))
        if "rate" not in one.asked.given and traffic.trace is None and traffic.peak_of == "rate":
            said.append(msg("assumed.rate", rate=significant(traffic.peak)))
        if not one.goals.any:
            said.append(msg("assumed.plan-no-goals", model=one.name))
    for job in told.wanted:
        work = work_of(job.asked.workload, job.asked.shape, None)
        if work.assumed and work.amount:
            unit = msg(f"unit.{work.unit if job.asked.workload.training or work.unit != 'tokens' else 'output-tokens'}")
            said.append(msg("assumed.plan-work", name=job.name, amount=f"{work.amount:,.0f}", unit=unit))
    if told.request.horizon == MONTH_HOURS:
        said.append(msg("assumed.plan-horizon"))
    if "spot" not in told.selection.constraints.terms and not told.request.only_owned:
        said.append(msg("assumed.plan-no-spot"))
    if told.supply.old:
        said.append(msg("assumed.plan-old-spot", n=told.supply.old))
    if told.request.jobs:
        said.append(msg("assumed.plan-jobs-once", hours=f"{told.request.horizon:,.0f}"))
    if told.solution.cost > told.optimum * (1 + 1e-9):
        said.append(msg("assumed.plan-simpler", share=f"{told.solution.cost / told.optimum - 1:.1%}"))
    if told.supply.offers:
        said.append(msg("assumed.plan-available"))
    return list(dict.fromkeys(said)) + list(told.selection.assumptions)


def _warnings(told: Solved) -> list[Message]:
    said = []
    for name, share in told.spare.items():
        if told.request.headroom is None and share > told.limits.headroom + 1e-9:
            said.append(msg("plan.headroom-raised", model=name, share=f"{share:.0%}"))
    for model in told.formulation.served:
        said += beyond_context(model.traffic.longest, model.asked.shape)
        if (few := model.traffic.few) is not None and "rate" not in model.asked.given:
            within = f"{1.645 / few**0.5:.0%}"  # 90% of Poisson counts
            said.append(msg("plan.trace-few", model=model.name, n=few, rate=significant(model.traffic.mean), share=within))
    for one in told.checked:
        if not one.holds:
            said.append(
                msg(
                    "plan.misses" if told.request.headroom is not None else "plan.misses-anyway",
                    model=one.model,
                    percentile=f"{one.percentile:g}",
                    ttft=format_seconds(one.ttft),
                    tpot=format_seconds(one.tpot),
                )
            )
    for one in told.checked:
        if not enough_requests(one.requests, one.percentile):
            beyond = f"{one.requests * (100.0 - one.percentile) / 100.0:.2g}"
            said.append(msg("plan.thin", model=one.model, percentile=f"{one.percentile:g}", n=one.requests, beyond=beyond))
    said += [msg("plan.foresight", model=one.model) for one in told.checked if one.foresight]
    for m, hard in enumerate(told.formulation.excused):
        if hard:
            model = told.formulation.served[m]
            named = named_buckets([model.traffic.buckets[b] for b in hard])
            said.append(msg("plan.excused", model=model.name, percentile=f"{model.goals.percentile:g}", **named))
    return said


def _unsure(told: Solved, rows: Sequence[CheckRow]) -> list[Message]:
    """Objectives that hold in the simulation and may not outside it."""
    goals = {one.name: one.goals for one in told.formulation.served}
    return [
        msg(
            "plan.unsure",
            model=row.model,
            goal=msg(f"plan.goal-{name}"),
            percentile=f"{row.percentile:g}",
            figure=format_range(getattr(row, name)),
            limit=format_seconds(getattr(goals[row.model], f"{name}_max")),
        )
        for row in rows
        for name in row.unsure
    ]


def _engines(told: Solved, groups: Sequence[GroupRow]) -> list[Message]:
    """Groups on GPUs that the engine's present release does not run on, or nobody says it does."""
    said = []
    for row in groups:
        engine = next(one for one in told.formulation.served if one.name == row.model).engine
        if engine is not None and (how := engine_support(engine, told.lookups.catalog.gpu_by_id[row.gpu])) in (
            "earlier",
            "unsure",
        ):
            said.append(msg(f"recommend.engine-{how}", engine=engine.name, gpu=row.gpu_name))
            said += [msg("plan.engine-note", engine=engine.name, note=engine.note)] if engine.note and how == "earlier" else []
    return list(dict.fromkeys(said))


def _stale(day: date, rows: Sequence[BillRow | JobRow]) -> list[Message]:
    """Prices the plan rests on that were not seen lately."""
    seen = {
        (f"{row.provider} {row.instance}".strip(), row.region, row.term): row.price_observed_at
        for row in rows
        if row.price_observed_at and (day - date.fromisoformat(row.price_observed_at)).days > STALE_DAYS
    }
    what = tuple(
        msg(
            "plan.stale-price",
            machine=machine,
            where=tuple(filter(None, (region, msg(f"term.{term}")))),
            day=at,
            n=(day - date.fromisoformat(at)).days,
        )
        for (machine, region, term), at in seen.items()
    )
    return [msg("plan.stale", what=what)] if what else []


def _sources(told: Solved, bill: Sequence[Any]) -> tuple[Any, ...]:
    catalog = told.lookups.catalog
    spot = SPOT_SOURCES if any(row.term == "spot" for row in bill) else ()
    gpus = tuple(source for row in bill for source in catalog.gpu_by_id[row.gpu].sources[:1])
    return catalog.cited_sources(tuple(row.source for row in bill if row.source), spot, gpus)


def _verify(told: Solved, groups: Sequence[GroupRow]) -> tuple[str, Message | None]:
    """The command that measures a step of one copy of the largest group, and what it does not tell."""
    if not groups:
        return "", None
    row = groups[0]
    one = next(served for served in told.formulation.served if served.name == row.model)
    check = next((checked for checked in told.checked if checked.model == row.model), None)
    tokens, each = round(one.traffic.output), row.rate / max(1, row.copies)
    batch = row.batch if check is None else running_sequences(each, check.ttft, check.tpot, tokens, max(1, row.batch))
    asked = replace(
        one.asked.bare, model=one.asked_for, gpu=row.gpu, precision=row.precision, parallel=Parallel(tp=row.gpus_per_copy),
        seq_in=max(1, round(one.traffic.prompt)), seq_out=max(1, tokens),
    )  # fmt: skip
    return verify_command(asked, one.asked.shape, batch)


def _changes(told: Solved) -> dict[str, int]:
    stay = told.limits.current
    if stay is None:
        return {}
    level = int(np.argmax(told.formulation.problem.demand.sum(axis=1)))
    have = dict(stay.gpus)
    now: dict[str, float] = {}
    for (at, p, _), n in told.solution.machines.items():
        if at == level:
            gpu_pool = told.formulation.gpu_pools[p]
            now[gpu_pool.gpu.id] = now.get(gpu_pool.gpu.id, 0.0) + n * gpu_pool.pool.size
    return {
        gpu: int(now.get(gpu, 0.0) - have.get(gpu, 0.0)) for gpu in sorted({*now, *have}) if now.get(gpu, 0) != have.get(gpu, 0)
    }
