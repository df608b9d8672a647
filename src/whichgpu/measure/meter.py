"""Cost and energy so far, and the part of them spent while GPUs were idle. The caller provides the clock.

The price is the whole machine's. An idle GPU wastes its share of it, so idle cost is counted for each GPU separately; the
idle time that leads to a warning counts only while all GPUs are idle, since only then the machine could be switched off.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import msgspec
from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.base.money import Money, parse_money
from whichgpu.measure.drivers.card import Sample

IDLE_PERCENT = 5  # Utilisation in percent up to which a GPU counts as idle: a desktop or a monitor causes a few percent.
HOURS_A_MONTH = 730  # Hours that clouds bill for a month.
CENT = Decimal("0.0001")


def parse_price(text: str) -> Money:
    """Parse the machine's price per hour or month, and return it per hour; raise if no period is given.

    >>> str(parse_price("2usd/h")), str(parse_price("730 eur/month"))
    ('2 USD', '1.0000 EUR')
    """
    money, period = parse_money(text)
    if period is None:
        raise UsageError("bad-price", msg("error.bad-price", text=text), msg("hint.bad-price"))
    if period == "month":
        return Money((money.amount / HOURS_A_MONTH).quantize(CENT), money.currency)
    return money


class UsageTotals(msgspec.Struct, frozen=True):
    """Totals since the start of a watch: seconds, idle seconds, energy and the most memory in use."""

    seconds: float = 0.0
    idle_shares: float = 0.0  # idle seconds summed over GPUs, each weighted by 1 / number of GPUs
    joules: float = 0.0
    known_seconds: tuple[float, ...] = ()  # by GPU: seconds for which its utilisation is known
    busy_seconds: tuple[float, ...] = ()  # by GPU: seconds times utilisation
    peak_bytes: tuple[int, ...] = ()


class Bill(msgspec.Struct, frozen=True):
    """Cost, energy, running and idle time of the machine since the start of a watch."""

    seconds: float
    money: Money | None
    idle_money: Money | None
    idle_total_seconds: float  # idle seconds of the machine: the average over its GPUs
    watt_hours: float | None
    utilisation_percent: float | None
    peak_bytes: int | None


def is_idle(sample: Sample) -> bool | None:
    """Whether a GPU is idle; None if it is lost or hides its utilisation and processes."""
    if sample.lost:
        return None
    if sample.utilisation_percent is not None:
        return sample.utilisation_percent <= IDLE_PERCENT
    return sample.processes == 0 if sample.processes is not None else None


def all_idle(samples: Sequence[Sample]) -> bool | None:
    """Whether all GPUs are idle: False if one is busy, None if that is unknown."""
    states = [is_idle(sample) for sample in samples]
    if False in states:
        return False
    return None if None in states or not states else True


def add_usage(tally: UsageTotals, seconds: float, samples: Sequence[Sample], trusted: bool = True) -> UsageTotals:
    """Return the usage totals after `seconds` more in which the GPUs were as in these samples.

    Cost grows with time alone. Idle time, load and energy are added only if the reading is `trusted` to represent those seconds.
    """
    seconds = max(0.0, seconds)
    tally = replace(tally, seconds=tally.seconds + seconds)
    if not trusted or not samples:
        return tally
    count = len(samples)
    readings, busy, peak = (_padded(values, count) for values in (tally.known_seconds, tally.busy_seconds, tally.peak_bytes))
    alive = [sample for sample in samples if not sample.lost]
    for place, sample in enumerate(samples):
        if sample.lost:
            continue
        if sample.utilisation_percent is not None:
            readings[place] += seconds
            busy[place] += seconds * sample.utilisation_percent / 100
        peak[place] = max(peak[place], sample.memory_used_bytes or 0)
    return replace(
        tally,
        idle_shares=tally.idle_shares + seconds / count * sum(is_idle(sample) is True for sample in alive),
        joules=tally.joules + seconds * sum(sample.power_watts or 0.0 for sample in alive),
        known_seconds=tuple(readings),
        busy_seconds=tuple(busy),
        peak_bytes=tuple(int(size) for size in peak),
    )


def make_bill(tally: UsageTotals, price: Money | None) -> Bill:
    """Return cost and energy so far, and their idle parts, from the totals."""
    known_seconds = sum(tally.known_seconds)
    return Bill(
        seconds=tally.seconds,
        money=_cost(tally.seconds, price),
        idle_money=_cost(tally.idle_shares, price),
        idle_total_seconds=tally.idle_shares,
        watt_hours=tally.joules / 3600 if tally.joules else None,
        utilisation_percent=100 * sum(tally.busy_seconds) / known_seconds if known_seconds else None,
        peak_bytes=max(tally.peak_bytes, default=0) or None,
    )


def _cost(seconds: float, price: Money | None) -> Money | None:
    if price is None:
        return None
    return Money((price.amount * Decimal(repr(round(seconds, 3))) / 3600).quantize(CENT), price.currency)


def _padded(values: Sequence[float], count: int) -> list[float]:
    return [*values, *[0] * (count - len(values))][:count]
