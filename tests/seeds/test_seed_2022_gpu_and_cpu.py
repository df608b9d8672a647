"""A Chinese post of 2022-09-02: notes on a server, a gaming card and rented GPUs, and on server and desktop processors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date
from statistics import median

import pytest

from whichgpu.api.facts.catalog import select_instances
from whichgpu.api.workloads.compare import compare_hardware
from whichgpu.base.dates import first_day
from whichgpu.base.units import GB, GIB
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Cpu, Instance
from whichgpu.catalog.select import InstanceFilter
from whichgpu.catalog.store import Catalog

WRITTEN = date(2022, 9, 2)


def test_dgx_a100(instance: Callable[[str], Instance], catalog: Catalog) -> None:
    """Eight A100 of 80 GB, 640 GB together, 600 GB/s both ways between GPUs over NVLink."""
    server = instance("DGX A100 640GB")
    card = catalog.gpu_by_id[server.gpu]
    assert (server.provider, server.gpus, card.family) == ("nvidia", 8, "A100")
    assert card.memory_marketed_bytes == 80 * GIB
    assert server.gpus * card.memory_marketed_bytes == 640 * GIB
    assert server.interconnect is not None
    assert server.interconnect.bandwidth == 600 * GB
    assert card.link is not None
    assert (card.link.kind, card.link.bandwidth) == ("nvlink", 600 * GB)


def test_dgx_a100_by_its_short_name(catalog: Catalog) -> None:
    """The post writes plain DGX A100 and means 640 GB: the name must find both sizes, since it was sold with either."""
    instances = select_instances(["DGX A100"], catalog=catalog).instances
    assert {catalog.gpu_by_id[row.gpu].memory_label for row in instances} == {"40 GB", "80 GB"}


def test_slip_a100_is_312_not_320(gpu: Callable[[str], Gpu]) -> None:
    """Slip: 320 TFLOPS for one card; 16-bit on tensor cores, dense, is 312."""
    peaks = gpu("A100 SXM 80GB").peaks
    assert peaks["fp16"] == peaks["bf16"] == 312 * 10**12
    assert peaks["fp16"] != 320 * 10**12


def test_3090_ti_memory(gpu: Callable[[str], Gpu]) -> None:
    """24 GB, and 1 TB/s for 1008 GB/s."""
    row = gpu("GeForce 3090 Ti")
    assert row.memory_marketed_bytes == 24 * GIB
    assert round(row.memory_bandwidth / 10**12, 1) == 1.0


def test_slip_3090_ti_fp32_is_at_base_clock(gpu: Callable[[str], Gpu]) -> None:
    """Slip: 33 TFLOPS is cores x 2 x base clock (33.5, cut off); at boost clock it is 40, and a quirk warns of it."""
    row = gpu("RTX 3090 Ti")
    assert row.cores is not None
    assert row.base_clock_hz is not None
    assert row.boost_clock_hz is not None
    assert int(row.cores * 2 * row.base_clock_hz / 1e12) == 33
    assert round(row.cores * 2 * row.boost_clock_hz / 1e12) == 40
    assert row.peaks["fp32"] == 40 * 10**12
    assert any("base clock" in quirk for quirk in row.quirks)


def test_slip_3090_ti_fp16_is_with_fp16_accumulate(gpu: Callable[[str], Gpu]) -> None:
    """Slip: 160 TFLOPS is with fp16 accumulation; with fp32 accumulation, as training needs, a GeForce has half."""
    peaks = gpu("RTX 3090 Ti").peaks
    assert peaks["fp16_fp16acc"] == 160 * 10**12
    assert peaks["fp16"] == 80 * 10**12


def test_server_gpu_against_gaming_card(catalog: Catalog) -> None:
    """Side by side the A100 has 3.9 times the fp16, 2.0 times the bandwidth, 3.3 times the memory; the 3090 Ti more fp32."""
    server, gaming = (column.gpu for column in compare_hardware(["A100 SXM 80GB", "RTX 3090 Ti"], catalog=catalog).compared)
    assert server.peaks["fp16"] / gaming.peaks["fp16"] == pytest.approx(3.9, abs=0.05)
    assert server.memory_bandwidth / gaming.memory_bandwidth == pytest.approx(2.0, abs=0.05)
    assert server.memory_marketed_bytes / gaming.memory_marketed_bytes == pytest.approx(3.3, abs=0.05)
    assert gaming.peaks["fp32"] > 2 * server.peaks["fp32"]


@pytest.mark.parametrize(("provider", "kind"), [("autodl", "gpu-cloud"), ("colab", "notebook"), ("aws", "hyperscaler")])
def test_providers_of_the_post(provider: str, kind: str, catalog: Catalog) -> None:
    assert {row.kind for row in catalog.providers if row.id == provider} == {kind}
    assert select_instances((), InstanceFilter(provider=provider, as_of=WRITTEN), catalog=catalog).instances


@pytest.mark.parametrize("provider", ["aws", "colab"])
def test_t4_could_be_rented(provider: str, catalog: Catalog) -> None:
    """The post names the T4 on AWS; Colab gave it away."""
    rows = select_instances((), InstanceFilter(provider=provider, gpu_ids=frozenset({"t4"}), as_of=WRITTEN), catalog=catalog)
    assert min(row.gpus for row in rows.instances) == 1


def test_cpu_cores_per_gpu(instance: Callable[[str], Instance]) -> None:
    """The post wants 4 to 8 for each GPU: smallest AWS machines with a T4 have 4 and 8 (threads), Colab's free one 2."""
    assert instance("g4dn.xlarge").vcpus == 4
    assert instance("g4dn.2xlarge").vcpus == 8
    assert instance("colab/T4").vcpus == 2


def test_dgx_a100_host(instance: Callable[[str], Instance], catalog: Catalog) -> None:
    """Two processors of 64 cores, the most the post knows of: 16 cores for each GPU."""
    server = instance("DGX A100 640GB")
    (cpu,) = (row for row in catalog.cpus if row.id in server.cpu)
    assert (server.cpu_sockets, cpu.cores, cpu.threads) == (2, 64, 128)
    assert server.vcpus == 2 * 128
    assert (cpu.ecc, cpu.sockets_max) == ("yes", 2)


def segment(catalog: Catalog, name: str) -> list[Cpu]:
    """Processors of a segment; the comparisons below mean nothing with few."""
    rows = [cpu for cpu in catalog.cpus if cpu.segment == name]
    assert len(rows) >= 8, name
    return rows


def middle(values: Iterable[int | None]) -> float:
    """Median of the known values, which must be the majority."""
    listed = list(values)
    present = [value for value in listed if value is not None]
    assert len(present) > 0.8 * len(listed)
    return median(present)


@pytest.mark.parametrize(
    ("word", "vendor", "segments"),
    [
        ("Xeon", "intel", {"server", "workstation", "cloud"}),
        ("EPYC", "amd", {"server", "cloud"}),
        ("Core", "intel", {"desktop", "workstation"}),
        ("Ryzen", "amd", {"desktop", "workstation"}),
    ],
)
def test_names_distinguish_consumer_from_server_gpus(word: str, vendor: str, segments: set[str], catalog: Catalog) -> None:
    """Core and Ryzen for the home, Xeon and EPYC for servers; workstation parts (Threadripper, Xeon W) lie between."""
    rows = [cpu for cpu in catalog.cpus if word in cpu.name.split()]
    assert len(rows) >= 3
    assert {cpu.vendor for cpu in rows} == {vendor}
    assert {cpu.segment for cpu in rows} <= segments


def test_server_processors_have_ecc(catalog: Catalog) -> None:
    assert [cpu.id for cpu in segment(catalog, "server") if cpu.ecc != "yes"] == []


def test_slip_some_desktop_processors_take_ecc_memory(catalog: Catalog) -> None:
    """Slip: the post says desktop processors have no ECC. True of older Core, not of Ryzen and later Core on some boards."""
    desktop = segment(catalog, "desktop")
    assert {cpu.vendor for cpu in desktop if cpu.ecc == "no"} == {"intel"}
    assert {cpu.vendor for cpu in desktop if cpu.ecc == "board"} == {"intel", "amd"}
    assert all("Ryzen" in cpu.name for cpu in desktop if cpu.vendor == "amd" and cpu.ecc == "board")
    # on any board: only where the socket takes registered memory
    assert {cpu.memory_channels for cpu in desktop if cpu.ecc == "yes"} <= {4}
    assert [cpu.id for cpu in desktop if cpu.ecc is None] == []


def test_server_processors_work_in_pairs_or_more(catalog: Catalog) -> None:
    """As far as the catalog knows, which is for most; parts sold for a single socket end in P."""
    server = segment(catalog, "server")
    assert middle(cpu.sockets_max for cpu in server) == 2
    assert [cpu.id for cpu in server if cpu.sockets_max == 1 and not cpu.name.endswith("P")] == []


def test_desktop_processors_work_alone(catalog: Catalog) -> None:
    assert [cpu.id for cpu in segment(catalog, "desktop") if cpu.sockets_max != 1] == []


def test_server_processors_have_more_cores(catalog: Catalog) -> None:
    """Middle against middle, at least one and a half times."""
    server, desktop = segment(catalog, "server"), segment(catalog, "desktop")
    assert middle(cpu.cores for cpu in server) >= 1.5 * middle(cpu.cores for cpu in desktop)


def test_desktop_processors_have_higher_clocks(catalog: Catalog) -> None:
    """Middle against middle, base and boost, by a quarter or more."""
    server, desktop = segment(catalog, "server"), segment(catalog, "desktop")
    assert middle(cpu.base_clock_hz for cpu in desktop) > 1.25 * middle(cpu.base_clock_hz for cpu in server)
    assert middle(cpu.boost_clock_hz for cpu in desktop) > 1.25 * middle(cpu.boost_clock_hz for cpu in server)


def test_server_processors_have_more_memory_channels_and_lanes(catalog: Catalog) -> None:
    """What feeds several GPUs, which the post leaves out."""
    server, desktop = segment(catalog, "server"), segment(catalog, "desktop")
    assert middle(cpu.memory_channels for cpu in server) > 2 * middle(cpu.memory_channels for cpu in desktop)
    assert middle(cpu.pcie_lanes for cpu in server) > 2 * middle(cpu.pcie_lanes for cpu in desktop)


def test_up_to_64_cores_in_2022(catalog: Catalog) -> None:
    """1 to 64 physical cores among x86 processors up to the post's date."""
    then = [
        cpu
        for cpu in catalog.cpus
        if cpu.vendor in ("intel", "amd") and cpu.launch_date is not None and first_day(cpu.launch_date) <= WRITTEN
    ]
    assert max(cpu.cores or 0 for cpu in then) == 64


def test_threads_are_no_fewer_than_cores(catalog: Catalog) -> None:
    """The post's hyper-threading: as many threads as cores or, mostly, twice as many."""
    counts = [(cpu.cores, cpu.threads) for cpu in catalog.cpus if cpu.cores is not None and cpu.threads is not None]
    assert len(counts) > 40
    assert all(cores <= threads <= 2 * cores for cores, threads in counts)
    assert sum(threads == 2 * cores for cores, threads in counts) > 0.5 * len(counts)
