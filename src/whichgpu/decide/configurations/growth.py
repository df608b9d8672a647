"""The highest request rate at which the objectives hold, beyond one at which they are known to."""

from __future__ import annotations

from collections.abc import Callable

Holds = Callable[[float], bool]
MAX_SIMULATIONS = 3  # between the rate known to hold and what formulas allow
TOLERANCE = 1.04  # factor to which the formulas' limit is located
NEXT_SHARE = 0.9  # of the formulas' limit: tried second, since they are mostly off by less
MAX_FACTOR = 2.0**20  # times the rate known to hold


def highest_rate(rate: float, may_hold: Holds, holds: Holds) -> float:
    """Return the highest rate known to hold, at least `rate`: the limit of formulas, then reduced by simulation.

    >>> highest_rate(5.0, lambda rate: rate <= 40.0, lambda rate: True) > 39.0
    True
    >>> 15.0 < highest_rate(5.0, lambda rate: rate <= 40.0, lambda rate: rate <= 20.0) <= 20.0
    True
    """
    low, high = rate, 2.0 * rate
    while may_hold(high) and high < rate * MAX_FACTOR:
        low, high = high, 2.0 * high
    while high / low > TOLERANCE:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if may_hold(middle) else (low, middle)
    for limit in (low, NEXT_SHARE * low):
        if limit <= rate or holds(limit):
            return max(limit, rate)
    low, high = rate, NEXT_SHARE * low
    for _ in range(MAX_SIMULATIONS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
