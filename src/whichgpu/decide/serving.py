"""How many requests a second a copy of a model stands while its objectives hold: a conservative screen by queueing formulas.

The one place where a simulation of the engine's iterations can take over for the shortlist (`stands`).
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from whichgpu.price.table import Floats
from whichgpu.workload.workload import Workload

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
