"""Names of GPUs, clouds and regions in launch files: of GPUs and providers in the catalog, as SkyPilot's catalog has them."""

from __future__ import annotations

import csv
import gzip
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from whichgpu.base.bundled_data import data_rows
from whichgpu.catalog.live.layouts.skypilot import skypilot_rows
from whichgpu.catalog.live.resolve import ResolvedGpu, Resolver
from whichgpu.catalog.live.rows import OfferRow, ReadCounts
from whichgpu.catalog.store import Catalog
from whichgpu.decide.launch.names import ALL_REGIONS, FOLDER

GPUS, PROVIDERS = (data_rows(FOLDER / f"launch_{name}.csv") for name in ("gpus", "providers"))
SKYPILOT = {row["provider"]: row["regions"].split(";") for row in PROVIDERS if row["target"] == "skypilot"}
# Azure's machine of eight is listed with another count than it has, which the import of prices rejects.
MISCOUNTED = ("azure", "h100-sxm", "H100")


def test_every_name_is_of_a_known_gpu_and_provider_with_a_source(catalog: Catalog) -> None:
    provider_keys = {(row["target"], row["provider"]) for row in PROVIDERS}
    assert {provider for _, provider in provider_keys} <= {row.id for row in catalog.providers}
    assert {row["gpu"] for row in GPUS} <= set(catalog.gpu_by_id)
    assert {row["sources"] for row in (*GPUS, *PROVIDERS)} <= set(catalog.sources)
    gpu_providers = [(row["target"], one) for row in GPUS for one in row["providers"].split(";") if one]
    assert set(gpu_providers) <= provider_keys
    places = Counter((row["target"], one, row["instance"], row["gpu"]) for row in GPUS for one in row["providers"].split(";"))
    assert max(places.values()) == 1


@pytest.mark.long
def test_names_and_regions_are_those_of_skypilot_s_catalog(evidence: Path, catalog: Catalog) -> None:
    folder = evidence / "prices" / "skypilot_catalog_2026-08-22"
    if not folder.is_dir():
        pytest.skip("no copy of SkyPilot's catalog")
    resolver, gpu_names, regions = Resolver(catalog), {MISCOUNTED}, defaultdict[str, set[str]](set)
    for cloud in SKYPILOT:
        (path,) = folder.glob(f"{cloud}.csv*")
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
            for row in skypilot_rows(lines, cloud, resolver.machine_of, ReadCounts()):
                if isinstance(row, OfferRow) and isinstance(resolved := resolver.resolve(row), ResolvedGpu):
                    gpu_names.add((cloud, resolved.gpu.id, row.accelerator))
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
            regions[cloud] = {row["Region"] for row in csv.DictReader(lines)}
    ours = {
        (provider, row["gpu"], row["name"])
        for row in GPUS
        if row["target"] == "skypilot"
        for provider in row["providers"].split(";")
    }
    assert ours <= gpu_names
    for price in data_rows(FOLDER.parents[1] / "catalog" / "data" / "prices.csv"):
        cloud_regions = SKYPILOT.get(price["provider"], [])
        if ALL_REGIONS in cloud_regions and not price["ended"]:
            assert set(price["regions"].split(";")) <= regions[price["provider"]] | {"any"}, price["provider"]
    assert all(set(names) <= regions[cloud] for cloud, names in SKYPILOT.items() if names not in ([ALL_REGIONS], [""]))
