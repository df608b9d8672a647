"""Parsing and formatting of quantities with units. Bytes are integers; GiB is 2^30 and GB is 10^9."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.base.numerals import Numeral

MIB = 1 << 20  # bytes in a MiB
GIB = 1 << 30  # bytes in a GiB
GB = 10**9  # bytes in a GB

_PREFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}
# Bytes in each unit of size; unit names are in lower case.
_BYTES = {f"{prefix}b": scale for prefix, scale in _PREFIXES.items()} | {
    f"{prefix}ib": 1 << (10 * power) for power, prefix in enumerate("kmgtp", start=1)
}
_SECONDS = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "µs": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "min": Decimal(60),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
    "w": Decimal(604800),
    "mo": Decimal(730 * 3600),  # Clouds bill a month as 730 hours and a year as 8,760 hours.
    "y": Decimal(8760 * 3600),
}
_WATTS = {"w": 1, "kw": 1000, "mw": 1_000_000, "watts": 1, "kilowatts": 1000}
_WORDS = {"sec": "s", "second": "s", "minute": "min", "hr": "h", "hour": "h", "day": "d", "week": "w", "month": "mo", "year": "y"}
_SECONDS |= {name + plural: _SECONDS[short] for name, short in _WORDS.items() for plural in ("", "s")}
_PER = {"s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600, "hour": 3600, "d": 86400, "day": 86400}
_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,12})?|\.[0-9]{1,12})\s*([a-zA-Zµ]*)(?:/([a-zA-Z]+))?")

_LONG = re.compile(r"[0-9]{19}|[0-9]*\.[0-9]{13}")


def parse_whole_number(text: str, maximum: int) -> int | None:
    """Parse a whole number of ASCII digits; None if it is not one or above the maximum.

    >>> parse_whole_number("16", 99), parse_whole_number("100", 99), parse_whole_number("²", 99), parse_whole_number("1_0", 99)
    (16, None, None, None)
    """
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None
    return number if number is not None and number <= maximum else None


def parse_bytes(text: str) -> int:
    """Parse a size with its unit into bytes.

    >>> parse_bytes("80GiB"), parse_bytes("80 GB")
    (85899345920, 80000000000)
    """
    return int(_scaled(text, "size", _BYTES))


def parse_bandwidth(text: str) -> int:
    """Parse a bandwidth with its unit into bytes per second; bits are not accepted.

    >>> parse_bandwidth("3.35TB/s")
    3350000000000
    """
    return int(_scaled(text, "bandwidth", _BYTES, "s"))


def parse_watts(text: str) -> float:
    """Parse a power with its unit into watts.

    >>> parse_watts("3kW"), parse_watts("450 W")
    (3000.0, 450.0)
    """
    return float(_scaled(text, "power", _WATTS))


def parse_seconds(text: str) -> float:
    """Parse a duration with its unit into seconds.

    >>> parse_seconds("50ms"), parse_seconds("24h"), parse_seconds("2 hours"), parse_seconds("1y") == parse_seconds("12mo")
    (0.05, 86400.0, 7200.0, True)
    """
    return float(_scaled(text, "duration", _SECONDS))


def parse_rate(text: str) -> float:
    """Return a text such as 120/min as a rate in events per second.

    >>> parse_rate("5/s"), parse_rate("120/min")
    (5.0, 2.0)
    """
    number, unit, per = _split(text, "rate")
    scale = _PER.get((per or "").lower())
    if unit or scale is None:
        raise _bad(text, "rate")
    return float(number / scale)


def _scaled(text: str, kind: str, scales: Mapping[str, int | Decimal], required_per: str | None = None) -> Decimal:
    """Return a number with a unit, times the unit's scale; `required_per` is the unit expected after a slash, as in GB/s."""
    number, unit, per = _split(text, kind)
    scale = scales.get(unit.lower())
    if scale is None or per != required_per:
        raise _bad(text, kind)
    return number * scale


def _split(text: str, kind: str) -> tuple[Decimal, str, str | None]:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None and _LONG.match(text.strip()):
        raise UsageError(f"bad-{kind}", msg(f"error.bad-{kind}", text=text[:40]), msg("hint.number-too-long"))
    if match is None:
        raise _bad(text, kind)
    return Decimal(match[1]), match[2], match[3]


def _bad(text: str, kind: str) -> UsageError:
    return UsageError(f"bad-{kind}", msg(f"error.bad-{kind}", text=text), msg(f"hint.bad-{kind}"))


def significant(value: float, digits: int = 3) -> Numeral:
    """Format a number with `digits` significant digits, thousands grouped, without an exponent.

    >>> significant(3352.3), significant(0.014321), significant(900.0)
    ('3,350', '0.0143', '900')
    """
    if value == 0:
        return Numeral("0")
    rounded = Decimal(f"{value:.{digits - 1}e}")
    text = f"{rounded:,f}"
    return Numeral(text.rstrip("0").rstrip(".") if "." in text else text)


def with_unit(value: float, unit: str, digits: int = 3) -> Numeral:
    """Format a number with a unit that is a word; the unit of 1 is singular.

    >>> with_unit(1.0, "requests/s"), with_unit(250.4, "output tokens/s"), with_unit(24.07, "x V100")
    ('1 request/s', '250 output tokens/s', '24.1 x V100')
    """
    number = significant(value, digits)
    return Numeral(f"{number} {unit[:-3] + '/s' if number == '1' and unit.endswith('s/s') else unit}")


def format_seconds(seconds: float) -> Numeral:
    """Format seconds as s, ms or µs with three digits.

    >>> format_seconds(0.00483), format_seconds(71.5), format_seconds(3e-5), format_seconds(0)
    ('4.83 ms', '71.5 s', '30 µs', '0 s')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size * 0.9995:
            return Numeral(f"{significant(seconds / size)} {unit}")
    return Numeral(f"{significant(seconds / 1e-6)} µs" if seconds > 0 else "0 s")


def format_duration(seconds: float) -> str:
    """Format the length of a run in seconds, minutes, hours or days, for people.

    >>> format_duration(90), format_duration(400), format_duration(5400), format_duration(400000)
    ('90 s', '6.67 min', '1.5 h', '4.63 d')
    """
    if seconds < 120:
        return format_seconds(seconds)
    for unit, size, upper_limit in (("min", 60.0, 3600.0), ("h", 3600.0, 172800.0)):
        if seconds < upper_limit:
            return f"{significant(seconds / size)} {unit}"
    return f"{significant(seconds / 86400.0)} d"


def format_amount(value: Decimal) -> Numeral:
    """Format an amount of money for people: three significant digits, thousands grouped."""
    return significant(float(value))


def format_memory(size: int) -> Numeral:
    """Format bytes as GiB (MiB, KiB or B below one) with four digits, since 1,152 GiB is exact.

    >>> format_memory(85520809984), format_memory(4718592)
    ('79.65 GiB', '4.5 MiB')
    """
    for unit, scale in (("GiB", GIB), ("MiB", MIB), ("KiB", 1024)):
        if size >= scale:
            return Numeral(f"{significant(size / scale, 4)} {unit}")
    return Numeral(f"{size} B")


def format_memory_gb(size: int) -> Numeral:
    """Format bytes as GB of 10^9 with four digits, as datasheets do.

    >>> format_memory_gb(85520809984)
    '85.52 GB'
    """
    return Numeral(f"{significant(size / GB, 4)} GB")


def format_bandwidth(bytes_per_second: int) -> Numeral:
    """Format bytes per second as GB/s with four digits, as datasheets do.

    >>> format_bandwidth(3350000000000)
    '3,350 GB/s'
    """
    return Numeral(f"{significant(bytes_per_second / GB, 4)} GB/s")


def format_flops(flops: int) -> Numeral:
    """Return FLOP/s as text in TFLOP/s, as datasheets state it.

    >>> format_flops(989400000000000)
    '989 TFLOP/s'
    """
    return Numeral(f"{significant(flops / 10**12)} TFLOP/s")
