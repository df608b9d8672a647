"""Seconds that the board's power limit imposes: joules per FLOP, by chip or generation and by unit, over watts."""

from __future__ import annotations

import numpy as np

from whichgpu.estimate.time.curves.gpus import GpuColumns
from whichgpu.estimate.time.curves.stack import Array, Parameters
from whichgpu.estimate.time.units import UNITS

PICO = 1e-12


def power_bound(flops: Array, unit: str, gpus: GpuColumns, p: Parameters) -> Array:
    """Minimum seconds for these FLOPs at the board's power: low-profile cards sustain far less than their clocks promise."""
    if (energy := UNITS[unit].energy_vs_fp16) is not None:
        joules = gpus.fitted_value(p, "power.fp16_energy_per_flop", gpus.fp16_pj) * (PICO * energy)
        joules = np.where(gpus.native[unit] > 0, joules, 0.0)
    else:
        joules = gpus.fitted_value(p, "power.fp32_energy_per_flop", gpus.fp32_pj) * PICO
    return flops * (joules / gpus.tdp)
