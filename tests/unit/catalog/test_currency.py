"""Money at the rate of the last business day, from our table or as the user says."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichgpu.base.errors import NoAnswer, UnknownName, UsageError
from whichgpu.base.money import Money
from whichgpu.catalog.currency import ECB, DollarRates, Exchanger, parse_rates, round_significant
from whichgpu.catalog.pricing import DollarExchangeRate
from whichgpu.catalog.store import Catalog

USD = "USD"


@pytest.fixture(scope="module")
def table() -> tuple[DollarExchangeRate, ...]:
    return Catalog().exchange


def test_the_rate_is_of_the_last_business_day() -> None:
    sunday = Exchanger(date(2019, 9, 8))
    rate = sunday.rate(USD, "KRW")
    assert rate.date == "2019-09-06"
    assert Decimal(1192) < rate.value < Decimal(1193)
    assert rate.source == "ecb-reference-rates"


def test_two_currencies_meet_on_a_day_both_have() -> None:
    exchanger = Exchanger(date(2020, 3, 1))
    assert exchanger.rate("CNY", USD).value * exchanger.rate(USD, "CNY").value == pytest.approx(Decimal(1))
    assert exchanger.rate("EUR", USD).date == "2020-02-28"


def test_the_same_currency_is_left_alone() -> None:
    money = Money(Decimal("4.234"), USD)
    assert Exchanger(date(2019, 9, 8)).convert(money, USD) == (money, None)


def test_after_the_last_rate_the_last_one_holds_with_its_date_and_long_after_none() -> None:
    rate = Exchanger(date(2022, 3, 10)).rate(USD, "RUB")
    assert rate.date == "2022-03-01"  # no rate of the rouble has been set since
    with pytest.raises(NoAnswer, match="RUB"):
        Exchanger(date(2024, 1, 1)).rate(USD, "RUB")
    with pytest.raises(NoAnswer):
        Exchanger(date(1998, 12, 31)).rate(USD, "KRW")


def test_currencies_missing_at_the_ecb_come_from_our_table(table: tuple[DollarExchangeRate, ...]) -> None:
    exchanger = Exchanger(date(2019, 9, 8), table)
    assert exchanger.rate(USD, "TWD").date == "2019"
    assert Decimal(30) < exchanger.rate(USD, "TWD").value < Decimal(32)
    money, rate = exchanger.convert(Money(Decimal("0.49"), USD), "VND")
    assert rate is not None
    assert (money.amount, rate.source) == (Decimal("11294.6"), "worldbank-exchange-rates")
    through = exchanger.rate("EUR", "TWD").value
    assert through == pytest.approx(exchanger.rate("EUR", USD).value * exchanger.rate(USD, "TWD").value)
    with pytest.raises(NoAnswer):
        Exchanger(date(2012, 1, 1), table).rate(USD, "TWD")


def test_our_table_repeats_no_ecb_currency_and_has_dates_and_sources(table: tuple[DollarExchangeRate, ...]) -> None:
    assert {row.currency for row in table} & set(ECB) == set()
    assert {"TWD", "VND"} <= {row.currency for row in table}
    assert all(row.sources and row.date for row in table)


def test_the_list_of_the_banks_currencies_is_the_packages() -> None:
    from currency_converter import CurrencyConverter  # type: ignore[import-untyped]

    assert sorted(CurrencyConverter().currencies) == sorted(ECB)


def test_user_supplied_rate_takes_precedence(table: tuple[DollarExchangeRate, ...]) -> None:
    exchanger = Exchanger(date(2019, 9, 8), table, parse_rates("KRW=1190"))
    money, rate = exchanger.convert(Money(Decimal("144.613"), USD), "KRW")
    assert money == Money(Decimal("172089"), "KRW")
    assert rate is not None
    assert (rate.value, rate.date, rate.source) == (Decimal(1190), None, "given")
    euros, _ = exchanger.convert(Money(Decimal(1), "EUR"), "KRW")
    assert Decimal(1300) < euros.amount < Decimal(1330)


def test_user_supplied_rate_may_be_of_an_unknown_currency() -> None:
    exchanger = Exchanger(date(2019, 9, 8), (), {"UAH": Decimal("25")})
    assert exchanger.check("uah") == "UAH"
    assert exchanger.convert(Money(Decimal(2), USD), "UAH")[0].amount == Decimal(50)


def test_unknown_currency_is_refused_with_nearest_names(table: tuple[DollarExchangeRate, ...]) -> None:
    with pytest.raises(UnknownName) as caught:
        Exchanger(date(2019, 9, 8), table).check("KWR")
    assert "KRW" in caught.value.choices


@pytest.mark.parametrize(
    "text", ["", "KRW", "KRW=", "KRW=0", "KRW=-1", "=1190", "KRW=1e3", "WON=1190=2", "KRW=nan", "USD=2", "KRW:1190"]
)
def test_a_rate_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_rates(text)


amounts = st.decimals("0.0001", "100000", places=4, allow_nan=False)


@given(amounts, st.sampled_from(["KRW", "EUR", "JPY", "TWD", "VND"]))
def test_conversion_round_trip_preserves_stored_digits(amount: Decimal, currency: str) -> None:
    exchanger = Exchanger(date(2023, 5, 5), Catalog().exchange)
    there, _ = exchanger.convert(Money(amount, USD), currency)
    back, _ = exchanger.convert(there, USD)
    assert abs(back.amount - amount) <= amount * Decimal("0.00002")
    assert isinstance(there.amount, Decimal)


@given(st.decimals("0.000001", "1000000000", places=6, allow_nan=False).filter(bool))
def test_rounding_keeps_six_digits_and_never_an_exponent(amount: Decimal) -> None:
    for one in (amount, amount * 10**30):  # more digits than decimals are usually computed with
        rounded = round_significant(one)
        assert abs(rounded - one) <= one * Decimal("0.00001")
        assert "E" not in str(rounded)


def test_prices_are_checked_at_the_last_rate_known_by_their_day(table: tuple[DollarExchangeRate, ...]) -> None:
    rates = DollarRates(table)
    assert rates.dollars(Decimal(7), "USD", date(1970, 1, 1)) == 7.0
    for day in (date(2022, 3, 10), date(2026, 11, 15)):  # however old the rate is
        assert rates.dollars(Decimal(1000), "RUB", day) == pytest.approx(9.52, abs=0.01)
    assert rates.dollars(Decimal(1), "RUB", date(1990, 1, 1)) is None
    assert rates.dollars(Decimal(1), "TWD", date(2012, 1, 1)) is None
    assert rates.dollars(Decimal(1), "ZZZ", date(2024, 1, 1)) is None
