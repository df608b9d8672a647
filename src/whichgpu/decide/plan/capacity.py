"""Capacity of one replica on every kind of GPU: requests per second within the objectives, for each bucket of request lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.catalog.gpu import Gpu
from whichgpu.decide.configurations.capacity_bound import BUSIEST
from whichgpu.decide.configurations.configuration import WorkloadRequest
from whichgpu.decide.configurations.generating import with_precision
from whichgpu.decide.plan.solver.problem import Bools, Floats
from whichgpu.decide.plan.traffic import Bucket
from whichgpu.decide.roles.step_times import BATCHES, Kind, ReplicaSteps, replica_steps
from whichgpu.decide.roles.worker_rates import Requests, WorkerRates, decode_rates, prefill_rates
from whichgpu.estimate.group.layouts import divides_evenly
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.estimate.memory.parts import MemoryEstimate
from whichgpu.estimate.serving.curve import Objectives
from whichgpu.estimate.serving.fleet.kv_transfer import port_of
from whichgpu.estimate.serving.fleet.pools import Role
from whichgpu.estimate.serving.scheduler_limits import SchedulerLimits
from whichgpu.workload.shapes import Transformer, as_transformer
from whichgpu.workload.workload import Parallel, Workload

MIN_LATE_GAIN = 1e-3  # Late service must be faster than service on time by this share to be considered.
TENSOR_PARALLEL = (1, 2, 4, 8)  # These tensor-parallel degrees are tried.
Tests = Mapping[str, tuple[Floats, float | None]]  # Seconds [batches, buckets] and the limit of each objective.


class Roles(msgspec.Struct, frozen=True):
    """Which replicas a kind of GPU gets: aggregated ones, prefill workers and decode workers, or all of them."""

    aggregated: bool = True
    disaggregated: bool = False


class Shortfall(msgspec.Struct, frozen=True):
    """What a replica lacks for requests it cannot serve; arrays over buckets of requests, seconds by objective (ttft, tpot, ...).

    `fits` says whether the KV cache holds any one request of the bucket. `min_limits` is the smallest limit of one objective
    at which the bucket is served while the other objectives hold, infinite if that objective alone is not enough. `together` are
    the limits of all objectives at the batch that exceeds them by the smallest factor.
    """

    fits: Bools
    min_limits: Mapping[str, Floats]
    together: Mapping[str, Floats]


class ReplicaCapacity(msgspec.Struct, frozen=True):
    """Capacity of one replica on `tp` GPUs of a kind: requests per second and batch size by bucket, and the scheduler's limits.

    `late_rates` are those of requests served later than their objectives, 0 if that is no faster or not possible.
    If some bucket cannot be served, `short` names the reason (memory, ttft, tpot or latency) and `off` is the excess over that
    objective's limit as a share of the limit. `shortfall` is None if all are served, or if the weights alone do not fit.
    """

    tp: int
    precision: str
    rates: Floats
    batches: Floats
    limits: SchedulerLimits | None
    short: str = ""
    off: float = 0.0
    shortfall: Shortfall | None = None
    late_rates: Floats | None = None  # None if there are no objectives, or the weights do not fit
    late_batches: Floats | None = None
    role: Role = "both"  # prefill worker, decode worker, or both phases
    cache: str = ""  # format of the KV cache, the same where a prefill worker sends it and a decode worker receives it
    max_sequences: int | None = None  # most running sequences if that is not the largest batch

    @property
    def largest_batch(self) -> int:
        """Return the most sequences planned to run at once, over all buckets of requests."""
        return max(1, int(self.batches.max()))

    @property
    def sequence_limit(self) -> int:
        """Return the most sequences that the engine may run at once."""
        return self.max_sequences or self.largest_batch

    @property
    def best_rates(self) -> Floats:
        """Return requests per second by bucket, on time or late, whichever is higher."""
        return self.rates if self.late_rates is None else np.maximum(self.rates, self.late_rates)


def stated_limits(objectives: Objectives) -> dict[str, float]:
    """Return the limits of the objectives that are set, in seconds, by name."""
    limits = {"ttft": objectives.ttft_max, "tpot": objectives.tpot_max, "latency": objectives.latency_max}
    return {name: limit for name, limit in limits.items() if limit is not None}


def replica_capacities(
    request: WorkloadRequest,
    buckets: Sequence[Bucket],
    objectives: Objectives,
    kinds: Sequence[Kind],
    max_tp: Sequence[int],
    precisions: Sequence[Sequence[str]],
    roles: Sequence[Roles],
) -> list[list[ReplicaCapacity]]:
    """Return, for every kind of GPU, its replicas in each of its `precisions` and `roles` at all degrees up to `max_tp`.

    Replicas that lack memory for the weights have the role "both".
    """
    shape = as_transformer(request.shape)
    replicas: list[list[ReplicaCapacity]] = [[] for _ in kinds]
    by_precision: dict[str, list[int]] = {}
    for place, choices in enumerate(precisions):
        for precision in choices:
            by_precision.setdefault(precision, []).append(place)
    for precision, places in by_precision.items():
        workload = with_precision(request.workload, precision, request.stated)
        for tp in TENSOR_PARALLEL:
            mine = [place for place in places if max_tp[place] >= tp]
            if mine and divides_evenly(workload, shape, tp, 1, 1):
                sized = one_sequence(workload, tp)
                able, their_roles = [kinds[place] for place in mine], [roles[place] for place in mine]
                of_degree = _of_degree(request, sized, shape, buckets, objectives, able, their_roles)
                for place, own in zip(mine, of_degree, strict=True):
                    replicas[place] += own
    return replicas


def one_sequence(workload: Workload, tp: int) -> Workload:
    """Return the workload of one replica on `tp` GPUs that serves one sequence."""
    return replace(workload, gpus=tp, nodes=1, parallel=Parallel(tp=tp), batch=1, micro_batch=None)


def replica_memory(request: WorkloadRequest, replica: ReplicaCapacity, gpu: Gpu) -> MemoryEstimate:
    """Return the memory of one GPU of a replica as `estimate` gives it for one sequence of the traffic's mean lengths."""
    workload = one_sequence(with_precision(request.workload, replica.precision, request.stated), replica.tp)
    return estimate_memory(workload, request.shape, gpu)


def _of_degree(
    request: WorkloadRequest,
    workload: Workload,
    shape: Transformer,
    buckets: Sequence[Bucket],
    objectives: Objectives,
    kinds: Sequence[Kind],
    roles: Sequence[Roles],
) -> list[list[ReplicaCapacity]]:
    """Return the replicas of one tensor-parallel degree, with their capacity, on every kind of GPU: aggregated, then by role."""
    none, tp, precision = np.zeros(len(buckets)), workload.parallel.tp, workload.precision or ""
    prompts = np.array([max(1.0, bucket.prompt) for bucket in buckets])
    outputs = np.array([max(1.0, bucket.output) for bucket in buckets])
    longest = np.array([float(bucket.most_tokens) for bucket in buckets])
    requests, replicas = Requests(prompts, outputs, longest), []
    for kind, steps, own_roles in zip(kinds, replica_steps(request, workload, buckets, kinds), roles, strict=True):
        if steps is None:
            replicas.append([ReplicaCapacity(tp, precision, none, none, None, "memory")])
            continue
        replicas.append([_capacity(workload, steps, requests, objectives)] if own_roles.aggregated else [])
        if own_roles.disaggregated:
            replicas[-1] += _workers(workload, shape, kind, steps, requests, objectives)
    return replicas


def _workers(
    workload: Workload,
    shape: Transformer,
    kind: Kind,
    steps: ReplicaSteps,
    requests: Requests,
    objectives: Objectives,
) -> list[ReplicaCapacity]:
    """Return a prefill worker and a decode worker of one degree on a kind of GPU, with their capacities."""
    tp, precision, cache = workload.parallel.tp, workload.precision or "", _cache_format(workload)
    port = port_of(workload, shape, kind[0], tp, fabric=kind[1])
    by_role: dict[Role, WorkerRates] = {
        "prefill": prefill_rates(steps.limits, port, steps.prefill, requests, objectives),
        "decode": decode_rates(steps.limits, port, steps.decode, BATCHES, requests, objectives),
    }
    return [
        ReplicaCapacity(
            tp, precision, one.rates, one.batches, steps.limits, late_rates=one.late_rates, late_batches=one.late_batches,
            role=role, cache=cache,
        )
        for role, one in by_role.items()
    ]  # fmt: skip


def _cache_format(workload: Workload) -> str:
    """Return the precision of the KV cache."""
    return workload.kv_precision or workload.precision or "bf16"


def _capacity(workload: Workload, steps: ReplicaSteps, requests: Requests, objectives: Objectives) -> ReplicaCapacity:
    """Return, per bucket of requests, the batch with the highest request rate that fits the KV cache and meets the objectives."""
    limits, decode, prefill = steps.limits, steps.decode, steps.prefill
    prompts, outputs, longest = requests.prompts, requests.outputs, requests.longest
    kv_tokens = prompts + (outputs if limits.reserve_answers else outputs / 2)
    slots = np.minimum(limits.max_sequences, np.floor(limits.cache_tokens / kv_tokens))
    fits = (slots[None, :] >= BATCHES[:, None]) & (longest <= limits.cache_tokens)[None, :]
    # Time between tokens is a decode step plus its share of the prefills that run in between.
    between = decode + prefill[None, :] * BATCHES[:, None] / outputs[None, :]
    first = prefill[None, :] + decode
    residence = first + outputs[None, :] * between
    rate = BATCHES[:, None] / residence
    busy = np.minimum(rate * prefill[None, :], BUSIEST)
    rate = np.minimum(rate, BUSIEST / np.maximum(prefill[None, :], 1e-12))
    wait = busy / (2.0 * (1.0 - busy)) * prefill[None, :] * -np.log(1.0 - objectives.percentile / 100.0)
    # A request that finds others running also waits for a step scheduled before it arrived; a replica of one sequence is idle.
    ahead = decode * (limits.schedules_ahead * (BATCHES > 1))[:, None]
    delay = wait + ahead + limits.request_latency
    tests: Tests = {
        "ttft": (first + delay, objectives.ttft_max),
        "tpot": (np.where(outputs > 1.0, between, 0.0), objectives.tpot_max),  # A single output token has no TPOT.
        "latency": (residence + delay, objectives.latency_max),
    }
    feasible = fits.copy()
    for value, limit in tests.values():
        if limit is not None:
            feasible &= value <= limit
    rates, batches = _highest(rate, feasible)
    short, off = _short(fits, tests, rates)
    shortfall = None if (rates > 0).all() else _shortfall(fits, tests)
    late_rates, late_batches = None, None
    if objectives.any:
        late_rates, late_batches = _highest(rate, _late_batches(fits, tests["tpot"]))
        late_rates = np.where(late_rates > rates * (1.0 + MIN_LATE_GAIN), late_rates, 0.0)
    tp, precision = workload.parallel.tp, workload.precision or ""
    cache = _cache_format(workload)
    return ReplicaCapacity(tp, precision, rates, batches, limits, short, off, shortfall, late_rates, late_batches, cache=cache)


def _highest(rate: Floats, feasible: Bools) -> tuple[Floats, Floats]:
    """Return the highest request rate of each bucket over the feasible batches [batches, buckets], and its batch; 0 if none."""
    score = np.where(feasible, rate, 0.0)
    best = score.argmax(axis=0)
    rates: Floats = score[best, np.arange(rate.shape[1])]
    return rates, np.where(rates > 0, BATCHES[best], 0.0)


def _late_batches(fits: Bools, tpot: tuple[Floats, float | None]) -> Bools:
    """Return the batches [batches, buckets] at which late requests may run: within TPOT if any batch is.

    All running sequences share the time between tokens, so late requests in a larger batch would delay those on time.
    """
    seconds, limit = tpot
    within = fits if limit is None else fits & (seconds <= limit)
    return np.where(np.any(within, axis=0, keepdims=True), within, fits)


def _shortfall(fits: Bools, tests: Tests) -> Shortfall:
    """Return the smallest limits in seconds that a replica could meet for each bucket of requests, singly and all together."""
    stated = {name: (value, limit) for name, (value, limit) in tests.items() if limit is not None}
    min_limits = {}
    for name, (value, _) in stated.items():
        able = fits.copy()
        for other, (seconds, limit) in stated.items():
            if other != name:
                able &= seconds <= limit
        min_limits[name] = np.where(able, value, np.inf).min(axis=0)
    factors = [value / limit for value, limit in stated.values()]
    nearest = np.where(fits, np.max(factors, axis=0) if factors else 1.0, np.inf).argmin(axis=0)
    places = np.arange(fits.shape[1])
    some: Bools = np.any(fits, axis=0)
    together = {name: np.where(some, value[nearest, places], np.inf) for name, (value, _) in stated.items()}
    return Shortfall(some, min_limits, together)


def _short(fits: Bools, tests: Tests, rates: Floats) -> tuple[str, float]:
    """Return the objective that the buckets of requests not served exceed most, and by what share of its limit; or "memory"."""
    lost = np.flatnonzero(rates <= 0)
    if not len(lost):
        return "", 0.0
    if not fits[:, lost].any(axis=0).all():
        return "memory", 0.0
    worst, name = 0.0, "latency"
    for test, (value, limit) in tests.items():
        if limit is None:
            continue
        over = float(np.where(fits[:, lost], value[:, lost], np.inf).min(axis=0).max() / limit - 1.0)
        if over > worst:
            worst, name = over, test
    return name, worst
