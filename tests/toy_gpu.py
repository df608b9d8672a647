"""A GPU of round numbers, and curves without corrections, so that seconds can be worked out by hand.

Ten SMs of 1 TFLOP/s at 1 GHz, 1 TB/s, an L2 of a megabyte; every share is 1, nothing takes time to start or
overlaps in part.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from whichgpu.estimate.time.curves.gpus import GpuColumns
from whichgpu.estimate.time.curves.stack import OperatorStack, stack_operators
from whichgpu.estimate.time.operators import Number, Op
from whichgpu.estimate.time.units import UNITS

ZEROS = """gemm.start gemm.edge gemm.ramp gemm.edge.fp32 gemm.ramp.fp32 gemm.split_seconds conv.edge conv.ramp
    conv.edge.fp32 conv.ramp.fp32 conv.split_seconds conv.resident conv.turn.half conv.turn.tf32 conv.turn_seconds.half
    conv.turn_seconds.tf32 conv.winograd_setup conv.gather_seconds conv.tap.pixel conv.tap.warp
    conv.group_seconds conv.tap.besides conv.start.half conv.start.fp32 conv.start.tf32 conv.start.depthwise conv.tap_seconds.half
    conv.tap_seconds.single memory.resident memory.element memory.row memory.serial memory.channel memory.start attention.causal
    attention.exponent attention.key attention.start""".split()
ONES = """gemm.share gemm.share.wide gemm.share.emulated gemm.share.widened gemm.slowdown gemm.odd gemm.odd.tf32 gemm.odd.older
    gemm.even gemm.tf32.wgrad gemm.tf32.dgrad gemm.bandwidth gemm.draw gemm.small gemm.cache conv.cache conv.bandwidth conv.block
    conv.winograd conv.winograd.plane conv.plane conv.plane1 conv.few.planar conv.tap.plane
    conv.winograd.planar conv.stride conv.grouped conv.few.turned conv.few.half conv.few.fp32 conv.few.tf32 conv.share.half
    conv.share.fp32 conv.share.tf32 conv.share1.half conv.share1.fp32 conv.share1.tf32 conv.planar conv.tap.single conv.tap.half
    conv.tap.far conv.tap.turned memory.abreast memory.kept memory.older memory.cache memory.share memory.share.softmax.short
    attention.dropout attention.share attention.bandwidth attention.occupancy attention.decode""".split()
SHARP, NEVER = 1e4, 1e9
PLAIN = {
    **dict.fromkeys(ZEROS, 0.0), **dict.fromkeys(ONES, 1.0), "cache.full": 1.0, "cache.fits": 0.5,
    **dict.fromkeys(("gemm.sharpness", "conv.sharpness", "memory.sharpness", "attention.sharpness"), SHARP),
    **dict.fromkeys(("gemm.vector", "gemm.split", "gemm.split.fp32", "conv.split", "conv.split.wgrad"), NEVER),
}  # fmt: skip


def column(value: float) -> np.ndarray:
    """One GPU's."""
    return np.full((1, 1, 1), value)


def toy(**changed: Any) -> GpuColumns:
    """The GPU; `sustained_rates={"fp16": 2e13}` and the like change one unit."""
    each: dict[str, float] = {"matrix_convolutions": 1.0, "dot_product_share": 1.0, "winograd": 1.0, "bulk_copies": 1.0,
                              "async_matrix": 1.0, "fp32_pj": 0.0, "fp16_pj": 0.0, "wide_fp32": 0.0, "bandwidth": 1e12,
                              "sms": 10.0, "l2": 1e6, "clock": 1e9, "latency": 1.0, "tdp": np.inf}  # fmt: skip
    units: dict[str, float] = {
        "peaks": 1e13,
        "sustained_rates": 1e13,
        "sm_rate_vs_reference": 1.0,
        "sm_rates": 1e12,
        "native": 1.0,
    }
    made: dict[str, Any] = {name: column(value) for name, value in each.items()}
    made |= {name: {unit: column(value) for unit in UNITS} for name, value in units.items()}
    found = GpuColumns(
        ids=("toy",), architectures=("Hopper",), targets=("sm_90",),
        **made,
    )  # fmt: skip
    new: dict[str, Any] = {}
    for name, value in changed.items():
        if isinstance(value, dict):
            new[name] = getattr(found, name) | {unit: column(one) for unit, one in value.items()}
        else:
            new[name] = value if isinstance(value, tuple) else column(value)
    return replace(found, **new)


def of(*ops: Op) -> OperatorStack:
    """These operators, all of one unit."""
    return stack_operators(ops[0].unit, ops)


def told(values: Any) -> float:
    """The one number an array holds."""
    return float(np.asarray(values).ravel()[0])


def pointwise(elements: Number, read_width: float, write_width: float, unit: str = "bf16") -> Op:
    """An elementwise operator that reads and writes these bytes per element."""
    return Op("pointwise", unit, read=elements * read_width, write=elements * write_width, sizes={"elements": elements})
