"""Terms of a step's time before fitted multipliers correct it: seconds by class of operator, kernel gaps, framework calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from whichgpu.estimate.time.operators import Op
from whichgpu.estimate.time.units import UNITS

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray

# Device terms: classes of operators (GEMM time is split into computing, "gemm", and reading weights, "stream") and gaps between
# kernels. Host terms: framework calls forward and backward, work once per step, and a serving engine's work for each sequence
# at every step (scheduling, sampling, detokenising).
KERNEL_TERMS = ("gemm", "stream", "attention", "long_attention", "conv", "moe", "memory")
DEVICE_TERMS = (*KERNEL_TERMS, "gap")
HOST_TERMS = ("forward_calls", "backward_calls", "step", "sequences")
TERMS = (*DEVICE_TERMS, *HOST_TERMS)

# Seconds of one unit of each counted term (assumed); fitted corrections multiply them.
KERNEL_GAP_SECONDS = 1.0e-6  # device seconds between two kernels that the host launches; in a CUDA graph kernel times include it
FORWARD_CALL_SECONDS = BACKWARD_CALL_SECONDS = 15.0e-6  # host seconds per framework call
FIXED_STEP_SECONDS = 1.0e-4  # host seconds per step
SEQUENCE_SECONDS = 5.0e-6  # host seconds per sequence of a serving step
WEIGHT_ONLY_KINDS = ("weight_only_gemm", "mmq_gemm")


class TimeTerms(msgspec.Struct, frozen=True):
    """Seconds of a step by time term (TERMS: `gemm`, …) before fitted multipliers, [terms, gpus, batches]; physical floors.

    `flop_seconds` and `byte_seconds` are FLOPs divided by peak and bytes divided by bandwidth, [gpus, batches].
    """

    seconds: Array
    floors: Array  # least seconds physically possible, [terms, gpus, batches]
    flop_seconds: Array
    byte_seconds: Array
    unit: str  # class of the unit that does most FLOPs: half, tf32, single, narrow

    def __add__(self, other: TimeTerms) -> TimeTerms:
        return TimeTerms(
            self.seconds + other.seconds,
            self.floors + other.floors,
            self.flop_seconds + other.flop_seconds,
            self.byte_seconds + other.byte_seconds,
            self.unit,
        )

    def __mul__(self, times: float | Array) -> TimeTerms:
        seconds, floors = self.seconds * times, self.floors * times
        return TimeTerms(seconds, floors, self.flop_seconds * times, self.byte_seconds * times, self.unit)


def dominant_unit_class(ops: tuple[Op, ...]) -> str:
    """Return the class (half, tf32, single, narrow) of the arithmetic unit that performs most of the operators' FLOPs.

    Weight-only GEMMs count as half, whatever unit multiplies the dequantised weights.
    """
    flops_by_class: dict[str, float] = {}
    for op in ops:
        unit = "half" if op.kind in WEIGHT_ONLY_KINDS else UNITS[op.unit].term_class
        flops = op.flops * op.count
        total = float(flops if isinstance(flops, (int, float)) else flops.sum())
        flops_by_class[unit] = flops_by_class.get(unit, 0.0) + total
    return max(flops_by_class, key=lambda unit: flops_by_class[unit], default="half")
