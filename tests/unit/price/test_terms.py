"""Months, rules that make one term's price of another's, and what is due at the start."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.price.test_asof import observation
from whichgpu.catalog.pricing import Discount
from whichgpu.catalog.store import Catalog
from whichgpu.price.asof import price_on_day
from whichgpu.price.terms import MONTH_HOURS, prices_from_rules, sustained_share, upfront

QUARTERS = tuple(map(Decimal, ("1", "0.8", "0.6", "0.4")))
hours = st.decimals("1", str(MONTH_HOURS), places=1, allow_nan=False)


@given(hours, hours)
def test_longer_runs_cost_more_in_total_and_less_per_hour(a: Decimal, b: Decimal) -> None:
    short, long = sorted((a, b))
    assert sustained_share(QUARTERS, long) <= sustained_share(QUARTERS, short) + Decimal("1e-20")
    assert sustained_share(QUARTERS, long) * long >= sustained_share(QUARTERS, short) * short - Decimal("1e-20")
    assert Decimal("0.7") <= sustained_share(QUARTERS, long) <= 1


def test_rules_apply_to_their_machines_and_period_unless_a_price_is_stated() -> None:
    rule = Discount("r", "aws", "committed-1y", ("p3.",), Decimal("0.63"), (), "2019-01-01", "2020-12-31", ("s",), "2026-11-15")
    day = date(2019, 9, 8)
    base = price_on_day([observation("1.00", "2018-01-01", "2021-01-01")], day)
    assert base is not None
    prices = list(prices_from_rules([base], [rule], day, Decimal(MONTH_HOURS)))
    assert [(one.observation.term, one.observation.price, one.observation.source) for one in prices] == [
        ("committed-1y", Decimal("0.63"), "s")
    ]
    assert list(prices_from_rules([base], [rule], date(2018, 6, 1), Decimal(MONTH_HOURS))) == []
    assert list(prices_from_rules([base], [rule], date(2021, 1, 1), Decimal(MONTH_HOURS))) == []
    assert list(prices_from_rules([base, *prices], [rule], day, Decimal(MONTH_HOURS))) == []


def test_google_rules_give_the_prices_google_printed(catalog: Catalog) -> None:
    """The 2019 list: V100 2.48, 1.562, 1.116; P100 in Taiwan 1.60, 1.008, 0.720; all are 37% and 55% off."""
    share = {rule.id: rule.share for rule in catalog.discounts}
    for full, one_year, three_years in (("2.48", "1.562", "1.116"), ("1.60", "1.008", "0.720"), ("0.49", "0.308", None)):
        assert abs(Decimal(full) * (share["gcp-committed-1y-n1"] or 0) - Decimal(one_year)) < Decimal("0.001")
        if three_years:
            assert Decimal(full) * (share["gcp-committed-3y-n1"] or 0) == Decimal(three_years)


def test_only_all_upfront_terms_are_due_at_the_start() -> None:
    run = observation("1.676", "2019-09-08")
    fields = {name: getattr(run, name) for name in type(run).__struct_fields__}
    all_upfront = type(run)(**fields | {"term": "reserved-3y", "payment": "all-upfront"})
    assert upfront(all_upfront) == Decimal("1.676") * 8760 * 3
    assert upfront(type(run)(**fields | {"term": "reserved-1y", "payment": "partial-upfront"})) is None
    assert upfront(run) is None
