"""The user's own terms: discounts, contracts and owned machines, each shown as what it is."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.live.source_harness import TODAY
from whichgpu.base.errors import UsageError
from whichgpu.catalog.live.overlay import apply_overlay, read_overlay
from whichgpu.catalog.offer import Observation
from whichgpu.catalog.store import Catalog

LISTED = Observation(
    "aws", "p5.48xlarge", "us-east-1", "h100-sxm", 8, "on-demand", None, Decimal("55.04"), "USD", None, "gpu+host",
    "2026-08-22", "2026-08-22", None, "skypilot", "2026-11-15",
)  # fmt: skip

FILE = """
[discounts]
aws = "12.5%"
"Google Cloud" = 0.1

[[contract]]
provider = "gcp"
instance = "a3-highgpu-8g"
region = "us-central1"
term = "committed-1y"
price = "52.10 usd/h"
from = "2026-01-01"
until = "2026-12-31"
note = "agreement 17"

[[contract]]
provider = "aws"
gpu = "A100 SXM 80GB"
gpus = 8
price = "7300 usd/month"

[[owned]]
name = "lab"
gpu = "V100 SXM 16GB"
gpus = 8
cost = "0.90 eur/h"
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "prices.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_discounts_contracts_and_owned_machines_are_labelled(tmp_path: Path, catalog: Catalog) -> None:
    overlay = read_overlay(write(tmp_path, FILE), catalog, TODAY)
    offers = apply_overlay([LISTED], overlay, TODAY)
    assert [offer.standing for offer in offers] == ["discounted", "contract", "contract", "owned"]
    discounted, contract, month, owned = offers
    assert (discounted.price, discounted.discount) == (Decimal("48.16"), Decimal("0.125"))
    assert (contract.gpu, contract.gpus, contract.price, contract.note) == ("h100-sxm", 8, Decimal("52.1"), "agreement 17")
    assert contract.source == "prices.toml"
    assert (month.price, month.gpu, month.region) == (Decimal(10), "a100-sxm-80gb", "any")
    assert (owned.provider, owned.term, owned.instance, owned.currency) == ("owned", "owned", "lab", "EUR")


def test_a_contract_holds_from_its_first_to_its_last_day(tmp_path: Path, catalog: Catalog) -> None:
    overlay = read_overlay(write(tmp_path, FILE), catalog, date(2027, 6, 1))
    for day, holds in (
        (date(2025, 12, 31), False),
        (date(2026, 1, 1), True),
        (date(2026, 12, 31), True),
        (date(2027, 1, 1), False),
    ):
        assert any(offer.instance == "a3-highgpu-8g" for offer in apply_overlay([], overlay, day)) is holds


def test_contracts_in_other_currencies_and_owned_machines_without_upkeep_are_plausible(tmp_path: Path, catalog: Catalog) -> None:
    text = """
    [[contract]]
    provider = "aws"
    instance = "p5.48xlarge"
    price = "900000 vnd/h"
    [[owned]]
    gpu = "L4"
    cost = "0 eur/h"
    """
    overlay = read_overlay(write(tmp_path, text), catalog, TODAY)
    assert overlay is not None
    assert [(offer.price, offer.currency) for offer in overlay.offers] == [(Decimal(900000), "VND"), (Decimal(0), "EUR")]


def test_names_in_a_contract_are_those_of_the_catalog_and_a_low_price_can_be_accepted(tmp_path: Path, catalog: Catalog) -> None:
    text = """
    [[contract]]
    provider = "AWS"
    instance = "P5.48xlarge"
    gpu = "8xH100"
    region = "US-East-1"
    price = "2 usd/h"
    accept = true
    [[owned]]
    gpu = "8xV100 SXM 16GB"
    cost = "0.90 usd/h"
    """
    overlay = read_overlay(write(tmp_path, text), catalog, TODAY)
    assert overlay is not None
    contract, owned = overlay.offers
    assert (contract.provider, contract.instance, contract.region) == ("aws", "p5.48xlarge", "us-east-1")
    assert (contract.gpu, contract.gpus, owned.gpus) == ("h100-sxm", 8, 8)


def test_spot_prices_have_no_discount_off_list_prices(tmp_path: Path, catalog: Catalog) -> None:
    overlay = read_overlay(write(tmp_path, "[discounts]\naws = '50%'"), catalog, TODAY)
    spot = replace(LISTED, provider="aws", term="spot")
    listed, interruptible = apply_overlay([replace(spot, term="on-demand"), spot], overlay, TODAY)
    assert (listed.price, interruptible) == (LISTED.price / 2, spot)


def test_without_a_file_prices_are_as_listed(catalog: Catalog) -> None:
    assert read_overlay(None, catalog, TODAY) is None
    assert apply_overlay([LISTED], None, TODAY) == (LISTED,)


def test_the_file_in_the_config_directory_is_found(tmp_path: Path, catalog: Catalog) -> None:
    home = tmp_path / "config" / "whichgpu"
    home.mkdir(parents=True)
    write(home, FILE)
    overlay = read_overlay(None, catalog, TODAY)
    assert overlay is not None
    assert overlay.discounts == {"aws": Decimal("0.125"), "gcp": Decimal("0.1")}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("discounts = 3", "bad-overlay"),
        ("[discounts]\naws = 1.5", "bad-overlay"),
        ("[discounts]\naws = 'lots'", "bad-overlay"),
        ("[discounts]\naws = '99.9%'", "bad-overlay"),
        ("[[contract]]\nprovider = 'aws'\ninstance = 'p5.48xlarge'\nprice = '52.10 usd'", "bad-overlay"),
        ("[[owned]]\ngpu = 'L4'\ncost = '1 usd'", "bad-overlay"),
        ("[discounts]\nasw = 0.1", "unknown-provider"),
        ("[contracts]", "unknown-key"),
        ("[contract]\nprovider = 'aws'", "bad-overlay"),
        ("[[contract]]\nprovider = 'aws'\nprice = '2usd/h'", "bad-overlay"),
        ("[[contract]]\nprovider = 'aws'\ngpu = 'A100'\nprice = '2usd/h'", "ambiguous-gpu"),
        ("[[contract]]\nprovider = 'aws'\ngpu = 'L4'\nprice = 'cheap'", "bad-money"),
        ("[[contract]]\nprovider = 'aws'\ngpu = 'L4'\nprice = '2usd/h'\nterm = 'ever'", "unknown-term"),
        ("[[contract]]\nprovider = 'aws'\ngpu = 'L4'\nprice = '2usd/h'\nfrom = 'soon'", "bad-overlay"),
        ("[[contract]]\nprovider = 'aws'\ngpu = 'L4'\nprice = '2usd/h'\ngpus = -1", "bad-overlay"),
        ("[[contract]]\nprovider = 'aws'\ninstance = 'p5.48xlarge'\nprice = '1 vnd/h'", "implausible-price"),
        ("[[contract]]\nprovider = 'aws'\ninstance = 'p5.48xlarge'\nprice = '0 usd/h'", "implausible-price"),
        ("[[contract]]\nprovider = 'aws'\ninstance = 'p5.48xlarge'\nprice = '900000 eur/h'", "implausible-price"),
        ("[[contract]]\nprovider = 'aws'\ngpu = 'L4'\nprice = '1 zzz/h'", "no-exchange-rate"),
        ("[[owned]]\ngpu = 'L4'\ncost = '900000 eur/h'", "implausible-price"),
        ("[[owned]]\ngpu = 'L4'\ncost = '1 zzz/h'", "no-exchange-rate"),
        ("[[contract]]\nprovider = 'aws'\ninstance = 'p5.48xlarge'\nprice = '40 usd/h'\ngpus = 64", "bad-overlay"),
        (
            "[[contract]]\nprovider = 'aws'\ninstance = 'p5.48xlarge'\nprice = '40 usd/h'\ngpus = 8\ngpu = 'A100 SXM 80GB'",
            "bad-overlay",
        ),
        ("[[contract]]\nprovider = 'aws'\ninstance = 'p5.48xlarge'\nprice = '40 usd/h'\nregion = 'nowhere'", "unknown-region"),
        ("[[contract]]\nprovider = 'aws'\ninstance = 'p5.48xlarge'\nprice = '2 usd/h'", "implausible-price"),
        ("[[contract]]\nprovider = 'aws'\ninstance = 'p5.48xlarge'\nprice = '0.1 usd/h'\naccept = true", "implausible-price"),
        ("[[contract]]\nprovider = 'aws'\ngpu = '4xH100 SXM'\ngpus = 8\nprice = '40 usd/h'", "bad-overlay"),
        ("[[owned]]\ngpu = '4xH100 SXM'\ngpus = 8\ncost = '4 usd/h'", "bad-overlay"),
        ("[[owned]]\ngpu = 'H100 SXM'\ngpus = 2.5\ncost = '4 usd/h'", "bad-overlay"),
        ("[[owned]]\ngpu = 'L4'", "bad-overlay"),
        ("[[owned]]\ngpu = 'L4'\ncost = '1usd/h'\ncolour = 'red'", "unknown-key"),
        ("[[[", "config-malformed"),
    ],
)
def test_invalid_file_is_reported_with_its_name(tmp_path: Path, catalog: Catalog, text: str, kind: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        read_overlay(path, catalog, TODAY)
    assert caught.value.kind == kind
    assert str(path) in str(caught.value)
