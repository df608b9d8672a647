"""Dates known in part, and money."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from whichgpu.base.dates import first_day, is_date, last_day, parse_as_of
from whichgpu.base.errors import UsageError
from whichgpu.base.money import Money, parse_money

TODAY = date(2026, 11, 15)


def test_a_month_or_a_year_spans_its_days() -> None:
    assert (first_day("2016"), last_day("2016")) == (date(2016, 1, 1), date(2016, 12, 31))
    assert (first_day("2024-02"), last_day("2024-02")) == (date(2024, 2, 1), date(2024, 2, 29))
    assert first_day("2020-05-14") == last_day("2020-05-14") == date(2020, 5, 14)


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2021-13", "2021-02-30", "0000", "1066-10-14", "9999", "2021-5", "21-05-16", "2021/05/16"]
)
def test_invalid_date_is_refused(text: str) -> None:
    assert not is_date(text)
    with pytest.raises(UsageError, match="not a valid date"):
        parse_as_of(text, TODAY)
    with pytest.raises(ValueError, match="not a date"):
        first_day(text)


def test_as_of_is_the_end_of_its_period_and_never_the_future() -> None:
    assert parse_as_of("2021-05", TODAY) == date(2021, 5, 31)
    assert parse_as_of("2026", TODAY) == TODAY
    with pytest.raises(UsageError) as caught:
        parse_as_of("2026-11-16", TODAY)
    assert caught.value.kind == "date-in-future"


def test_money_keeps_its_digits_and_its_period() -> None:
    assert parse_money("4.234 USD") == (Money(Decimal("4.234"), "USD"), None)
    assert parse_money("2usd/h") == (Money(Decimal(2), "USD"), "hour")
    assert parse_money("500eur/month")[1] == "month"
    assert str(Money(Decimal("0.10"), "USD")) == "0.10 USD"


@pytest.mark.parametrize("text", ["", "2", "usd", "2usd/fortnight", "-2usd", "2 dollars", "1e3usd"])
def test_invalid_money_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_money(text)
    assert caught.value.kind == "bad-money"
