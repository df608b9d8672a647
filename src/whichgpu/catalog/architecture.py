"""What chips of one architecture have in common: a row of `architectures.csv`, refined by the row of the compilation target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from whichgpu.base.units import MIB
from whichgpu.catalog.schema import DATA_DIR
from whichgpu.catalog.tables import Row, read_table

if TYPE_CHECKING:
    from whichgpu.catalog.gpu import Gpu

TYPICAL = "typical"  # The row that holds where no other row says anything.
EMPTY = (None, ())


@dataclass(frozen=True, slots=True)
class Architecture:
    """Constants of an architecture; clocks in hertz, sizes in bytes, energies in picojoules for one FLOP."""

    fp32_flops_per_clock: float | None  # of one SM at its full rate
    fp16_flops_per_clock: float | None  # in 16 bits on matrix units
    clock_hz: float
    sustained_clock_hz: float
    sms: float
    l2_bytes: float
    core_flops: float  # 0 where variants state their own peaks
    matrix_convolutions: bool | None  # None: if the variant has matrix units
    dot_product_share: float
    dual_issue_share: float
    winograd: bool
    instructions: frozenset[str]
    sxm_topology: str
    gemm_workspace_bytes: int
    fp32_pj: float  # 0 where power is not known to bound
    fp16_pj: float
    kin: tuple[str, str] | None  # architecture and generation whose measurements hold for this one
    kin_for: tuple[str, ...]  # segments; empty: all


def architecture_of(gpu: Gpu) -> Architecture:
    """Constants of a GPU's architecture, refined by its compilation target."""
    return architecture_named(gpu.architecture, gpu.target or "")


@cache
def architecture_named(name: str, target: str = "") -> Architecture:
    """Constants by name: a cell of the target's row counts first, then one of the architecture's, then the typical one.

    >>> architecture_named("Hopper").sms, sorted(architecture_named("Blackwell", "sm_100").instructions)
    (132.0, ['dp4a', 'mma', 'multimem', 'tcgen05', 'tma'])
    >>> architecture_named("Ampere", "sm_87").kin, architecture_named("unheard of").clock_hz
    (('Ampere', 'Ampere 8.6'), 1500000000.0)
    """
    rows = [row for row in map(_table("architectures").get, (target, name, TYPICAL)) if row]
    cells = {column: next((row[column] for row in rows if row[column] not in EMPTY), None) for column in rows[-1]}
    fp32, fp16 = _flops_per_clock(cells)
    return Architecture(
        fp32_flops_per_clock=fp32,
        fp16_flops_per_clock=fp16,
        clock_hz=_scaled(cells, "clock_mhz", 10**6),
        sustained_clock_hz=_scaled(cells, "sustained_clock_mhz", 10**6),
        sms=_scaled(cells, "sms"),
        l2_bytes=_scaled(cells, "l2_kib", 1024),
        core_flops=_scaled(cells, "core_tflops", 10**12),
        matrix_convolutions={"yes": True, "no": False}.get(cells["matrix_convolutions"] or ""),
        dot_product_share=_scaled(cells, "dot_product_share"),
        dual_issue_share=_scaled(cells, "dual_issue_share"),
        winograd=cells["winograd"] == "yes",
        instructions=frozenset(family for row in rows for family in row["instructions"]),
        sxm_topology=cells["sxm_topology"] or "nvswitch",
        gemm_workspace_bytes=cells["gemm_workspace_mib"] * MIB,
        fp32_pj=_scaled(cells, "fp32_pj"),
        fp16_pj=_scaled(cells, "fp16_pj"),
        kin=_kin(cells),
        kin_for=cells["kin_for"] or (),
    )


def _scaled(cells: Row, column: str, scale: int = 1) -> float:
    return float((cells[column] or 0) * scale)


def _flops_per_clock(cells: Row) -> tuple[float | None, float | None]:
    """FLOPs of one SM in a clock, in fp32 and in 16 bits; two of int8 stand for one in 16 bits if those have no unit."""
    rates = _table("rates").get(cells["rates"] or "")
    if rates is None:
        return None, None
    half = max(rates["fp16"] or 0, rates["fp16_fp16acc"] or 0) or (rates["int8"] or 0) / 2 or rates["fp32"]
    return float(rates["fp32"]), float(half)


def _kin(cells: Row) -> tuple[str, str] | None:
    """Architecture and generation of the row named as kin, by compute capability or, where there is none, by segment."""
    if not cells["kin"]:
        return None
    name = _table("architectures")[cells["kin"]]["parent"] or cells["kin"]
    target = _table("targets").get(cells["kin"])
    return name, f"{name} {target['compute_capability'] if target else cells['kin_segment']}"


@cache
def _table(name: str) -> Mapping[str, Row]:
    """Rows of a bundled table by id; estimates use the bundled constants whatever catalog the GPUs come from."""
    return {row["id"]: row for row in read_table(DATA_DIR, name).trusted_rows()}
