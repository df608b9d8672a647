"""How far the bundled prices reach: the regions people ask for first, and every machine that has no price, by name."""

from __future__ import annotations

import re

import pytest

from whichgpu.catalog.store import Catalog

# Virginia or Iowa, Oregon (Azure: Washington), Ireland or Belgium (Azure also the Netherlands), Tokyo, Seoul, Taiwan; how many
# kinds of machine at least. No source that was read states a price of AWS or Azure in Taiwan.
PLACES = {
    "aws": {"us-east-1": 90, "us-west-2": 90, "eu-west-1": 40, "ap-northeast-1": 80, "ap-northeast-2": 65},
    "gcp": {
        "us-central1": 50,
        "us-west1": 40,
        "europe-west1": 30,
        "asia-northeast1": 25,
        "asia-northeast3": 18,
        "asia-east1": 30,
    },
    "azure": {
        "eastus": 45,
        "eastus2": 35,
        "westus2": 40,
        "northeurope": 24,
        "westeurope": 30,
        "japaneast": 25,
        "koreacentral": 20,
    },
}
# Rented in blocks, by the rack or on request; or too new for any source that was read; or never listed in one.
UNPRICED = {
    "aws": "p5e.48xlarge p6e-gb200.36xlarge u-p6e-gb200x36 u-p6e-gb200x72 trn2.3xlarge trn2.48xlarge trn2u.48xlarge u-trn2x64",
    "gcp": "a3-edgegpu-8g a3-edgegpu-8g-nolssd a3-ultragpu-8g-nolssd a4x-highgpu-4g a4x-maxgpu-4g-metal g4-standard-6 "
    "g4-standard-12 g4-standard-24 ct3p-hightpu-4t ct5l-hightpu-1t ct5l-hightpu-4t ct5l-hightpu-8t ct5p-hightpu-1t "
    "ct5p-hightpu-2t tpu7x-standard-4t",
    "azure": "Standard_NCC40ads_H100_v5 Standard_NC128ds_xl_RTXPRO6000BSE_v6 Standard_NC256ds_xl_RTXPRO6000BSE_v6 "
    "Standard_NC320ds_xl_RTXPRO6000BSE_v6 Standard_NC128lds_xl_RTXPRO6000BSE_v6 Standard_NC256lds_xl_RTXPRO6000BSE_v6 "
    "Standard_NC320lds_xl_RTXPRO6000BSE_v6 Standard_ND96is_MI300X_v5 Standard_ND128isr_NDR_GB200_v6 "
    "Standard_ND128isr_GB300_v6 Standard_ND128isrG5_GB300_v6 Standard_NV6s_v2 Standard_NV12s_v2 Standard_NV24s_v2 "
    "Standard_NG32adms_V620_v1",
}


@pytest.fixture(scope="module")
def priced(catalog: Catalog) -> dict[tuple[str, str], set[str]]:
    """Regions in which each machine has a price."""
    regions: dict[tuple[str, str], set[str]] = {}
    for row in catalog.prices():
        regions.setdefault((row.provider, row.instance), set()).update(row.regions)
    return regions


@pytest.mark.parametrize("provider", PLACES)
def test_common_regions_have_prices(priced: dict[tuple[str, str], set[str]], provider: str) -> None:
    for region, minimum in PLACES[provider].items():
        kinds = sum(region in regions for (who, _), regions in priced.items() if who == provider)
        assert kinds >= minimum, (region, kinds)


@pytest.mark.parametrize("provider", PLACES)
def test_every_machine_has_a_price_or_is_named_here(
    catalog: Catalog, priced: dict[tuple[str, str], set[str]], provider: str
) -> None:
    bare = {row.instance for row in catalog.instances if row.provider == provider} - {
        instance for who, instance in priced if who == provider
    }
    assert bare == set(UNPRICED[provider].split())


def test_azure_is_as_much_dearer_abroad_for_every_size_of_a_series(catalog: Catalog) -> None:
    """The table of 2023-12-18 mixes in Windows prices of other machines; one of these would be dearer by its vCPUs."""
    home: dict[str, float] = {}
    abroad: dict[str, dict[str, float]] = {}
    for row in catalog.prices():
        if (row.provider, row.term) == ("azure", "on-demand"):
            if "karpenter-azure-prices" in row.sources:
                abroad.setdefault(row.regions[0], {})[row.instance] = float(row.price)
            elif "eastus" in row.regions:
                home[row.instance] = float(row.price)
    assert set(abroad) == {"northeurope", "westeurope", "japaneast", "koreacentral"}
    for region, prices in abroad.items():
        for series in ("as_T4_v3", "ads_A100_v4", "ads_A10_v5", "as_v4"):
            shares = [price / home[name] for name, price in prices.items() if name.endswith(series) and name in home]
            assert len(shares) >= 3, (region, series)
            assert max(shares) - min(shares) < 0.004, (region, series, shares)


def test_every_gpu_of_the_three_large_clouds_has_a_price_somewhere(catalog: Catalog) -> None:
    """But for what none of the sources knows a price of: rented by whole racks, or newer than they are."""
    priced = {(row.provider, row.gpu) for row in catalog.prices()}
    offered = {(row.provider, row.gpu) for row in catalog.instances if row.provider in PLACES}
    assert offered - priced == {
        ("aws", "gb200"),
        ("aws", "trainium2"),
        ("gcp", "gb200"),
        ("gcp", "gb300"),
        ("gcp", "tpu-v7"),
        ("azure", "gb200"),
        ("azure", "gb300"),
        ("azure", "rtx-pro-6000-server"),
    }


def test_every_term_and_many_years_are_there(catalog: Catalog) -> None:
    rows = list(catalog.prices())
    assert {row.term for row in rows} == {"on-demand", "spot", "reserved-1y", "reserved-3y", "committed-1y", "committed-3y"}
    assert {row.observed[:4] for row in rows} >= {str(year) for year in (2010, *range(2013, 2027))}
    assert {row.currency for row in rows} == {"USD", "EUR", "CNY"}
    assert len({row.provider for row in rows}) >= 24
    assert all(row.gpu in catalog.gpu_by_id for row in rows)


MODEL = re.compile(
    r"(?<![A-Z0-9])(GH200|GB[23]00|[BH][12]00|B300|[APV]100|A10|A16|A30|A40|L4|L40S?|T4|A[456]000)(?![0-9A-Z])", re.I
)


def test_no_machine_is_named_after_another_gpu_than_it_has(catalog: Catalog) -> None:
    """A broker's names say what is inside: the chip, its memory and its form."""
    compared = 0
    for row in catalog.prices():
        name, gpu = row.instance.replace("_", "-"), row.gpu.replace("-", "")
        models = [model.lower() for model in MODEL.findall(name)]
        compared += bool(models)
        assert not models or any(model in gpu for model in models), (row.provider, row.instance, row.gpu)
        assert not (re.search(r"\b80G", name) and "40gb" in gpu), (row.provider, row.instance, row.gpu)
        assert not (re.search(r"\b40G", name) and "80gb" in gpu), (row.provider, row.instance, row.gpu)
        assert not (re.search(r"sxm", name, re.I) and "pcie" in gpu), (row.provider, row.instance, row.gpu)
        assert not (re.search(r"pcie", name, re.I) and "sxm" in gpu), (row.provider, row.instance, row.gpu)
    assert compared > 1000
