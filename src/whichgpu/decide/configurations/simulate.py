"""Simulation of one replica's server for the few groups that may be the answer: its highest sustainable rate and its latencies.

Queueing formulas bound the number of replicas that a rate needs; simulation decides within these bounds. Inference requests
are drawn with a fixed seed, so the same question always gets the same answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from math import ceil, inf
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.base.errors import NoAnswer
from whichgpu.base.lru import LruCache
from whichgpu.catalog.gpu import Gpu
from whichgpu.decide.configurations.configuration import (
    Configuration,
    GroupResult,
    Infeasibility,
    ReplicaSimulation,
    WorkloadRequest,
)
from whichgpu.decide.configurations.generating import with_precision
from whichgpu.decide.configurations.groups import Group
from whichgpu.decide.configurations.ranges import time_range
from whichgpu.decide.configurations.slow_steps import MIN_HEADROOM, SAFE_PROBABILITY, holds_with, may_hold_with, with_probability
from whichgpu.decide.constraints import Risk
from whichgpu.estimate.group.engine_steps import EngineSteps
from whichgpu.estimate.group.step import Devices
from whichgpu.estimate.serving.curve import OBJECTIVE_MARGIN, Objectives
from whichgpu.estimate.serving.load import Lengths, Load
from whichgpu.estimate.serving.scheduler_limits import SchedulerLimits, batch_limits, scheduler_limits
from whichgpu.estimate.serving.server import Server
from whichgpu.estimate.serving.service_times import MeanLengths, ServiceTimes
from whichgpu.estimate.serving.step_tables import StepQueries, StepTables, TableSizes
from whichgpu.estimate.serving.summary import summarise
from whichgpu.estimate.serving.tpot_tail import tpot_tail
from whichgpu.estimate.time.calibration import Calibration
from whichgpu.price.table import Floats
from whichgpu.workload.shapes import as_transformer
from whichgpu.workload.workload import Parallel, Workload

# Inference requests per simulation, and a seed with a typical draw: in windows of every length it has as many arrivals as a
# Poisson process (tested). Its 95th percentiles were 0.95 to 1.02 of those of 20,000 requests, for nine in ten of 230 servers.
REQUESTS, TYPICAL = 400, 498
MAX_BATCH = 512  # Step tables cover up to this many running sequences; no objective holds with more.
TABLE_ROWS = 64  # Rows of a step table; between rows GEMM times are nearly linear.
# Largest load as a share of the saturation rate by formula: saturated servers answered 0.82 of it or more (measured), and beyond
# it a queue that has built up never drains.
BUSIEST = 0.82
BOUND_LEEWAY = 1.03  # Factor on rate and objective in upper bounds, since their step times are interpolated.
FORMULA_LEEWAY = 0.95  # Factor on rate and objective if nothing is simulated; without it, reported rates failed in simulation.
MAX_REPLICAS_FACTOR = 2.0  # Up to this multiple of the replicas that formulas give is tried.
# Search for the highest rate: most simulations; factor to which the highest rate by formulas is located; share of that rate to
# simulate second, since formulas are mostly off by less; largest factor on the starting rate.
RATE_SIMULATIONS, TOLERANCE, NEXT_SHARE, MAX_FACTOR = 3, 1.04, 0.9, 2.0**20
# Workload fields on which no step time depends: workloads that differ only in these share simulated servers.
UNTIMED: dict[str, Any] = {
    "model": "", "gpu": None, "rate": None, "seq_in": None, "seq_out": None, "ttft_max": None, "tpot_max": None, "percentile": 95,
    "samples": None,
}  # fmt: skip
# Cached decode and mixed step times, with the GPU and calibration objects, whose `id()` is part of the key.
CachedStepTimes = tuple[Floats, Floats, Gpu, Calibration]
_STEP_TIMES = LruCache[CachedStepTimes](256)


class Simulator:
    """Simulates the servers of one question's candidates; groups of GPUs with equal replicas share one simulation."""

    def __init__(self, request: WorkloadRequest, risk: Risk = "even") -> None:
        assert request.workload.rate is not None
        self._request, self._workload, self._rate, self._risk = request, request.workload, request.workload.rate, risk
        self._replicas: dict[Hashable, UntimedReplica | None] = {}  # None if no KV cache fits
        self._servers: dict[Hashable, tuple[Server, ServiceTimes]] = {}
        self._simulations: dict[Hashable, ReplicaSimulation | None] = {}

    def bounded(self, group: Group, one: Configuration) -> GroupResult:
        """Return the configuration with the fewest replicas that queueing formulas allow; simulation never needs fewer."""
        if (replica := self._replica(group, one)) is None:
            return Infeasibility("memory", 0.0)
        if one.parallel.pp > 1:
            return replace(one, capacity=one.rate_bound)
        times = _fastest_times(replica, one)
        replicas = self._fewest_by_formula(one, times, BOUND_LEEWAY)
        if replicas is not None and self._risk == "low":
            slow = time_range(self._request, group, one).factor.quantile(SAFE_PROBABILITY)
            replicas = self._fewest_with_slow_steps(one, times, slow, replicas, BOUND_LEEWAY) or replicas
        return Infeasibility("latency", 0.0) if replicas is None else self._with_replicas(one, replicas)

    def simulated(self, group: Group, one: Configuration) -> GroupResult:
        """Return the configuration with the fewest replicas that keep the objectives in simulation.

        At low risk these are as many as keep them with slow steps, too, if any number does.
        """
        self.prepare([(group, one)])
        if (key := _replica_key(group, one)) not in self._servers:
            return Infeasibility("memory", 0.0)
        times = self._servers[key][1]
        evidence = time_range(self._request, group, one)
        replicas = None
        if self._risk == "low":
            replicas = self._fewest_simulated(key, one, evidence.factor.quantile(SAFE_PROBABILITY), MIN_HEADROOM)
        if (replicas := replicas or self._fewest_simulated(key, one)) is None:
            return Infeasibility("latency", 0.0)
        latencies = self._simulation(key, one, replicas)
        assert latencies is not None
        latencies = with_probability(self._workload, times, latencies, evidence)
        return replace(self._with_replicas(one, replicas), simulation=latencies)

    def _simulation(self, key: Hashable, one: Configuration, replicas: int) -> ReplicaSimulation | None:
        """Return the latencies of one of `replicas` replicas; None if an objective fails."""
        rate = self._rate / replicas / one.parallel.dp
        if (key, rate) not in self._simulations:
            self._simulations[key, rate] = _simulate(self._workload, *self._servers[key], rate)
        return self._simulations[key, rate]

    def _fewest_simulated(self, key: Hashable, one: Configuration, factor: float = 1.0, headroom: float = 1.0) -> int | None:
        """Return the fewest replicas that keep the objectives in simulation, and if steps take `factor` times as long; or None.

        Slow steps are not simulated: their latencies are scaled by formulas. Formulas also judge `headroom` times the rate.
        """
        times, max_replicas = self._servers[key][1], ceil(self._replica_range(one)[1] * factor)
        fewest = self._fewest_by_formula(one, times)
        if fewest is not None and factor > 1.0:
            fewest = self._fewest_with_slow_steps(one, times, factor, fewest)
        if fewest is None:
            return None

        def holds(replicas: int) -> bool:
            latencies = self._simulation(key, one, replicas)
            if latencies is None or not holds_with(self._workload, times, latencies, factor):
                return False
            return headroom <= 1.0 or _may_hold(self._workload, times, latencies.rate * headroom, FORMULA_LEEWAY)

        return _fewest(fewest, max_replicas, holds)

    def _fewest_with_slow_steps(
        self, one: Configuration, times: ServiceTimes, factor: float, fewest: int, leeway: float = 1.0
    ) -> int | None:
        """Return the fewest replicas, at least `fewest`, that may keep the objectives with slow steps; None if none do."""
        max_replicas, dp = ceil(self._replica_range(one)[1] * factor), one.parallel.dp
        return _fewest(
            fewest, max_replicas, lambda count: may_hold_with(self._workload, times, self._rate / count / dp, factor, leeway)
        )

    def with_max_rate(self, group: Group, one: Configuration) -> Configuration:
        """Return a simulated configuration with the highest request rate per second that one replica sustains.

        It is found by formulas, and by simulation if TTFT has a limit.
        """
        (server, times), workload = self._servers[_replica_key(group, one)], self._workload
        replicas = ceil(self._rate / (one.capacity or self._rate) - 1e-6)
        servers = replicas * one.parallel.dp

        def may_hold(rate: float) -> bool:
            return _may_hold(workload, times, rate / servers, FORMULA_LEEWAY)

        def holds(rate: float) -> bool:
            return workload.ttft_max is None or _simulate(workload, server, times, rate / servers) is not None

        return replace(one, max_rate=highest_rate(self._rate, may_hold, holds) / replicas)

    def prepare(self, candidates: Iterable[tuple[Group, Configuration]]) -> None:
        """Build the servers of candidates that will be simulated; those that differ only in the GPU are timed in one call."""
        alike: dict[Hashable, dict[Hashable, UntimedReplica]] = defaultdict(dict)
        for group, one in candidates:
            key = _replica_key(group, one)
            if key not in self._servers and (replica := self._replica(group, one)) is not None:
                alike[replace(replica.workload, model=""), replica.batch_limits.max_batched_tokens][key] = replica
        for replicas in alike.values():
            servers = _servers(self._request, list(replicas.values()))
            for key, server in zip(replicas, servers, strict=True):
                self._servers[key] = server, ServiceTimes.of(server, *_lengths(self._workload))

    def _replica(self, group: Group, one: Configuration) -> UntimedReplica | None:
        key = _replica_key(group, one)
        if key not in self._replicas:
            self._replicas[key] = _replica(self._request, group, one)
        return self._replicas[key]

    def _with_replicas(self, one: Configuration, replicas: int) -> Configuration:
        """Return the configuration with its capacity set so that the question's rate needs exactly `replicas` replicas."""
        return replace(one, capacity=self._rate / replicas * (1 + 1e-9))

    def _replica_range(self, one: Configuration) -> tuple[int, int]:
        """Return the fewest and the most replicas to try in the search for a number that keeps the objectives."""
        fewest, safe = (
            max(one.min_replicas, ceil(self._rate / each - 1e-9)) for each in (one.rate_bound or inf, one.capacity or inf)
        )
        return fewest, ceil(safe * MAX_REPLICAS_FACTOR + 0.5)

    def _fewest_by_formula(self, one: Configuration, times: ServiceTimes, leeway: float = 1.0) -> int | None:
        """Return the fewest replicas that may keep the objectives according to formulas; None if no number does."""
        workload, dp = self._workload, one.parallel.dp
        return _fewest(*self._replica_range(one), lambda count: _may_hold(workload, times, self._rate / count / dp, leeway))


def _fewest(fewest: int, max_replicas: int, holds: Callable[[int], bool]) -> int | None:
    """Return the least count for which `holds` is true, by doubling steps upwards, then by bisection; None if there is none.

    >>> _fewest(2, 26, lambda count: count >= 4), _fewest(3, 7, lambda count: count >= 7), _fewest(1, 4, lambda count: False)
    (4, 7, None)
    """
    failed, count, stride = fewest - 1, fewest, 1
    while not holds(count):
        if count >= max_replicas:
            return None
        failed, count, stride = count, min(count + stride, max_replicas), stride * 2
    while count - failed > 1:
        middle = (failed + count) // 2
        failed, count = (failed, middle) if holds(middle) else (middle, count)
    return count


def highest_rate(rate: float, may_hold: Callable[[float], bool], holds: Callable[[float], bool]) -> float:
    """Return the highest request rate per second known to hold, at least `rate`: the formulas' limit, reduced by simulations.

    >>> highest_rate(5.0, lambda rate: rate <= 40.0, lambda rate: True) > 39.0
    True
    >>> 15.0 < highest_rate(5.0, lambda rate: rate <= 40.0, lambda rate: rate <= 20.0) <= 20.0
    True
    """
    low, high = rate, 2.0 * rate
    while may_hold(high) and high < rate * MAX_FACTOR:
        low, high = high, 2.0 * high
    while high / low > TOLERANCE:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if may_hold(middle) else (low, middle)
    for limit in (low, NEXT_SHARE * low):
        if limit <= rate or holds(limit):
            return max(limit, rate)
    low, high = rate, NEXT_SHARE * low
    for _ in range(RATE_SIMULATIONS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _lengths(workload: Workload) -> tuple[float, float]:
    """Return the mean input and output tokens of an inference request."""
    return float(workload.seq_in or 1), float(workload.seq_out or 1)


def _fastest_times(replica: UntimedReplica, one: Configuration) -> ServiceTimes:
    """Return a lower bound on service times, from screened step times: prefill runs in parallel with decode steps."""
    inputs, outputs = _lengths(replica.workload)
    batches = np.array([batch / one.parallel.dp for batch, _, _ in one.curve])
    tpot = np.array([seconds for _, seconds, _ in one.curve])
    steps = tpot - one.prefill * batches / outputs
    hidden = steps * ceil(inputs / replica.batch_limits.max_batched_tokens)
    prefill = np.maximum(0.0, one.prefill - hidden)
    return ServiceTimes(MeanLengths(inputs, outputs), replica.batch_limits, one.parallel.pp, batches, steps, prefill)


def _may_hold(workload: Workload, times: ServiceTimes, rate: float, leeway: float) -> bool:
    """Return whether formulas find the queue stable and TPOT met, with limits times `leeway`: only then is it simulated."""
    limit = inf if workload.tpot_max is None else leeway * OBJECTIVE_MARGIN * workload.tpot_max
    return rate <= leeway * BUSIEST * times.saturation and tpot_tail(times, rate, workload.percentile) < limit


def _simulate(workload: Workload, server: Server, times: ServiceTimes, rate: float) -> ReplicaSimulation | None:
    """Return latencies of one server at a request rate; None if an objective fails or the queue grows.

    TPOT is the larger of simulation and formula: with many running sequences, a few hundred requests fill the batch only a few
    times; with few running, the formula is less exact.
    """
    inputs, outputs = (Lengths(mean, 0.0) for mean in _lengths(workload))
    load = Load(rate=rate, prompts=inputs, outputs=outputs, requests=REQUESTS, burstiness=1.0, seed=TYPICAL, trace=None)
    goals = Objectives(workload.ttft_max, workload.tpot_max, workload.percentile).with_margin
    outcome = server.run(load.arrivals(), misses=goals.miss_limit(load))
    if outcome.refused or not outcome.complete:
        return None
    summary = summarise(outcome, load, goals.ttft_max, goals.tpot_max, (goals.percentile,), bands=False)
    if summary.growing or (goals.any and not goals.hold(summary)):
        return None
    tpot = max(summary.tpot.at[0], tpot_tail(times, load.rate, goals.percentile))
    return ReplicaSimulation(load.rate, summary.ttft.at[0], tpot, summary.requests)


def _replica_key(group: Group, one: Configuration) -> Hashable:
    """Return a key that is equal for replicas with equal times: GPU and links, precision, layout, several machines or one."""
    return group.kind, one.precision, one.parallel.tp, one.parallel.pp, group.machines > 1


class UntimedReplica(msgspec.Struct, frozen=True):
    """One replica of the model on its GPUs and its scheduler limits, before its step times are computed."""

    workload: Workload
    group: Group
    limits: SchedulerLimits
    batch_limits: SchedulerLimits  # limits that apply to the batch of one pipeline stage


def _replica(request: WorkloadRequest, group: Group, one: Configuration) -> UntimedReplica | None:
    """Return one replica with its scheduler limits (KV blocks, sequences, tokens); None if no KV cache fits by the weights."""
    shape = as_transformer(request.shape)
    tp, pp = one.parallel.tp, one.parallel.pp
    base = with_precision(request.workload, one.precision, request.stated)
    workload = replace(base, gpus=tp * pp, nodes=min(pp, group.machines), parallel=Parallel(tp=tp, pp=pp), batch=None)
    try:
        limits = scheduler_limits(workload, shape, group.gpu, None, _context(workload))
    except NoAnswer:
        return None
    each = batch_limits(limits, pp)
    sequences = min(each.max_sequences, max(1, each.cache_tokens // each.block_tokens), MAX_BATCH)
    return UntimedReplica(workload, group, limits, replace(each, max_sequences=sequences))


def _context(workload: Workload) -> int:
    return (workload.seq_in or 1) + (workload.seq_out or 0)


def _servers(request: WorkloadRequest, replicas: Sequence[UntimedReplica]) -> Iterator[Server]:
    """Yield a server for each replica, all in one layout; step times not cached are computed for all GPUs in one call."""
    first, shape = replicas[0], as_transformer(request.shape)
    workload, max_tokens = replace(first.workload, **UNTIMED), first.batch_limits.max_batched_tokens
    pp, context = workload.parallel.pp, 1 << (_context(first.workload) - 1).bit_length()
    queries = _queries(TableSizes(MAX_BATCH, max(max_tokens, 2), context), pp)
    keys = [
        (workload, shape, id(one.group.gpu), one.group.fabric, id(request.calibration), max_tokens, context) for one in replicas
    ]
    cached = [_STEP_TIMES.peek(key) for key in keys]  # Cached times are all read first, since storing one may evict others.
    new = [one.group for one, times in zip(replicas, cached, strict=True) if times is None]
    timed: Iterator[tuple[Floats, Floats]] = iter(())
    if new:
        gpus = [group.gpu for group in new]
        devices = Devices.of(gpus, [group.fabric for group in new], request.calibration)
        steps = EngineSteps(workload, shape, gpus[0], None, devices, separate=True)
        timed = zip(steps.decode_on_each(*queries.decode), steps.mixed_on_each(*queries.mixed), strict=True)
    for one, key, entry in zip(replicas, keys, cached, strict=True):
        times = entry or (*next(timed), one.group.gpu, request.calibration)
        _STEP_TIMES.put(key, times)
        yield Server(StepTables.from_values(queries.table_values(*times[:2])), one.limits, one.batch_limits, 1, pp)


@lru_cache(maxsize=32)
def _queries(sizes: TableSizes, stages: int) -> StepQueries:
    """Return the steps to time for servers with tables of these sizes."""
    return StepQueries(sizes, stages, TABLE_ROWS)
