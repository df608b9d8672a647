"""Utilisation, saturation and waiting time of a load on a server by queueing formulas, before any simulation.

Erlang's C formula gives the probability of waiting in M/M/c; for other queues the wait is multiplied by the mean of the two
squared coefficients of variation (Allen and Cunneen; exact for M/G/1, where it is Pollaczek and Khinchine's formula).
"""

from __future__ import annotations

from math import inf

import msgspec

from whichgpu.estimate.serving.load import Load, mean_lengths
from whichgpu.estimate.serving.server import Server
from whichgpu.estimate.serving.service_times import ServiceTimes

BISECTIONS = 60  # halvings of the interval from one running sequence to as many as fit


class LoadScreen(msgspec.Struct, frozen=True):
    """Queueing estimate of a load: saturating requests/s, utilisation, running sequences, TPOT and wait in seconds."""

    saturation: float
    utilisation: float
    batch: float  # running sequences of one batch
    slots: int  # sequences one batch has KV blocks for
    tpot: float
    wait: float


def screen_load(server: Server, load: Load) -> LoadScreen:
    """Return a server's utilisation, saturating rate, running sequences and mean wait under a load by queueing formulas."""
    prompt, output = mean_lengths(load)
    times = ServiceTimes.of(server, prompt, output)
    rate = times.rate_per_batch(load.rate)
    low, high = 1.0, float(times.slots)
    for _ in range(BISECTIONS):  # By Little's law, the running sequences equal the rate times the stay.
        middle = (low + high) / 2
        low, high = (middle, high) if rate * times.stay(middle) > middle else (low, middle)
    batch = (low + high) / 2
    wait = mean_wait(times.slots, rate, times.stay(times.slots), load.burstiness)
    utilisation, tpot = load.rate / times.saturation, times.stay(batch) / max(1.0, output)
    return LoadScreen(times.saturation, utilisation, batch, times.slots, tpot, wait)


def erlang_c(servers: int, offered: float) -> float:
    """Return the probability that an arrival waits; `offered` is the mean number of busy servers. It is 1 if they cannot keep up.

    >>> round(erlang_c(1, 0.5), 6), round(erlang_c(2, 1.0), 6), erlang_c(4, 4.0)
    (0.5, 0.333333, 1.0)
    """
    if offered >= servers:
        return 1.0
    blocked = 1.0  # probability of Erlang's B formula, by its recurrence
    for count in range(1, servers + 1):
        blocked = offered * blocked / (count + offered * blocked)
    return blocked / (1.0 - offered / servers * (1.0 - blocked))


def mean_wait(servers: int, rate: float, service: float, arrivals: float = 1.0, services: float = 1.0) -> float:
    """Return the mean seconds a request waits; `arrivals`, `services`: squared coefficients of variation of gaps and services.

    >>> round(mean_wait(1, 0.7, 1.0), 3), round(mean_wait(4, 3.2, 1.0), 3), mean_wait(1, 2.0, 1.0)
    (2.333, 0.746, inf)
    """
    offered = rate * service
    if offered >= servers:
        return inf
    return erlang_c(servers, offered) * service / (servers - offered) * (arrivals + services) / 2.0
