"""A Korean post of 2024-04-08: V100, A100, H100 and H200 for inference, in a table a language model helped to make."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from whichgpu.api.facts.catalog import select_gpus
from whichgpu.base.units import GB, GIB
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Instance
from whichgpu.catalog.select import GpuFilter
from whichgpu.catalog.store import Catalog

V100, A100, A100_80, H100, H200 = "V100 SXM 16GB", "A100 SXM 40GB", "A100 SXM 80GB", "H100 SXM", "H200 SXM"
COLUMNS = (V100, A100, H100, H200)


def test_year(gpu: Callable[[str], Gpu]) -> None:
    assert [gpu(name).launch_date[:4] for name in COLUMNS] == ["2017", "2020", "2022", "2023"]


def test_memory_type(gpu: Callable[[str], Gpu]) -> None:
    """HBM2, HBM2e, HBM3 and HBM3e, the A100 being the 80 GB one (see the slip below)."""
    assert [gpu(name).memory_type for name in (V100, A100_80, H100, H200)] == ["HBM2", "HBM2e", "HBM3", "HBM3e"]


@pytest.mark.parametrize(("name", "memory_gb"), [(V100, 16), (A100, 40), (A100_80, 80), (H100, 80), (H200, 141)])
def test_memory_size(name: str, memory_gb: int, gpu: Callable[[str], Gpu]) -> None:
    """As marketed; the driver reports up to 0.5% less."""
    row = gpu(name)
    assert row.memory_marketed_bytes == memory_gb * GIB
    assert 0.995 * memory_gb * GIB <= row.memory_bytes <= memory_gb * GIB


def test_a100_has_40_or_80_gb_only(catalog: Catalog) -> None:
    assert {row.memory_label for row in select_gpus(["A100"], catalog=catalog).gpus} == {"40 GB", "80 GB"}


@pytest.mark.parametrize(("name", "gbs"), [(V100, 900), (H200, 4800)])
def test_memory_bandwidth(name: str, gbs: int, gpu: Callable[[str], Gpu]) -> None:
    assert gpu(name).memory_bandwidth == gbs * GB


def test_slip_a100_column_mixes_two_cards(gpu: Callable[[str], Gpu]) -> None:
    """Slip: HBM2e and 1.5 TB/s are not one card's: 40 GB is HBM2 at 1555 GB/s, 80 GB is HBM2e at 2039 (PCIe 1935)."""
    small, large, card = gpu(A100), gpu(A100_80), gpu("A100 PCIe 80GB")
    assert (small.memory_type, small.memory_bandwidth) == ("HBM2", 1555 * GB)
    assert (large.memory_type, large.memory_bandwidth) == ("HBM2e", 2039 * GB)
    assert (card.memory_type, card.memory_bandwidth) == ("HBM2e", 1935 * GB)
    assert int(small.memory_bandwidth / 10**11) == 15
    assert int(large.memory_bandwidth / 10**11) != 15


def test_slip_h100_bandwidth_depends_on_the_form(gpu: Callable[[str], Gpu]) -> None:
    """Slip: 3 TB/s is neither: HBM3 at 3.35 TB/s as SXM, HBM2e at 2.0 TB/s as PCIe card."""
    module, card = gpu(H100), gpu("H100 PCIe")
    assert (module.memory_type, module.memory_bandwidth) == ("HBM3", 3350 * GB)
    assert card.memory_type == "HBM2e"
    assert round(card.memory_bandwidth / 10**12, 1) == 2.0
    assert all(abs(row.memory_bandwidth - 3000 * GB) > 0.1 * 3000 * GB for row in (module, card))


@pytest.mark.parametrize(
    ("name", "stated", "links", "total"), [(V100, 25, 6, 300), (A100, 50, 12, 600), (H100, 100, 18, 900), (H200, None, 18, 900)]
)
def test_slip_nvlink_row(name: str, stated: int | None, links: int, total: int, gpu: Callable[[str], Gpu]) -> None:
    """Slip: 25, 50, 100 GB/s and a question mark. In each a link does 50 GB/s both ways (25 one way); they differ in links."""
    link = gpu(name).link
    assert link is not None
    assert link.bandwidth is not None
    assert link.kind == "nvlink"
    assert link.bandwidth == total * GB
    assert link.bandwidth / links == 50 * GB
    assert stated is None or link.bandwidth > 8 * stated * GB


def test_slip_nvlink_row_fits_no_reading(gpu: Callable[[str], Gpu]) -> None:
    """Slip: totals grow as 1 : 2 : 3 and single links not at all, where the row grows as 1 : 2 : 4."""
    totals = [link.bandwidth for name in COLUMNS[:3] if (link := gpu(name).link) is not None and link.bandwidth is not None]
    growth = [total / totals[0] for total in totals]
    assert growth == [1, 2, 3]
    assert growth != [stated / 25 for stated in (25, 50, 100)]


@pytest.mark.parametrize(
    ("feature", "having"), [("tensor-cores", COLUMNS), ("bf16", COLUMNS[1:]), ("flash-attention", COLUMNS[1:])]
)
def test_feature_rows(feature: str, having: tuple[str, ...], catalog: Catalog) -> None:
    """As the command line does, `gpus --supports`; all variants of a column agree."""
    gpus = select_gpus(list(COLUMNS), GpuFilter(supports=(feature,)), catalog=catalog).gpus
    assert tuple(row.name for row in gpus) == having
    families = ["V100", "A100", "H100", "H200"]
    every = select_gpus(families, catalog=catalog).gpus
    assert {row.family for row in every if feature in row.supports} == {row.family for row in gpus}
    assert {row.family for row in every if feature not in row.supports} == set(families) - {row.family for row in gpus}


def test_flash_attention_2_was_the_newest(gpu: Callable[[str], Gpu]) -> None:
    """The post knows version 2: from Ampere on. The V100 got none before or since; Hopper got version 3 after the post."""
    assert ["flash-attention-2" in gpu(name).supports for name in COLUMNS] == [False, True, True, True]
    assert not any("flash-attention" in feature for feature in gpu(V100).supports)
    assert all("flash-attention-3" in gpu(name).supports for name in (H100, H200))


def test_missing_features_of_the_v100_are_listed(gpu: Callable[[str], Gpu]) -> None:
    words = " ".join(gpu(V100).quirks)
    assert "bf16" in words
    assert "FlashAttention 2" in words


def test_bf16_rate_equals_fp16_if_supported(gpu: Callable[[str], Gpu]) -> None:
    assert "bf16" not in gpu(V100).peaks
    for name in COLUMNS[1:]:
        assert gpu(name).peaks["bf16"] == gpu(name).peaks["fp16"]


def test_v100_was_the_first_with_tensor_cores(catalog: Catalog) -> None:
    gpus = select_gpus((), GpuFilter(vendor="nvidia", supports=("tensor-cores",)), sort="launch_date", catalog=catalog).gpus
    assert gpus[0].family == "V100"


def test_sparse_tensor_cores_from_a100_on(gpu: Callable[[str], Gpu]) -> None:
    assert ["sparsity" in gpu(name).supports for name in COLUMNS] == [False, True, True, True]


@pytest.mark.parametrize(("bits", "fits"), [(8, True), (16, True), (32, False)])
def test_a_7b_model_on_one_v100(bits: int, fits: bool, gpu: Callable[[str], Gpu]) -> None:
    """Weights alone: 7, 14 and 28 GB against 16 GB."""
    assert (7 * GB * bits // 8 < gpu(V100).memory_bytes) is fits


@pytest.mark.parametrize("name", ["dgx-1-v100-16gb", "dgx-a100-640gb", "dgx-h100", "dgx-h200"])
def test_servers_of_each_have_infiniband(name: str, instance: Callable[[str], Instance], catalog: Catalog) -> None:
    """The post's InfiniBand row: yes for all four, shown by the maker's own servers."""
    row = instance(name)
    assert row.network_kind == "infiniband"
    assert catalog.gpu_by_id[row.gpu].family in ("V100", "A100", "H100", "H200")


def test_each_generation_is_ahead_in_memory_and_bandwidth(gpu: Callable[[str], Gpu]) -> None:
    """Basis of the post's relative performance for decoding; H200 differs from H100 in memory alone."""
    rows = [gpu(name) for name in COLUMNS]
    for older, newer in pairwise(rows):
        assert newer.memory_bytes > older.memory_bytes
        assert newer.memory_bandwidth > 1.4 * older.memory_bandwidth
    assert rows[3].peaks["fp16"] == pytest.approx(rows[2].peaks["fp16"], rel=0.001)
