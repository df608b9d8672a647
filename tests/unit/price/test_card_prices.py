"""Used and street prices of cards: each with a source the catalog has, used from the day they were observed."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from whichgpu.base.bundled_data import data_rows
from whichgpu.catalog.store import Catalog
from whichgpu.price import card_prices
from whichgpu.price.card_prices import observed_price, whole_machines

DAY = date(2026, 11, 17)


def test_every_row_names_a_gpu_and_a_source_of_the_catalog(catalog: Catalog) -> None:
    rows = data_rows(card_prices.TABLE)
    assert rows
    for row in rows:
        assert row["gpu"] in catalog.gpu_by_id
        assert row["source"] in catalog.sources
        assert 0 < Decimal(row["low_usd"]) <= Decimal(row["high_usd"])
        assert row["condition"] in ("used", "street")


def test_the_lowest_price_counts_from_the_day_it_was_observed() -> None:
    price = observed_price("rtx-4090", DAY)
    assert price is not None
    assert (price.basis, price.price) == ("used", Decimal(1550))
    assert observed_price("rtx-4090", date(2026, 1, 1)) is None
    assert observed_price("a100-80gb-sxm", DAY) is None


def test_computers_sold_whole_are_known_by_day() -> None:
    assert "apple-m3-ultra-96gb" in whole_machines(DAY)
    assert whole_machines(date(2024, 1, 1)) == ()
