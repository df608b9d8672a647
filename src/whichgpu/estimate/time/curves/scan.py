"""Seconds of the chunked recurrences of linear attention, and of the short convolutions before them.

Kernels of separate stages are limited by the products that an SM issues per clock, or by the bytes that stages pass on to each
other through memory; one fused kernel by its products alone. The chunks of a sequence follow each other, whatever the GPU.
"""

from __future__ import annotations

import numpy as np

from whichgpu.estimate.time.curves.gemm import resident_share
from whichgpu.estimate.time.curves.gpus import GpuColumns
from whichgpu.estimate.time.curves.stack import Array, Mask, OperatorStack, Parameters, soft_max

SHARPNESS = 3.0  # exponent of the smooth maximum of the work of all chunks and the time of one sequence's chunks
MAX_PEAK_SHARE = 0.5  # of a chip whose SMs multiply fewer numbers per clock than these kernels issue (assumed)


def seconds(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the seconds of one call of each recurrence or convolution, [gpus, operators, batches]."""
    chunked = _work(stack, gpus, p, "chunked", stack.has_role("chunked_kda", "fused_kda"))
    fusing = stack.has_role("fused", "fused_kda")
    if (
        fusing.any()
    ):  # Kernels of gated DeltaNet need asynchronous matrix instructions, those of Kimi delta attention bulk copies.
        fused = _work(stack, gpus, p, "fused", stack.has_role("fused_kda"))
        runs = np.where(stack.has_role("fused_kda"), gpus.bulk_copies, gpus.async_matrix) > 0
        chunked = np.where(fusing & runs, fused, chunked)
    return np.where(stack.is_kind("short_conv"), _convolution(stack, gpus, p), chunked)


def _convolution(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    moved = stack.read + stack.write
    issued = moved / (gpus.sms * gpus.clock * p["scan.convolved_bytes_per_clock"])
    total: Array = np.maximum(_transfer(stack, moved, gpus, p), issued) + p["scan.convolution_seconds"] * gpus.latency
    return total


def _work(stack: OperatorStack, gpus: GpuColumns, p: Parameters, kernels: str, kda: Mask) -> Array:
    """Return the seconds of recurrences in `chunked` or `fused` kernels; Kimi delta attention (`kda`) has more to do."""
    issued = gpus.sms * gpus.clock * p[f"scan.flops_per_clock.{kernels}"]
    arithmetic = stack.flops / np.minimum(issued, MAX_PEAK_SHARE * gpus.sustained_rates[stack.unit])
    between = stack.size("between", 0.0) if kernels == "chunked" else 0.0
    transfer = _transfer(stack, stack.read + stack.write + between, gpus, p)
    work = np.maximum(arithmetic, transfer) * np.where(kda, p[f"scan.kda_work.{kernels}"], 1.0)
    serial = stack.size("chunks", 0.0) * p[f"scan.seconds_per_chunk.{kernels}"] * gpus.latency
    return soft_max(work, np.broadcast_to(serial, work.shape), SHARPNESS) + p[f"scan.start_seconds.{kernels}"] * gpus.latency


def _transfer(stack: OperatorStack, moved: Array, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the seconds of moving these bytes, some of which the L2 cache still holds."""
    cached = resident_share(moved, stack.size("resident", p["memory.recent_share"]), gpus, p)
    cached *= 1.0 / p["memory.l2_speedup"] - 1.0
    cached += 1.0
    share: Array = moved * cached / (gpus.bandwidth * stack.parameter(p, "scan.bandwidth_share"))
    return share
