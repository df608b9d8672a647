"""From the driver's name to the catalog's variant: the memory and the instruction set decide where the name does not."""

from __future__ import annotations

import pytest

from whichgpu.catalog.store import Catalog
from whichgpu.measure.drivers.card import Card, Sample
from whichgpu.measure.match import VariantMatch, match_card, matched_gpu


def matched(catalog: Catalog, name: str, mib: int | None, target: str | None = None, vendor: str = "nvidia") -> VariantMatch:
    sample = Sample(0, memory_bytes=None if mib is None else mib << 20)
    return match_card(Card(0, vendor, name, sample, target=target), catalog)


@pytest.mark.parametrize(
    ("name", "mib", "target", "id"),
    [
        ("NVIDIA H200", 143771, "sm_90", "h200-sxm"),
        ("NVIDIA H200", None, None, "h200-sxm"),
        ("NVIDIA H200 NVL", 143771, "sm_90", "h200-nvl"),
        ("NVIDIA H100 80GB HBM3", 81559, "sm_90", "h100-sxm"),
        ("NVIDIA H100 PCIe", 81559, "sm_90", "h100-pcie"),
        ("NVIDIA H20", 97871, "sm_90", "h20-96gb"),
        ("NVIDIA H20", 143771, "sm_90", "h20-141gb"),
        ("NVIDIA GH200 480GB", 97871, "sm_90", "gh200-96gb"),
        ("NVIDIA A100-SXM4-40GB", 40960, "sm_80", "a100-sxm-40gb"),
        ("NVIDIA A100-SXM4-80GB", 81920, "sm_80", "a100-sxm-80gb"),
        ("A100-SXM-80GB", 81251, "sm_80", "a100-sxm-80gb"),
        ("NVIDIA A100 80GB PCIe", 81920, "sm_80", "a100-pcie-80gb"),
        ("Tesla V100-SXM2-16GB", 16160, "sm_70", "v100-sxm-16gb"),
        ("Tesla V100-PCIE-32GB", 32510, "sm_70", "v100-pcie-32gb"),
        ("Tesla T4", 15360, "sm_75", "t4"),
        ("Tesla K80", 11441, "sm_37", "k80"),
        ("NVIDIA A10G", 23028, "sm_86", "a10g"),
        ("NVIDIA GeForce RTX 3060", 12288, "sm_86", "rtx-3060-12gb"),
        ("NVIDIA GeForce RTX 3080", 10240, "sm_86", "rtx-3080-10gb"),
        ("NVIDIA GeForce RTX 3080", 12288, "sm_86", "rtx-3080-12gb"),
        ("NVIDIA GeForce RTX 4060 Ti", 16380, "sm_89", "rtx-4060-ti-16gb"),
        ("NVIDIA GeForce RTX 4090 D", 24564, "sm_89", "rtx-4090-d"),
        ("NVIDIA RTX 6000 Ada Generation", 49140, "sm_89", "rtx-6000-ada"),
        ("NVIDIA B200", 183359, "sm_100", "b200"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, "sm_120", "rtx-pro-6000-server"),
    ],
)
def test_names_as_drivers_write_them(catalog: Catalog, name: str, mib: int | None, target: str | None, id: str) -> None:
    match = matched(catalog, name, mib, target)
    assert (match.gpu, match.why) == (id, None)
    row = matched_gpu(match, catalog)
    assert row is not None
    assert match.supports == row.supports


@pytest.mark.parametrize("id", ["h200-sxm", "a100-pcie-80gb", "l4", "rtx-3090", "gtx-1080-ti", "v100-sxm-32gb"])
def test_every_alias_leads_home(catalog: Catalog, id: str) -> None:
    gpu = catalog.gpu_by_id[id]
    for alias in gpu.aliases:
        assert matched(catalog, alias, gpu.memory_bytes >> 20, gpu.target).gpu == id


def test_laptop_gpu_is_not_matched_to_the_desktop_one(catalog: Catalog) -> None:
    match = matched(catalog, "NVIDIA GeForce RTX 4090 Laptop GPU", 16376, "sm_89")
    assert match.gpu != "rtx-4090"


def test_a_size_the_catalog_lacks_is_not_guessed(catalog: Catalog) -> None:
    match = matched(catalog, "NVIDIA GeForce RTX 4090", 49152, "sm_89")
    assert match.gpu is None
    assert match.candidates == ("rtx-4090",)
    assert match.why is not None
    assert match.why.id == "match.other-memory"


def test_memory_distinguishes_variants_with_the_same_driver_name(catalog: Catalog) -> None:
    assert matched(catalog, "NVIDIA GeForce RTX 3060", 8192, "sm_86").gpu == "rtx-3060-8gb"
    assert matched(catalog, "NVIDIA GeForce RTX 3060", 12288, "sm_86").gpu == "rtx-3060-12gb"


def test_wrong_instruction_set_is_rejected(catalog: Catalog) -> None:
    match = matched(catalog, "Tesla T4", 15360, "sm_90")
    assert match.gpu is None
    assert match.why is not None
    assert match.why.id == "match.other-target"


def test_a_slice_is_part_of_its_gpu(catalog: Catalog) -> None:
    match = matched(catalog, "NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4864, "sm_80")
    assert match.gpu == "a100-sxm-40gb"
    assert match.why is not None


def test_a_virtual_gpu_leaves_the_choice(catalog: Catalog) -> None:
    match = matched(catalog, "GRID A100-10C", 10240, "sm_80")
    assert match.gpu is None
    assert {"a100-sxm-40gb", "a100-pcie-80gb"} <= set(match.candidates)
    assert match.why is not None
    assert match.why.id == "match.several"


def test_unknown_name_is_reported(catalog: Catalog) -> None:
    match = matched(catalog, "NVIDIA Weird 9000", 1000, "sm_99")
    assert (match.gpu, match.candidates) == (None, ())
    assert match.why is not None
    assert match.why.id == "match.none"


def test_a_vendors_name_does_not_match_anothers_card(catalog: Catalog) -> None:
    assert matched(catalog, "Tesla T4", 15360, None, "amd").gpu is None


@pytest.mark.parametrize(
    ("name", "mib", "target", "id", "why"),
    [
        ("AMD Instinct MI300X OAM", 196592, "gfx942", "mi300x", None),
        ("AMD Instinct MI300X VF", 196592, "gfx942", "mi300x", None),
        ("AMD GPU gfx942", 196592, "gfx942", "mi300x", "match.by-target"),
        ("AMD GPU gfx90a", 65520, "gfx90a", None, "match.several"),
        ("AMD GPU", 65520, None, None, "match.none"),
        ("AMD Radeon RX 7900 XTX", 24560, "gfx1100", "rx-7900-xtx", None),
    ],
)
def test_amd(catalog: Catalog, name: str, mib: int, target: str | None, id: str | None, why: str | None) -> None:
    match = matched(catalog, name, mib, target, "amd")
    assert (match.gpu, match.why.id if match.why else None) == (id, why)


def test_a_partition_of_an_amd_gpu_has_a_part_of_its_memory(catalog: Catalog) -> None:
    sample = Sample(0, memory_bytes=24 << 30)
    whole = Card(0, "amd", "AMD Instinct MI300X OAM", sample, target="gfx942", partition="SPX/NPS1")
    part = Card(0, "amd", "AMD Instinct MI300X OAM", sample, target="gfx942", partition="CPX/NPS4")
    assert match_card(whole, catalog).gpu is None
    assert match_card(part, catalog).gpu == "mi300x"


@pytest.mark.parametrize(("name", "mib", "id"), [("Apple M2 Max", 65536, "apple-m2-max"), ("Apple M4", 16384, "apple-m4")])
def test_a_mac_may_have_less_memory_than_the_largest_sold(catalog: Catalog, name: str, mib: int, id: str) -> None:
    assert matched(catalog, name, mib, None, "apple").gpu == id
