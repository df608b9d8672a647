"""From models with their traffic and machines that can be had to the problem: columns are copies of a model on a pool's GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from whichgpu.catalog.engines.engine import Engine, may_run_on
from whichgpu.catalog.gpu import Gpu
from whichgpu.decide.configurations.configuration import WorkloadRequest
from whichgpu.decide.plan.capacity import Goals, ReplicaCapacity, replica_capacities
from whichgpu.decide.plan.solver.problem import CurrentFleet, Floats, Job, Problem, Quota
from whichgpu.decide.plan.supply import GpuPool
from whichgpu.decide.plan.traffic import Traffic, load_levels


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model, its traffic and its objectives, and the engine that serves it where its facts are known.

    `name` is its own among all that is served; `model` what it was asked for by, where that is another word.
    """

    name: str
    asked: WorkloadRequest
    traffic: Traffic
    goals: Goals
    engine: Engine | None = None
    model: str = ""

    @property
    def asked_for(self) -> str:
        """The model, by the name it was asked for."""
        return self.model or self.name

    def runs_on(self, gpu: Gpu) -> bool:
        """Whether its engine may; only where it cannot is it left out."""
        return self.engine is None or may_run_on(self.engine, gpu)


@dataclass(frozen=True, slots=True)
class Column:
    """What a column of the problem is: a model on a stand, in copies of so many GPUs, `copies` of them to one of the column."""

    model: int
    pool_index: int
    replica: ReplicaCapacity
    copies: int


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """What a plan has to keep to beside its objectives."""

    headroom: float
    slices: int | None = None
    quotas: tuple[tuple[str, frozenset[str], float], ...] = ()  # name, GPU ids, most rented GPUs
    budget: float | None = None
    horizon: float = 730.0
    levels: int = 4
    current: CurrentFleet | None = None
    spot_share: float = 1.0


@dataclass(frozen=True, slots=True)
class Formulation:
    """The problem and what its numbers mean. `hour_level` is the level of every hour of the curve."""

    problem: Problem
    columns: tuple[Column, ...]
    gpu_pools: tuple[GpuPool, ...]
    served: tuple[ServedModel, ...]
    starts: tuple[int, ...]  # first bucket of each model
    copies: tuple[tuple[tuple[ReplicaCapacity, ...], ...], ...]  # [models][stands]: all degrees, also those that cannot
    hour_level: np.ndarray
    excused: tuple[tuple[int, ...], ...]  # by model: buckets served without their objectives
    ease: tuple[float, ...] = ()  # by model: what its copies are counted at beyond the headroom of all

    def busiest(self, model: int) -> int:
        """The level at which a model gets the most requests."""
        start = self.starts[model]
        rates = self.problem.demand[:, start : start + len(self.served[model].traffic.buckets)].sum(axis=1)
        return int(np.argmax(rates))

    def bucket(self, place: int) -> tuple[int, int]:
        """Model and bucket of a bucket of the problem."""
        model = max(m for m, start in enumerate(self.starts) if start <= place)
        return model, place - self.starts[model]


def build(
    served: Sequence[ServedModel],
    gpu_pools: Sequence[GpuPool],
    limits: PlanLimits,
    jobs: Sequence[Job] = (),
    heard: Callable[[float], None] | None = None,
) -> Formulation:
    """The problem of these models on these stands; `heard` is told the share of the models that are estimated."""
    starts: list[int] = []
    names: list[str] = []
    for one in served:
        starts.append(len(names))
        names += [f"{one.name}: {bucket.name}" if len(served) > 1 else bucket.name for bucket in one.traffic.buckets]
    curves = [np.array(one.traffic.hourly) for one in served] or [np.zeros(1)]
    rates, shares, hour_level = load_levels(curves, limits.levels)
    mixes = [np.array([bucket.share for bucket in one.traffic.buckets]) for one in served]
    parts = [rates[:, [m]] * mixes[m][None, :] for m in range(len(served))]
    demand = np.concatenate(parts, axis=1) if parts else np.zeros((len(rates), 0))
    told, excused = [], []
    for one in served:
        copies, hard = _with_excuses(one, gpu_pools)
        told.append(tuple(tuple(row) for row in copies))
        excused.append(hard)
        if heard:
            heard(len(told) / len(served))
    columns = [
        column
        for m in range(len(served))
        for s, gpu_pool in enumerate(gpu_pools)
        for column in _columns(m, s, gpu_pool, told[m][s], alone=len(served) == 1)
    ]
    width = demand.shape[1]
    table = np.zeros((len(columns), width))
    for place, column in enumerate(columns):
        start = starts[column.model]
        table[place, start : start + len(column.replica.rates)] = column.replica.rates * column.copies
    problem = Problem(
        pools=tuple(gpu_pool.pool for gpu_pool in gpu_pools),
        columns=tuple(_name(column, served, gpu_pools) for column in columns),
        pool_of=np.array([column.pool_index for column in columns], dtype=np.int64),
        uses=np.array([gpus_taken(column, gpu_pools[column.pool_index]) for column in columns], dtype=np.int64),
        rates=table,
        demand=demand,
        hours=shares,
        headroom=limits.headroom,
        slices=limits.slices,
        quotas=_quotas(limits, gpu_pools),
        jobs=tuple(jobs),
        horizon=limits.horizon,
        budget=limits.budget,
        current=limits.current,
        spot_share=limits.spot_share,
        buckets=tuple(names),
    )
    return Formulation(
        problem, tuple(columns), tuple(gpu_pools), tuple(served), tuple(starts), tuple(told), hour_level, tuple(excused)
    )


def _with_excuses(one: ServedModel, gpu_pools: Sequence[GpuPool]) -> tuple[list[list[ReplicaCapacity]], tuple[int, ...]]:
    """Copies under the objectives, and the buckets served without them because no GPU keeps them.

    A percentile leaves some requests free to miss the objectives. While the buckets that fit some GPU and are late on all of them
    hold no more requests than that, they are served late; otherwise, and where a request fits no GPU, they stay unserved.
    """
    kinds = [(gpu_pool.gpu, gpu_pool.fabric) for gpu_pool in gpu_pools]
    widest = [gpu_pool.widest if one.runs_on(gpu_pool.gpu) else 0 for gpu_pool in gpu_pools]
    buckets = one.traffic.buckets
    found = replica_capacities(one.asked, buckets, one.goals, kinds, widest)
    able, fits = (np.zeros(len(buckets), dtype=bool) for _ in range(2))
    for copy in (copy for row in found for copy in row):
        able |= copy.rates > 0
        fits |= copy.shortfall.fits if copy.shortfall is not None else False
    hard = np.flatnonzero(~able & fits)
    free = 1.0 - one.goals.percentile / 100.0
    if not len(hard) or not one.goals.any or sum(buckets[b].share for b in hard.tolist()) > free:
        return found, ()
    late = replica_capacities(one.asked, [buckets[b] for b in hard.tolist()], Goals(), kinds, widest)
    joined = [
        [
            replace(copy, rates=_put(copy.rates, hard, other.rates), batches=_put(copy.batches, hard, other.batches))
            for copy, other in zip(row, others, strict=True)
        ]
        for row, others in zip(found, late, strict=True)
    ]
    return joined, tuple(hard.tolist())


def _put(values: Floats, places: np.ndarray, others: Floats) -> Floats:
    told = values.copy()
    told[places] = others
    return told


def _columns(model: int, place: int, gpu_pool: GpuPool, copies: Sequence[ReplicaCapacity], alone: bool) -> list[Column]:
    """Degrees worth having: a machine filled with copies where one model has it to itself, single copies otherwise."""
    able = [copy for copy in copies if copy.rates.any() and copy.tp <= gpu_pool.pool.size * (8 if gpu_pool.owned else 1)]
    filled = alone and not gpu_pool.owned
    each = [(copy, gpu_pool.pool.size // copy.tp if filled else 1) for copy in able]
    worth = [copy.rates / copy.tp for copy in able]
    kept = []
    for at, (copy, count) in enumerate(each):
        beaten = any(
            (other >= worth[at]).all() and ((other > worth[at]).any() or before < at)
            for before, other in enumerate(worth)
            if before != at and able[before].tp < copy.tp
        )
        if not beaten and count >= 1:
            kept.append(Column(model, place, copy, count))
    return kept


def gpus_taken(column: Column, gpu_pool: GpuPool) -> int:
    """GPUs of a machine that are no others' while a column's copies stand there: what is left over when no more copies fit
    counts with them, since no copy spans two machines. A machine of one model is filled, and taken whole.
    """
    tp, size = column.replica.tp, gpu_pool.pool.size
    if gpu_pool.owned or size < tp:
        return tp * column.copies
    return size if column.copies == size // tp else column.copies * -(-size // (size // tp))


def _name(column: Column, served: Sequence[ServedModel], gpu_pools: Sequence[GpuPool]) -> str:
    return f"{served[column.model].name} on {column.replica.tp}x {gpu_pools[column.pool_index].gpu.name}"


def _quotas(limits: PlanLimits, gpu_pools: Sequence[GpuPool]) -> tuple[Quota, ...]:
    told = []
    for name, gpus, most in limits.quotas:
        pools = frozenset(s for s, gpu_pool in enumerate(gpu_pools) if gpu_pool.gpu.id in gpus and not gpu_pool.owned)
        told.append(Quota(name, pools, most))
    return tuple(told)


def with_headrooms(formulation: Formulation, spare: Mapping[str, float]) -> Formulation:
    """With each model's own headroom: the least of all for all, and copies of the others counted at less."""
    least = min(spare.values(), default=formulation.problem.headroom)
    ease = tuple((1.0 - spare[one.name]) / (1.0 - least) for one in formulation.served)
    factors = np.array([ease[column.model] for column in formulation.columns])
    before = np.array([(formulation.ease or (1.0,) * len(ease))[column.model] for column in formulation.columns])
    rates = formulation.problem.rates * (factors / before)[:, None] if len(factors) else formulation.problem.rates
    return replace(formulation, problem=replace(formulation.problem, headroom=least, rates=rates), ease=ease)


def only_gpu(problem: Problem, gpu: str) -> Problem:
    """The same problem with machines of one kind of GPU only."""
    kept = [p for p, pool in enumerate(problem.pools) if pool.gpu == gpu]
    return without_pools(problem, frozenset(range(len(problem.pools))) - frozenset(kept))


def without_pools(problem: Problem, pools: frozenset[int]) -> Problem:
    """The same problem less some pools: their machines cannot be had."""
    columns = np.flatnonzero(~np.isin(problem.pool_of, list(pools)))
    jobs = []
    for job in problem.jobs:
        hours = job.hours.copy()
        hours[list(pools)] = np.inf
        jobs.append(replace(job, hours=hours))
    return replace(
        problem,
        columns=tuple(problem.columns[j] for j in columns),
        pool_of=problem.pool_of[columns],
        uses=problem.uses[columns],
        rates=problem.rates[columns],
        jobs=tuple(jobs),
    )
