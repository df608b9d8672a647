"""Assumptions and warnings of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date

import numpy as np

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_duration, format_seconds, significant
from whichgpu.catalog.engines.engine import engine_support
from whichgpu.catalog.engines.registry import default_engine
from whichgpu.catalog.offer import STALE_DAYS
from whichgpu.catalog.places.user_places import Reach
from whichgpu.decide.configurations.slow_steps import SAFE_PROBABILITY
from whichgpu.decide.plan.margins import HEADROOMS, late_rates
from whichgpu.decide.plan.plan_answer import BillRow, CheckRow, GroupRow, JobRow, format_range
from whichgpu.decide.plan.refusal import named_buckets
from whichgpu.decide.plan.search import PlanTrial, SolvedPlan
from whichgpu.decide.plan.solver.build import ServedModel
from whichgpu.decide.work import work_of
from whichgpu.estimate.serving.summary import enough_requests
from whichgpu.price.sellers import unknown_seller
from whichgpu.price.terms import MONTH_HOURS
from whichgpu.workload.unused import beyond_context

MIN_LATE = 1e-4  # Smallest share of all requests, served late, that is named.
POISSON_90 = 1.645  # standard deviations within which 90% of Poisson counts lie


def assumptions(plan: SolvedPlan) -> list[Message]:
    """Return a message for every assumption the plan makes because the question leaves it open."""
    return [*dict.fromkeys(_assumptions(plan)), *plan.inputs.assumptions]


def _assumptions(plan: SolvedPlan) -> Iterator[Message]:
    question, trial = plan.question, plan.trial
    if question.headroom is None and trial.headrooms:
        yield msg("assumed.plan-headroom", share=f"{min(trial.headrooms.values()):.0%}")
    if trial.simulated and any(one.met is not None for one in trial.simulated):
        low = plan.inputs.risk == "low"
        id = "even" if not low else "low" if trial.holds else "none"
        yield msg(f"assumed.plan-risk-{id}", share=f"{SAFE_PROBABILITY:.0%}")
    for model in plan.inputs.models:
        yield from _model_assumptions(model)
    yield from _chosen_precisions(trial)
    for job in plan.inputs.jobs:
        workload = job.request.workload
        work = work_of(workload, job.request.shape, None)
        if work.assumed and work.amount:
            unit = msg(f"unit.{work.unit if workload.training or work.unit != 'tokens' else 'output-tokens'}")
            yield msg("assumed.plan-work", name=job.name, amount=f"{work.amount:,.0f}", unit=unit)
    if question.horizon == MONTH_HOURS:
        yield msg("assumed.plan-horizon")
    if "spot" not in plan.inputs.constraints.terms and not question.only_owned:
        yield msg("assumed.plan-no-spot")
    if plan.supply.old:
        yield msg("assumed.plan-old-spot", n=plan.supply.old)
    if any(row.replica.role != "both" and n for row, n in zip(trial.formulation.columns, trial.solution.counts[0], strict=True)):
        yield msg("roles.assumes-sent")
    if question.spare:
        yield msg("assumed.plan-spare")
    if question.jobs:
        yield msg("assumed.plan-jobs-once", hours=f"{question.horizon:,.0f}")
    if trial.solution.cost > trial.optimum * (1 + 1e-9):
        yield msg("assumed.plan-simpler", share=f"{trial.solution.cost / trial.optimum - 1:.1%}")
    if plan.supply.offers:
        yield msg("assumed.plan-available")


def _chosen_precisions(trial: PlanTrial) -> Iterator[Message]:
    """Yield a message for every precision in the plan that is not the model's own on that GPU."""
    for j in np.flatnonzero(trial.solution.counts.any(axis=0)).tolist():
        column = trial.formulation.columns[j]
        gpu, request = trial.formulation.gpu_pools[column.pool_index].gpu, trial.formulation.models[column.model].request
        if column.replica.precision != request.precision_on(gpu):
            yield msg("assumed.precision-chosen", precision=column.replica.precision)


def _model_assumptions(model: ServedModel) -> Iterator[Message]:
    workload, stated, traffic = model.request.workload, model.request.stated, model.traffic
    if traffic.peak_of == "parts":
        yield msg("assumed.plan-parts", model=model.name, rate=significant(traffic.peak), mean=significant(traffic.mean))
    if "engine" not in stated:
        yield msg("assumed.engine", engine=workload.engine or default_engine())
    if not {"seq_in", "seq_out"} & stated and traffic.trace is None and len(traffic.buckets) == 1:
        yield msg("assumed.sequence", seq_in=workload.seq_in or 0, seq_out=workload.seq_out or 0)
    if "rate" not in stated and traffic.trace is None and traffic.peak_of == "rate":
        yield msg("assumed.rate", rate=significant(traffic.peak))
    if traffic.hash_tokens:
        yield msg("assumed.plan-prefixes", model=model.name)
    if not model.objectives.any:
        yield msg("assumed.plan-no-goals", model=model.name)


def warnings(
    plan: SolvedPlan, simulation: Sequence[CheckRow], groups: Sequence[GroupRow], priced: Sequence[BillRow | JobRow]
) -> Iterator[Message]:
    """Yield warnings on what may go wrong with the plan; `priced` are the rows that have a price."""
    yield from _traffic_warnings(plan)
    yield from _simulation_warnings(plan)
    yield from _late_warnings(plan)
    settings = plan.inputs.constraints.run_settings
    if settings.interruptions and any(one.term == "spot" for one in priced):
        yield msg("plan.spot-risk", hours=significant(1.0 / settings.interruptions), time=format_duration(settings.startup))
    yield from _range_warnings(plan, simulation)
    yield from dict.fromkeys(_engine_warnings(plan, groups))
    yield from _stale_prices(plan.inputs.constraints.day, priced)
    sellers = dict.fromkeys((row.provider, row.source) for row in priced if isinstance(row, BillRow))
    yield from (one for seller in sellers if (one := unknown_seller(plan.inputs.catalog, *seller)) is not None)


def _traffic_warnings(plan: SolvedPlan) -> Iterator[Message]:
    if plan.question.headroom is None and not plan.trial.by_simulation:
        for name, share in plan.trial.headrooms.items():
            if share > HEADROOMS[0] + 1e-9:
                yield msg("plan.headroom-raised", model=name, share=f"{share:.0%}")
    for model in plan.inputs.models:
        yield from beyond_context(model.traffic.longest, model.request.shape)
        if (few := model.traffic.few) is not None and "rate" not in model.request.stated:
            rate, within = significant(model.traffic.mean), f"{POISSON_90 / few**0.5:.0%}"
            yield msg("plan.trace-few", model=model.name, n=few, rate=rate, share=within)


def _simulation_warnings(plan: SolvedPlan) -> Iterator[Message]:
    simulated = plan.trial.simulated
    for one in simulated:
        if not one.meets:
            id = "plan.misses" if plan.question.headroom is not None else "plan.misses-anyway"
            seconds = {"ttft": format_seconds(one.ttft), "tpot": format_seconds(one.tpot)}
            yield msg(id, model=one.model, percentile=f"{one.percentile:g}", **seconds)
    for one in simulated:
        if not enough_requests(one.requests, one.percentile):
            beyond = f"{one.requests * (100.0 - one.percentile) / 100.0:.2g}"
            yield msg("plan.thin", model=one.model, percentile=f"{one.percentile:g}", n=one.requests, beyond=beyond)
    yield from (msg("plan.foresight", model=one.model) for one in simulated if one.foresight)


def _late_warnings(plan: SolvedPlan) -> Iterator[Message]:
    """Yield a warning for every model of which some requests are planned to be served later than their objectives."""
    formulation = plan.trial.formulation
    for m, model in enumerate(formulation.models):
        rates = late_rates(formulation, plan.trial.solution, m)
        shares = rates / max(float(formulation.problem.demand[formulation.busiest(m), formulation.buckets_of(m)].sum()), 1e-12)
        late = [(model.traffic.buckets[b].name, float(shares[b])) for b in np.flatnonzero(shares > MIN_LATE).tolist()]
        if late:
            yield msg("plan.excused", model=model.name, percentile=f"{model.objectives.percentile:g}", **named_buckets(late))


def _range_warnings(plan: SolvedPlan, rows: Sequence[CheckRow]) -> Iterator[Message]:
    """Yield a warning for each objective that holds at the estimate, but not over its whole 90% range."""
    objectives = {one.name: one.objectives for one in plan.inputs.models}
    for row in rows:
        for name in row.unsure:
            yield msg(
                "plan.unsure",
                model=row.model,
                goal=msg(f"plan.goal-{name}"),
                percentile=f"{row.percentile:g}",
                figure=format_range(getattr(row, name)),
                limit=format_seconds(getattr(objectives[row.model], f"{name}_max")),
            )


def _engine_warnings(plan: SolvedPlan, groups: Sequence[GroupRow]) -> Iterator[Message]:
    """Yield a warning for groups on GPUs that the engine's present release does not support, or is not known to."""
    for row in groups:
        engine = next(one for one in plan.inputs.models if one.name == row.model).engine
        how = engine_support(engine, plan.inputs.catalog.gpu_by_id[row.gpu]) if engine else ""
        if engine and how in ("earlier", "unsure"):
            yield msg(f"recommend.engine-{how}", engine=engine.name, gpu=row.gpu_name)
            if engine.note and how == "earlier":
                yield msg("plan.engine-note", engine=engine.name, note=engine.note)


def _stale_prices(day: date, rows: Sequence[BillRow | JobRow]) -> Iterator[Message]:
    """Yield one warning that covers all prices older than `STALE_DAYS`."""
    ages = {
        (f"{row.provider} {row.instance}".strip(), row.region, row.term): row.price_observed_at
        for row in rows
        if row.price_observed_at and (day - date.fromisoformat(row.price_observed_at)).days > STALE_DAYS
    }
    stale = tuple(
        msg(
            "plan.stale-price",
            machine=machine,
            where=tuple(filter(None, (region, msg(f"term.{term}")))),
            day=days,
            n=(day - date.fromisoformat(days)).days,
        )
        for (machine, region, term), days in ages.items()
    )
    if stale:
        yield msg("plan.stale", what=stale)


def nearest_objective(trial: PlanTrial) -> list[Message]:
    """Return a message on the simulated latency objective that is nearest to its limit; empty if the plan has no objectives."""
    near = [one for one in trial.simulated if one.worst]
    if not near:
        return []
    one = min(near, key=lambda each: each.margin)
    id = "plan.breaks-goal" if one.margin >= 0 else "plan.breaks-goal-missed"
    return [msg(id, model=one.model, goal=msg(f"plan.goal-{one.worst}"), margin=f"{abs(one.margin):.0%}")]


def places_served(reach: Reach, groups: Sequence[GroupRow]) -> Iterator[Message]:
    """Yield, for each city of users, the regions that serve it, with their round trips."""
    for place, trips in zip(reach.places, reach.trips, strict=True):
        serving = (row for row in groups if any(one.place == place.name for one in row.serves))
        regions = dict.fromkeys((row.provider, row.region) for row in serving)
        where = tuple(
            f"{' '.join(key)} ({format_seconds(trips[key])})" if key in trips else msg("plan.place-owned") for key in regions
        )
        yield msg("plan.place", place=place.name, share=f"{place.share:.0%}", regions=where)
