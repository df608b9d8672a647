"""Build the answer of a solved plan: sentence, tables, comparisons, warnings, and launch options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from math import inf, isfinite
from typing import Any

from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import significant
from whichgpu.decide.candidate import Cost
from whichgpu.decide.configurations.slow_steps import SAFE_PROBABILITY
from whichgpu.decide.launch.disk import download_bytes
from whichgpu.decide.launch.engine_lines.context import STEP, served_context
from whichgpu.decide.launch.engine_lines.quantised_checkpoint import quantised_checkpoint
from whichgpu.decide.launch.models import earlier_releases, file_name, known_releases, repository_of, with_repository
from whichgpu.decide.launch.options import LaunchOptions
from whichgpu.decide.plan.comparisons import alone_rows, own_rows
from whichgpu.decide.plan.first_failure import breaks_first
from whichgpu.decide.plan.inputs import StageProgress
from whichgpu.decide.plan.notes import assumptions, nearest_objective, places_served, warnings
from whichgpu.decide.plan.plan_answer import BillRow, CheckRow, CurvePoint, GroupRow, PlanAnswer, money, proof
from whichgpu.decide.plan.plan_rows import AnswerRows
from whichgpu.decide.plan.question import echo
from whichgpu.decide.plan.role_answers import designs_of, policies_of, roles_of
from whichgpu.decide.plan.search import SolvedPlan
from whichgpu.decide.plan.simulate import SimulatedModel, replica_range, simulate_model
from whichgpu.decide.plan.solver.starts import start_messages, starts_of
from whichgpu.price.run import SPOT_SOURCES
from whichgpu.price.sellers import cite_sources
from whichgpu.price.terms import MONTH_HOURS

FAST, MEDIAN, SLOW = 0.05, 0.5, 0.95  # Quantiles of the step time: the ends of its 90% range, and the estimate.
BISECTIONS = 3  # The probability is found to within about 6%.
LATENCIES = ("ttft", "tpot", "latency")


def build_answer(plan: SolvedPlan, curve: tuple[CurvePoint, ...], progress: StageProgress) -> PlanAnswer:
    """Return the answer of a solved plan; `curve` has its cost at other loads or objectives. Commands are added later."""
    question, inputs, trial = plan.question, plan.inputs, plan.trial
    solution, formulation, currency = trial.solution, trial.formulation, inputs.constraints.currency
    starts = starts_of(formulation, solution, inputs.constraints.run_settings.startup)
    rows = AnswerRows(formulation, solution, inputs.market, currency, starts)
    groups, bill, jobs = rows.groups(), rows.bill(), rows.jobs()
    simulation = _checks(plan)
    bill_per_hour = solution.bill + starts.cost
    cost = _cost(groups, bill_per_hour, currency)
    gap = max(0.0, 1.0 - solution.bound / (solution.cost + starts.cost)) if solution.cost > 0 else 0.0
    names = {one.gpu.id: one.gpu.name for one in formulation.gpu_pools}
    return PlanAnswer(
        request=echo(question),
        as_of=inputs.constraints.day.isoformat(),
        sentence=with_failure(_sentence(plan, groups, cost, gap), simulation),
        cost_per_hour=cost,
        cost_per_month=money(bill_per_hour * MONTH_HOURS, currency),
        cost=money(bill_per_hour * question.horizon, currency),
        horizon_hours=question.horizon,
        bound=money(max(0.0, solution.bound - solution.change), currency),
        gap=gap,
        optimum_per_hour=money(max(0.0, trial.optimum - solution.change), currency),
        headroom=trial.headroom,
        groups=groups,
        bill=bill,
        levels=rows.levels(),
        alone=alone_rows(formulation.problem, names, currency, list(dict.fromkeys(row.gpu for row in groups))),
        jobs=jobs,
        owned=rows.owned(),
        breaks_first=(*breaks_first(formulation, solution, rows.busiest), *nearest_objective(trial)),
        simulation=simulation,
        curve=curve,
        timeline=rows.timeline(),
        own=own_rows(plan),
        hints=tuple(_hint(plan, row, place) for place, row in enumerate(groups)),
        offers=plan.supply.offers,
        columns=len(formulation.columns),
        program=solution.program_columns,
        seconds=solution.seconds,
        assumptions=tuple(assumptions(plan)),
        warnings=(
            *warnings(plan, simulation, groups, (*bill, *jobs)),
            *start_messages(formulation, solution, starts, currency),
            *(places_served(inputs.reach, groups) if inputs.reach else ()),
        ),
        sources=_sources(plan, bill),
        changes=_changes(plan, rows.busiest),
        roles=roles_of(plan, progress) if question.roles else None,
        designs=designs_of(plan, groups, progress) if question.roles else (),
        policies=policies_of(plan, progress) if question.policies else (),
    )


def _cost(groups: Sequence[GroupRow], bill: float, currency: str) -> Cost:
    """Return the plan's cost per hour `bill`, with a range that follows from the step-time ranges of its groups of replicas."""

    def amount(value: float) -> Decimal:
        return money(value, currency).amount

    low, middle, high = (sum(float(getattr(row.cost_per_hour, end)) for row in groups) for end in ("low", "amount", "high"))
    if middle <= 0:
        return Cost(amount(bill), amount(bill), amount(bill), currency)
    return Cost(amount(bill), amount(bill * min(1.0, low / middle)), amount(bill * max(1.0, high / middle)), currency)


def _sentence(plan: SolvedPlan, groups: Sequence[GroupRow], cost: Cost, gap: float) -> Message:
    kinds: dict[str, int] = {}
    for row in groups:
        name = f"{row.gpu_name} ({row.provider})" if row.provider != "owned" else row.gpu_name
        kinds[name] = kinds.get(name, 0) + row.gpus
    models = plan.inputs.models
    served = tuple(msg("plan.traffic", rate=significant(one.traffic.peak), model=one.name) for one in models)
    values: dict[str, Any] = {
        "hour": significant(float(cost.amount)),
        "month": significant(float(cost.amount) * MONTH_HOURS),
        "currency": cost.currency,
        "proof": proof(gap),
    }
    if not served:
        return msg("plan.sentence-jobs", n=len(plan.question.jobs), **values)
    what = tuple(f"{n}x {name}" for name, n in kinds.items())
    id = "plan.sentence" if plan.trial.formulation.problem.levels == 1 else "plan.sentence-hours"
    return msg(id, what=what, served=served, free=f"{plan.trial.headroom:.0%}", **values)


def with_failure(sentence: Message, simulation: Sequence[CheckRow]) -> Message:
    """Return the answer's sentence, plus the model that misses its objectives most often in simulation, if any model does."""
    failing = [one for one in simulation if one.met is not None and not one.holds]
    if not failing:
        return sentence
    worst = min(failing, key=lambda one: one.met or 0.0)
    values = {"what": sentence, "model": worst.model, "met": f"{worst.met or 0.0:.1%}"}
    if worst.unshown:
        return msg("plan.sentence-unshown", percentile=f"{worst.percentile:g}", low=f"{worst.met_low or 0.0:.1%}", **values)
    return msg("plan.sentence-fails", **values)


def _checks(plan: SolvedPlan) -> tuple[CheckRow, ...]:
    """Return each model's simulated latency percentiles in seconds with their 90% range, and how likely its objectives hold.

    The range is of the load: with slow steps more sequences run and queues grow, so latencies rise by more than the steps.
    """
    formulation = plan.trial.formulation
    return tuple(_check(plan, place, one) for place, one in enumerate(plan.trial.simulated[: len(formulation.models)]))


def _check(plan: SolvedPlan, place: int, one: SimulatedModel) -> CheckRow:
    formulation, solution = plan.trial.formulation, plan.trial.solution
    model = formulation.models[place]
    counts = solution.counts[formulation.busiest(place)]
    column = next(column for j, column in enumerate(formulation.columns) if counts[j] > 0 and column.model == place)
    evidence = replica_range(model.request, formulation.gpu_pools[column.pool_index], column.replica)

    def at(quantile: float) -> SimulatedModel:
        return simulate_model(formulation, solution, place, plan.question.seed, quantile)

    fast, slow = at(FAST), at(SLOW)
    figures: dict[str, Any] = {}
    for name in LATENCIES:
        values = [getattr(each, name) for each in (one, fast, slow)]
        ends = [value for value in values if isfinite(value)] or [0.0]
        middle = values[0] if isfinite(values[0]) else inf
        figures[name] = Figure(middle, min(*ends, middle), max(*ends, middle), "s", evidence.basis, evidence.sources)
    limits = {name: getattr(model.objectives, f"{name}_max") for name in figures}
    unsure = tuple(name for name, each in figures.items() if limits[name] and each.value <= limits[name] < each.high)
    simulated = {name: getattr(one, name) for name in ("model", "percentile", "met", "met_low", "holds", "requests", "foresight")}
    proven = MEDIAN if one.holds else FAST
    if plan.inputs.risk == "low" and one.holds and one.holds_slow:
        proven = SAFE_PROBABILITY
    keeps = None if one.met is None else _probability(lambda quantile: at(quantile).meets, proven, fast.meets, slow.meets)
    return CheckRow(**simulated, **figures, unsure=unsure, keeps_objective=keeps)


def _probability(holds: Callable[[float], bool], proven: float, holds_fast: bool, holds_slow: bool) -> float:
    """Return the probability that the objectives hold: the slowest quantile of the step time at which they do in simulation.

    `proven` is a quantile at which they do.
    """
    if holds_slow:
        return SLOW
    if not holds_fast:
        return FAST
    low, high = proven, MEDIAN if proven < MEDIAN else SLOW
    for _ in range(BISECTIONS if high - low > SLOW - SAFE_PROBABILITY else 0):
        middle = (low + high) / 2.0
        low, high = (middle, high) if holds(middle) else (low, middle)
    return round(low, 2)


def _sources(plan: SolvedPlan, bill: Sequence[BillRow]) -> tuple[Any, ...]:
    catalog = plan.inputs.catalog
    spot = SPOT_SOURCES if any(row.term == "spot" for row in bill) else ()
    gpus = tuple(source for row in bill for source in catalog.gpu_by_id[row.gpu].sources[:1])
    return cite_sources(catalog, (row.source for row in bill if row.source), spot, gpus)


def _changes(plan: SolvedPlan, level: int) -> dict[str, int]:
    """Return GPUs added (negative: removed) by the plan relative to the current fleet at a level of load, by GPU."""
    current = plan.trial.formulation.problem.current
    if current is None:
        return {}
    planned = plan.trial.solution.gpus_by_kind(plan.trial.formulation.problem, level)
    changes = {gpu: int(planned.get(gpu, 0) - current.gpus.get(gpu, 0.0)) for gpu in sorted({*planned, *current.gpus})}
    return {gpu: change for gpu, change in changes.items() if change}


def _hint(plan: SolvedPlan, row: GroupRow, place: int) -> LaunchOptions:
    """Return the options with which to launch one group of replicas (`row`); `place` is its index, used in its name."""
    formulation, catalog = plan.trial.formulation, plan.inputs.catalog
    model = next(one for one in formulation.models if one.name == row.model)
    column = next(
        column
        for column, count in zip(formulation.columns, plan.trial.solution.counts.max(axis=0), strict=True)
        if count > 0
        and formulation.models[column.model] is model
        and formulation.gpu_pools[column.pool_index].gpu.id == row.gpu
        and column.replica.tp == row.gpus_per_copy
        and (column.replica.role, column.replica.precision) == (row.role, row.precision)
    )
    limits, shape = column.replica.limits, model.request.shape
    context = served_context(
        model.traffic.longest, getattr(shape, "max_context", None), limits.cache_tokens // STEP * STEP if limits else None
    )
    gpu = catalog.gpu_by_id[row.gpu]
    engine = model.engine.id if model.engine else ""
    checkpoint = None if shape.native else quantised_checkpoint(model.request.bare.model, row.precision, engine, catalog)
    return LaunchOptions(
        group=file_name(f"{row.model}-{row.gpu}-{place + 1}"),
        model=repository_of(model.request.bare.model, catalog, model.requested_name),
        **{name: getattr(row, name) for name in ("copies", "gpu", "gpus_per_copy", "provider", "instance", "region", "machines")},
        tensor_parallel_size=row.parallel.tp,
        max_num_seqs=column.replica.sequence_limit,
        max_model_len=context.tokens,
        request_length=model.traffic.longest,
        context_reason=context.reason,
        max_num_batched_tokens=limits.max_batched_tokens if limits else None,
        dtype=row.precision,
        memory_share=limits.memory_share if limits else None,
        spot=row.term == "spot",
        earlier=earlier_releases(catalog.engines, gpu),
        releases=known_releases(catalog.engines, gpu),
        vendor=gpu.vendor,
        architecture=gpu.architecture,
        has_bf16="bf16" in gpu.supports,
        pipeline_parallel_size=row.parallel.pp,
        data_parallel_size=max(1, row.gpus_per_copy // (row.parallel.tp * row.parallel.pp)),
        expert_parallel_size=row.parallel.ep,
        kv_dtype=column.replica.cache or None,
        published=shape.native,
        layers=getattr(shape, "layers", 0),
        checkpoint=checkpoint,
        download_bytes=download_bytes(shape, row.precision, checkpoint),
        role=row.role,
        speculative=with_repository(model.request.bare.speculative, catalog),
    )
