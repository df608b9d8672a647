"""Beside a plan: roles of owned GPUs, prompts and answers apart on rented ones, and what machines that may be taken away cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import TYPE_CHECKING

from whichgpu.base.errors import NoAnswer
from whichgpu.base.parallel.sweep import Progress
from whichgpu.decide.interrupted import PoliciesAnswer, Rates, cost_of_policies
from whichgpu.decide.plan.plan_answer import GroupRow
from whichgpu.decide.plan.supply import rented
from whichgpu.decide.plan.traffic import Bucket
from whichgpu.decide.plan.verify import server
from whichgpu.decide.roles import DesignsAnswer, GpuKind, ModelLoad, RolesAnswer, assign_roles, designs
from whichgpu.estimate.serving.curve import Objectives
from whichgpu.estimate.serving.fleet.pools import Fleet, ReplicaPool
from whichgpu.estimate.serving.load import Lengths, Load
from whichgpu.workload.shapes import as_transformer

if TYPE_CHECKING:
    from whichgpu.api.plan.plan import Solved
    from whichgpu.decide.plan.solver.build import ServedModel

REQUESTS = 2000
MOST_KINDS = 3  # of GPU compared


def roles_of(told: Solved, progress: Callable[[str, float], None]) -> RolesAnswer | None:
    """Every owned GPU's role for the plan's models at their busiest, or why it has none; None where nothing is owned."""
    gpu_pools = [gpu_pool for gpu_pool in told.formulation.gpu_pools if gpu_pool.owned]
    if not gpu_pools or not told.formulation.served:
        return None
    kinds = [GpuKind(gpu_pool.gpu, int(gpu_pool.pool.options[0].most), gpu_pool.pool.options[0].price) for gpu_pool in gpu_pools]
    served = [_served(one) for one in told.formulation.served]
    return assign_roles(kinds, served, jobs=told.request.workers, ray=told.request.ray, progress=_heard(progress))


def designs_of(told: Solved, groups: Sequence[GroupRow], progress: Callable[[str, float], None]) -> tuple[DesignsAnswer, ...]:
    """For every model, rented kinds alone, side by side, and with prompts read on one and answers written on another.

    Kinds are compared in their largest machines, at the cheapest price of these.
    """
    if any(gpu_pool.owned for gpu_pool in told.formulation.gpu_pools):
        return ()
    currency = told.selection.constraints.currency
    found: dict[str, GpuKind] = {}
    named = told.selection.constraints.gpu_ids
    wanted = set(named) if named is not None and len(named) <= MOST_KINDS else {row.gpu for row in groups}
    for gpu_pool in told.formulation.gpu_pools:
        price = min(option.price for option in gpu_pool.pool.options) / gpu_pool.pool.size
        known = found.get(gpu_pool.gpu.id)
        if gpu_pool.gpu.id in wanted and (known is None or (-gpu_pool.pool.size, price) < (-known.per_machine, known.price)):
            found[gpu_pool.gpu.id] = GpuKind(gpu_pool.gpu, None, price, gpu_pool.pool.size, machines=True, currency=currency)
    kinds = sorted(found.values(), key=lambda kind: kind.price)[:MOST_KINDS]
    how = {"jobs": told.request.workers, "ray": told.request.ray, "progress": _heard(progress)}
    answers = []
    for one in told.formulation.served:
        with suppress(NoAnswer):  # the plan stands without it
            answers.append(designs(kinds, _served(one), **how))  # type: ignore[arg-type]
    return tuple(answers)


def policies_of(told: Solved, progress: Callable[[str, float], None]) -> tuple[PoliciesAnswer, ...]:
    """For every model of the plan, what its objectives cost on demand, on spot with one standing in, and mixed."""
    spot = _spot_prices(told)
    answers = []
    for m, one in enumerate(told.formulation.served):
        stations, rates = [], {}
        for j, column in enumerate(told.formulation.columns):
            count = int(told.solution.copies[0, j]) * column.copies
            gpu_pool = told.formulation.gpu_pools[column.pool_index]
            if column.model != m or not count or gpu_pool.owned:
                continue
            name, share = f"{column.replica.tp}x {gpu_pool.gpu.name} ({j})", column.replica.tp / gpu_pool.pool.size
            weight = float(told.formulation.problem.rates[j].max()) / column.copies
            engine = server(told.formulation, one, column, 1, one.traffic.longest)
            stations.append(ReplicaPool(name, engine, count, gpus=column.replica.tp, weight=weight))
            price = min(option.price for option in gpu_pool.pool.options if option.term != "spot")
            cheap = spot.get(gpu_pool.gpu.id)
            currency = told.selection.constraints.currency
            rates[name] = Rates(_money(price * share), _money(cheap * column.replica.tp) if cheap else None, currency)
        if stations and any(one.spot is not None for one in rates.values()):
            model = _served(one)
            fleet = Fleet(tuple(stations))
            how = {"jobs": told.request.workers, "ray": told.request.ray, "progress": _heard(progress)}
            answers.append(cost_of_policies(fleet, model.load, model.goals, rates, **how))  # type: ignore[arg-type]
    return tuple(answers)


def _spot_prices(told: Solved) -> dict[str, float]:
    """The cheapest GPU of each kind on spot terms."""
    constraints = told.selection.constraints
    found = rented(
        told.selection.market, told.lookups.catalog, constraints.span, told.request.horizon, constraints.run_settings, spot=True
    )
    prices: dict[str, float] = {}
    for gpu_pool in found.gpu_pools:
        for machine in gpu_pool.machines:
            if machine.term == "spot":
                price = machine.price / gpu_pool.pool.size
                prices[gpu_pool.gpu.id] = min(price, prices.get(gpu_pool.gpu.id, price))
    return prices


def _money(value: float) -> Decimal:
    return Decimal(repr(round(value, 6)))


def _heard(progress: Callable[[str, float], None]) -> Callable[[Progress], None]:
    return lambda done: progress("roles", done.done / max(1, done.total))


def _served(one: ServedModel) -> ModelLoad:
    shape, traffic, goals = as_transformer(one.asked.shape), one.traffic, one.goals
    load = Load(
        traffic.peak,
        _lengths(traffic.buckets, "prompt"),
        _lengths(traffic.buckets, "output"),
        REQUESTS,
        trace=traffic.trace,
    )
    kept = Objectives(goals.ttft_max, goals.tpot_max, goals.percentile, goals.latency_max)
    return ModelLoad(one.name, one.asked.workload, shape, load, kept)


def _lengths(buckets: tuple[Bucket, ...], name: str) -> Lengths:
    """Of prompts or answers, as often as their buckets come."""
    if len(buckets) == 1:
        return Lengths(float(getattr(buckets[0], name)))
    weights: dict[float, float] = {}
    for bucket in buckets:
        length = float(max(1, round(getattr(bucket, name))))
        weights[length] = weights.get(length, 0.0) + bucket.share
    return Lengths.histogram(tuple(weights), tuple(weights.values()))
