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


def may_hold_by_formula(workload: Workload, times: ServiceTimes, rate: float, leeway: float) -> bool:
    """Return whether formulas find the queue stable and TPOT met, with limits times `leeway`: only then is it simulated."""
    limit = inf if workload.tpot_max is None else leeway * OBJECTIVE_MARGIN * workload.tpot_max
    return rate <= leeway * BUSIEST * times.saturation and bounded_tpot_tail(times, rate, workload.percentile) < limit


def bounded_tpot_tail(times: ServiceTimes, rate: float, percentile: float) -> float:
    """Return the TPOT in seconds that `percentile` percent stay under, no more than at a full batch; infinite if queues grow."""
    tail = tpot_tail(times, rate, percentile)
    return tail if tail == inf else min(tail, float(times.full_tpot[-1]))


def simulate_replica(workload: Workload, server: Server, times: ServiceTimes, rate: float) -> ReplicaSimulation | None:
    """Return latencies of one server at a request rate; None if an objective fails or the queue grows.

    TPOT is the larger of simulation and formula: with many running sequences, a few hundred requests fill the batch only a few
    times; with few running, the formula is less exact.
    """
    inputs, outputs = (Lengths(mean, 0.0) for mean in mean_lengths(workload))
    load = Load(rate=rate, prompts=inputs, outputs=outputs, requests=REQUESTS, burstiness=1.0, seed=TYPICAL, trace=None)
    goals = Objectives(workload.ttft_max, workload.tpot_max, workload.percentile).with_margin
    outcome = server.run(load.arrivals(), misses=goals.miss_limit(load))
    if outcome.refused or not outcome.complete:
        return None
    summary = summarise(outcome, load, goals.ttft_max, goals.tpot_max, (goals.percentile,), bands=False)
    if summary.growing or (goals.any and not goals.hold(summary)):
        return None
    tpot = max(summary.tpot.at[0], bounded_tpot_tail(times, load.rate, goals.percentile))
    return ReplicaSimulation(load.rate, summary.ttft.at[0], tpot, summary.requests)
