"""How unevenly a steady load is felt: the time between tokens that most requests stay under, in formulas.

Requests that come as they like find now few, now many at work. How many is the stationary distribution of a birth and death
chain whose sequences leave at the pace of so many at once (Little's law, state by state); over a request's stay that number
wanders, so that its mean varies less than the number does. What prompts read meanwhile add varies by its own.
Against 230 servers simulated for 20,000 requests: 0.98 to 1.00 of it for the middle half, and short where prompts are a third
of the work and more (few are at work there, and a short simulation tells it).
"""

from __future__ import annotations

from math import exp, inf, sqrt
from statistics import NormalDist

import numpy as np

from whichgpu.estimate.serving.service_times import ServiceTimes

READING, BUSY = 0.999, 0.95  # share of the time prompts may take before nothing is left for answers, and where formulas end
TOGETHER = 1.5**0.5  # who comes is read and then at work: both swing together


def tpot_tail(pace: ServiceTimes, rate: float, percentile: float) -> float:
    """Seconds between tokens that so many percent of requests stay under; without end where the queue never comes to rest."""
    more, each = pace.lengths.output - 1.0, pace.at_each(rate)  # tokens after the first
    if more <= 0.0:
        return 0.0
    steps, reads = pace.curve
    seconds = steps / (1.0 - np.minimum(each * reads, READING))
    numbers, others = np.arange(1, pace.slots + 1), np.arange(pace.slots + 1)
    chance = np.concatenate([[0.0], np.cumsum(np.log(each * more * seconds / numbers))])
    chance = np.exp(chance - chance.max())
    full = each * more * float(seconds[-1]) / pace.slots
    if full >= 1.0:
        return inf
    chance[-1] /= 1.0 - full  # those that wait meet a full server
    chance /= chance.sum()
    mean = float(chance @ others)
    settling = min(1.0, mean / max(1e-12, float(chance @ (others - mean) ** 2)))  # slower the more those at work slow each other
    wandering = sqrt(2.0 * (settling - 1.0 + exp(-settling))) / settling
    most = int(np.searchsorted(np.cumsum(chance), percentile / 100.0))

    def at(number: float) -> float:
        return float(np.interp(number + 1.0, numbers, seconds))  # itself among them

    usual, swing = at(mean), max(0.0, at(mean + wandering * (most - mean)) - at(mean))
    # Prompts read in a stay, those that came while its own was read among them: more come while they are.
    read, step = (float(np.interp(mean, numbers, one)) for one in (reads, steps))
    busy = min(BUSY, each * read)
    came = each * (more * usual + read + step)
    z = NormalDist().inv_cdf(percentile / 100.0)
    beyond = max(0.0, z + (z * z - 1.0) / (6.0 * sqrt(came)))  # the fewer, the more one-sided
    prompts = beyond * sqrt(came / settling) / (1.0 - busy) * read / more
    waited = each * (read + step) * read / more / (1.0 - busy)
    return usual + waited + sqrt(swing * swing + prompts * prompts + TOGETHER * swing * prompts)


def scaled_waits(
    pace: ServiceTimes, rate: float, percentile: float, waits: tuple[float, float], factor: float, requests: int
) -> tuple[float, float]:
    """Seconds to the first token and between tokens, known for a pace, where steps are so many times as long.

    Slower steps find more at work, which slow each other: waits grow by more than the factor. Where the queue never comes to rest
    all places are taken, and the last of so many requests wait for what has piled up. Against 59 servers simulated with steps 0.8
    to 2 times as long: 1.00 of it for the middle one, 0.95 to 1.19 (between tokens) and 0.85 to 1.27 (first) for eight in ten.
    """
    first, each = waits
    other = pace.scaled(factor)
    usual, slower = (tpot_tail(one, rate, percentile) for one in (pace, other))
    if slower < inf and usual > 0.0:
        return first * slower / usual, each * slower / usual
    full = other.stay(other.slots) / max(1.0, pace.lengths.output) if pace.lengths.output > 1 else 0.0
    behind = percentile / 100.0 * requests * max(0.0, 1.0 / other.saturation - 1.0 / rate)
    return first * factor + behind, max(each * factor, full)
