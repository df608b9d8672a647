"""Build the problem of models with traffic on pools of machines; its columns are replicas of a model on a pool's GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.catalog.engines.engine import Engine, may_run_on
from whichgpu.catalog.engines.registry import default_engine
from whichgpu.catalog.gpu import Gpu
from whichgpu.decide.configurations.configuration import WorkloadRequest
from whichgpu.decide.configurations.precision_choices import precisions_on
from whichgpu.decide.constraints import DEFAULT_QUALITY, QUALITY_RANK, Quality
from whichgpu.decide.plan.capacity import ReplicaCapacity, Roles, Shortfall, replica_capacities
from whichgpu.decide.plan.solver.problem import Floats, LateService, Problem, Workers
from whichgpu.decide.plan.solver.useful_workers import best_places, cheapest_for_some_bucket, place_gains
from whichgpu.decide.plan.supply import MAX_GPUS, GpuPool
from whichgpu.decide.plan.traffic import Traffic, load_levels
from whichgpu.decide.roles.worker_rates import DISAGGREGATING_ENGINES
from whichgpu.estimate.group.fabric import Fabric
from whichgpu.estimate.serving.curve import Objectives
from whichgpu.estimate.serving.fleet.pools import ROLES


class ServedModel(msgspec.Struct, frozen=True):
    """A model under a unique name, its traffic and objectives, and its engine if the catalog knows it."""

    name: str
    request: WorkloadRequest
    traffic: Traffic
    objectives: Objectives
    engine: Engine | None = None
    requested_name: str = ""  # the model as the user wrote it
    day: date | None = None  # precisions that engines run since later are not tried; None: only the model's own is
    quality: Quality = DEFAULT_QUALITY  # least quality that a precision may keep

    def runs_on(self, gpu: Gpu) -> bool:
        """Return whether the model's engine may run on a GPU; unknown counts as yes."""
        return self.engine is None or may_run_on(self.engine, gpu)

    def precisions_on(self, gpu: Gpu) -> tuple[str, ...]:
        """Return the precisions allowed by the quality required that gain something on a GPU, the model's own first."""
        if self.day is None:
            return (self.request.precision_on(gpu),)
        levels = precisions_on(self.request, gpu, self.engine, self.day, self.quality)
        return tuple(name for name, level in levels.items() if QUALITY_RANK[level] <= QUALITY_RANK[self.quality])


class Column(msgspec.Struct, frozen=True):
    """A column of the solver's problem: a model on a pool's GPUs; the solver chooses how many units of `replicas` replicas."""

    model: int
    pool_index: int
    replica: ReplicaCapacity
    replicas: int


class Formulation(msgspec.Struct, frozen=True):
    """The solver's problem, and what its columns (models on machines), buckets of requests and load levels represent."""

    problem: Problem
    columns: tuple[Column, ...]
    gpu_pools: tuple[GpuPool, ...]
    models: tuple[ServedModel, ...]
    first_buckets: tuple[int, ...]  # index of each model's first bucket in the problem
    replicas: tuple[tuple[tuple[ReplicaCapacity, ...], ...], ...]  # [models][pools][tensor-parallel degrees], also with rate 0
    hour_level: np.ndarray  # the load level of every hour of the curve
    rate_factors: tuple[float, ...] = ()  # by model: factor on its rates, for a headroom above the common one

    def buckets_of(self, model: int) -> slice:
        """Return the slice of the problem's buckets of requests that belongs to a model."""
        start = self.first_buckets[model]
        return slice(start, start + len(self.models[model].traffic.buckets))

    def busiest(self, model: int) -> int:
        """Return the load level at which a model gets the most requests."""
        return int(np.argmax(self.problem.demand[:, self.buckets_of(model)].sum(axis=1)))

    def bucket(self, place: int) -> tuple[int, int]:
        """Return the model, and the index within that model's buckets, of the bucket of requests at a place of the problem."""
        model = max(m for m, start in enumerate(self.first_buckets) if start <= place)
        return model, place - self.first_buckets[model]


def build(
    models: Sequence[ServedModel],
    gpu_pools: Sequence[GpuPool],
    max_levels: int,
    limits: Mapping[str, Any],
    progress: Callable[[float], None] | None = None,
) -> Formulation:
    """Return the solver's problem of these models on these pools of equal machines, with at most `max_levels` levels of load.

    `limits` are fields of the problem such as headroom, quotas and budget. `progress` gets the share of models estimated.
    """
    first_buckets: list[int] = []
    names: list[str] = []
    for one in models:
        first_buckets.append(len(names))
        names += [f"{one.name}: {bucket.name}" if len(models) > 1 else bucket.name for bucket in one.traffic.buckets]
    curves = [np.array(one.traffic.hourly) for one in models] or [np.zeros(1)]
    rates, shares, hour_level = load_levels(curves, max_levels)
    mixes = [np.array([bucket.share for bucket in one.traffic.buckets]) for one in models]
    parts = [rates[:, [m]] * mix[None, :] for m, mix in enumerate(mixes)]
    demand = np.concatenate(parts, axis=1) if parts else np.zeros((len(rates), 0))
    replicas, workers = [], []
    for one in models:
        by_pool = _replicas_by_pool(one, gpu_pools)
        workers.append([[each for each in row if each.role != "both"] for row in by_pool])
        replicas.append(
            tuple(
                () if pool.workers_only else tuple(each for each in row if each.role == "both")
                for pool, row in zip(gpu_pools, by_pool, strict=True)
            )
        )
        if progress:
            progress(len(replicas) / len(models))
    columns = [
        column
        for m in range(len(models))
        for place, gpu_pool in enumerate(gpu_pools)
        for column in (
            *_columns(m, place, gpu_pool, replicas[m][place], alone=len(models) == 1),
            *_worker_columns(m, place, gpu_pool, workers[m][place]),
        )
    ]
    for m, mix in enumerate(mixes):
        columns = _without_costly_workers(columns, m, gpu_pools, mix)
    problem = Problem(
        pools=tuple(one.pool for one in gpu_pools),
        columns=(),
        pool_of=np.zeros(0, dtype=np.int64),
        uses=np.zeros(0, dtype=np.int64),
        rates=np.zeros((0, demand.shape[1])),
        demand=demand,
        hours=shares,
        buckets=tuple(names),
        **limits,
    )
    empty = Formulation(problem, (), tuple(gpu_pools), tuple(models), tuple(first_buckets), tuple(replicas), hour_level)
    return table_of(empty, tuple(columns))


def table_of(formulation: Formulation, columns: tuple[Column, ...]) -> Formulation:
    """Return the problem with other columns, with their names, GPUs and rates on time and late by bucket of requests."""
    gpu_pools, models, demand = formulation.gpu_pools, formulation.models, formulation.problem.demand
    rates, late = np.zeros((len(columns), demand.shape[1])), np.zeros((len(columns), demand.shape[1]))
    for place, column in enumerate(columns):
        mine = formulation.buckets_of(column.model)
        rates[place, mine] = column.replica.rates * column.replicas
        if column.replica.late_rates is not None:
            late[place, mine] = column.replica.late_rates * column.replicas
    service = formulation.problem.late or _late_service(models, late)
    problem = replace(
        formulation.problem,
        columns=tuple(_column_name(one, models, gpu_pools) for one in columns),
        pool_of=np.array([column.pool_index for column in columns], dtype=np.int64),
        uses=np.array([gpus_taken(column, gpu_pools[column.pool_index]) for column in columns], dtype=np.int64),
        rates=rates,
        late=None if service is None else replace(service, rates=late),
        workers=_roles(columns, gpu_pools),
    )
    return replace(formulation, problem=problem, columns=columns)


def _column_name(column: Column, models: Sequence[ServedModel], gpu_pools: Sequence[GpuPool]) -> str:
    name = f"{models[column.model].name} on {column.replica.tp}x {gpu_pools[column.pool_index].gpu.name}"
    return name if column.replica.role == "both" else f"{name} ({column.replica.role})"


def _roles(columns: Sequence[Column], gpu_pools: Sequence[GpuPool]) -> Workers | None:
    """Return the roles of columns, linked by model, place and format of the KV cache; None if all are aggregated."""
    keys = [
        None if one.replica.role == "both" else (one.model, gpu_pools[one.pool_index].place, one.replica.cache) for one in columns
    ]
    links = {key: place for place, key in enumerate(dict.fromkeys(key for key in keys if key is not None))}
    if not links:
        return None
    roles = [ROLES.index(one.replica.role) for one in columns]
    return Workers(np.array(roles), np.array([-1 if key is None else links[key] for key in keys]))


def _replicas_by_pool(model: ServedModel, gpu_pools: Sequence[GpuPool]) -> list[list[ReplicaCapacity]]:
    """Return a model's replicas by pool of machines, precision and tensor-parallel degree, with their capacities.

    Engines that send KV caches also have prefill workers and decode workers on machines that share a network: owned ones, and
    rented ones of one place. Pools of equal GPUs with equal links are estimated once.
    """
    max_tp = [one.max_tp if model.runs_on(one.gpu) else 0 for one in gpu_pools]
    able = (model.request.workload.engine or default_engine()) in DISAGGREGATING_ENGINES
    kinds: dict[tuple[int, Fabric, Roles], list[int]] = {}
    for place, one in enumerate(gpu_pools):
        roles = Roles(not one.workers_only, able and bool(one.place))
        kinds.setdefault((id(one.gpu), one.fabric, roles), []).append(place)
    first = [gpu_pools[places[0]] for places in kinds.values()]
    estimated = replica_capacities(
        model.request,
        model.traffic.buckets,
        model.objectives,
        [(one.gpu, one.fabric) for one in first],
        [max(max_tp[place] for place in places) for places in kinds.values()],
        [model.precisions_on(one.gpu) for one in first],
        [roles for *_, roles in kinds],
    )
    replicas: list[list[ReplicaCapacity]] = [[] for _ in gpu_pools]
    for places, capacities in zip(kinds.values(), estimated, strict=True):
        for place in places:
            replicas[place] = [_near_only(one, model, gpu_pools[place]) for one in capacities if one.tp <= max_tp[place]]
    return replicas


def _near_only(replica: ReplicaCapacity, model: ServedModel, gpu_pool: GpuPool) -> ReplicaCapacity:
    """Return a replica that serves only users of cities that its machines are near enough to."""
    if all(gpu_pool.reach):
        return replica
    near = np.repeat(gpu_pool.reach, len(model.traffic.buckets) // len(gpu_pool.reach))
    late, lack = replica.late_rates, replica.shortfall
    if lack is not None:
        limits = (
            {name: np.where(near, value, np.inf) for name, value in one.items()} for one in (lack.min_limits, lack.together)
        )
        lack = Shortfall(lack.fits & near, *limits)
    return replace(replica, rates=replica.rates * near, late_rates=None if late is None else late * near, shortfall=lack)


def _late_service(models: Sequence[ServedModel], rates: Floats) -> LateService | None:
    """Return what may be served late: of each model the requests beyond its percentile; None if late service helps nowhere."""
    if not rates.any():
        return None
    model_of = [m for m, one in enumerate(models) for _ in one.traffic.buckets]
    shares = [1.0 - one.objectives.percentile / 100.0 if one.objectives.any else 0.0 for one in models]
    return LateService(rates, np.array(model_of, dtype=np.int64), np.array(shares))


def _columns(model: int, place: int, gpu_pool: GpuPool, replicas: Sequence[ReplicaCapacity], alone: bool) -> list[Column]:
    """Return the kinds of replica that none on as many GPUs or fewer beats per GPU; `alone`: a unit fills a machine."""
    limit = gpu_pool.pool.size * (MAX_GPUS if gpu_pool.owned else 1)
    able = [one for one in replicas if one.best_rates.any() and one.tp <= limit]
    per_gpu = [np.concatenate([one.rates, one.best_rates]) / one.tp for one in able]
    columns = []
    for at, replica in enumerate(able):
        dominated = any(
            (other >= per_gpu[at]).all() and ((other > per_gpu[at]).any() or before < at)
            for before, other in enumerate(per_gpu)
            if before != at and able[before].tp <= replica.tp
        )
        count = gpu_pool.pool.size // replica.tp if alone and not gpu_pool.owned else 1
        if not dominated and count >= 1:
            columns.append(Column(model, place, replica, count))
    return columns


def _worker_columns(model: int, place: int, gpu_pool: GpuPool, workers: Sequence[ReplicaCapacity]) -> list[Column]:
    """Return prefill and decode workers that no smaller one of the same role beats per GPU; a machine may have both."""
    columns: list[Column] = []
    for role in ("prefill", "decode"):
        columns += _columns(model, place, gpu_pool, [one for one in workers if one.role == role], alone=False)
    return columns


def _without_costly_workers(columns: list[Column], model: int, gpu_pools: Sequence[GpuPool], mix: Floats) -> list[Column]:
    """Return the columns without a model's rented workers in places where they cost more than aggregated replicas.

    `mix` is the share of requests in each bucket.
    """
    rented = [one for one in columns if one.model == model and gpu_pools[one.pool_index].workers_only]
    if not rented:
        return columns
    aggregated = [
        one for one in columns if one.model == model and one.replica.role == "both" and not gpu_pools[one.pool_index].owned
    ]
    links: dict[tuple[str, str], dict[str, list[Column]]] = {}
    for one in rented:
        link = links.setdefault((gpu_pools[one.pool_index].place, one.replica.cache), {"prefill": [], "decode": []})
        link[one.replica.role].append(one)
    by_role = [[_costs(link[role], gpu_pools, len(mix)) for link in links.values()] for role in ("prefill", "decode")]
    prefill, decode = ([costs.min(axis=0, initial=np.inf) for costs in of_role] for of_role in by_role)
    whole: Floats = _costs(aggregated, gpu_pools, len(mix)).min(axis=0, initial=np.inf)
    gains = place_gains(whole, prefill, decode, mix)
    useful = set()
    for at in best_places(gains):
        for of_role, role in zip(by_role, ("prefill", "decode"), strict=True):
            mine = list(links.values())[at][role]
            useful |= {id(mine[place]) for place in cheapest_for_some_bucket(of_role[at])}
    dropped = {id(one) for one in rented} - useful
    return [one for one in columns if id(one) not in dropped]


def _costs(columns: Sequence[Column], gpu_pools: Sequence[GpuPool], buckets: int) -> Floats:
    """Return the cost per request of each bucket served in time [columns, buckets]; infinite if a column cannot."""
    costs = np.full((len(columns), buckets), np.inf)
    for row, one in zip(costs, columns, strict=True):
        pool = gpu_pools[one.pool_index].pool
        price = min(option.price for option in pool.options) * gpus_taken(one, gpu_pools[one.pool_index]) / pool.size
        able = one.replica.rates > 0
        row[able] = price / (one.replica.rates[able] * one.replicas)
    return costs


def gpus_taken(column: Column, gpu_pool: GpuPool) -> int:
    """Return the GPUs that a column's replicas take, with their part of those left unused because no further replica fits.

    No replica spans two machines. A machine that serves a single model is filled with replicas and taken whole.
    """
    tp, size = column.replica.tp, gpu_pool.pool.size
    if gpu_pool.owned or size < tp:
        return tp * column.replicas
    return size if column.replicas == size // tp else column.replicas * -(-size // (size // tp))


def with_headrooms(formulation: Formulation, headrooms: Mapping[str, float]) -> Formulation:
    """Return the problem with a headroom (share of time kept free) per model: the least for all, and lower rates for others."""
    problem = formulation.problem
    common = min(headrooms.values(), default=problem.headroom)
    factors = tuple((1.0 - headrooms[one.name]) / (1.0 - common) for one in formulation.models)
    changes = np.array([factors[column.model] for column in formulation.columns])
    rates = problem.rates * changes[:, None] if len(changes) else problem.rates
    late = replace(problem.late, rates=problem.late.rates * changes[:, None]) if problem.late is not None else None
    return replace(formulation, problem=replace(problem, headroom=common, rates=rates, late=late), rate_factors=factors)


def only_gpu(problem: Problem, gpu: str) -> Problem:
    """Return the problem restricted to machines with one kind of GPU."""
    return without_pools(problem, frozenset(p for p, pool in enumerate(problem.pools) if pool.gpu != gpu))


def without_pools(problem: Problem, pools: frozenset[int]) -> Problem:
    """Return the problem without the machines of some pools (indices of sets of equal machines)."""
    columns = np.flatnonzero(~np.isin(problem.pool_of, list(pools)))
    jobs = []
    for job in problem.jobs:
        hours = job.hours.copy()
        hours[list(pools)] = np.inf
        jobs.append(replace(job, hours=hours))
    return replace(problem.of_columns(columns), jobs=tuple(jobs))
