"""A Korean post of 2019-09-08: cloud GPUs and the GFLOPS of every Tesla chip from its cores and clocks.

Its prices wait for the issue that brings prices; here are its chips, and the machines and regions its tables name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from math import asin, cos, radians, sin, sqrt

import pytest

from whichgpu.api.context import Context
from whichgpu.api.facts.catalog import regions, select_instances
from whichgpu.base.dates import first_day
from whichgpu.base.units import GIB
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Region
from whichgpu.catalog.select import InstanceFilter
from whichgpu.catalog.store import Catalog

WRITTEN = date(2019, 9, 8)
LIBRARIES = ("cupy", "numba", "pytorch", "jax")


@dataclass(frozen=True)
class Chip:
    """A line of the post's list; figures are of the whole board, None where the post has none or slips (tested apart)."""

    name: str
    cores: int
    base_mhz: int | None
    boost_mhz: int | None
    base_gflops: int | None
    boost_gflops: int | None
    memory_gb: int
    launched: str | None


CHIPS = (
    Chip("T4", 2560, 585, 1590, None, None, 16, "2018-09"),
    Chip("V100 SXM 16GB", 5120, None, None, None, None, 16, None),
    Chip("V100 SXM 32GB", 5120, None, None, None, None, 32, None),
    Chip("P100 SXM 16GB", 3584, 1328, 1480, 9519, 10609, 16, "2016-04"),
    Chip("P40", 3840, 1303, 1531, 10007, 11758, 24, "2016-09"),
    Chip("P4", 2560, 810, 1063, 4147, 5443, 8, "2016-09"),
    Chip("M60", 4096, 899, 1178, 7365, 9650, 2 * 8, "2015-08"),
    Chip("M6", 1536, 722, 1051, 2218, 3229, 8, "2015-08"),
    Chip("K80", 4992, None, 875, None, 8736, 2 * 12, "2014-11"),
    Chip("K40", 2880, 745, 875, 4291, 5040, 12, None),
)


def each(*needed: str) -> pytest.MarkDecorator:
    """One test for each chip whose line states all of these."""
    chips = [chip for chip in CHIPS if all(getattr(chip, name) is not None for name in needed)]
    return pytest.mark.parametrize("chip", chips, ids=lambda chip: chip.name)


def gflops(gpu: Gpu, clock_hz: int | None) -> float:
    """Single-precision rate of the whole board: cores of all dies x 2 operations x clock."""
    assert gpu.cores is not None
    assert clock_hz is not None
    return gpu.cores * gpu.dies * 2 * clock_hz / 1e9


@each("cores")
def test_cores_of_the_board(chip: Chip, gpu: Callable[[str], Gpu]) -> None:
    row = gpu(chip.name)
    assert row.cores is not None
    assert row.cores * row.dies == chip.cores


@each("base_mhz")
def test_base_clock(chip: Chip, gpu: Callable[[str], Gpu]) -> None:
    assert gpu(chip.name).base_clock_hz == (chip.base_mhz or 0) * 10**6


@each("boost_mhz")
def test_boost_clock(chip: Chip, gpu: Callable[[str], Gpu]) -> None:
    assert gpu(chip.name).boost_clock_hz == (chip.boost_mhz or 0) * 10**6


@each("base_gflops")
def test_low_end_of_the_gflops_range(chip: Chip, gpu: Callable[[str], Gpu]) -> None:
    """Cores x 2 x base clock, to the whole GFLOPS the post prints."""
    row = gpu(chip.name)
    assert round(gflops(row, row.base_clock_hz)) == chip.base_gflops


@each("boost_gflops")
def test_high_end_of_the_gflops_range(chip: Chip, gpu: Callable[[str], Gpu]) -> None:
    """Cores x 2 x boost clock, to the whole GFLOPS the post prints."""
    row = gpu(chip.name)
    assert round(gflops(row, row.boost_clock_hz)) == chip.boost_gflops


def test_t4_gflops_rounded_to_hundreds(gpu: Callable[[str], Gpu]) -> None:
    """The post prints one figure for the T4, 8100; cores and boost clock give 8141, the datasheet rounds to 8.1 TFLOPS."""
    row = gpu("T4")
    assert round(gflops(row, row.boost_clock_hz), -2) == 8100
    assert row.peaks["fp32"] == 8_100 * 10**9


@each("boost_gflops")
def test_stated_fp32_peak_agrees_with_the_range(chip: Chip, gpu: Callable[[str], Gpu]) -> None:
    """The datasheets' peaks have two digits at worst (P4: 5.5 TFLOPS for 5443 GFLOPS), hence 1.1%."""
    row = gpu(chip.name)
    assert row.peaks["fp32"] * row.dies / 1e9 == pytest.approx(chip.boost_gflops, rel=0.011)


@each("memory_gb")
def test_memory_of_the_board(chip: Chip, gpu: Callable[[str], Gpu]) -> None:
    row = gpu(chip.name)
    assert row.memory_marketed_bytes * row.dies == chip.memory_gb * GIB


@each("launched")
def test_launch_month(chip: Chip, gpu: Callable[[str], Gpu]) -> None:
    assert gpu(chip.name).launch_date[:7] == chip.launched


@pytest.mark.parametrize("name", ["M60", "K80"])
def test_two_die_boards_are_one_row_a_die(name: str, gpu: Callable[[str], Gpu]) -> None:
    """The post writes 2x8G and 2x12G: two devices, whose memories do not add up for one program; a quirk says so."""
    row = gpu(name)
    assert row.dies == 2
    assert any("two of these GPUs" in quirk for quirk in row.quirks)


def test_slip_v100_has_its_launch_clock(gpu: Callable[[str], Gpu]) -> None:
    """Slip: 14899 GFLOPS at 1455 MHz is the figure of the announcement; the product boosts to 1530 MHz (15.7 TFLOPS)."""
    row = gpu("V100 SXM 16GB")
    assert round(gflops(row, 1455 * 10**6)) == 14899
    assert row.boost_clock_hz == 1530 * 10**6
    assert round(gflops(row, row.boost_clock_hz)) == 15667
    assert row.peaks["fp32"] == 15_700 * 10**9


def test_slip_v100_launch_month(gpu: Callable[[str], Gpu]) -> None:
    """Slip: June 2017 is the PCIe card's; the mezzanine module the line describes was announced in May."""
    assert gpu("V100 PCIe 16GB").launch_date[:7] == "2017-06"
    assert gpu("V100 SXM 16GB").launch_date[:7] == "2017-05"


def test_slip_k40_launch_month(gpu: Callable[[str], Gpu]) -> None:
    """Slip: the post says October 2013; the K40 was launched at the SC13 conference, on 18 November."""
    assert gpu("K40").launch_date[:7] != "2013-10"
    assert gpu("K40").launch_date[:7] == "2013-11"


def test_slip_k80_base_clock(gpu: Callable[[str], Gpu]) -> None:
    """Slip of 0.4%: 5591 GFLOPS is at 560 MHz; the lowest clock the K80 runs at is 562 MHz."""
    row = gpu("K80")
    assert round(gflops(row, 560 * 10**6)) == 5591
    assert row.base_clock_hz == 562 * 10**6
    assert round(gflops(row, row.base_clock_hz)) == 5611


@pytest.mark.parametrize(("name", "quoted", "owner"), [("P40", 3584, "P100 SXM 16GB"), ("P4", 1024, "Tesla M4")])
def test_slip_quoted_core_counts_are_of_other_cards(name: str, quoted: int, owner: str, gpu: Callable[[str], Gpu]) -> None:
    """Slip: the shop's text the post quotes gives P40 and P4 the core counts of the P100 and M4, against the post's own list."""
    listed = next(chip.cores for chip in CHIPS if chip.name == name)
    assert gpu(name).cores == listed
    assert listed != quoted
    assert gpu(owner).cores == quoted


def test_p100_exists_as_mezzanine_and_pcie(gpu: Callable[[str], Gpu]) -> None:
    """Both have the 3584 cores the post states; only the mezzanine module has NVLink."""
    mezzanine, card = gpu("P100 SXM 16GB"), gpu("P100 PCIe 16GB")
    assert mezzanine.cores == card.cores == 3584
    assert mezzanine.link is not None
    assert mezzanine.link.kind == "nvlink"
    assert card.link is None


def test_m60_is_for_racks_and_m6_for_blades(gpu: Callable[[str], Gpu]) -> None:
    assert (gpu("M60").form_factor, gpu("M6").form_factor) == ("pcie", "mxm")
    assert gpu("M60").memory_type == gpu("M6").memory_type == "GDDR5"


def test_t4_int8_is_16_times_fp32(gpu: Callable[[str], Gpu]) -> None:
    """8.1 TFLOPS to 130 TOPS; the post rounds 16.05 to 16."""
    peaks = gpu("T4").peaks
    assert peaks["int8"] == 130 * 10**12
    assert round(peaks["int8"] / peaks["fp32"], 1) == 16.0


@pytest.mark.parametrize("library", LIBRARIES)
@each("cores")
def test_numpy_libraries_ran_on_every_chip(chip: Chip, library: str, gpu: Callable[[str], Gpu]) -> None:
    """CuPy, Numba, PyTorch and JAX: the catalog knows the last release for each chip (PyCUDA is not in it)."""
    software = gpu(chip.name).software
    assert software is not None
    last = getattr(software, f"{library}_last")
    assert last not in (None, "none")


def test_numpy_libraries_by_now(gpu: Callable[[str], Gpu]) -> None:
    """As of 2026 all four still come for the T4; of a K80 only Numba, which uses an old toolkit where there is one."""
    turing, kepler = gpu("T4").software, gpu("K80").software
    assert [name for name in LIBRARIES if getattr(turing, f"{name}_last") == "current"] == list(LIBRARIES)
    assert [name for name in LIBRARIES if getattr(kepler, f"{name}_last") == "current"] == ["numba"]


@pytest.mark.parametrize(("machines", "family"), [("aws/p3", "V100"), ("aws/g3", "M60"), ("aws/p2", "K80")])
def test_aws_types_of_the_price_table(machines: str, family: str, catalog: Catalog) -> None:
    rows = select_instances([machines], InstanceFilter(as_of=WRITTEN), catalog=catalog).instances
    assert {catalog.gpu_by_id[row.gpu].family for row in rows} == {family}


def test_aws_had_no_t4_yet(catalog: Catalog) -> None:
    """The AWS table has no T4: g4dn came twelve days after the post."""
    then = select_instances((), InstanceFilter(provider="aws", as_of=WRITTEN), catalog=catalog).instances
    soon = select_instances((), InstanceFilter(provider="aws", as_of=date(2019, 9, 20)), catalog=catalog).instances
    assert "t4" not in {row.gpu for row in then}
    assert "t4" in {row.gpu for row in soon}


@pytest.mark.parametrize("family", ["T4", "V100", "P100", "K80"])
def test_gcp_gpus_of_the_price_table(family: str, catalog: Catalog) -> None:
    """Google attached each of them to N1 machines at that date, one GPU being the least."""
    rows = select_instances(["gcp/n1"], InstanceFilter(as_of=WRITTEN), catalog=catalog).instances
    counts = [row.gpus for row in rows if catalog.gpu_by_id[row.gpu].family == family]
    assert counts
    assert min(counts) == 1


def test_gcp_had_no_korean_region_yet(catalog: Catalog) -> None:
    korean = [row for row in regions({"provider": "gcp"}, Context(catalog)).regions if row.country == "KR"]
    assert korean
    assert all(row.opened is not None and first_day(row.opened) > WRITTEN for row in korean)


def test_aws_and_azure_had_korean_regions(catalog: Catalog) -> None:
    for provider in ("aws", "azure"):
        korean = [
            row for row in regions({"names": ["Seoul"], "provider": provider}, Context(catalog)).regions if row.opened is not None
        ]
        assert any(first_day(row.opened or "") <= WRITTEN for row in korean)


def test_latency_from_korea_grows_with_distance(catalog: Catalog) -> None:
    """86, 146 and 246 ms to Tokyo, Taiwan and Oregon: the regions' coordinates give the same order from Seoul."""
    seoul = _region(catalog, "aws", "ap-northeast-2")
    milliseconds = {"asia-northeast1": 85.96, "asia-east1": 145.62, "us-west1": 245.90}
    kilometres = {name: _kilometres(seoul, _region(catalog, "gcp", name)) for name in milliseconds}
    assert sorted(kilometres, key=lambda name: kilometres[name]) == sorted(milliseconds, key=lambda name: milliseconds[name])
    # light in fibre goes 200 km a millisecond, there and back: no measured latency may be below that
    assert all(2 * kilometres[name] / 200 < milliseconds[name] for name in milliseconds)


def _region(catalog: Catalog, provider: str, name: str) -> Region:
    return next(row for row in catalog.regions if (row.provider, row.region) == (provider, name))


def _kilometres(here: Region, there: Region) -> float:
    """Great-circle distance (haversine) on a sphere of 6371 km."""
    assert here.latitude is not None
    assert here.longitude is not None
    assert there.latitude is not None
    assert there.longitude is not None
    north, east = radians(there.latitude - here.latitude), radians(there.longitude - here.longitude)
    half = sin(north / 2) ** 2 + cos(radians(here.latitude)) * cos(radians(there.latitude)) * sin(east / 2) ** 2
    return 2 * 6371 * asin(sqrt(half))
