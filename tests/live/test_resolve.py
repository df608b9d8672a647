"""Names of sources to variants: resolved if unambiguous, reported if not, never guessed."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest

from whichgpu.catalog.live import source_tables
from whichgpu.catalog.live.layouts.hosts import host_rules
from whichgpu.catalog.live.resolve import Rejection, ResolvedGpu, Resolver
from whichgpu.catalog.live.rows import OfferRow
from whichgpu.catalog.store import Catalog


def resolved(
    resolver: Resolver, provider: str, instance: str, name: str, count: float | None, gib: float | None = None, *names: str
) -> tuple[str, float] | str:
    memory = None if gib is None else gib * 1024
    row = OfferRow(provider, instance, "r", name, count, memory, "on-demand", Decimal(1), names=names)
    resolved = resolver.resolve(row)
    return (resolved.gpu.id, resolved.gpus) if isinstance(resolved, ResolvedGpu) else resolved.reason


@pytest.mark.parametrize(
    ("columns", "variant"),
    [
        # A100: 40 or 80 GB, SXM or PCIe, by cloud
        (("aws", "p4d.24xlarge", "A100", 8, 40), ("a100-sxm-40gb", 8)),
        (("aws", "p4de.24xlarge", "A100-80GB", 8, 80), ("a100-sxm-80gb", 8)),
        (("azure", "Standard_NC24ads_A100_v4", "A100-80GB", 1), ("a100-pcie-80gb", 1)),
        (("azure", "Standard_ND96amsr_A100_v4", "A100-80GB", 8), ("a100-sxm-80gb", 8)),
        (("azure", "Standard_ND96asr_v4", "A100", 8), ("a100-sxm-40gb", 8)),
        (("gcp", "a2-highgpu-1g", "A100", 1, 40), ("a100-sxm-40gb", 1)),
        (("cudo", "epyc-genoa-a100-pcie_1x2v4gb", "A100", 1, 80), ("a100-pcie-80gb", 1)),
        (("lambda", "gpu_1x_a100", "A100", 1, 40), ("a100-pcie-40gb", 1)),
        (("lambda", "gpu_1x_a100_sxm4", "A100", 1, 40), ("a100-sxm-40gb", 1)),
        (("runpod", "2x_A100-80GB_SECURE", "A100-80GB", 2, 80, "A100 PCIe"), ("a100-pcie-80gb", 2)),
        (("runpod", "2x_A100-80GB-SXM_SECURE", "A100-80GB-SXM", 2, 80, "A100 SXM"), ("a100-sxm-80gb", 2)),
        (("shadeform", "lambdalabs_A100x8", "A100", 8, 40), ("a100-sxm-40gb", 8)),
        (("shadeform", "hyperstack_A100-80GBx2", "A100-80GB", 2, 80), ("a100-pcie-80gb", 2)),
        (("primeintellect", "hyperstack__8xH100_80GB__252__1440", "H100", 8, 80, "n3-H100x8"), ("h100-pcie", 8)),
        (("primeintellect", "hyperstack__8xH100_80GB__192__960", "H100", 8, 80, "n3-H100-SXM5x8"), ("h100-sxm", 8)),
        (
            ("primeintellect", "datacrunch__1xA100_80GB__22__120__SPOT", "A100-80GB", 1, 80, "1A100.22V_SPOT"),
            ("a100-sxm-80gb", 1),
        ),
        (("vast", "1x-A100_SXM4-32-65536", "A100", 1, 40), ("a100-sxm-40gb", 1)),
        (("vast", "2x-A100_PCIE-32-65536", "A100", 2, 80), ("a100-pcie-80gb", 2)),
        (("vast", "1x-RTX_3060_Ti-32-65536", "RTX3060", 1, 8), ("rtx-3060-ti", 1)),
        (("vast", "4x-RTX_4070S_Ti-32-65536", "RTX4070", 4, 16), ("rtx-4070-ti-super", 4)),
        (("vast", "1x-H100_NVL-32-65536", "H100", 1, 93.6), ("h100-nvl", 1)),
        # slices
        (("aws", "g6f.large", "L4", 0.125, 2.8), ("l4", 0.125)),
        (("aws", "g6f.4xlarge", "L4", 1, None), ("l4", 0.5)),
        (("azure", "Standard_NV4as_v4", "Radeon MI25", 1), ("mi25", 0.125)),
        (("runpod", "2x_PRO-6000-MIG-24GB_SECURE", "PRO-6000-MIG-24GB", 2, 24), ("rtx-pro-6000-server", 0.5)),
        # chips of a slice of TPUs
        (("gcp", "tpu-v5p-8", "tpu-v5p-8", None), ("tpu-v5p", 4)),
        (("gcp", "tpu-v3-2048", "tpu-v3-2048", None), ("tpu-v3", 1024)),
        (("gcp", "tpu-v6e-16", "tpu-v6e-16", None), ("tpu-v6e", 16)),
        # names that fit one variant only
        (("new", "x", "RTX4090", 2, 24), ("rtx-4090", 2)),
        (("new", "x", "NVIDIA A100-SXM4-80GB", 8, None), ("a100-sxm-80gb", 8)),
        (("new", "x", "GH200", 1, 96), ("gh200-96gb", 1)),
        (("new", "x", "H200", 8, 141), ("h200-sxm", 8)),
        (("new", "x", "A6000", 1, 48), ("rtx-a6000", 1)),
    ],
)
def test_a_name_of_a_cloud_is_the_variant_it_rents(
    resolver: Resolver, columns: tuple[str, ...], variant: tuple[str, float]
) -> None:
    provider, instance, name, count, *rest = columns
    assert resolved(resolver, provider, instance, name, count, *rest) == variant  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        (("new", "x", "H100", 8, 80), "unknown-gpu"),  # SXM or PCIe
        (("new", "x", "A100", 1, None), "unknown-gpu"),
        (("new", "x", "A100", 1, 40), "unknown-gpu"),
        (("new", "x", "Q9000", 1, 80), "unknown-gpu"),
        (("aws", "f2.6xlarge", "Virtex UltraScale+ (VU47P)", 1, None), "unknown-gpu"),
        (("new", "x", "", None, None), "unknown-gpu"),
        (("azure", "Standard_ND96isr_H100_v5", "H100", 12, None), "count"),
        (("aws", "p5.48xlarge", "A100 SXM 80GB", 8, None), "other-gpu"),
        (("aws", "p4d.24xlarge", "A100", 8, 80), "memory"),
        (("new", "x", "L4", 1, 80), "memory"),
    ],
)
def test_ambiguous_rows_are_reported(resolver: Resolver, columns: tuple[str, ...], reason: str) -> None:
    provider, instance, name, count, *rest = columns
    assert resolved(resolver, provider, instance, name, count, *rest) == reason  # type: ignore[arg-type]


def test_ambiguity_report_quotes_the_source(resolver: Resolver) -> None:
    row = OfferRow("new", "big-box", "r", "Q9000", 1.0, None, "on-demand", Decimal(1))
    assert resolver.resolve(row) == Rejection("unknown-gpu", "Q9000")


def test_tables_reference_existing_rows(catalog: Catalog) -> None:
    providers = {provider.id for provider in catalog.providers}
    for rule in source_tables.name_rules():
        assert rule.gpu == "=" or rule.gpu in catalog.gpu_by_id, rule
        assert rule.provider == "" or rule.provider in providers, rule
        assert rule.accelerator or rule.instance, rule
        assert rule.why
        if rule.gpu == "=":
            assert any("name" in pattern.groupindex for pattern in (rule.accelerator, rule.instance) if pattern)
        assert rule.gpus in ("n", "n/2") or float(rule.gpus) > 0
    for (market, _), upstream in source_tables.upstreams().items():
        assert {market, upstream} <= providers
    assert {provider for _, provider in source_tables.memory_units()} <= providers
    assert {fault.provider for fault in source_tables.faults()} <= providers
    assert all(fault.why for fault in source_tables.faults())
    for digest, since in source_tables.published_since().items():
        assert re.fullmatch(r"[0-9a-f]{64}", digest)
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", since)


def test_every_host_rule_fits_a_machine_of_the_catalog(catalog: Catalog) -> None:
    names = [row.instance for row in catalog.instances if row.provider == "gcp"]
    for rule in host_rules("gcp"):
        if rule.count is None:
            assert any(rule.host.fullmatch(name) for name in names), rule
