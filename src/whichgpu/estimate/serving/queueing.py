"""Queueing formulas: exact for memoryless arrivals and service, approximate for others.

Erlang's C formula gives the probability of waiting in M/M/c; otherwise the wait is multiplied by the mean of the two squared
coefficients of variation (Allen and Cunneen; exact for M/G/1, where it is Pollaczek and Khinchine's).
"""

from __future__ import annotations

from math import inf


def erlang_c(servers: int, offered: float) -> float:
    """Probability that an arrival waits, `offered` being the mean number of busy servers; 1 if they cannot keep up.

    >>> round(erlang_c(1, 0.5), 6), round(erlang_c(2, 1.0), 6), erlang_c(4, 4.0)
    (0.5, 0.333333, 1.0)
    """
    if offered >= servers:
        return 1.0
    blocked = 1.0  # Erlang's B by its recurrence
    for count in range(1, servers + 1):
        blocked = offered * blocked / (count + offered * blocked)
    return blocked / (1.0 - offered / servers * (1.0 - blocked))


def mean_wait(servers: int, rate: float, service: float, arrivals: float = 1.0, services: float = 1.0) -> float:
    """Mean seconds of waiting; `arrivals` and `services` are squared coefficients of variation.

    >>> round(mean_wait(1, 0.7, 1.0), 3), round(mean_wait(4, 3.2, 1.0), 3), mean_wait(1, 2.0, 1.0)
    (2.333, 0.746, inf)
    """
    offered = rate * service
    if offered >= servers:
        return inf
    return erlang_c(servers, offered) * service / (servers - offered) * (arrivals + services) / 2.0
