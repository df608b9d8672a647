"""A Vietnamese post of 2021-05-16, after an overview by an AWS specialist: the GPU families of AWS and when to use which.

"As of the post" is what AWS rented that day. INT1, which the post lists for Turing, is no dtype of the catalog.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

import pytest

from whichgpu.api.facts import catalog as verbs
from whichgpu.api.facts.catalog import select_instances
from whichgpu.base.dates import first_day
from whichgpu.base.errors import UnknownName
from whichgpu.base.units import GIB
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Instance
from whichgpu.catalog.select import InstanceFilter
from whichgpu.catalog.store import Catalog

WRITTEN = date(2021, 5, 16)
# the post's families, by how the names of their machines begin
FAMILIES = {"P4": ("p4d",), "P3": ("p3", "p3dn"), "G4": ("g4dn", "g4ad"), "P2": ("p2",), "G3": ("g3", "g3s")}
PRECISIONS = ("fp64", "fp32", "fp16", "bf16", "tf32", "int8", "int4", "tensor-cores")


def rented(catalog: Catalog, *beginnings: str) -> list[Instance]:
    """AWS instances as of the post whose names have this prefix."""
    rows = select_instances([f"aws/{text}." for text in beginnings], InstanceFilter(as_of=WRITTEN), catalog=catalog).instances
    assert {row.instance.split(".")[0] for row in rows} == set(beginnings)
    return list(rows)


def gpus_of(catalog: Catalog, *beginnings: str) -> list[Gpu]:
    """Their GPUs, each once."""
    return [catalog.gpu_by_id[id] for id in dict.fromkeys(row.gpu for row in rented(catalog, *beginnings))]


def all_families(catalog: Catalog) -> list[Instance]:
    return [row for beginnings in FAMILIES.values() for row in rented(catalog, *beginnings)]


@pytest.mark.parametrize(
    ("beginning", "family", "architecture", "memory_gb"),
    [
        ("p4d", "A100", "Ampere", 40),
        ("p3", "V100", "Volta", 16),
        ("p3dn", "V100", "Volta", 32),
        ("g4dn", "T4", "Turing", 16),
        ("p2", "K80", "Kepler", 12),
        ("g3", "M60", "Maxwell", 8),
    ],
)
def test_gpu_generation_and_memory(beginning: str, family: str, architecture: str, memory_gb: int, catalog: Catalog) -> None:
    """Memory is per GPU as marketed; of a K80 or M60 AWS rents single dies."""
    (row,) = gpus_of(catalog, beginning)
    assert (row.family, row.architecture) == (family, architecture)
    assert row.memory_marketed_bytes == memory_gb * GIB


def test_slip_g4ad_is_not_turing(catalog: Catalog) -> None:
    """Slip: one table calls all of G4 NVIDIA Turing with tensor cores; G4ad has 8 GB, as stated, on an AMD Pro V520 without."""
    (row,) = gpus_of(catalog, "g4ad")
    assert row.memory_marketed_bytes == 8 * GIB
    assert (row.vendor, row.name) == ("amd", "Pro V520")
    assert row.architecture != "Turing"
    assert "tensor-cores" not in row.supports
    assert "cuda" not in row.supports


@pytest.mark.parametrize(
    ("beginning", "stated", "left_out", "nominal"),
    [
        ("p4d", "fp64 fp32 fp16 int8 bf16 tf32 tensor-cores", "int4", ""),
        ("p3", "fp64 fp32 fp16 tensor-cores", "int8", ""),
        ("g4dn", "fp64 fp32 fp16 tensor-cores int8 int4", "", "fp64"),
        ("p2", "fp64 fp32", "", ""),
        ("g3", "fp32", "", ""),
    ],
)
def test_supported_precisions(beginning: str, stated: str, left_out: str, nominal: str, catalog: Catalog) -> None:
    """Slips: the post leaves out int4 on A100 and int8 (dp4a) on V100, and counts the T4's fp64, which is 1/32 of its fp32."""
    (row,) = gpus_of(catalog, beginning)
    usable = {name for name in PRECISIONS if name in row.supports} | ({"fp32"} if "fp32" in row.peaks else set())
    assert usable == (set(stated.split()) | set(left_out.split())) - set(nominal.split())
    for name in nominal.split():
        assert 0 < row.peaks[name] < row.peaks["fp32"] / 30


@pytest.mark.parametrize(("beginning", "generation", "gbs"), [("p4d", "3", 600), ("p3", "2", 300), ("p3dn", "2", 300)])
def test_nvlink_families(beginning: str, generation: str, gbs: int, catalog: Catalog) -> None:
    (row,) = gpus_of(catalog, beginning)
    assert row.link is not None
    assert (row.link.kind, row.link.generation, row.link.bandwidth) == ("nvlink", generation, gbs * 10**9)
    several = [machine for machine in rented(catalog, beginning) if machine.gpus > 1]
    assert several
    assert {machine.interconnect.kind for machine in several if machine.interconnect} <= {"nvlink", "nvswitch"}


@pytest.mark.parametrize("beginning", ["g4dn", "g4ad", "p2", "g3"])
def test_pcie_families(beginning: str, catalog: Catalog) -> None:
    (row,) = gpus_of(catalog, beginning)
    assert row.link is None
    several = [machine for machine in rented(catalog, beginning) if machine.gpus > 1]
    assert several
    assert {machine.interconnect.kind if machine.interconnect else None for machine in several} == {"pcie"}


@pytest.mark.parametrize(
    ("name", "count", "family", "memory_gb"),
    [
        ("p4d.24xlarge", 8, "A100", 40),
        ("p3dn.24xlarge", 8, "V100", 32),
        ("p3.2xlarge", 1, "V100", 16),
        ("p3.8xlarge", 4, "V100", 16),
        ("p3.16xlarge", 8, "V100", 16),
        *((f"g4dn.{size}", 1, "T4", 16) for size in ("xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge")),
    ],
)
def test_the_list(
    name: str, count: int, family: str, memory_gb: int, instance: Callable[[str], Instance], catalog: Catalog
) -> None:
    row = instance(name)
    gpu = catalog.gpu_by_id[row.gpu]
    assert (row.provider, row.gpus) == ("aws", count)
    assert (gpu.family, gpu.memory_marketed_bytes) == (family, memory_gb * GIB)


def test_p4d_network(instance: Callable[[str], Instance], catalog: Catalog) -> None:
    """400 Gbit/s together, the most of any AWS machine as of the post."""
    assert instance("p4d.24xlarge").network_gbps == 400
    assert max(row.network_gbps or 0 for row in all_families(catalog) if row.instance != "p4d.24xlarge") < 400


def test_p4_was_one_machine(catalog: Catalog) -> None:
    """The one with 80 GB per GPU, p4de, came a year after the post."""
    as_of = select_instances(["aws/p4"], InstanceFilter(as_of=WRITTEN), catalog=catalog).instances
    now = select_instances(["aws/p4"], catalog=catalog).instances
    assert [row.instance for row in as_of] == ["p4d.24xlarge"]
    assert "p4de.24xlarge" in {row.instance for row in now}


def test_largest_gpu_memory(catalog: Catalog) -> None:
    """p4d first and p3dn second, both per GPU and for the whole machine."""
    rows = all_families(catalog)
    per_gpu = sorted(rows, key=lambda row: -(row.gpu_memory_bytes or 0))
    together = sorted(rows, key=lambda row: -(row.gpu_memory_bytes or 0) * row.gpus)
    assert [row.instance for row in per_gpu[:2]] == ["p4d.24xlarge", "p3dn.24xlarge"]
    assert [row.instance for row in together[:2]] == ["p4d.24xlarge", "p3dn.24xlarge"]


def test_gpus_in_one_machine(catalog: Catalog) -> None:
    assert {row.gpus for row in all_families(catalog)} == {1, 2, 4, 8, 16}


def test_slip_memory_sizes_of_the_overview(catalog: Catalog) -> None:
    """Slip: the overview has GPUs of 8, 16 and 32 GB; the post's own sections add the K80's 12 and the A100's 40."""
    sizes = {catalog.gpu_by_id[row.gpu].memory_marketed_bytes // GIB for row in all_families(catalog)}
    assert sizes != {8, 16, 32}
    assert sizes == {8, 12, 16, 32, 40}


def test_architectures_of_the_overview(catalog: Catalog) -> None:
    """The five NVIDIA ones; G4ad's, from AMD, is not among them."""
    gpus = [catalog.gpu_by_id[row.gpu] for row in all_families(catalog)]
    assert {gpu.architecture for gpu in gpus if gpu.vendor == "nvidia"} == {"Ampere", "Turing", "Volta", "Maxwell", "Kepler"}


@pytest.mark.parametrize(
    ("feature", "families"),
    [("tensor-cores", {"P4", "P3", "G4"}), ("fp64", {"P4", "P3", "P2"}), ("fp16", {"P4", "P3", "G4"}), ("bf16", {"P4"})],
)
def test_i_need_this_feature(feature: str, families: set[str], catalog: Catalog) -> None:
    """fp64 means at least a quarter of the fp32 rate, as the post does when it comes to use."""
    assert _with(catalog, feature) == families


def test_slip_int8_is_not_g4s_alone(catalog: Catalog) -> None:
    """Slip: for int8 the post names G4 only; A100 tensor cores take it at 4.8 times the T4's rate, V100 has dp4a."""
    assert _with(catalog, "int8") != {"G4"}
    assert _with(catalog, "int8") == {"P4", "P3", "G4"}
    (ampere,), (turing,) = gpus_of(catalog, "p4d"), gpus_of(catalog, "g4dn")
    assert ampere.peaks["int8"] == 4.8 * turing.peaks["int8"]


@pytest.mark.parametrize("name", ["P40", "P4"])
def test_slip_int8_is_older_than_g4(name: str, gpu: Callable[[str], Gpu]) -> None:
    """Slip: Pascal cards made for inference had int8 dot products (dp4a) two years before the T4, four times their fp32."""
    row = gpu(name)
    assert "int8" in row.supports
    assert row.peaks["int8"] == pytest.approx(4 * row.peaks["fp32"], rel=0.005)
    assert first_day(row.launch_date) < first_day(gpu("T4").launch_date)


def _with(catalog: Catalog, feature: str) -> set[str]:
    """Families with an instance whose GPU supports it."""
    return {name for name, starts in FAMILIES.items() if any(feature in gpu.supports for gpu in gpus_of(catalog, *starts))}


def test_slip_t100_is_the_t4(gpu: Callable[[str], Gpu], catalog: Catalog) -> None:
    """Slip: the post writes that a T100 trains far slower than V100 and A100. There is none; the T4 of G4dn is meant."""
    with pytest.raises(UnknownName):
        verbs.select_gpus(["T100"], catalog=catalog)
    (t4,) = gpus_of(catalog, "g4dn")
    assert t4.name == "T4"
    assert 1.5 * t4.peaks["fp16"] < gpu("V100 SXM 16GB").peaks["fp16"] < gpu("A100 SXM 40GB").peaks["fp16"]
    assert 2 * t4.memory_bandwidth < gpu("V100 SXM 16GB").memory_bandwidth < gpu("A100 SXM 40GB").memory_bandwidth


def test_order_for_training(catalog: Catalog) -> None:
    """P3 before G4 before P2 before G3: the order of their memory bandwidth, and of memory where it differs."""
    best = [gpus_of(catalog, name)[0] for name in ("p3", "g4dn", "p2", "g3")]
    assert best == sorted(best, key=lambda gpu: -gpu.memory_bandwidth)
    assert best == sorted(best, key=lambda gpu: -gpu.memory_marketed_bytes)
    # fp32 alone would swap the last two: the post's order is not of peaks
    assert best[3].peaks["fp32"] > best[2].peaks["fp32"]


def test_g4dn_sizes_differ_in_host_only(catalog: Catalog) -> None:
    """Larger single-GPU sizes have more vCPUs and main memory around the same T4."""
    single = sorted((row for row in rented(catalog, "g4dn") if row.gpus == 1), key=lambda row: row.vcpus or 0)
    assert [row.vcpus for row in single] == [4, 8, 16, 32, 64]
    assert [(row.ram_bytes or 0) // GIB for row in single] == [16, 32, 64, 128, 256]


def test_inf1_is_amazons_own_chip_for_inference(catalog: Catalog) -> None:
    (row,) = gpus_of(catalog, "inf1")
    assert row.vendor == "aws"
    assert "inference" in " ".join(row.quirks).lower()
    assert {"int8", "bf16", "fp16"} <= set(row.supports)
    assert "cuda" not in row.supports


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("p3.2xlarge", ["p", "3", "2xlarge"]),
        ("p3dn.24xlarge", ["p", "3", "d", "n", "24xlarge"]),
        ("p4d.24xlarge", ["p", "4", "d", "24xlarge"]),
        ("inf1.xlarge", ["inf", "1", "xlarge"]),
    ],
)
def test_instance_names_are_parsed(name: str, parts: list[str], catalog: Catalog) -> None:
    """The post's four examples fall into series, generation, letters and size, and every part has a meaning."""
    answer = select_instances([name], catalog=catalog).name_parts
    assert [part.part for part in answer] == parts
    assert [part.kind for part in answer] == ["series", "generation", *["letters"] * (len(parts) - 3), "size"]
    assert [part.part for part in answer if not part.meaning or not part.sources] == []


@pytest.mark.parametrize(
    ("name", "word"), [("p3.2xlarge", "training"), ("g4dn.xlarge", "graphics"), ("inf1.xlarge", "inference")]
)
def test_meaning_of_the_series(name: str, word: str, catalog: Catalog) -> None:
    meaning = select_instances([name], catalog=catalog).name_parts[0].meaning
    assert meaning is not None
    assert word in meaning


@pytest.mark.parametrize(("part", "word"), [("d", "disk"), ("n", "network")])
def test_letters_the_post_could_not_read(part: str, word: str, catalog: Catalog, instance: Callable[[str], Instance]) -> None:
    """The post leaves the letters after the digit unexplained; p3dn has the disk and the network that p3 lacks."""
    meanings = {piece.part: piece.meaning or "" for piece in select_instances(["p3dn.24xlarge"], catalog=catalog).name_parts}
    assert word in meanings[part]
    plain, lettered = instance("p3.16xlarge"), instance("p3dn.24xlarge")
    assert plain.local_disk_bytes == 0
    assert (lettered.local_disk_bytes or 0) > 0
    assert (lettered.network_gbps or 0) > (plain.network_gbps or 0)


def test_higher_digit_is_newer(catalog: Catalog) -> None:
    def first(*beginnings: str) -> date:
        return min(first_day(row.first_seen) for row in rented(catalog, *beginnings) if row.first_seen)

    assert first("p2") < first("p3", "p3dn") < first("p4d")
    assert first("g3", "g3s") < first("g4dn", "g4ad")


def test_metal_is_the_only_size_not_in_xlarge(catalog: Catalog) -> None:
    rows = [*all_families(catalog), *rented(catalog, "inf1")]
    assert [row.instance for row in rows if not row.instance.endswith("xlarge")] == ["g4dn.metal"]


def test_sizes_count_vcpus(catalog: Catalog) -> None:
    """The post guesses that 2xlarge, 4xlarge … give the size: each is that many times the 4 vCPUs of an xlarge."""
    rows = [row for row in all_families(catalog) if row.instance.endswith("xlarge")]
    assert len(rows) > 15
    for row in rows:
        times = row.instance.split(".")[1].removesuffix("xlarge") or "1"
        assert row.vcpus == 4 * int(times), row.instance
