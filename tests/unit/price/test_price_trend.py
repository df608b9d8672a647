"""The lowest price day by day, and prices as columns."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from msgspec.structs import replace

from tests.unit.price.test_asof import observation
from whichgpu.catalog.offer import Observation
from whichgpu.price.table import PriceTable, _joined, _packed, _unpacked, exact, rows_on_day
from whichgpu.price.trend import lowest_prices

EAST = observation("3.00", "2020-01-01", "2020-05-01")
WEST = replace(observation("2.00", "2020-03-01", "2020-04-01", "2020-06-01"), region="us-west-2")
LATER = observation("2.50", "2021-01-01")  # the same offer as EAST, which ends with it


def lowest(*runs: Observation) -> list[tuple[str, str, str | None]]:
    return [(low.day, str(low.price), low.until) for low in lowest_prices(runs, lambda run: run.price)]


def test_lowest_price_changes_over_time() -> None:
    assert lowest(EAST, WEST, LATER) == [
        ("2020-01-01", "3.00", "2020-03-01"),
        ("2020-03-01", "2.00", "2020-06-01"),
        ("2020-06-01", "3.00", "2021-01-01"),
        ("2021-01-01", "2.50", None),
    ]
    assert [low.run.region for low in lowest_prices([EAST, WEST], lambda run: run.price)] == [
        "us-east-1",
        "us-west-2",
        "us-east-1",
    ]


def test_higher_price_of_another_offer_changes_nothing() -> None:
    assert lowest(WEST, EAST) == lowest(EAST, WEST)
    dear = replace(observation("9.00", "2020-02-01", ended="2020-02-15"), region="eu-west-1")
    assert lowest(EAST, dear) == [("2020-01-01", "3.00", None)]


def test_the_same_price_elsewhere_is_no_step() -> None:
    twin = replace(EAST, region="us-west-2", observed="2020-02-01")
    assert lowest(EAST, twin) == [("2020-01-01", "3.00", None)]


def test_zero_length_prices_are_left_out() -> None:
    assert lowest() == []
    assert lowest(replace(EAST, ended="2020-01-01")) == []
    assert lowest(EAST, observation("1.00", "2020-02-01"), observation("4.00", "2020-02-01")) == [
        ("2020-01-01", "3.00", "2020-02-01"),
        ("2020-02-01", "4.00", None),
    ]


def test_offer_ends_at_its_end_or_at_the_next_price_if_earlier() -> None:
    gap = replace(EAST, ended="2020-06-01")
    assert lowest(gap, WEST, LATER)[-2:] == [("2020-03-01", "2.00", "2021-01-01"), ("2021-01-01", "2.50", None)]
    early = replace(EAST, ended="2022-01-01")
    assert lowest(early, LATER) == [("2020-01-01", "3.00", "2021-01-01"), ("2021-01-01", "2.50", None)]


def table(*runs: Observation) -> PriceTable:
    return _unpacked(_packed(runs))


def standing_prices(prices: PriceTable, day: date) -> list[str]:
    return [str(exact(prices, row)) for row in rows_on_day(prices, day).tolist()]


@pytest.mark.parametrize(
    ("day", "prices"),
    [
        (date(2019, 12, 31), []),
        (date(2020, 1, 1), ["3.00"]),
        (date(2020, 5, 31), ["3.00", "2.00"]),
        (date(2020, 6, 1), ["3.00"]),  # the other is listed no longer
        (date(2020, 12, 31), ["3.00"]),
        (date(2021, 1, 1), ["2.50"]),
    ],
)
def test_columns_have_the_prices_valid_on_a_day(day: date, prices: list[str]) -> None:
    assert standing_prices(table(EAST, WEST, LATER), day) == prices
    assert standing_prices(_joined(table(EAST), table(WEST, LATER)), day) == prices
    assert sorted(standing_prices(_joined(table(LATER, WEST), table(EAST)), day)) == sorted(prices)


def test_an_offer_that_ended_takes_its_older_prices_with_it() -> None:
    ended = observation("1.00", "2020-02-01", "2020-03-01", "2020-04-01")
    assert standing_prices(table(EAST, ended), date(2020, 6, 1)) == ["3.00"]  # seen again in May
    old = replace(EAST, last_observed="2020-01-15")
    assert standing_prices(table(old, ended), date(2020, 6, 1)) == []
    assert standing_prices(table(old, ended), date(2020, 3, 31)) == ["1.00"]


def test_of_two_observations_with_the_same_end_the_later_one_counts() -> None:
    one, two = observation("1.00", "2020-01-01", "2020-09-01"), observation("2.00", "2020-02-01", "2020-09-01")
    assert standing_prices(table(two, one), date(2020, 6, 1)) == ["2.00"]
    assert standing_prices(table(two, one), date(2021, 6, 1)) == ["2.00"]


def test_machines_of_other_sizes_are_other_offers() -> None:
    eight = replace(EAST, gpus=8, price=Decimal("24.00"))
    assert sorted(standing_prices(table(EAST, eight), date(2020, 2, 1))) == ["24.00", "3.00"]


def test_columns_round_trip() -> None:
    prices = table(EAST, WEST)
    assert len(prices) == 2
    assert prices.gpus.tolist() == [1.0, 1.0]
    assert prices.price.tolist() == [3.0, 2.0]
    assert [prices.word("region", row) for row in (0, 1)] == ["us-east-1", "us-west-2"]
    assert prices.word("payment", 0) == ""
    assert prices.matches("region", ["us-west-2"]).tolist() == [False, True]
    assert prices.matches("region", ["us-west-2", "us-east-1", "moon"]).tolist() == [True, True]
    assert prices.matches("region", ["moon"]).tolist() == [False, False]
    assert prices.place("moon") is None
    result = prices.select_rows(rows_on_day(prices, date(2020, 5, 31))[1:])
    assert (len(result), result.word("region", 0), result.price.tolist(), result.days.tolist()) == (
        1, "us-west-2", [2.0], [[date(2020, 3, 1).toordinal()], [date(2020, 4, 1).toordinal()], [date(2020, 6, 1).toordinal()]],
    )  # fmt: skip


def test_no_prices_without_observations() -> None:
    assert len(table()) == 0
    assert rows_on_day(table(), date(2020, 1, 1)).tolist() == []
