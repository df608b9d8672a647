"""Money in lines of text: digits by currency, and break-even sentences that always name a time or say that there is none."""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from whichgpu.base.money import Money
from whichgpu.surface import candidate_cells, meter_text
from whichgpu.surface.commands import buy


@pytest.mark.parametrize(
    ("amount", "currency", "displayed", "metered"),
    [
        ("1764321.5", "KRW", "1,760,000 KRW", "1764322 KRW"),
        ("1312.4567", "USD", "1,310 USD", "1312.46 USD"),
        ("0.01234", "USD", "0.0123 USD", "0.0123 USD"),
        ("98765.4", "JPY", "98,800 JPY", "98765 JPY"),
    ],
)
def test_digits_of_money_follow_its_currency(amount: str, currency: str, displayed: str, metered: str) -> None:
    money = Money(Decimal(amount), currency)
    assert candidate_cells.money_text(money) == displayed
    assert meter_text.money_text(money) == metered


@pytest.mark.parametrize(
    ("months", "ids"), [(None, ["buy.even-unused"]), (7.5, ["buy.even"]), (40.0, ["buy.even", "buy.even-resale"])]
)
def test_break_even_names_a_time_or_says_that_renting_stays_cheaper(months: float | None, ids: list[str]) -> None:
    residual = Money(Decimal(700), "USD")
    row: Any = SimpleNamespace(
        break_even_use=0.6, break_even_hours=5000.0, break_even_months=months, rent=object(), residual_value=residual
    )
    answer: Any = SimpleNamespace(inputs={"years": 3.0, "residual": 0.3})
    lines = buy._break_even(row, answer)
    assert [line.id for line in lines] == ids
    assert "-" not in [value for line in lines for value in line.values.values()]
    assert buy._share(None) == ">100%"
