"""A Korean post of 2015-11-19, after Tim Dettmers: one card for deep learning, NVIDIA or AMD, which for which budget.

Its memory formula waits for the issue that estimates memory; here are its cards.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

import pytest

from whichgpu.api.facts.catalog import select_gpus, select_instances
from whichgpu.api.workloads.compare import compare_hardware
from whichgpu.base.dates import first_day
from whichgpu.base.errors import UnknownName
from whichgpu.base.units import GB, GIB
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.select import GpuFilter, InstanceFilter, parse_capability
from whichgpu.catalog.store import Catalog

WRITTEN = date(2015, 11, 19)
# The post's cards: architecture, memory in GB, and the GB/s of the table it points to for bandwidths.
CARDS = {
    "GTX Titan X": ("Maxwell", 12, 336.5),
    "GTX 980 Ti": ("Maxwell", 6, 336.5),
    "GTX 980": ("Maxwell", 4, 224.0),
    "GTX 970": ("Maxwell", 4, 224.0),
    "GTX 960 4GB": ("Maxwell", 4, 112.0),
    "GTX Titan": ("Kepler", 6, 288.0),
    "GTX 680 4GB": ("Kepler", 4, 192.0),
    "GTX 580 3GB": ("Fermi", 3, 192.0),
}
NEW_FOR_OLD = [("GTX 970", "GTX 770"), ("GTX 980", "GTX 780"), ("GTX 980 Ti", "GTX 780 Ti"), ("GTX Titan X", "GTX Titan")]


@pytest.mark.parametrize("name", CARDS)
def test_card_was_sold_then_with_its_memory_and_bandwidth(name: str, gpu: Callable[[str], Gpu]) -> None:
    """Bandwidths are rounded in such tables (192.2, 192.3, 192.4): within 0.5%."""
    architecture, memory_gb, gbs = CARDS[name]
    row = gpu(name)
    assert row.architecture == architecture
    assert row.memory_marketed_bytes == memory_gb * GIB
    assert row.memory_bandwidth == pytest.approx(gbs * GB, rel=0.005)
    assert first_day(row.launch_date) < WRITTEN


def test_cards_side_by_side(catalog: Catalog) -> None:
    """All of the post's cards in one query, each by its full name, give a column each, in that order."""
    assert [column.name for column in compare_hardware(list(CARDS), catalog=catalog).compared] == list(CARDS)
    assert [row.name for row in select_gpus(list(CARDS), catalog=catalog).gpus] == list(CARDS)


def test_best_overall_has_largest_memory_and_no_less_bandwidth(gpu: Callable[[str], Gpu]) -> None:
    best = gpu("GTX Titan X")
    others = [gpu(name) for name in CARDS if name != "GTX Titan X"]
    assert all(best.memory_marketed_bytes > row.memory_marketed_bytes for row in others)
    assert all(best.memory_bandwidth >= row.memory_bandwidth for row in others)
    assert all(best.peaks["fp32"] > row.peaks["fp32"] for row in others)


def test_titan_x_of_2015_differs_from_that_of_2016(catalog: Catalog, gpu: Callable[[str], Gpu]) -> None:
    """The bare name has meant two cards since; the post's is the only one sold at its date."""
    both = select_gpus(["Titan X"], catalog=catalog).gpus
    then = select_gpus(["Titan X"], GpuFilter(as_of=WRITTEN), catalog=catalog).gpus
    assert len(both) == 2
    assert [row.id for row in then] == [gpu("GTX Titan X").id]


def test_gtx_970_has_its_memory_trouble_as_a_quirk(gpu: Callable[[str], Gpu]) -> None:
    """4 GB as the driver sees it, of which 3.5 GB are fast: only the quirk says so."""
    row = gpu("GTX 970")
    assert row.memory_bytes > 3.5 * GIB
    assert any("3.5 GB" in quirk and "0.5 GB" in quirk for quirk in row.quirks)
    assert not any("3.5 GB" in quirk for name in CARDS if name != "GTX 970" for quirk in gpu(name).quirks)


def test_gtx_970_beats_the_960_while_within_its_fast_part(gpu: Callable[[str], Gpu]) -> None:
    """Seven of its eight 32-bit channels serve the fast 3.5 GB."""
    card, cheaper = gpu("GTX 970"), gpu("GTX 960 4GB")
    assert card.memory_bandwidth * 7 / 8 > cheaper.memory_bandwidth
    assert card.peaks["fp32"] > cheaper.peaks["fp32"]


def test_slip_there_was_no_gtx_680_with_3gb(catalog: Catalog) -> None:
    """Slip: the post advises a GTX 680 3GB; a 256-bit card came with 2 or 4 GB, which the error names."""
    with pytest.raises(UnknownName) as caught:
        select_gpus(["GTX 680 3GB"], catalog=catalog)
    real = select_gpus(["GTX 680"], catalog=catalog).gpus
    assert {row.memory_label for row in real} == {"2 GB", "4 GB"}
    assert {row.name for row in real} <= set(caught.value.choices)
    assert all(any("3 GB" in quirk for quirk in row.quirks) for row in real)


def test_gtx_580_lacks_software(gpu: Callable[[str], Gpu]) -> None:
    """The post's only words against it. No release of TensorFlow or PyTorch ran on Fermi; CUDA ended with 8.0."""
    row = gpu("GTX 580 3GB")
    assert row.software is not None
    assert row.compute_capability == "2.0"
    assert row.software.toolkit_last == "8.0"
    assert row.software.tensorflow_last == row.software.pytorch_last == "none"


def test_older_architectures_lost_cuda_first(gpu: Callable[[str], Gpu]) -> None:
    """Fermi, Kepler GK104, Kepler GK110, Maxwell: each ended with a later toolkit than the one before."""
    ends = []
    for name in ("GTX 580 3GB", "GTX 680 4GB", "GTX Titan", "GTX 980"):
        software = gpu(name).software
        assert software is not None
        assert software.toolkit_last is not None
        ends.append(tuple(int(part) for part in software.toolkit_last.split(".")[:2]))
    assert ends == sorted(set(ends))


@pytest.mark.parametrize(("new", "old"), NEW_FOR_OLD)
def test_maxwell_over_kepler(new: str, old: str, gpu: Callable[[str], Gpu]) -> None:
    """The post: 900 series rather than 700. Class for class more fp32, more memory, more fp32 for a watt."""
    ours, theirs = gpu(new), gpu(old)
    assert (ours.architecture, theirs.architecture) == ("Maxwell", "Kepler")
    assert ours.peaks["fp32"] > theirs.peaks["fp32"]
    assert ours.memory_marketed_bytes > theirs.memory_marketed_bytes
    assert ours.tdp_watts is not None
    assert theirs.tdp_watts is not None
    assert ours.peaks["fp32"] / ours.tdp_watts > theirs.peaks["fp32"] / theirs.tdp_watts


def test_slip_bandwidth_alone_would_choose_kepler(gpu: Callable[[str], Gpu]) -> None:
    """Slip: the post holds bandwidth to be what counts and Maxwell to be faster; GTX 780 has more of it than GTX 980."""
    assert gpu("GTX 780").memory_bandwidth > 1.25 * gpu("GTX 980").memory_bandwidth
    assert gpu("GTX 980").peaks["fp32"] > gpu("GTX 780").peaks["fp32"]


def test_slip_fermi_is_not_ahead_of_kepler(gpu: Callable[[str], Gpu]) -> None:
    """Slip: the post ranks Fermi above Kepler; 580 and 680 have the same bandwidth, and the 580 under half the fp32."""
    fermi, kepler = gpu("GTX 580 3GB"), gpu("GTX 680 4GB")
    assert fermi.memory_bandwidth == pytest.approx(kepler.memory_bandwidth, rel=0.005)
    assert fermi.peaks["fp32"] < 0.5 * kepler.peaks["fp32"]


def test_cuda_is_nvidias_and_opencl_amds(catalog: Catalog) -> None:
    nvidia = select_gpus((), GpuFilter(vendor="nvidia"), catalog=catalog).gpus
    amd = select_gpus((), GpuFilter(vendor="amd"), catalog=catalog).gpus
    assert [row.id for row in nvidia if "cuda" not in row.supports] == []
    assert [row.id for row in amd if "opencl" not in row.supports] == []
    assert {row.vendor for row in select_gpus((), GpuFilter(supports=("cuda",)), catalog=catalog).gpus} == {"nvidia"}


def test_slip_opencl_is_not_amds_alone(gpu: Callable[[str], Gpu], catalog: Catalog) -> None:
    """Slip: the post gives each maker one interface. NVIDIA's drivers run OpenCL too, and AMD's cards got ROCm since."""
    assert [name for name in CARDS if "opencl" not in gpu(name).supports] == []
    assert {row.vendor for row in select_gpus((), GpuFilter(supports=("rocm",)), catalog=catalog).gpus} == {"amd"}


def test_tensorflow_needs_compute_capability_3_5(gpu: Callable[[str], Gpu]) -> None:
    """Of the post's cards the Maxwells and the GK110 Titan have it."""
    filter_ = GpuFilter(compute_capability=parse_capability("3.5+"))
    capable = [row for name in CARDS if filter_.matches(row := gpu(name))]
    assert {row.name for row in capable} == set(CARDS) - {"GTX 680 4GB", "GTX 580 3GB"}
    assert {row.compute_capability for row in capable} == {"3.5", "5.2"}
    assert all(row.software is not None and row.software.tensorflow_last not in (None, "none") for row in capable)


def test_slip_the_cheap_advice_fails_the_posts_own_rule(gpu: Callable[[str], Gpu]) -> None:
    """Slip: GTX 680 is advised as free of trouble, yet has compute capability 3.0 where the post requires 3.5."""
    assert gpu("GTX 680 4GB").compute_capability == "3.0"
    assert gpu("GTX 960 4GB").compute_capability == "5.2"


def test_aws_for_those_with_almost_no_money(catalog: Catalog) -> None:
    """All AWS had at that date were g2 machines: one or four GK104 GPUs of 4 GB, too old for TensorFlow by the post's rule."""
    rows = select_instances((), InstanceFilter(provider="aws", as_of=WRITTEN), catalog=catalog).instances
    assert {(row.instance, row.gpus) for row in rows} == {("g2.2xlarge", 1), ("g2.8xlarge", 4)}
    rented = [catalog.gpu_by_id[row.gpu] for row in rows]
    assert {row.memory_label for row in rented} == {"4 GB"}
    assert {row.compute_capability for row in rented} == {"3.0"}


def test_pascal_launched_when_the_post_expected_it(catalog: Catalog, gpu: Callable[[str], Gpu]) -> None:
    """Second or third quarter of 2016, much faster: the next Titan X has 1.66 times the fp32, within the post's year."""
    pascal = select_gpus(["pascal"], catalog=catalog).gpus
    first = min(first_day(row.launch_date) for row in pascal if row.segment == "consumer")
    assert date(2016, 4, 1) <= first <= date(2016, 9, 30)
    assert gpu("Titan X Pascal").peaks["fp32"] > 1.5 * gpu("GTX Titan X").peaks["fp32"]


def test_slip_40_gbit_is_not_the_link_between_the_cards(gpu: Callable[[str], Gpu]) -> None:
    """Slip: 40 Gbit/s within one computer is what a cluster's network card does; each card's PCIe carries more, one way."""
    for name in CARDS:
        pcie = gpu(name).pcie
        assert pcie is not None
        assert pcie.lanes == 16
        assert (pcie.bandwidth or 0) / 2 * 8 > 1.5 * 40e9
