"""Used and street prices of cards and of computers sold whole, each with its source and date, from `data/card_prices.csv`."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from whichgpu.base.bundled_data import data_rows
from whichgpu.base.dates import first_day

TABLE = Path(__file__).parent / "data" / "card_prices.csv"
PriceBasis = Literal["used", "street", "list", "given"]  # used or new on the market, list price at launch, or the user's


class CardPrice(msgspec.Struct, frozen=True):
    """Price of one card, or of a whole computer, in US dollars, with its basis, the day it was observed, and its source."""

    price: Decimal
    basis: PriceBasis
    day: str
    source: str
    whole_machine: bool = False


def observed_price(gpu: str, day: date) -> CardPrice | None:
    """Return the lowest used or street price of a GPU that was observed by a day; None if none is known.

    >>> observed_price("rtx-3090", date(2026, 11, 17)).price, observed_price("rtx-3090", date(2024, 1, 1))
    (Decimal('800'), None)
    """
    prices = [one for one in _prices().get(gpu, ()) if first_day(one.day) <= day]
    return min(prices, key=lambda one: one.price, default=None)


def whole_machines(day: date) -> tuple[str, ...]:
    """Return the GPUs of computers that are sold whole, whose price was observed by a day."""
    prices = {gpu: observed_price(gpu, day) for gpu in _prices()}
    return tuple(gpu for gpu, one in prices.items() if one is not None and one.whole_machine)


@cache
def _prices() -> dict[str, tuple[CardPrice, ...]]:
    """Return the prices of each GPU; a range counts as its middle."""
    prices: dict[str, tuple[CardPrice, ...]] = {}
    for row in data_rows(TABLE):
        middle = (Decimal(row["low_usd"]) + Decimal(row["high_usd"])) / 2
        basis: PriceBasis = "used" if row["condition"] == "used" else "street"
        one = CardPrice(middle, basis, row["observed"], row["source"], row["includes"] == "machine")
        prices[row["gpu"]] = (*prices.get(row["gpu"], ()), one)
    return prices
