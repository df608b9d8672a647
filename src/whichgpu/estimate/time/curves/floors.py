"""Least seconds that operators can physically take: FLOPs at the full rate, bytes that no cache can hold at full bandwidth."""

from __future__ import annotations

import numpy as np

from whichgpu.estimate.time.curves import conv, memory
from whichgpu.estimate.time.curves.gpus import GpuColumns
from whichgpu.estimate.time.curves.stack import Array, OperatorStack
from whichgpu.estimate.time.operators import CLASS_BY_KIND

# Bytes in the L2 (or last-level) cache are served at no more than this multiple of the memory's bandwidth (assumed;
# measured ratios are 2.4 on the H200, 3 to 5 on others).
MAX_L2_SPEEDUP = 8.0
# Weights and KV caches were last touched a whole step ago, so the L2 holds nothing of them unless an operator says so.
COLD_KINDS = ("gemm", "grouped_gemm", "moe", "weight_only_gemm", "mmq_gemm", "decode_attention")


def floor_seconds(stack: OperatorStack, gpus: GpuColumns, burst: bool = False) -> Array:
    """Return the minimum seconds of one call of each operator, whatever kernel runs it, [gpus, operators, batches].

    Arithmetic runs at the rate that the power limit lets a chip sustain, or (`burst`, for a kernel timed alone) at the peak.
    """
    transfer: Array = minimum_bytes(stack, gpus) / gpus.bandwidth
    if not stack.flops.any():
        return transfer
    unit = stack.unit if stack.unit in gpus.peaks else "fp32"
    convolution = CLASS_BY_KIND[stack.ops[0].kind] == "conv"
    flops = conv.min_flops(stack, gpus) if convolution else stack.flops
    rates = gpus.clocked_peaks if burst else gpus.sustained_peaks
    return np.maximum(flops / rates[unit], transfer)


def minimum_bytes(stack: OperatorStack, gpus: GpuColumns) -> Array:
    """Return the bytes that memory must move for each operator: all but those the L2 may hold before and after it.

    At most an L2's worth of a kernel's inputs, and as much of its outputs, can be in the L2, whose bandwidth is taken as
    `MAX_L2_SPEEDUP` times the memory's.
    """
    kind = CLASS_BY_KIND[stack.ops[0].kind]
    share = memory.min_byte_share(stack) if kind == "memory" else 1.0
    read = np.maximum(conv.moved_bytes(stack) - stack.write, 0.0) if kind == "conv" else stack.read * share
    write = stack.write * share
    warm = np.where(stack.is_kind(*COLD_KINDS), stack.size("resident", 0.0), np.minimum(stack.size("resident"), 1.0))
    moved: Array = read + write
    if not warm.any():
        return moved
    cached = (np.minimum(read, gpus.l2) + np.minimum(write, gpus.l2)) * warm
    cached *= 1.0 - 1.0 / MAX_L2_SPEEDUP
    uncached: Array = moved - cached
    return uncached
