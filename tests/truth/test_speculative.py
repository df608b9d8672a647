"""Speculative decoding measured on an H200: estimates per output token, their ranges, and where drafting stops paying."""

from __future__ import annotations

from functools import cache
from statistics import median

from benchmarks.speculative import Comparison, comparisons


@cache
def measured() -> tuple[Comparison, ...]:
    return tuple(comparisons())


def test_the_median_error_is_below_a_tenth_and_every_range_holds() -> None:
    assert len(measured()) == 24
    assert median(abs(one.error) for one in measured()) < 0.1
    assert [one for one in measured() if not one.inside] == []


def test_drafting_pays_where_it_did_when_measured() -> None:
    """Gains within 10% of 1 may fall on either side."""
    clear = [one.gains for one in measured() if abs(one.gains[0] - 1) > 0.1]
    assert len(clear) >= 15
    assert [gains for gains in clear if (gains[0] > 1) != (gains[1] > 1)] == []
