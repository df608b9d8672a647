"""Parsers of a plan's settings; a key of a plan file and the flag of that name use the same parser."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from whichgpu.api.request.kinds import Quantity
from whichgpu.base.units import parse_rate, parse_seconds

MONTH, YEAR = 730.0, 8760.0  # Hours in a month and in a year.
HOURS = {"hour": 1.0, "hours": 1.0, "month": MONTH, "months": MONTH, "mo": MONTH, "year": YEAR, "years": YEAR, "y": YEAR}
MAX_RATE, MIN_RATE = 1e6, 1e-9  # Largest and smallest request rate per second in an hour of a traffic curve.
MAX_AMOUNT = 1e12  # Largest accepted value of a time, a length in tokens or a weight in a histogram.


class Setting(Quantity, frozen=True):
    """Parser of a setting; if `parse` raises an error, the value is reported as invalid with the message `plan.wants-<wants>`."""

    unit: str = ""
    parse: Callable[[Any], Any] = str
    wants: str = "text"
    limits: Mapping[str, Any] = msgspec.field(default_factory=dict)  # bounds to insert into that message


def number(high: float) -> Setting:
    """Return a parser of numbers from 0 to `high`."""

    def parse(value: Any) -> float:
        return _checked(float(value), lambda amount: 0 <= amount <= high)

    return Setting("", parse, "number", {"least": "0", "most": f"{high:g}"})


def whole(low: int, high: int) -> Setting:
    """Return a parser of whole numbers from `low` to `high`."""

    def parse(value: Any) -> int:
        count = int(value)
        if isinstance(value, bool) or not low <= count <= high or float(value) != count:
            raise ValueError
        return count

    return Setting("", parse, "whole", {"least": low, "most": f"{high:,}"})


def _checked(value: float, is_valid: Callable[[float], bool]) -> float:
    if not is_valid(value):
        raise ValueError
    return value


def _positive(value: float) -> float:
    return _checked(value, lambda amount: 0 < amount < MAX_AMOUNT)


def parse_hours(value: Any) -> float:
    """Return a planning horizon in hours, from `12 months`, `720h`, `30d` or a number of hours."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _positive(float(value))
    text = str(value).strip()
    number, unit = text.rstrip("abcdefghijklmnopqrstuvwxyz ").strip(), text.lstrip("0123456789. ").strip().lower()
    if unit in HOURS and number:
        return _positive(float(number) * HOURS[unit])
    return _positive(parse_seconds(text) / 3600.0)


def _seconds(value: Any) -> float:
    return _positive(parse_seconds(value) if isinstance(value, str) else float(value))


def _rate(value: Any) -> float:
    return _positive(parse_rate(value) if isinstance(value, str) else float(value))


def parse_hourly(value: Any) -> tuple[float, ...]:
    """Return requests per second in each hour, from a list or comma-separated numbers."""
    parts = value.split(",") if isinstance(value, str) else list(value)
    rates = tuple(parse_rate(part) if isinstance(part, str) and "/" in part else float(part) for part in parts)
    if not rates or max(rates) <= 0 or not all(one == 0 or MIN_RATE <= one <= MAX_RATE for one in rates):
        raise ValueError
    return rates


def parse_histogram(value: Any) -> dict[float, float]:
    """Return weights by length in tokens, from a table or a text such as `100:1,200:3`."""
    pairs = value.items() if isinstance(value, Mapping) else [part.split(":") for part in str(value).split(",")]
    weights = {float(length): float(weight) for length, weight in pairs}
    bounded = all(1 <= length < MAX_AMOUNT and 0 <= weight < MAX_AMOUNT for length, weight in weights.items())
    if weights and not (bounded and any(weights.values())):
        raise ValueError
    return weights


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


TEXT, FLAG, RATE = Setting(), Setting(parse=_flag, wants="flag"), Setting(parse=_rate, wants="rate")
HORIZON = Setting("s", parse_hours, "time", {"like": "720h, 30d, 12 months"})
SECONDS, DEADLINE = (Setting("s", _seconds, "time", {"like": like}) for like in ("20s, 500ms", "24h, 3d"))
HOURLY, HISTOGRAM, SPREAD = (
    Setting(parse=parse_hourly, wants="hourly"),
    Setting(parse=parse_histogram, wants="histogram"),
    number(5.0),
)
