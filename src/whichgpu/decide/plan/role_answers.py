"""Additions to a plan: roles of owned GPUs, disaggregated serving on rented ones, and the cost of spot interruptions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from functools import partial

from whichgpu.base.errors import NoAnswer
from whichgpu.base.parallel.sweep import Progress, run_sweep
from whichgpu.decide.interrupted import PoliciesAnswer, Rates, cost_of_policies
from whichgpu.decide.plan.inputs import StageProgress
from whichgpu.decide.plan.plan_answer import GroupRow
from whichgpu.decide.plan.search import SolvedPlan
from whichgpu.decide.plan.simulate import server
from whichgpu.decide.plan.solver.build import ServedModel
from whichgpu.decide.plan.supply import rented_pools
from whichgpu.decide.plan.traffic import Bucket
from whichgpu.decide.roles.assign import assign_roles
from whichgpu.decide.roles.cluster import GpuKind, ModelLoad
from whichgpu.decide.roles.designs import designs
from whichgpu.decide.roles.role_replicas import Sweep
from whichgpu.decide.roles.roles_answer import DesignsAnswer, RolesAnswer
from whichgpu.estimate.serving.fleet.pools import Fleet, ReplicaPool
from whichgpu.estimate.serving.load import Lengths, Load
from whichgpu.workload.shapes import as_transformer

REQUESTS = 2000  # Inference requests simulated at one rate.
MAX_KINDS = 3  # At most this many kinds of GPU are compared.


def roles_of(plan: SolvedPlan, progress: StageProgress) -> RolesAnswer | None:
    """Return what every owned GPU does at peak rates (prefill, decode or both), or why it is idle; None if none is owned."""
    formulation = plan.trial.formulation
    options = [(one.gpu, one.pool.options[0]) for one in formulation.gpu_pools if one.owned]
    if not options or not formulation.models:
        return None
    kinds = [GpuKind(gpu, int(option.limit), option.price) for gpu, option in options]
    return assign_roles(kinds, [_model_load(one) for one in formulation.models], _sweep(plan, progress))


def designs_of(plan: SolvedPlan, groups: Sequence[GroupRow], progress: StageProgress) -> tuple[DesignsAnswer, ...]:
    """Return, for every model, ways to serve it with rented GPUs: kinds alone, mixed, disaggregated, at the cheapest price."""
    formulation, constraints = plan.trial.formulation, plan.inputs.constraints
    if any(one.owned for one in formulation.gpu_pools):
        return ()
    gpu_ids = constraints.gpu_ids
    compared = set(gpu_ids) if gpu_ids is not None and len(gpu_ids) <= MAX_KINDS else {row.gpu for row in groups}
    kind_of: dict[str, GpuKind] = {}
    for one in formulation.gpu_pools:
        id, size = one.gpu.id, one.pool.size
        price = min(option.price for option in one.pool.options) / size
        other = kind_of.get(id)
        if id in compared and (other is None or (-size, price) < (-other.per_machine, other.price)):
            kind_of[id] = GpuKind(one.gpu, None, price, size, machines=True, currency=constraints.currency)
    kinds = sorted(kind_of.values(), key=lambda kind: kind.price)[:MAX_KINDS]
    answers = []
    for model in formulation.models:
        with suppress(NoAnswer):  # The plan is valid without this comparison.
            answers.append(designs(kinds, _model_load(model), sweep=_sweep(plan, progress)))
    return tuple(answers)


def policies_of(plan: SolvedPlan, progress: StageProgress) -> tuple[PoliciesAnswer, ...]:
    """Return, for every model, the cost of meeting its objectives on demand, on spot with fallback, and mixed."""
    spot, currency = _spot_prices(plan), plan.inputs.constraints.currency
    formulation, answers = plan.trial.formulation, []
    for m, model in enumerate(formulation.models):
        pools, rates = [], {}
        for j, column in enumerate(formulation.columns):
            count = int(plan.trial.solution.counts[0, j]) * column.replicas
            gpu_pool, tp = formulation.gpu_pools[column.pool_index], column.replica.tp
            if column.model != m or not count or gpu_pool.owned:
                continue
            name = f"{tp}x {gpu_pool.gpu.name} ({j})"
            weight = float(formulation.problem.rates[j].max()) / column.replicas
            engine = server(model, gpu_pool, column.replica, 1, model.traffic.longest)
            pools.append(ReplicaPool(name, engine, count, gpus=tp, weight=weight))
            price = min(option.price for option in gpu_pool.pool.options if option.term != "spot")
            cheap = spot.get(gpu_pool.gpu.id)
            rates[name] = Rates(_money(price * (tp / gpu_pool.pool.size)), _money(cheap * tp) if cheap else None, currency)
        if pools and any(one.spot is not None for one in rates.values()):
            load, fleet = _model_load(model), Fleet(tuple(pools))
            answers.append(cost_of_policies(fleet, load.load, load.objectives, rates, sweep=_sweep(plan, progress)))
    return tuple(answers)


def _spot_prices(plan: SolvedPlan) -> dict[str, float]:
    """Return the cheapest spot price per GPU and hour of each kind of GPU in the plan."""
    constraints, inputs = plan.inputs.constraints, plan.inputs
    supply = rented_pools(inputs.market, inputs.catalog, constraints, plan.question.horizon, spot=True)
    prices: dict[str, float] = {}
    for one in supply.pools:
        for option in one.pool.options:
            if option.term == "spot":
                price = option.billed / one.pool.size
                prices[one.gpu.id] = min(price, prices.get(one.gpu.id, price))
    return prices


def _money(value: float) -> Decimal:
    return Decimal(repr(round(value, 6)))


def _sweep(plan: SolvedPlan, progress: StageProgress) -> Sweep:
    def report(done: Progress) -> None:
        progress("roles", done.done / max(1, done.total))

    return partial(run_sweep, jobs=plan.question.workers, ray=plan.question.ray, progress=report)


def _model_load(model: ServedModel) -> ModelLoad:
    buckets = model.traffic.buckets
    prompts, outputs = _lengths(buckets, "prompt"), _lengths(buckets, "output")
    load = Load(model.traffic.peak, prompts, outputs, REQUESTS, trace=model.traffic.trace)
    return ModelLoad(model.name, model.request.workload, as_transformer(model.request.shape), load, model.objectives)


def _lengths(buckets: tuple[Bucket, ...], name: str) -> Lengths:
    """Return the distribution of input or output tokens (`name`) over the buckets of requests, weighted by their shares."""
    if len(buckets) == 1:
        return Lengths(float(getattr(buckets[0], name)))
    weights: dict[float, float] = {}
    for bucket in buckets:
        length = float(max(1, round(getattr(bucket, name))))
        weights[length] = weights.get(length, 0.0) + bucket.share
    return Lengths.histogram(tuple(weights), tuple(weights.values()))
