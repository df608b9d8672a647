"""What the power limit allows: joules a FLOP, by chip or generation and by unit, against the board's watts."""

from __future__ import annotations

import numpy as np

from whichgpu.estimate.time.curves.gpus import GpuColumns
from whichgpu.estimate.time.curves.stack import Array, Parameters

PICO = 1e-12
# Energy of a tensor-core FLOP against one in 16 bits: operands of twice the width take twice of it.
AGAINST_HALF = {"bf16": 1.0, "fp16": 1.0, "fp16_fp16acc": 1.0, "tf32": 2.0, "fp8": 0.57, "int8": 0.5, "fp4": 0.3}


def power_bound(flops: Array, unit: str, gpus: GpuColumns, p: Parameters) -> Array:
    """The least seconds for so many FLOPs at the board's power: low-profile cards sustain far less than their clocks promise."""
    if unit in AGAINST_HALF:
        joules = gpus.known(p, "power.tensor", gpus.fp16_pj) * (PICO * AGAINST_HALF[unit])
        joules = np.where(gpus.native[unit] > 0, joules, 0.0)
    else:
        joules = gpus.known(p, "power.fp32", gpus.fp32_pj) * PICO
    return flops * (joules / gpus.tdp)
