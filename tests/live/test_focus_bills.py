"""Bills in FOCUS become the user's own rates: effective cost over hours, by machine, region and pricing category."""

from __future__ import annotations

import csv
import json
from decimal import Decimal
from pathlib import Path

import pytest

from tests.live.source_harness import TODAY
from whichgpu.api.prices.offers import OffersQuery, list_offers
from whichgpu.api.prices.store import PriceImportAnswer, catalog_import
from whichgpu.catalog.live.price_store import open_for_reading
from whichgpu.catalog.live.queries import OfferQuery, offers_on
from whichgpu.catalog.store import Catalog

HOUR = {
    "ProviderName": "AWS", "BillingCurrency": "USD", "ChargeCategory": "Usage", "ChargePeriodStart": "2026-11-10T00:00:00Z",
    "EffectiveCost": "40", "PricingQuantity": "1", "PricingUnit": "Hours", "PricingCategory": "Standard", "RegionId": "us-east-1",
    "SkuPriceDetails": json.dumps({"InstanceType": "p5.48xlarge"}),
}  # fmt: skip


def bill(path: Path, *changes: dict[str, str]) -> Path:
    """Write a bill of an hour of p5.48xlarge, once with each change."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, HOUR.keys() | {"x_InstanceType"})
        writer.writeheader()
        writer.writerows({**HOUR, **change} for change in changes)
    return path


def imported(path: Path, folder: Path, catalog: Catalog) -> tuple[PriceImportAnswer, dict[str, Decimal]]:
    answer = catalog_import(path, catalog=catalog, today=TODAY, folder=folder)
    with open_for_reading(folder) as connection:
        offers = [] if connection is None else offers_on(connection, None, None, OfferQuery())
    return answer, {f"{one.provider} {one.instance} {one.region} {one.term} {one.currency}": one.price for one in offers}


def test_hours_of_a_machine_are_one_rate(tmp_path: Path, folder: Path, catalog: Catalog) -> None:
    path = bill(
        tmp_path / "bill.csv",
        {},
        {"EffectiveCost": "88", "PricingQuantity": "2", "ChargePeriodStart": "2026-11-12T05:00:00Z"},
        {"PricingCategory": "Dynamic", "EffectiveCost": "18"},
        {"ProviderName": "Google Cloud", "RegionId": "us-central1", "SkuPriceDetails": "", "x_InstanceType": "a3-highgpu-8g"},
    )
    answer, rates = imported(path, folder, catalog)
    assert (answer.kept, answer.reasons) == (3, {})
    assert rates["aws p5.48xlarge us-east-1 on-demand USD"] == Decimal("42.666667")
    assert rates["aws p5.48xlarge us-east-1 spot USD"] == 18
    assert rates["gcp a3-highgpu-8g us-central1 on-demand USD"] == 40


def test_a_rate_of_the_bill_is_the_price_in_answers(
    tmp_path: Path, folder: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHICHGPU_DATA", str(folder))
    imported(bill(tmp_path / "bill.csv", {}), folder, catalog)
    answer = list_offers(OffersQuery(instance="p5.48xlarge", region="us-east-1", term="on-demand"), TODAY, catalog)
    [offer] = answer.offers
    assert (offer.price.amount, offer.source, offer.observed_at) == (Decimal(40), "own", "2026-11-10")
    assert [one.publisher for one in answer.sources][:1] == ["user"]


@pytest.mark.parametrize(
    "change",
    [
        {"ChargeCategory": "Tax"},
        {"PricingUnit": "GB-Months"},
        {"PricingCategory": "Committed"},
        {"SkuPriceDetails": json.dumps({"InstanceType": "m5.large"})},
        {"SkuPriceDetails": "{"},
        {"SkuPriceDetails": "[1]"},
        {"ProviderName": "Snowflake"},
    ],
)
def test_other_charges_are_set_aside(tmp_path: Path, folder: Path, catalog: Catalog, change: dict[str, str]) -> None:
    answer, rates = imported(bill(tmp_path / "bill.csv", {}, change), folder, catalog)
    assert (answer.kept, answer.snapshots[0].aside) == (1, 1)
    assert list(rates) == ["aws p5.48xlarge us-east-1 on-demand USD"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"EffectiveCost": "much"}, "malformed"),
        ({"PricingQuantity": "NaN"}, "malformed"),
        ({"PricingQuantity": "0"}, "malformed"),
        ({"ChargePeriodStart": "yesterday"}, "malformed"),
        ({"EffectiveCost": "0.001"}, "below-power"),
        ({"EffectiveCost": "2"}, "jump"),
    ],
)
def test_wrong_rates_are_quarantined(tmp_path: Path, folder: Path, catalog: Catalog, change: dict[str, str], reason: str) -> None:
    other = {"RegionId": "us-west-2"}
    answer, rates = imported(bill(tmp_path / "bill.csv", other, change), folder, catalog)
    assert answer.reasons == {reason: 1}
    assert list(rates) == ["aws p5.48xlarge us-west-2 on-demand USD"]
