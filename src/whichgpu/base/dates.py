"""Parsing of dates, some of them known only to the month or the year."""

from __future__ import annotations

import re
from datetime import date

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg

MIN_YEAR, MAX_YEAR = 1990, 2100  # Assumed: no GPU, price or question is outside these years.

_PARTIAL = re.compile(r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2}))?)?")


def is_date(text: str) -> bool:
    """Whether a text is a day, month or year: 2020-05-14, 2020-05 or 2020."""
    return _date_span(text) is not None


def first_day(text: str) -> date:
    """Return the first day of a stated day, month or year.

    >>> first_day("2020-05")
    datetime.date(2020, 5, 1)
    """
    return _known_span(text)[0]


def last_day(text: str) -> date:
    """Return the last day of a stated day, month or year.

    >>> last_day("2020-02")
    datetime.date(2020, 2, 29)
    """
    return _known_span(text)[1]


def parse_as_of(text: str, today: date) -> date:
    """Return the day a user names for `--as-of`; a month or year means its last day, but no later than today."""
    span = _date_span(text.strip())
    if span is None:
        raise UsageError("bad-date", msg("error.bad-date", text=text), msg("hint.bad-date"))
    if span[0] > today:
        hint = msg("hint.date-in-future", today=today.isoformat())
        raise UsageError("date-in-future", msg("error.date-in-future", text=text), hint)
    return min(span[1], today)


def parse_as_known(text: str, today: date) -> date | int:
    """Return what `--catalog-as-known` names: a day, or the number of a snapshot.

    >>> parse_as_known("@12", date(2026, 11, 15))
    12
    """
    number = text.strip().removeprefix("@")
    if text.strip().startswith("@") and number.isascii() and number.isdigit() and len(number) < 12:
        return int(number)
    return parse_as_of(text, today)


def _known_span(text: str) -> tuple[date, date]:
    span = _date_span(text)
    if span is None:
        raise ValueError(f"not a date: {text!r}")
    return span


def _date_span(text: str) -> tuple[date, date] | None:
    """Return the first and last day that a date text covers, or None if the text is not a date."""
    match = _PARTIAL.fullmatch(text)
    if match is None:
        return None
    year, month, day = int(match[1]), int(match[2] or 0), int(match[3] or 0)
    if not MIN_YEAR <= year <= MAX_YEAR:
        return None
    try:
        if match[3]:
            return date(year, month, day), date(year, month, day)
        if match[2]:
            import calendar

            return date(year, month, 1), date(year, month, calendar.monthrange(year, month)[1])
    except ValueError:  # The text names a month 13 or a 30 February.
        return None
    return date(year, 1, 1), date(year, 12, 31)
