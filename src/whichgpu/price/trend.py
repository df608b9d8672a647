"""Lowest price over time among offers that appear and disappear."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from itertools import groupby

import msgspec

from whichgpu.catalog.offer import Observation


class LowestPrice(msgspec.Struct, frozen=True):
    """The lowest price from `day` on, the observation (`run`) that has it, and the day on which it changes again."""

    day: str
    price: Decimal
    run: Observation
    until: str | None


def lowest_prices(runs: Sequence[Observation], price_of: Callable[[Observation], Decimal]) -> list[LowestPrice]:
    """Return the lowest price among these observations at every day it changes; observations are sorted by first day."""
    events = sorted(_events(runs, [price_of(run) for run in runs]))
    there: list[tuple[Decimal, int]] = []
    steps: list[tuple[str, Decimal, int]] = []
    for day, todays in groupby(events, key=lambda event: event[0]):
        for _, leaves, price, number in todays:
            if leaves:
                there.pop(bisect_left(there, (price, number)))
            else:
                insort(there, (price, number))
        if there and (not steps or steps[-1][1] != there[0][0]):
            steps.append((day, *there[0]))
    ends = [*(day for day, _, _ in steps[1:]), None][: len(steps)]  # This is empty if no observation lasts a day.
    return [LowestPrice(day, price, runs[number], end) for (day, price, number), end in zip(steps, ends, strict=True)]


def _events(runs: Sequence[Observation], prices: Sequence[Decimal]) -> Iterator[tuple[str, bool, Decimal, int]]:
    """Yield (day, whether the price ends, price, index) for the start and end of each price that lasts at least a day."""
    offers: dict[object, list[int]] = defaultdict(list)
    for number, run in enumerate(runs):
        offers[run.key].append(number)
    for numbers in offers.values():
        for number, after in zip(numbers, [*numbers[1:], None], strict=True):
            run = runs[number]
            ends = [day for day in (run.ended, runs[after].observed if after is not None else None) if day]
            end = min(ends, default=None)
            if end is None or end > run.observed:
                yield run.observed, False, prices[number], number
                if end is not None:
                    yield end, True, prices[number], number
