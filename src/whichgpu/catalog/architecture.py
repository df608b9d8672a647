"""Constants of a GPU architecture: a row of `architectures.csv`, refined by the row of its compilation target (such as sm_90)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from whichgpu.base.bundled_data import data_rows, parse_record
from whichgpu.catalog.schema import DATA_DIR

if TYPE_CHECKING:
    from whichgpu.catalog.gpu import Gpu

TYPICAL = "typical"  # Name of the row with the default values for all others.
Cells = Mapping[str, str]  # The cells of a row as text; `catalog check` verifies their types.


class Architecture(msgspec.Struct, frozen=True):
    """Constants of a GPU architecture, as its table row states them; energies in picojoules for one FLOP."""

    fp32_flops_per_clock: float | None  # per SM; on matrix units if those are faster
    fp32_matrix_ratio: float  # fp32 rate of GEMMs on matrix units over the stated vector peak; 1 if those have no fp32
    fp16_flops_per_clock: float | None  # per SM, on matrix units
    clock_mhz: float
    sustained_clock_mhz: float
    sms: float
    l2_kib: float
    core_tflops: float  # fp32 TFLOP/s of one core; 0 if the GPUs' own rows state their peaks
    matrix_convolutions: bool | None  # whether convolutions use matrix units; None: if the GPU has any
    dot_product_share: float
    dual_issue_share: float
    sustained_tflops: float  # 16-bit TFLOP/s that large GEMMs sustain on a chip with the SMs and watts below; 0 if unknown
    sustained_sms: float
    sustained_watts: float
    winograd: bool | None
    instructions: frozenset[str]
    sxm_topology: str
    gemm_workspace_mib: int
    fp32_pj: float  # pJ per FLOP; 0 if the power limit is not known to lower the clock
    fp16_pj: float
    kin: tuple[str, str] | None  # architecture and generation whose measurements apply to this one
    kin_for: tuple[str, ...]  # market segments of GPUs to which `kin` applies; empty: all
    roofline: str  # family of accelerators (tpu, neuron, gaudi) timed as shares of peak and bandwidth; empty: GPU kernels


def architecture_of(gpu: Gpu) -> Architecture:
    """Return the constants of a GPU's architecture, refined by its compilation target."""
    return architecture_named(gpu.architecture, gpu.target or "")


def has_rates(gpu: Gpu) -> bool:
    """Whether a GPU's time can be estimated: its bandwidth and its peaks, or the rate of one of its cores, are known."""
    return bool(gpu.memory_bandwidth) and bool(gpu.peaks or architecture_of(gpu).core_tflops)


@cache
def architecture_named(name: str, target: str = "") -> Architecture:
    """Return an architecture's constants: cells of the target's row first, then the architecture's, then the typical ones.

    >>> architecture_named("Hopper").sms, sorted(architecture_named("Blackwell", "sm_100").instructions)
    (132.0, ['dp4a', 'mma', 'multimem', 'tcgen05', 'tma'])
    >>> architecture_named("Ampere", "sm_87").kin, architecture_named("unheard of").clock_mhz
    (('Ampere', 'Ampere 8.6'), 1500.0)
    """
    rows = [row for row in map(_table("architectures").get, (target, name, TYPICAL)) if row]
    cells = {column: next((row[column] for row in rows if row[column]), "") for column in rows[-1]}
    fp32, fp16, ratio = _flops_per_clock(cells)
    families = frozenset(filter(None, ";".join(row["instructions"] for row in rows).split(";")))
    return parse_record(
        Architecture,
        cells,
        fp32_flops_per_clock=fp32,
        fp32_matrix_ratio=ratio,
        fp16_flops_per_clock=fp16,
        instructions=families,
        kin=_kin(cells),
    )


def _flops_per_clock(cells: Cells) -> tuple[float | None, float | None, float]:
    """Return FLOPs per clock and SM in fp32 and in 16-bit, and the gain of fp32 on matrix units.

    Without 16-bit units, half the int8 rate or the fp32 rate.

    >>> architecture_named("CDNA1", "gfx908").fp32_matrix_ratio, architecture_named("CDNA3", "gfx942").fp32_matrix_ratio
    (2.0, 1.0)
    """
    rates = _table("rates").get(cells["rates"])
    if rates is None:
        return None, None, 1.0
    columns = ("fp32", "fp32_matrix", "fp16", "fp16_fp16acc", "int8")
    vector, matrix, fp16, accumulated, int8 = (float(rates[column] or 0) for column in columns)
    fp32 = max(vector, matrix)
    return fp32, max(fp16, accumulated) or int8 / 2 or fp32, fp32 / vector


def _kin(cells: Cells) -> tuple[str, str] | None:
    """Return the similar (architecture, generation) whose measurements are used for this one; None if the row names none."""
    if not cells["kin"]:
        return None
    name = _table("architectures")[cells["kin"]]["parent"] or cells["kin"]
    target = _table("targets").get(cells["kin"])
    return name, f"{name} {target['compute_capability'] if target else cells['kin_segment']}"


@cache
def _table(name: str) -> Mapping[str, Cells]:
    """Return the rows of a bundled table by id; estimates use bundled constants even with the user's own catalog."""
    return {row["id"]: row for row in data_rows(DATA_DIR / f"{name}.csv")}
