"""Simulation of the chosen plan at each model's busiest load level: its groups of replicas as one fleet behind one router.

The router follows the plan's shares of every bucket. Output length is not known in advance: if the shares depend on it, the
fleet is simulated again with a router that uses input tokens alone, and the answer says if the objectives fail then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil, sqrt

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.base.lru import LruCache
from whichgpu.decide.configurations.configuration import Configuration, WorkloadRequest
from whichgpu.decide.configurations.generating import with_precision
from whichgpu.decide.configurations.groups import Group
from whichgpu.decide.configurations.ranges import TimeRange, time_range
from whichgpu.decide.configurations.slow_steps import MIN_HEADROOM, SAFE_PROBABILITY
from whichgpu.decide.constraints import Risk
from whichgpu.decide.plan.capacity import ReplicaCapacity, stated_limits
from whichgpu.decide.plan.routing import by_buckets, depends_on_outputs, draw_arrivals
from whichgpu.decide.plan.routing import by_prompts as routing_by_prompts
from whichgpu.decide.plan.solver.build import Formulation, ServedModel
from whichgpu.decide.plan.solver.problem import Bools, Floats, Solution
from whichgpu.decide.plan.supply import GpuPool
from whichgpu.decide.roles.step_times import without_objectives
from whichgpu.estimate.group.step import Devices
from whichgpu.estimate.serving.confidence import met_share, requests_to_show
from whichgpu.estimate.serving.early_stop import MissLimit
from whichgpu.estimate.serving.fleet.event_loop import simulate_fleet
from whichgpu.estimate.serving.fleet.kv_transfer import port_of
from whichgpu.estimate.serving.fleet.pools import Fleet, ReplicaPool
from whichgpu.estimate.serving.scheduler_limits import LimitOverrides
from whichgpu.estimate.serving.server import Server, server_of
from whichgpu.estimate.serving.simulator import SimulationOutcome
from whichgpu.workload.shapes import as_transformer
from whichgpu.workload.workload import Parallel, Workload

REQUESTS, MIN_REQUESTS = 4000, 300  # Simulated requests per model (enough for p99), least per group.
MAX_RUNS, SEED_STEP = 8, 7919  # Most independent runs of one fleet, and the difference between their seeds.
WARM_UP = 0.1  # This share of the requests, from the first, is not counted.
REQUESTS_PER_SLOT = 12  # Least simulated requests per batch slot, so that batches fill and empty.
MAX_REPLICAS = 64  # More replicas per group are not simulated: equal ones, each with its share of the load, wait no longer.
BOUND = "bandwidth"  # What bounds a decode step in most batches that keep latency objectives.
MEDIAN = 0.5  # Quantile of the step time at which it is the estimated one.
ROUNDING = 1e-9  # Tolerance of the share of requests, which is a sum over groups.


_SERVERS = LruCache[tuple[Server, tuple[object, ...]]](16)  # with the objects whose identity is in the key


class Latencies(msgspec.Struct, frozen=True):
    """Seconds of each request of a group of replicas after warm-up, infinite if refused; `weight` is its share of requests."""

    ttft: Floats
    tpot: Floats
    latency: Floats
    refused: int
    weight: float = 1.0
    complete: bool = True  # False if the simulation ended early because too many requests missed an objective


class SimulatedModel(msgspec.Struct, frozen=True):
    """A model's requests under the plan: seconds at the objectives' percentile, and the share that met all objectives.

    A refused request counts in `met` as a miss. `meets` if `met` is no less than the percentile and none was refused; `holds` if
    that is shown with 95% confidence: if `met_low`, the lower bound of `met`, is no less than the percentile.
    """

    model: str
    percentile: float
    ttft: float
    tpot: float
    latency: float
    met: float | None
    met_low: float | None
    meets: bool
    holds: bool
    requests: int
    worst: str = ""  # the objective nearest its limit
    margin: float = 0.0  # distance of that objective from its limit, as a share of the limit
    foresight: bool = False  # The objectives hold only if the router knows output lengths in advance.
    holds_slow: bool = True  # whether the objectives hold with slow steps as well, if that was simulated


def simulate_plan(
    formulation: Formulation, solution: Solution, seed: int = 0, progress: Callable[[float], None] | None = None,
    risk: Risk = "even",
) -> tuple[SimulatedModel, ...]:  # fmt: skip
    """Return a simulation of every model's replicas in the plan, at the load level with the model's most requests.

    At low risk those whose objectives hold are simulated again with slow steps.
    """
    results = []
    for model in range(len(formulation.models)):
        results.append(_show_at_risk(_model_run(formulation, solution, model), seed, risk))
        if progress:
            progress((model + 1) / len(formulation.models))
    return tuple(results)


def simulate_equal_replicas(
    served: ServedModel, gpu_pool: GpuPool, replica: ReplicaCapacity, count: int, seed: int = 0, risk: Risk = "even",
) -> SimulatedModel:  # fmt: skip
    """Return a simulation of a model's whole traffic on equal replicas, as `simulate_plan` does of a plan with these alone."""
    demand = np.array([served.traffic.peak * one.share for one in served.traffic.buckets])
    run = _GroupsRun(served, [gpu_pool], [replica], [count], demand, np.ones((1, len(demand))))
    return _show_at_risk(run, seed, risk)


def _show_at_risk(run: _GroupsRun, seed: int, risk: Risk) -> SimulatedModel:
    """Return a simulation of a model's replicas; at low risk again with slow steps if their objectives hold.

    Slow steps are a margin already, so one run that meets the objectives is enough; it ends once they can no longer be met.
    """
    one = _show_objectives(run, seed)
    if risk == "low" and one.holds:
        slow = replace(run, quantile=SAFE_PROBABILITY).latencies(seed, stop_early=True)
        one = replace(one, holds_slow=summarise(run.served, [slow]).meets)
    return one


def _show_objectives(run: _GroupsRun, seed: int) -> SimulatedModel:
    """Return a simulation of one model's replicas with further runs of other requests, while it is not clear if objectives hold.

    It is clear if the lower bound of the share that meets them reaches the percentile, if the share itself does not, or if the
    bound would stay below after the most runs.
    """
    served, runs = run.served, [run.latencies(seed)]
    one = summarise(served, runs)
    while one.meets and not one.holds and _may_show(one, len(runs)):
        runs.append(run.latencies(seed + SEED_STEP * len(runs)))
        one = summarise(served, runs)
    if one.holds and run.foresees_outputs:
        one = replace(one, foresight=not summarise(served, [run.latencies(seed, by_prompts=True)]).meets)
    return one


def _may_show(one: SimulatedModel, runs: int) -> bool:
    """Return whether more runs may show that objectives hold: the bound's distance falls with the root of the number of runs.

    Half of that distance counts, since the share itself may rise with more runs.
    """
    if one.met is None or one.met_low is None or runs >= MAX_RUNS:
        return False
    distance = (one.met - one.met_low) * sqrt(runs / MAX_RUNS)
    return one.met - distance / 2.0 >= one.percentile / 100.0


def simulate_model(
    formulation: Formulation, solution: Solution, model: int, seed: int, quantile: float = MEDIAN
) -> SimulatedModel:
    """Return one simulated run of one model's replicas, whose steps take as long as at this quantile of their range."""
    run = replace(_model_run(formulation, solution, model), quantile=quantile)
    return summarise(run.served, [run.latencies(seed)])


def _model_run(formulation: Formulation, solution: Solution, model: int) -> _GroupsRun:
    """Return one model's replicas at its busiest load level, ready to be simulated: as one fleet or group by group."""
    served, level, buckets = formulation.models[model], formulation.busiest(model), formulation.buckets_of(model)
    demand = formulation.problem.demand[level, buckets]
    groups = [
        (j, column)
        for j, column in enumerate(formulation.columns)
        if column.model == model and solution.counts[level, j] > 0 and solution.shares[level, j].any()
    ]
    replicas = [int(solution.counts[level, j]) * column.replicas for j, column in groups]
    kinds = [column.replica for _, column in groups]
    gpu_pools = [formulation.gpu_pools[column.pool_index] for _, column in groups]
    shares = np.array([solution.shares[level, j, buckets] for j, _ in groups]).reshape(len(groups), len(demand))
    served, demand, shares = _over_places(served, demand, shares)
    disaggregated = any(one.role != "both" for one in kinds)
    together = len(groups) > 1 and (max(replicas) <= MAX_REPLICAS or disaggregated)
    return (_FleetRun if together else _GroupsRun)(served, gpu_pools, kinds, replicas, demand, shares)


def _over_places(served: ServedModel, demand: Floats, shares: Floats) -> tuple[ServedModel, Floats, Floats]:
    """Return a model whose buckets are by length alone, with the demand and the groups' shares summed over cities of users."""
    places, traffic = served.traffic.places, served.traffic
    if places == 1:
        return served, demand, shares
    by_place = demand.reshape(places, -1)
    total = by_place.sum(axis=0)
    rates = (shares.reshape(len(shares), places, -1) * by_place[None]).sum(axis=1)
    first = traffic.buckets[: len(total)]
    part = sum(one.share for one in first)
    merged = replace(traffic, buckets=tuple(replace(one, share=one.share / part, place="") for one in first))
    return replace(served, traffic=merged), total, rates / np.maximum(total, 1e-12)


class _GroupsRun(msgspec.Struct, frozen=True):
    """A model's groups of replicas, each simulated by itself with its share of the load; `shares` are [groups, buckets]."""

    served: ServedModel
    gpu_pools: list[GpuPool]
    kinds: list[ReplicaCapacity]
    replicas: list[int]
    demand: Floats
    shares: Floats
    quantile: float = MEDIAN

    @property
    def foresees_outputs(self) -> bool:
        """Return whether requests are routed by output lengths, which no router knows in advance."""
        return False

    def misses(self, requests: int) -> MissLimit:
        """Return how many of the simulated requests may miss an objective before the objectives cannot hold."""
        one = self.served.objectives
        return MissLimit.of(requests, ceil(WARM_UP * requests), one.percentile, one.ttft_max, one.tpot_max, one.latency_max)

    def latencies(self, seed: int, by_prompts: bool = False, stop_early: bool = False) -> list[Latencies]:
        """Return the latencies of each group with requests drawn from a seed; a group among several is simulated to its end."""
        total, results = float(self.demand.sum()), []
        for place, kind in enumerate(self.kinds):
            mine = self.demand * self.shares[place]
            rate = float(mine.sum())
            if rate <= 0:
                continue
            count = min(self.replicas[place], MAX_REPLICAS)
            requests = int(max(MIN_REQUESTS, _least_requests(self.served) * rate / total))
            requests = max(requests, min(4 * REQUESTS, REQUESTS_PER_SLOT * count * kind.largest_batch))
            arrivals = draw_arrivals(self.served, mine / rate, rate * count / self.replicas[place], requests, seed + place)
            longest = max(prompt + output for _, prompt, output, _ in arrivals)
            engine = server(self.served, self.gpu_pools[place], kind, count, longest, self.quantile)
            misses = self.misses(requests) if stop_early and len(self.kinds) == 1 else None
            outcome = engine.run(iter(arrivals), hash_tokens=self.served.traffic.hash_tokens, misses=misses)
            results.append(replace(_latencies(outcome, requests), weight=rate / total))
        return results


class _FleetRun(_GroupsRun, frozen=True):
    """A model's groups of replicas behind one router."""

    @property
    def foresees_outputs(self) -> bool:
        """Return whether the plan's shares depend on output lengths, which no router knows in advance."""
        return self.served.objectives.any and depends_on_outputs(self.served.traffic.buckets, self.shares)

    def latencies(self, seed: int, by_prompts: bool = False, stop_early: bool = False) -> list[Latencies]:
        """Return the latencies of the fleet with requests drawn from a seed, routed by the plan's shares or by input tokens."""
        served, buckets, shares = self.served, self.served.traffic.buckets, self.shares
        rates, total = shares @ self.demand, float(self.demand.sum())
        rare = (1.0 - served.objectives.percentile / 100.0) * total  # A group with fewer requests moves no percentile alone.
        needed = [
            max(MIN_REQUESTS * (rate > rare), REQUESTS_PER_SLOT * n * kind.largest_batch) * total / rate
            for n, kind, rate in zip(self.replicas, self.kinds, rates, strict=True)
            if rate > 0
        ]
        count = int(min(4 * REQUESTS, max(_least_requests(served), *needed)))
        pools = []
        for place, (gpu_pool, kind) in enumerate(zip(self.gpu_pools, self.kinds, strict=True)):
            longest = max(buckets[b].prompt_to + buckets[b].output_to for b in np.flatnonzero(shares[place]))
            engine = server(served, gpu_pool, kind, 1, longest, self.quantile)
            weight = max(float(rates[place]) / self.replicas[place], 1e-9)
            pools.append(_pool(served, gpu_pool, kind, engine, self.replicas[place], weight, f"{place}"))
        routing = routing_by_prompts(buckets, self.demand, shares) if by_prompts else by_buckets(buckets, shares)
        arrivals = draw_arrivals(served, self.demand, total, count, seed)
        fleet, misses = Fleet(tuple(pools), routing), self.misses(count) if stop_early else None
        outcome = simulate_fleet(fleet, iter(arrivals), served.traffic.hash_tokens, misses).served
        return [_latencies(outcome, count)]


def _least_requests(served: ServedModel) -> int:
    """Return how many requests of a model are simulated at least: enough to show its percentile if all of them meet it."""
    if not served.objectives.any:
        return REQUESTS
    needed = requests_to_show(served.objectives.percentile / 100.0) / (1.0 - WARM_UP)
    return int(np.clip(2.0 * needed, REQUESTS, 4 * REQUESTS))


def _pool(
    served: ServedModel, gpu_pool: GpuPool, replica: ReplicaCapacity, engine: Server, replicas: int, weight: float, name: str
) -> ReplicaPool:
    """Return equal replicas for the fleet's simulation, with their role and the port that sends KV caches."""
    pool = ReplicaPool(name, engine, replicas, replica.role, replica.tp, weight)
    if replica.role == "both":
        return pool
    workload = with_precision(served.request.workload, replica.precision, served.request.stated)
    shape = as_transformer(served.request.shape)
    port = port_of(workload, shape, gpu_pool.gpu, replica.tp, fabric=gpu_pool.fabric)
    return replace(pool, port=port, cache=f"{gpu_pool.place} {replica.cache}")


def _latencies(outcome: SimulationOutcome, count: int) -> Latencies:
    steady = np.arange(len(outcome.arrived)) >= WARM_UP * count
    first = outcome.first - outcome.arrived
    between = (outcome.finished - outcome.first) / np.maximum(1, outcome.outputs - 1)
    whole = outcome.finished - outcome.arrived
    ttft, tpot, latency = (np.where(outcome.answered, seconds, np.inf)[steady] for seconds in (first, between, whole))
    return Latencies(ttft, tpot, latency, int((steady & ~outcome.answered).sum()), complete=outcome.complete)


def server(
    served: ServedModel, gpu_pool: GpuPool, replica: ReplicaCapacity, replicas: int, longest: int, quantile: float = MEDIAN
) -> Server:
    """Return a simulated engine with `replicas` replicas on GPUs of a pool; `longest`: tokens of a request.

    Its steps take as long as at this quantile of their range.
    """
    tp, limits = replica.tp, replica.limits
    workload = with_precision(served.request.workload, replica.precision, served.request.stated)
    workload = replace(workload, gpus=tp * replicas, nodes=1, parallel=Parallel(dp=replicas, tp=tp), batch=1)
    overrides = LimitOverrides(limits.max_batched_tokens if limits else None, replica.sequence_limit)
    typical = _estimated_server(served.request, without_objectives(workload), gpu_pool, overrides, longest)
    if quantile == MEDIAN:
        return typical
    factor = replica_range(served.request, gpu_pool, replica).factor.quantile(quantile)
    return typical.scaled(max(factor, MIN_HEADROOM) if quantile == SAFE_PROBABILITY else factor)


def _estimated_server(
    request: WorkloadRequest, workload: Workload, gpu_pool: GpuPool, overrides: LimitOverrides, longest: int
) -> Server:
    """Return a simulated engine at the estimated step times, cached: fleets with other margins have many of the same replicas."""

    def make() -> tuple[Server, tuple[object, ...]]:
        devices = Devices.of([gpu_pool.gpu], [gpu_pool.fabric], request.calibration)
        shape = as_transformer(request.shape)
        return server_of(workload, shape, gpu_pool.gpu, None, overrides, longest, devices), objects

    objects = (request.shape, request.calibration, gpu_pool.gpu)
    key = (msgspec.json.encode(workload), tuple(map(id, objects)), gpu_pool.fabric, overrides, longest)
    # A copy, since a simulation fills in rows of the tables, and results are named by the tables' values.
    return _SERVERS.get(key, make)[0].scaled(1.0)


def replica_range(request: WorkloadRequest, gpu_pool: GpuPool, replica: ReplicaCapacity) -> TimeRange:
    """Return the 90% range of the step times of a replica on GPUs of a pool of equal machines."""
    tp, batch = replica.tp, replica.largest_batch
    layout = Configuration(
        replica.precision, Parallel(tp=tp), batch, None, 1, "none", 1.0, 1.0, "", 0, 0, "fits", BOUND, "generate"
    )
    return time_range(request, Group(gpu_pool.gpu, tp, 1, gpu_pool.fabric), layout)


def summarise(served: ServedModel, runs: Sequence[Sequence[Latencies]]) -> SimulatedModel:
    """Return a model's latency percentiles in seconds over all its groups of replicas and runs, and whether objectives hold."""
    objectives, limits = served.objectives, stated_limits(served.objectives)
    groups = [replace(one, weight=one.weight / len(runs)) for run in runs for one in run]
    ttft, tpot, latency = (
        _percentile([(getattr(one, name), one.weight) for one in groups], objectives.percentile)
        for name in ("ttft", "tpot", "latency")
    )
    seconds = {"ttft": ttft, "tpot": tpot, "latency": latency}
    margins = {name: 1.0 - seconds[name] / limit for name, limit in limits.items() if limit}
    worst = min(margins, key=lambda name: margins[name]) if margins else ""
    meets = all(one.complete and not one.refused for one in groups) and all(margin >= 0 for margin in margins.values())
    met, holds = None, meets
    if objectives.any:
        met = met_share([(_within(one, limits), one.weight) for one in groups])
        percentile = objectives.percentile / 100.0 - ROUNDING
        meets = meets and met.value >= percentile
        holds = meets and met.low >= percentile
    return SimulatedModel(
        model=served.name,
        percentile=objectives.percentile,
        ttft=ttft,
        tpot=tpot,
        latency=latency,
        met=None if met is None else met.value,
        met_low=None if met is None else met.low,
        meets=meets,
        holds=holds,
        requests=sum(len(one.ttft) for one in groups),
        worst=worst,
        margin=margins.get(worst, 0.0),
    )


def _within(group: Latencies, limits: Mapping[str, float]) -> Bools:
    """Return whether each request of a group met all objectives (`limits` in seconds)."""
    good: Bools = np.ones(len(group.ttft), dtype=bool)
    for name, limit in limits.items():
        good &= getattr(group, name) <= limit
    return good


def _percentile(groups: list[tuple[Floats, float]], percentile: float) -> float:
    """Return a percentile of latencies of several groups of replicas, each group weighted by its share of the requests."""
    if not groups:
        return 0.0
    values = np.concatenate([one for one, _ in groups])
    weights = np.concatenate([np.full(len(one), weight / max(1, len(one))) for one, weight in groups])
    if not len(values):
        return float("inf")
    order = np.argsort(values)
    at = np.searchsorted(np.cumsum(weights[order]), percentile / 100.0 * weights.sum())
    return float(values[order][min(at, len(values) - 1)])
