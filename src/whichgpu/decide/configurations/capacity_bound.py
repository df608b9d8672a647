"""How many requests a second a copy of a model stands while its objectives hold: a screen by queueing formulas.

`stands` is on the safe side, `hopes` on the other; what lies between them a simulation settles (`simulating`).
"""

from __future__ import annotations

from math import ceil
from statistics import NormalDist

import numpy as np

from whichgpu.decide.configurations.configuration import Configuration
from whichgpu.price.table import Floats
from whichgpu.workload.workload import Workload

HOPE = 1.3  # simulated rates were at most 1.24 times those of a full batch within its objectives
BUSIEST = 0.9  # share of the time a copy may be reading prompts; above it waits grow without bound


def stands(workload: Workload, batches: Floats, tokens: Floats, first: Floats) -> tuple[Floats, Floats]:
    """Requests a second at each largest batch, and the time to the first token then; zero where an objective fails.

    `tokens` are seconds between tokens with that many sequences in hand, `first` seconds to read one prompt, [gpus, batches].
    Requests come as they like (Poisson), so the number in hand varies by its root: the mean is kept so low that the batch is not
    outgrown more often than the percentile allows (Little's law gives the rate of that mean). A prompt waits for those before it
    as in a queue with one server and equal work (M/D/1); its percentile is that of an exponential with the same mean.
    """
    share = workload.percentile / 100.0
    z = NormalDist().inv_cdf(share)
    root = (np.sqrt(z * z + 4.0 * batches) - z) / 2.0
    mean = np.where(batches > 1, root * root, 1.0 - share if workload.rate is not None else 1.0)
    length = float(max(1, workload.seq_out or 1))
    stay = first + length * tokens
    rate = mean / stay
    busy = np.minimum(rate * first, BUSIEST)
    rate = np.minimum(rate, BUSIEST / np.maximum(first, 1e-12))
    wait = busy / (2.0 * (1.0 - busy)) * first * -np.log(1.0 - share)
    told = first + wait
    kept = np.ones_like(tokens, dtype=bool)
    if workload.tpot_max is not None:
        kept &= tokens <= workload.tpot_max
    if workload.ttft_max is not None:
        kept &= told <= workload.ttft_max
    return np.where(kept, rate, 0.0), told


def hopes(workload: Workload, batches: Floats, tokens: Floats, first: Floats, together: int = 1) -> Floats:
    """Requests a second that no copy exceeds at each batch: all places taken all the time, so many prompts read at once.

    `tokens` count the prompts of a full server in; below that fewer are read, so objectives hold a little beyond them.
    """
    stay = first + float(max(1, workload.seq_out or 1)) * tokens
    rate = np.minimum(batches / stay, together / np.maximum(first, 1e-12)) * HOPE
    kept = np.ones_like(tokens, dtype=bool)
    if workload.tpot_max is not None:
        kept &= tokens <= workload.tpot_max * HOPE
    if workload.ttft_max is not None:
        kept &= first <= workload.ttft_max
    return np.where(kept, rate, 0.0)


def expected_latency(workload: Workload, way: Configuration) -> tuple[float, float]:
    """Seconds to the first token and between tokens at the rate asked for: simulated, or by formulas."""
    if way.simulation is not None:
        return way.simulation.ttft, way.simulation.tpot
    first = way.ttft or 0.0
    if workload.rate is None or not way.capacity:
        return first, way.seconds
    copies = max(way.min_replicas, ceil(workload.rate / way.capacity - 1e-9))
    return first, at_load(workload, way, workload.rate / copies)


def at_load(workload: Workload, way: Configuration, rate: float) -> float:
    """Seconds between tokens of a group that so many requests a second come to: of the least batch those in hand fit in.

    No rate a group stands makes it slower than the batch it stands that rate with.
    """
    z = NormalDist().inv_cdf(workload.percentile / 100.0)
    tokens = float(max(1, workload.seq_out or 1))
    for batch, seconds, _ in way.curve:
        mean = rate * ((way.ttft or 0.0) + tokens * seconds)
        if mean + z * mean**0.5 <= batch or mean < 1.0 - workload.percentile / 100.0:
            return min(seconds, way.seconds)
    return way.seconds
