"""Parsers of numbers of rows, hours and minutes as people type them."""

from __future__ import annotations

import sys
from decimal import Decimal

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.price.terms import MONTH_HOURS

MIN_MINUTES, MAX_MINUTES = 0.1, 60.0  # Shortest and longest duration of one benchmark run, in minutes.
MAX_CANDIDATES = 1000  # Largest number of candidates that one recommendation may list.


def parse_hours(text: str) -> Decimal:
    """Return how many hours per month a machine is used, from text with or without the unit.

    >>> parse_hours("365"), parse_hours("200h")
    (Decimal('365'), Decimal('200'))
    """
    digits = text.strip().removesuffix("h").strip()
    hours = Decimal(digits) if digits.replace(".", "", 1).isdigit() and digits.isascii() else Decimal(0)
    if not 0 < hours <= MONTH_HOURS:
        raise UsageError("bad-hours", msg("error.bad-hours", text=text), msg("hint.bad-hours", most=MONTH_HOURS))
    return hours


def parse_row_limit(text: str) -> int:
    """Return the largest number of rows to display, from text; "all" is no limit.

    >>> parse_row_limit("20"), parse_row_limit("all") == sys.maxsize
    (20, True)
    """
    digits = text.strip()
    if digits == "all":
        return sys.maxsize
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18 and int(digits)):
        raise UsageError("bad-row-limit", msg("error.bad-row-limit", text=text), msg("hint.bad-row-limit"))
    return int(digits)


def parse_candidates(text: str) -> int:
    """Return how many candidates a recommendation lists, from text; "all" is the largest number allowed.

    >>> parse_candidates("20"), parse_candidates("all")
    (20, 1000)
    """
    digits = text.strip()
    if digits == "all":
        return MAX_CANDIDATES
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        wants = msg("wants.rows", most=f"{MAX_CANDIDATES:,}")
        raise UsageError("bad-field", msg("error.bad-field", name="--limit", value=repr(text[:40])), wants)
    return int(digits)


def parse_minutes(text: str) -> float:
    """Return the duration of a benchmark in minutes, from text."""
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not MIN_MINUTES <= minutes <= MAX_MINUTES:
        hint = msg("hint.bad-minutes", least=MIN_MINUTES, most=MAX_MINUTES)
        raise UsageError("bad-minutes", msg("error.bad-minutes", text=text), hint)
    return minutes
