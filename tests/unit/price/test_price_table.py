"""Tables of prices: joining them and deriving prices by rule compare each word a bounded number of times."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import numpy as np
from msgspec.structs import replace

from whichgpu.catalog.offer import Observation
from whichgpu.catalog.pricing import Discount
from whichgpu.decide.configurations.groups import _kinds
from whichgpu.decide.market import _with_rules
from whichgpu.price.table import PriceTable, _joined, _packed, _unpacked, rows_on_day

NAMES = 2000


class CountedWord(str):
    """A word that counts how often it is compared with another one."""

    comparisons = 0
    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedWord.comparisons += 1
        return str.__eq__(self, other) if isinstance(other, str) else NotImplemented


def priced_table(start: int, count: int) -> PriceTable:
    """Prices of `count` machines whose names begin at a number."""
    first = Observation(
        "aws", "m0", "us-east-1", "l4", 1, "on-demand", None, Decimal("0.5"), "USD", None, "gpu+host",
        "2026-01-01", "2026-01-01", None, "own", "2026-01-01",
    )  # fmt: skip
    rows = (replace(first, instance=f"m{number}", price=1 + Decimal(number)) for number in range(start, start + count))
    return _unpacked(_packed(rows))


def with_counted_words(table: PriceTable) -> PriceTable:
    """The same table with words that count comparisons."""
    return replace(table, words=tuple(map(CountedWord, table.words)), word_places={})


def cells(table: PriceTable) -> list[tuple[str, str, float]]:
    return [(table.word("instance", row), table.word("price", row), float(table.price[row])) for row in range(len(table))]


def test_joined_tables_hold_the_rows_of_both() -> None:
    one, other = priced_table(0, 3), priced_table(2, 4)
    joined = _joined(one, other)
    assert cells(joined) == cells(one) + cells(other)
    assert [joined.place(word) for word in joined.words] == list(range(len(joined.words)))
    assert cells(_joined(one, priced_table(0, 0))) == cells(one)


def test_joining_compares_each_name_a_bounded_number_of_times() -> None:
    one, other = with_counted_words(priced_table(0, NAMES)), with_counted_words(priced_table(NAMES // 2, NAMES))
    CountedWord.comparisons = 0
    _joined(one, other)
    assert CountedWord.comparisons <= 4 * (len(one.words) + len(other.words))


def test_rules_compare_each_name_a_bounded_number_of_times() -> None:
    table = with_counted_words(priced_table(0, NAMES))
    rules = [
        Discount(f"rule-{number}", "aws", "committed-1y", (f"m{number}",), Decimal("0.7"), (), "2020-01-01", None,
                 (f"source-{number}",), "2026-01-01")
        for number in range(50)
    ]  # fmt: skip
    CountedWord.comparisons = 0
    prices, _, _ = _with_rules(table, rules, date(2026, 1, 1))
    assert CountedWord.comparisons <= 10 * (len(table.words) + len(rules))
    derived = range(len(table), len(prices))
    assert {prices.word("term", row) for row in derived} == {"committed-1y"}
    assert {prices.word("source", row) for row in derived} == {f"source-{number}" for number in range(50)}


def test_machines_stay_distinct_however_many_names_there_are() -> None:
    """Numbers of name pairs exceed 2**53 from two hundred thousand names on, where floats are equal."""
    codes = np.array([2**60 + 1, 2**60, 2**60 + 1, -1], dtype=np.int64)
    first, kind_of = _kinds(codes, np.array([4, 4, 4, 4]), np.array([8.0, 8.0, 8.0, 0.5]))
    assert first.tolist() == [3, 1, 0]
    assert kind_of.tolist() == [2, 1, 2, 0]


def test_sixty_thousand_distinct_names_make_as_many_offers() -> None:
    table = priced_table(0, 60_000)
    assert len(rows_on_day(table, date(2026, 1, 2))) == 60_000
    assert table.word("instance", 59_999) == "m59999"
