"""Utilisation, saturation and waiting time of a load on a server by queueing formulas; simulation refines them."""

from __future__ import annotations

from dataclasses import dataclass

from whichgpu.estimate.serving.load import Load, mean_lengths
from whichgpu.estimate.serving.queueing import mean_wait
from whichgpu.estimate.serving.server import Server
from whichgpu.estimate.serving.service_times import ServiceTimes

BISECTIONS = 60  # of the batch between one sequence and as many as fit


@dataclass(frozen=True, slots=True)
class LoadScreen:
    """Formulas for mean lengths: saturating requests per second, share of it in use, running sequences, seconds."""

    saturation: float
    utilisation: float
    batch: float  # running sequences of one batch
    slots: int  # sequences one batch has KV blocks for
    tpot: float
    wait: float


def screen_load(server: Server, load: Load) -> LoadScreen:
    """Screen a load by formulas."""
    prompt, output = mean_lengths(load)
    times = ServiceTimes.of(server, prompt, output)
    rate = times.rate_per_batch(load.rate)
    low, high = 1.0, float(times.slots)
    for _ in range(BISECTIONS):  # Little's law: running sequences are the rate times the stay.
        middle = (low + high) / 2
        low, high = (middle, high) if rate * times.stay(middle) > middle else (low, middle)
    batch = (low + high) / 2
    wait = mean_wait(times.slots, rate, times.stay(times.slots), load.burstiness)
    utilisation, tpot = load.rate / times.saturation, times.stay(batch) / max(1.0, output)
    return LoadScreen(times.saturation, utilisation, batch, times.slots, tpot, wait)
