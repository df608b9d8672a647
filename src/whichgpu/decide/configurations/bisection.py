"""Searches of `recommend` that try few points: the least count and the highest request rate that hold."""

from __future__ import annotations

from collections.abc import Callable

# Search for the highest rate: most simulations; factor to which the highest rate by formulas is located; share of that rate to
# simulate second, since formulas are mostly off by less; largest factor on the starting rate.
RATE_SIMULATIONS, TOLERANCE, NEXT_SHARE, MAX_FACTOR = 3, 1.04, 0.9, 2.0**20


def least_count(start: int, largest: int, holds: Callable[[int], bool]) -> int | None:
    """Return the least count for which `holds` is true, by doubling steps upwards, then by bisection; None if there is none.

    >>> least_count(2, 26, lambda count: count >= 4), least_count(3, 7, lambda count: count >= 7)
    (4, 7)
    >>> least_count(1, 4, lambda count: False) is None
    True
    """
    failed, count, stride = start - 1, start, 1
    while not holds(count):
        if count >= largest:
            return None
        failed, count, stride = count, min(count + stride, largest), stride * 2
    while count - failed > 1:
        middle = (failed + count) // 2
        failed, count = (failed, middle) if holds(middle) else (middle, count)
    return count


def highest_rate(rate: float, may_hold: Callable[[float], bool], holds: Callable[[float], bool]) -> float:
    """Return the highest request rate per second known to hold, at least `rate`: the formulas' limit, reduced by simulations.

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
    for _ in range(RATE_SIMULATIONS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
