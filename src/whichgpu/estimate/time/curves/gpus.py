"""GPUs as columns: what the curves need of each, as arrays over GPUs, with what happens where a chip lacks a unit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, nan

import numpy as np

from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.time.curves.stack import Array

UNITS = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8")
# FLOPs a clock of one SM or compute unit, by compute capability (vendors' architecture papers): in fp32, and in 16 bits on matrix
# units at their full rate. Parts sold with half of that rate are bounded by their peaks.
A_CLOCK = {
    "sm_20": (64.0, 64.0), "sm_30": (384.0, 384.0), "sm_35": (384.0, 384.0), "sm_37": (384.0, 384.0), "sm_50": (256.0, 256.0),
    "sm_52": (256.0, 256.0), "sm_60": (128.0, 256.0), "sm_61": (256.0, 512.0), "sm_70": (128.0, 1024.0), "sm_75": (128.0, 1024.0),
    "sm_80": (128.0, 2048.0), "sm_86": (256.0, 1024.0), "sm_87": (256.0, 2048.0), "sm_89": (256.0, 1024.0),
    "sm_90": (256.0, 4096.0), "sm_100": (256.0, 8192.0), "sm_103": (256.0, 8192.0), "sm_120": (256.0, 1024.0),
    "sm_121": (256.0, 1024.0),
    "gfx942": (256.0, 2048.0), "gfx950": (256.0, 4096.0), "gfx1100": (256.0, 512.0), "gfx1101": (256.0, 512.0),
    "gfx1102": (256.0, 512.0), "gfx1200": (256.0, 1024.0), "gfx1201": (256.0, 1024.0),
}  # fmt: skip
A_CLOCK_TYPICAL = 128.0, 1024.0
AGAINST_HALF = {
    "tf32": 0.5,
    "bf16": 1.0,
    "fp16": 1.0,
    "fp8": 2.0,
    "int8": 2.0,
    "fp4": 4.0,
}  # rates of matrix units against 16 bits
# A GPU core of Apple's: published for the M1 (2.6 TFLOP/s from eight cores); later ones are a little faster.
APPLE_CORE_FLOPS = 0.33e12
PLAIN = frozenset({"GCN5", "RDNA1", "RDNA2", "Apple M1", "Apple M2", "Apple M3", "Apple M4"})  # without matrix units
CLOCK_UNKNOWN = {"Hopper": 1.83e9, "Blackwell": 1.9e9}  # where none is stated: that of siblings
CLOCK_TYPICAL = 1.5e9
# L2 where none is stated: that of siblings.
L2_UNKNOWN = {"Hopper": 50 << 20, "Blackwell": 96 << 20, "Ada": 48 << 20}
L2_SMALLEST = 4 << 20
SMS_UNKNOWN = 64  # engines of one chip count as so many SMs where the catalog states none


@dataclass(frozen=True, slots=True)
class GpuColumns:
    """Arrays shaped [gpus, 1, 1], ready to broadcast over operators and batches. Rates a second, sizes in bytes."""

    ids: tuple[str, ...]
    architectures: tuple[str, ...]
    targets: tuple[str, ...]  # compute capability or its like: chips of one architecture may differ
    peaks: dict[str, Array]  # by unit: the rate at which its products are made, by another unit where the chip lacks it
    sm_rates: dict[str, Array]  # by unit: the rate of one SM
    native: dict[str, Array]  # by unit: 1 where the chip has it
    matrix: Array  # 1 where there are matrix units
    wide: Array  # 1 where an SM has 128 fp32 lanes, 0 where it has 64
    bandwidth: Array
    sms: Array
    l2: Array
    clock: Array
    tdp: Array  # watts; infinite where unknown

    def __len__(self) -> int:
        return len(self.ids)

    def by_architecture(self, value: Callable[[str], float]) -> Array:
        """A column made from a number of each architecture."""
        known = {name: value(name) for name in set(self.architectures)}
        return _column([known[name] for name in self.architectures])

    def factor(self, parameters: Mapping[str, float], name: str) -> Array:
        """What a chip makes of a share: `name.architecture` times `name.target`, each 1 where unknown."""
        pairs = zip(self.architectures, self.targets, strict=True)
        get = parameters.get
        return _column([get(f"{name}.{architecture}", 1.0) * get(f"{name}.{target}", 1.0) for architecture, target in pairs])


def columns(gpus: Sequence[Gpu]) -> GpuColumns:
    """The columns of these GPUs, in order."""
    rates = [_rates(gpu) for gpu in gpus]
    clocks = [_clock(gpu) for gpu in gpus]
    return GpuColumns(
        ids=tuple(gpu.id for gpu in gpus),
        architectures=tuple(gpu.architecture for gpu in gpus),
        targets=tuple(gpu.target or "" for gpu in gpus),
        peaks={unit: _column([rate[unit] for rate in rates]) for unit in UNITS},
        sm_rates={unit: _column([_sm_rate(gpu, unit, clock) for gpu, clock in zip(gpus, clocks, strict=True)]) for unit in UNITS},
        native={unit: _column([float(unit in gpu.peaks) for gpu in gpus]) for unit in UNITS},
        matrix=_column([float(_has_matrix_units(gpu)) for gpu in gpus]),
        wide=_column([float(_a_clock(gpu)[0] > A_CLOCK_TYPICAL[0]) for gpu in gpus]),
        bandwidth=_column([float(gpu.memory_bandwidth) for gpu in gpus]),
        sms=_column([float(gpu.sms or SMS_UNKNOWN) for gpu in gpus]),
        l2=_column([float(gpu.l2_bytes or L2_UNKNOWN.get(gpu.architecture, L2_SMALLEST)) for gpu in gpus]),
        clock=_column(clocks),
        tdp=_column([float(gpu.tdp_watts or inf) for gpu in gpus]),
    )


def _rates(gpu: Gpu) -> dict[str, float]:
    """FLOP/s of each unit, or of the unit that stands in for it.

    >>> from whichgpu.catalog.store import Catalog
    >>> gpus = {gpu.id: gpu for gpu in Catalog().gpus}
    >>> _rates(gpus["v100-pcie-32gb"])["bf16"] == gpus["v100-pcie-32gb"].peaks["fp32"]
    True
    >>> _rates(gpus["p4"])["fp16"] == gpus["p4"].peaks["fp32"]
    True
    """
    has = gpu.peaks
    narrow = has.get("bf16") or has.get("fp8", 0) / 2 or has.get("int8", 0) / 2 or has.get("fp4", 0) / 4
    fp32 = float(has.get("fp32") or has.get("bf16_plain") or _apple(gpu) or narrow / 8 or nan)
    # GP10x computes fp16 in fp32 (its own unit has 1/64 of the rate); without bf16 units products are made in fp32 after a cast.
    fp16 = float(has.get("fp16") or has.get("bf16") or (narrow if "fp32" not in has else 0) or fp32)
    bf16 = float(has.get("bf16") or (narrow if "fp32" not in has else 0) or fp32)
    best = max(bf16, fp16)  # narrower weights are widened to this before they are multiplied
    return {
        "fp64": float(has.get("fp64_tensor") or has.get("fp64") or fp32 / 64),
        "fp32": fp32,
        "tf32": float(has.get("tf32") or fp32),
        "bf16": bf16,
        "fp16": fp16,
        "fp8": float(has.get("fp8") or best),
        "fp4": float(has.get("fp4") or best),
        "int8": max(float(has.get("int8") or 0.0), best),  # Volta multiplies bytes more slowly than fp16
    }


def _apple(gpu: Gpu) -> float:
    return APPLE_CORE_FLOPS * (gpu.sms or 0) if gpu.vendor == "apple" else 0.0


def _a_clock(gpu: Gpu) -> tuple[float, float]:
    return A_CLOCK.get(gpu.target or "", A_CLOCK_TYPICAL)


def _has_matrix_units(gpu: Gpu) -> bool:
    return "tensor-cores" in gpu.supports if gpu.vendor == "nvidia" else gpu.architecture not in PLAIN


def _clock(gpu: Gpu) -> float:
    return float(gpu.tensor_clock_hz or gpu.boost_clock_hz or CLOCK_UNKNOWN.get(gpu.architecture, CLOCK_TYPICAL))


def _sm_rate(gpu: Gpu, unit: str, clock: float) -> float:
    """The rate of one SM; infinite where its kind is not known, so that the peak alone bounds.

    It does not depend on the number of SMs, so that more of them never slow a product of few tiles.
    """
    if gpu.target not in A_CLOCK:
        return inf
    single, half = _a_clock(gpu)
    if unit in AGAINST_HALF and (unit in gpu.peaks or "fp32" not in gpu.peaks):
        return half * AGAINST_HALF[unit] * clock
    stands_in = "fp16" in gpu.peaks and unit in ("fp8", "fp4", "int8", "fp16")
    return (half if stands_in else single) * clock


def _column(values: Sequence[float]) -> Array:
    return np.asarray(values, dtype=np.float64)[:, None, None]
