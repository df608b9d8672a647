"""Queueing formulas for the request rate at which one replica keeps its objectives.

`safe_rates` are lower bounds of that rate, `rate_bounds` upper bounds; simulation (`simulate.py`) decides in between.
"""

from __future__ import annotations

from math import ceil
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from whichgpu.decide.configurations.configuration import Configuration
from whichgpu.price.table import Floats
from whichgpu.workload.workload import Workload

BOUND_MARGIN = 1.3  # Upper bounds are raised by this factor, since simulated rates were up to 1.24 times the formula's.
BUSIEST = 0.9  # Prefill may take at most this share of time; above it, waits grow without bound (assumed).


def safe_rates(workload: Workload, batches: Floats, tpot: Floats, prefill: Floats) -> tuple[Floats, Floats]:
    """Return, per largest batch, a safe request rate per second (0 if an objective fails) and the seconds to first token at it.

    `tpot` is seconds between tokens with that many running sequences, `prefill` seconds of one prompt; both [gpus, batches].
    Arrivals are Poisson, so the number running varies by its root: its mean is kept so low that the batch is not exceeded more
    often than the percentile allows, and Little's law gives the rate of that mean. A prompt waits as in an M/D/1 queue; the
    percentile of its wait is that of an exponential with the same mean.
    """
    share = workload.percentile / 100.0
    z = NormalDist().inv_cdf(share)
    root = (np.sqrt(z * z + 4.0 * batches) - z) / 2.0
    mean = np.where(batches > 1, root * root, 1.0 - share if workload.rate is not None else 1.0)
    rate = mean / (prefill + _output_tokens(workload) * tpot)
    busy = np.minimum(rate * prefill, BUSIEST)
    rate = np.minimum(rate, BUSIEST / np.maximum(prefill, 1e-12))
    ttft = prefill + busy / (2.0 * (1.0 - busy)) * prefill * -np.log(1.0 - share)
    return np.where(_within(workload, tpot, ttft), rate, 0.0), ttft


def rate_bounds(workload: Workload, batches: Floats, tpot: Floats, prefill: Floats, prompts_at_once: int = 1) -> Floats:
    """Return an upper bound on a replica's requests a second at each batch, assuming every slot is always busy.

    `tpot` includes prefills at saturation; below it there are fewer, so objectives hold up to slightly higher rates.
    """
    stay = prefill + _output_tokens(workload) * tpot
    rate = np.minimum(batches / stay, prompts_at_once / np.maximum(prefill, 1e-12)) * BOUND_MARGIN
    return np.where(_within(workload, tpot, prefill, BOUND_MARGIN), rate, 0.0)


def _output_tokens(workload: Workload) -> float:
    return float(max(1, workload.seq_out or 1))


def _within(workload: Workload, tpot: Floats, ttft: Floats, tpot_margin: float = 1.0) -> NDArray[np.bool_]:
    """Return a mask of the batches at which the TPOT and TTFT objectives hold; `tpot_margin` is a factor on the TPOT limit."""
    within = np.ones_like(tpot, dtype=bool)
    if workload.tpot_max is not None:
        within &= tpot <= workload.tpot_max * tpot_margin
    if workload.ttft_max is not None:
        within &= ttft <= workload.ttft_max
    return within


def expected_latency(workload: Workload, one: Configuration) -> tuple[float, float]:
    """Return seconds to the first token and between tokens at the workload's request rate, from simulation if there is one.

    Without a rate, each of the users asks again once answered: nobody waits longer than a step of the others, and of the prefills
    in `one.seconds` a user's own is not between their tokens.
    """
    if one.simulation is not None:
        return one.simulation.ttft, one.simulation.tpot
    ttft = one.ttft or 0.0
    if workload.rate is None:
        tpot = one.seconds - one.prefill / _output_tokens(workload)
        waited = tpot if (workload.batch or 1) > 1 else 0.0
        return one.prefill + waited if one.prefill else ttft, tpot
    if not one.capacity:
        return ttft, one.seconds
    replicas = max(one.min_replicas, ceil(workload.rate / one.capacity - 1e-9))
    return ttft, tpot_at_rate(workload, one, workload.rate / replicas)


def tpot_at_rate(workload: Workload, one: Configuration, rate: float) -> float:
    """Return seconds between tokens at a request rate: those of the smallest batch that holds the mean running sequences.

    The result is never slower than at the batch with which the capacity was computed.
    """
    z, rare = NormalDist().inv_cdf(workload.percentile / 100.0), 1.0 - workload.percentile / 100.0
    ttft, tokens = one.ttft or 0.0, _output_tokens(workload)
    for batch, seconds, _ in one.curve:
        mean = rate * (ttft + tokens * seconds)
        if mean + z * mean**0.5 <= batch or mean < rare:
            return min(seconds, one.seconds)
    return one.seconds
