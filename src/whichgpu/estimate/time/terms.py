"""What a step's time is made of before any correction: seconds by class of operator, kernels, framework calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from whichgpu.estimate.time.operators import Op
from whichgpu.estimate.time.units import UNITS

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray

# Classes of operators, products being of two: those that compute and those that do little but read weights. Then: the gap between
# kernels, calls of the host forward and backward, what a step costs once, and what a serving engine does for each of its
# sequences at every step (scheduling, sampling, detokenising).
DEVICE_TERMS = ("gemm", "stream", "attention", "conv", "memory", "gap")
HOST_TERMS = ("forward_calls", "backward_calls", "step", "sequences")
TERMS = (*DEVICE_TERMS, *HOST_TERMS)

# What one unit of each countable term costs before correction, in seconds.
KERNEL_GAP_SECONDS = 1.0e-6
FORWARD_CALL_SECONDS, BACKWARD_CALL_SECONDS = 15.0e-6, 15.0e-6
FIXED_STEP_SECONDS = 1.0e-4
SEQUENCE_SECONDS = 5.0e-6


@dataclass(frozen=True, slots=True)
class TimeTerms:
    """Uncorrected seconds, [terms, gpus, batches] in the order of TERMS, with the physical floor of each device term.

    `flop_seconds` and `byte_seconds` tell what bounds it: FLOPs over peak and bytes over bandwidth, [gpus, batches].
    """

    seconds: Array
    floors: Array  # [terms, gpus, batches]
    flop_seconds: Array
    byte_seconds: Array
    unit: str  # of the products that weigh most: half, tf32, single, narrow

    def __add__(self, other: TimeTerms) -> TimeTerms:
        return TimeTerms(
            self.seconds + other.seconds,
            self.floors + other.floors,
            self.flop_seconds + other.flop_seconds,
            self.byte_seconds + other.byte_seconds,
            self.unit,
        )

    def __mul__(self, times: float | Array) -> TimeTerms:
        return TimeTerms(
            self.seconds * times, self.floors * times, self.flop_seconds * times, self.byte_seconds * times, self.unit
        )


def dominant_unit_class(ops: tuple[Op, ...]) -> str:
    """The arithmetic in which most FLOPs of the products are done."""
    weights: dict[str, float] = {}
    for op in ops:
        unit = UNITS[op.unit].term_class
        flops = op.flops * op.count
        weights[unit] = weights.get(unit, 0.0) + float(flops if isinstance(flops, (int, float)) else flops.sum())
    return max(weights, key=lambda unit: weights[unit]) if weights else "half"
