"""What the servers of a recommendation bear beyond the rate asked for: how far it may grow before an objective fails."""

from __future__ import annotations

from collections.abc import Callable

Holds = Callable[[float], bool]
TRIES = 3  # simulations between what is asked for and what formulas allow
NEAR = 1.04  # times: how closely formulas are read
CLOSE = 0.9  # of what formulas allow: where they are off, they mostly are by less
FARTHEST = 2.0**20  # times what is asked for


def most_borne(rate: float, may_hold: Holds, holds: Holds) -> float:
    """The largest rate that is known to hold, no less than one that is: read off formulas, then simulated down to it.

    >>> most_borne(5.0, lambda rate: rate <= 40.0, lambda rate: True) > 39.0
    True
    >>> 15.0 < most_borne(5.0, lambda rate: rate <= 40.0, lambda rate: rate <= 20.0) <= 20.0
    True
    """
    low, high = rate, 2.0 * rate
    while may_hold(high) and high < rate * FARTHEST:
        low, high = high, 2.0 * high
    while high / low > NEAR:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if may_hold(middle) else (low, middle)
    for most in (low, CLOSE * low):
        if most <= rate or holds(most):
            return max(most, rate)
    low, high = rate, CLOSE * low
    for _ in range(TRIES):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
