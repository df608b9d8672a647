"""Service times of one replica by queueing formulas, and its simulation at a request rate."""

from __future__ import annotations

from math import ceil, inf

import numpy as np

from whichgpu.decide.configurations.configuration import Configuration, ReplicaSimulation
from whichgpu.decide.configurations.replica_servers import UntimedReplica
from whichgpu.estimate.serving.curve import OBJECTIVE_MARGIN, Objectives
from whichgpu.estimate.serving.load import Lengths, Load
from whichgpu.estimate.serving.server import Server
from whichgpu.estimate.serving.service_times import MeanLengths, ServiceTimes
from whichgpu.estimate.serving.summary import summarise
from whichgpu.estimate.serving.tpot_tail import tpot_tail
from whichgpu.workload.workload import Workload

# Inference requests per simulation, and a seed with a typical draw: in windows of every length it has as many arrivals as a
# Poisson process (tested). Its 95th percentiles were 0.95 to 1.02 of those of 20,000 requests, for nine in ten of 230 servers.
REQUESTS, TYPICAL = 400, 498
# From this many replicas that share a load, up to a percentile, half as many requests are simulated: intervals between arrivals
# vary less, so that 200 were as near to fleets of 6 and 16 replicas simulated whole as 400 (60 servers).
REGULAR_REPLICAS, REGULAR_PERCENTILE = 4, 95.0
# Largest load as a share of the saturation rate by formula: saturated servers answered 0.82 of it or more (measured), and beyond
# it a queue that has built up never drains.
BUSIEST = 0.82


def mean_lengths(workload: Workload) -> tuple[float, float]:
    """Return the mean input and output tokens of an inference request."""
    return float(workload.seq_in or 1), float(workload.seq_out or 1)


def fastest_times(replica: UntimedReplica, one: Configuration) -> ServiceTimes:
    """Return a lower bound on service times, from screened step times: prefill runs in parallel with decode steps."""
    inputs, outputs = mean_lengths(replica.workload)
    batches = np.array([batch / one.parallel.dp for batch, _, _ in one.curve])
    tpot = np.array([seconds for _, seconds, _ in one.curve])
    steps = tpot - one.prefill * batches / outputs
    hidden = steps * ceil(inputs / replica.batch_limits.max_batched_tokens)
    prefill = np.maximum(0.0, one.prefill - hidden)
    return ServiceTimes(MeanLengths(inputs, outputs), replica.batch_limits, one.parallel.pp, batches, steps, prefill)


def may_hold_by_formula(workload: Workload, times: ServiceTimes, rate: float, replicas: int, leeway: float) -> bool:
    """Return whether formulas find the queue of one of `replicas` stable and TPOT met; only then is it simulated.

    `leeway` is a factor on rate and limits.
    """
    limit = inf if workload.tpot_max is None else leeway * OBJECTIVE_MARGIN * workload.tpot_max
    stable = rate <= leeway * BUSIEST * times.saturation
    return stable and bounded_tpot_tail(times, rate, workload.percentile, replicas) < limit


def bounded_tpot_tail(times: ServiceTimes, rate: float, percentile: float, replicas: int) -> float:
    """Return the TPOT in seconds that `percentile` percent stay under, no more than at a full batch; infinite if queues grow."""
    tail = tpot_tail(times, rate, percentile, replicas)
    return tail if tail == inf else min(tail, float(times.full_tpot[-1]))


def simulate_replica(
    workload: Workload, server: Server, times: ServiceTimes, rate: float, replicas: int
) -> ReplicaSimulation | None:
    """Return latencies of one of `replicas` servers, each at a request rate; None if an objective fails or the queue grows.

    A router sends each request to the least loaded replica. If all requests have one length, that is the next one in turn, so
    every replica gets each `replicas`-th request of a Poisson process, whose intervals are gamma distributed. Compared with 24
    fleets of 2 to 16 replicas simulated whole at 0.4 to 0.8 of saturation: TPOT 1.00 to 1.07, TTFT 0.95 to 1.15 for the middle
    two thirds.
    TPOT is the larger of simulation and formula: with many running sequences, a few hundred requests fill the batch only a few
    times; with few running, the formula is less exact.
    """
    inputs, outputs = (Lengths(mean, 0.0) for mean in mean_lengths(workload))
    regular = replicas >= REGULAR_REPLICAS and workload.percentile <= REGULAR_PERCENTILE
    requests = REQUESTS // 2 if regular else REQUESTS
    load = Load(rate=rate, prompts=inputs, outputs=outputs, requests=requests, burstiness=1.0 / replicas, seed=TYPICAL)
    goals = Objectives(workload.ttft_max, workload.tpot_max, workload.percentile).with_margin
    outcome = server.run(load.arrivals(), misses=goals.miss_limit(load))
    if outcome.refused or not outcome.complete:
        return None
    summary = summarise(outcome, load, goals.ttft_max, goals.tpot_max, (goals.percentile,), bands=False)
    if summary.growing or (goals.any and not goals.hold(summary)):
        return None
    tpot = max(summary.tpot.at[0], bounded_tpot_tail(times, load.rate, goals.percentile, replicas))
    return ReplicaSimulation(load.rate, replicas, summary.ttft.at[0], tpot, summary.requests)
