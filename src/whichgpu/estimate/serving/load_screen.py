"""A load against a server in formulas: how busy it will be, where it saturates, how long requests wait. Simulation settles it."""

from __future__ import annotations

from dataclasses import dataclass

from whichgpu.estimate.serving.load import Load, mean_lengths
from whichgpu.estimate.serving.queueing import mean_wait
from whichgpu.estimate.serving.server import Server
from whichgpu.estimate.serving.service_times import ServiceTimes

ROUNDS = 60  # halvings of a batch between one sequence and as many as fit


@dataclass(frozen=True, slots=True)
class LoadScreen:
    """Of mean lengths: requests a second at which it saturates, share of that in use, sequences at once, seconds."""

    saturation: float
    utilisation: float
    batch: float  # sequences at work in one copy's batch
    slots: int  # sequences one copy has room for
    tpot: float
    wait: float


def screen_load(server: Server, load: Load) -> LoadScreen:
    """What formulas say of a load."""
    prompt, output = mean_lengths(load)
    pace = ServiceTimes.of(server, prompt, output)
    rate = pace.at_each(load.rate)
    low, high = 1.0, float(pace.slots)
    for _ in range(ROUNDS):  # Little's law: so many are at work that arrivals times stay is as many
        middle = (low + high) / 2
        low, high = (middle, high) if rate * pace.stay(middle) > middle else (low, middle)
    batch = (low + high) / 2
    wait = mean_wait(pace.slots, rate, pace.stay(pace.slots), load.burstiness)
    return LoadScreen(pace.saturation, load.rate / pace.saturation, batch, pace.slots, pace.stay(batch) / max(1.0, output), wait)
