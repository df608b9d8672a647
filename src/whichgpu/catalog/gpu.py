"""A GPU: one variant as it is rented or bought."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import ClassVar, Literal

import msgspec

from whichgpu.base.money import Money
from whichgpu.base.units import GB, MIB
from whichgpu.catalog.tables import Row, record_of

# Data types with a column `<dtype>_tflops`, widest first.
PEAKS = (
    "fp64",
    "fp64_tensor",
    "fp32",
    "tf32",
    "fp16",
    "fp16_fp16acc",
    "fp16_plain",
    "bf16",
    "bf16_plain",
    "fp8",
    "fp6",
    "fp4",
    "int8",
    "int4",
)
# Frameworks that a GPU lists in `supports` if their newest release runs on it.
FRAMEWORKS = ("pytorch", "tensorflow", "jax", "cupy", "numba")
# Smallest fp64 rate relative to fp32 that counts as fp64 support (assumed; GeForce cards have 1/24 to 1/64).
FP64_SHARE = Decimal("0.25")
# Bytes/s of a PCIe lane, one direction, after line coding: 8b/10b up to generation 2, 128b/130b to 5, PAM4 flits in 6 (PCI-SIG).
PCIE_LANE_BYTES = {1: 250 * 10**6, 2: 500 * 10**6, 3: 984615385, 4: 1969230769, 5: 3938461538, 6: 7877000000}


class Link(msgspec.Struct, frozen=True):
    """Direct link of a GPU to other GPUs, such as NVLink; `bandwidth` sums all its links in both directions, bytes/s."""

    kind: str
    generation: str | None
    bandwidth: int | None


class Pcie(msgspec.Struct, frozen=True):
    """PCIe interface of a GPU to its host; `bandwidth` sums both directions, bytes/s."""

    generation: int | float
    lanes: int
    bandwidth: int | None


class Software(msgspec.Struct, frozen=True):
    """Last releases that support a GPU. `current`: still supported; `none`: never supported; None: unknown."""

    api: tuple[str, ...]
    toolkit: str | None
    toolkit_first: str | None
    toolkit_last: str | None
    driver_last: str | None
    pytorch_last: str | None
    tensorflow_last: str | None
    jax_last: str | None
    cupy_last: str | None
    numba_last: str | None
    note: str | None


class Gpu(msgspec.Struct, frozen=True):
    """Facts about one GPU variant; peaks are dense FLOP/s, sizes bytes, bandwidths bytes/s, clocks hertz."""

    _mapping_keys: ClassVar[Mapping[str, tuple[str, ...]]] = {"peaks": PEAKS}
    id: str
    name: str
    family: str
    aliases: tuple[str, ...]
    vendor: str
    architecture: str
    chip: str | None
    segment: str
    form_factor: str
    memory_bytes: int  # as reported by the driver if known, otherwise the marketed capacity
    memory_basis: Literal["reported", "marketed"]
    memory_marketed_bytes: int
    memory_label: str
    memory_type: str
    memory_bus_bits: int | None
    memory_bandwidth: int
    peaks: Mapping[str, int]
    link: Link | None
    pcie: Pcie | None
    l2_bytes: int | None
    l3_bytes: int | None
    sms: int | None
    cores: int | None
    base_clock_hz: int | None
    boost_clock_hz: int | None
    tensor_clock_hz: int | None
    tdp_watts: int | float | None
    target: str | None
    compute_capability: str | None
    launch_date: str
    launch_price: Money | None
    mig_instances: int | None
    ecc: str | None
    dies: int
    cooling: str | None
    display: bool | None
    supports: tuple[str, ...]
    software: Software | None
    quirks: tuple[str, ...]
    quirk_ids: tuple[str, ...]
    sources: tuple[str, ...]
    recorded: str
    checked: str


class UnsupportedGpu(msgspec.Struct, frozen=True):
    """An accelerator that people ask for but that cannot be estimated; `why` is one English sentence on what is not known."""

    id: str
    name: str
    aliases: tuple[str, ...]
    why: str
    sources: tuple[str, ...]
    recorded: str


def build_gpu(row: Row, targets: Mapping[str, Row], rates: Mapping[str, Row], quirks: Mapping[str, Row]) -> Gpu:
    """Build a GPU from its table row and the rows of its compilation target, its rates per clock, and its known deviations."""
    target = targets.get(row["target"])
    peaks = {dtype: int(row[f"{dtype}_tflops"] * 10**12) for dtype in PEAKS if row[f"{dtype}_tflops"] is not None}
    kind, bandwidth = row["link_kind"], to_base_units(row["link_bandwidth_gbs"], GB)
    link = Link(kind, row["link_generation"], bandwidth) if kind else None
    reported, marketed = row["memory_reported_mib"], row["memory_mib"]
    return record_of(
        Gpu,
        row,
        memory_bytes=(reported or marketed) * MIB,
        memory_basis="reported" if reported else "marketed",
        memory_marketed_bytes=marketed * MIB,
        memory_bandwidth=to_base_units(row["memory_bandwidth_gbs"], GB),
        peaks=peaks,
        link=link,
        pcie=_pcie(row["pcie_generation"], row["pcie_lanes"]),
        l2_bytes=to_base_units(row["l2_kib"], 1024),
        l3_bytes=to_base_units(row["l3_kib"], 1024),
        base_clock_hz=to_base_units(row["base_clock_mhz"], 10**6),
        boost_clock_hz=to_base_units(row["boost_clock_mhz"], 10**6),
        tensor_clock_hz=to_base_units(row["tensor_clock_mhz"], 10**6),
        tdp_watts=plain_number(row["tdp_watts"]),
        compute_capability=target["compute_capability"] if target else None,
        launch_price=Money(row["launch_price"], row["launch_currency"] or "USD") if row["launch_price"] else None,
        display={"yes": True, "no": False}.get(row["display"] or ""),
        supports=_supports(row, target, rates.get(row["rates"]), peaks, link),
        software=record_of(Software, target) if target else None,
        quirks=tuple(quirks[id]["text"] for id in row["quirks"] if id in quirks),
        quirk_ids=row["quirks"],
    )


def plain_number(cell: Decimal | None) -> int | float | None:
    """Return a table's number as an int if it is whole, otherwise as a float; None if the cell is empty."""
    if cell is None:
        return None
    return int(cell) if cell == int(cell) else float(cell)


def to_base_units(cell: Decimal | int | None, scale: int) -> int | None:
    """Return a table's number times `scale` (such as bytes per GB) as an integer; None if the cell is empty."""
    return None if cell is None else int(cell * scale)


def _pcie(generation: Decimal | None, lanes: int | None) -> Pcie | None:
    if generation is None or lanes is None:
        return None
    lane_bytes = PCIE_LANE_BYTES.get(int(generation))
    return Pcie(int(generation), lanes, 2 * lanes * lane_bytes if lane_bytes else None)


def _supports(row: Row, target: Row | None, unit: Row | None, peaks: Mapping[str, int], link: Link | None) -> tuple[str, ...]:
    """Return the features of a GPU for `--supports`: its target's, without those whose execution units it is known to lack."""
    features = set(target["features"]) if target else set()
    if unit:
        features -= {
            dtype for dtype in PEAKS if dtype not in peaks and unit[dtype] is None and unit.get(f"{dtype}_plain") is None
        }
    features |= {name for name in FRAMEWORKS if target and target[f"{name}_last"] == "current"}
    if "tensor-cores" in features and peaks.get("fp16", 0) <= peaks.get("fp16_plain", -1):
        features -= {"tensor-cores", "sparsity"}
    versions = target["flash_attention"] if target and "tensor-cores" in features else ()
    features |= {f"flash-attention-{version}" for version in versions}
    if any(version >= 2 for version in versions):
        features.add("flash-attention")
    if peaks.get("fp64", 0) >= FP64_SHARE * peaks.get("fp32", 1):
        features.add("fp64")
    if link:
        features.add("nvlink" if link.kind.startswith("nvlink") else link.kind)
    if row["mig_instances"]:
        features.add("mig")
    if row["ecc"] in ("yes", "optional"):
        features.add("ecc")
    features |= set(target["api"]) if target else set()
    return tuple(sorted(features))
