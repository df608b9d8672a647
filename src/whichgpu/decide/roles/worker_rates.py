"""Capacity of a prefill worker and of a decode worker: requests per second within the objectives, per bucket of requests.

A prefill worker runs one prompt after the other and sends the KV cache over the network; TTFT is its time plus its queue. A
decode worker runs a batch of sequences that no prefill interrupts; the transfer of a KV cache counts as time between tokens.
"""

from __future__ import annotations

import msgspec
import numpy as np

from whichgpu.decide.configurations.capacity_bound import BUSIEST
from whichgpu.decide.plan.solver.problem import Bools, Floats
from whichgpu.estimate.serving.curve import Objectives
from whichgpu.estimate.serving.fleet.kv_transfer import Port
from whichgpu.estimate.serving.scheduler_limits import SchedulerLimits

PREFILL_LATENCY_SHARE = 0.3  # Share of an end-to-end latency limit that prefill and its queue may take (assumed).
DISAGGREGATING_ENGINES = ("vllm", "sglang", "tensorrt-llm")  # These can send KV caches from prefill workers to decode workers.


class Requests(msgspec.Struct, frozen=True):
    """Lengths of each bucket of requests in tokens: mean input, mean output, and the most tokens of one request."""

    prompts: Floats
    outputs: Floats
    longest: Floats


class WorkerRates(msgspec.Struct, frozen=True):
    """Requests per second and running sequences of one worker by bucket, on time and late; 0 if it cannot."""

    rates: Floats
    batches: Floats
    late_rates: Floats | None
    late_batches: Floats | None


def prefill_rates(
    limits: SchedulerLimits, port: Port, prefill: Floats, requests: Requests, objectives: Objectives
) -> WorkerRates:
    """Return the rates of a prefill worker, which takes `prefill` seconds per prompt of each bucket, within TTFT."""
    seconds = np.maximum(prefill, 1e-12)
    fits = requests.longest <= limits.cache_tokens
    highest = np.where(fits, np.minimum(BUSIEST / seconds, _transfers(port, requests)), 0.0)
    batches = np.where(fits, np.clip(np.floor(limits.cache_tokens / requests.prompts), 1, limits.max_sequences), 0.0)
    limit = min(
        np.inf if objectives.ttft_max is None else objectives.ttft_max,
        np.inf if objectives.latency_max is None else PREFILL_LATENCY_SHARE * objectives.latency_max,
    )
    if not np.isfinite(limit):
        return WorkerRates(highest, batches, None, None)
    # The wait at the percentile is that of a queue with deterministic service, as for aggregated replicas.
    scale = seconds * -np.log(1.0 - objectives.percentile / 100.0) / 2.0
    slack = np.maximum(limit - seconds - limits.request_latency, 0.0) / np.maximum(scale, 1e-12)
    rates = np.minimum(highest, slack / (1.0 + slack) / seconds)
    late = np.where(highest > rates * (1.0 + 1e-3), highest, 0.0)
    return WorkerRates(rates, np.where(rates > 0, batches, 0.0), late, batches)


def decode_rates(
    limits: SchedulerLimits, port: Port, decode: Floats, tried: Floats, requests: Requests, objectives: Objectives
) -> WorkerRates:
    """Return the rates of a decode worker whose steps take `decode` seconds [batches, buckets] at the batch sizes `tried`."""
    outputs = np.maximum(requests.outputs, 1.0)
    kv_tokens = requests.prompts + (outputs if limits.reserve_answers else outputs / 2)
    slots = np.minimum(limits.max_sequences, np.floor(limits.cache_tokens / kv_tokens))
    fits: Bools = (slots[None, :] >= tried[:, None]) & (requests.longest <= limits.cache_tokens)[None, :]
    transfer = requests.prompts * port.token_bytes / port.into + port.latency
    later = np.maximum(outputs - 1.0, 0.0)  # The prefill worker generates the first token.
    residence = transfer[None, :] + later[None, :] * decode
    rate = np.minimum(tried[:, None] / np.maximum(residence, 1e-12), _transfers(port, requests)[None, :])
    within = fits.copy()
    if objectives.tpot_max is not None:
        within &= (later[None, :] <= 0) | (residence <= objectives.tpot_max * later[None, :])
    if objectives.latency_max is not None:
        within &= residence <= (1.0 - PREFILL_LATENCY_SHARE) * objectives.latency_max
    rates, batches = _highest(rate, within, tried)
    if objectives.tpot_max is None and objectives.latency_max is None:
        return WorkerRates(rates, batches, None, None)
    any_within = np.any(within, axis=0, keepdims=True)
    late_rates, late_batches = _highest(rate, np.where(any_within, within, fits), tried)
    return WorkerRates(rates, batches, np.where(late_rates > rates * (1.0 + 1e-3), late_rates, 0.0), late_batches)


def _transfers(port: Port, requests: Requests) -> Floats:
    """Return the KV caches of each bucket that pass a worker's network port per second, at most `BUSIEST` of its time."""
    rates: Floats = BUSIEST * min(port.out, port.into) / np.maximum(requests.prompts * port.token_bytes, 1e-12)
    return rates


def _highest(rate: Floats, feasible: Bools, tried: Floats) -> tuple[Floats, Floats]:
    """Return the highest rate of each bucket over the feasible batches [batches, buckets], and its batch; 0 if none."""
    score = np.where(feasible, rate, 0.0)
    best = score.argmax(axis=0)
    rates: Floats = score[best, np.arange(rate.shape[1])]
    return rates, np.where(rates > 0, tried[best], 0.0)
