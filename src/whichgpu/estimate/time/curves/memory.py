"""Seconds of memory-bound kernels: bytes that miss the L2 at a share of bandwidth; elements and rows at the rate of the SMs."""

from __future__ import annotations

import numpy as np

from whichgpu.estimate.time.curves.gemm import resident_share
from whichgpu.estimate.time.curves.gpus import GpuColumns
from whichgpu.estimate.time.curves.stack import Array, Mask, OperatorStack, Parameters, soft_max
from whichgpu.estimate.time.units import UNITS

REGISTER_COLUMNS = 1024.0  # columns of the longest softmax row that a thread block keeps in registers
TWO_STAGE_ROWS, SECOND_STAGE = 65536.0, 0.2  # rows beyond which PyTorch sums in two stages; relative cost of each row beyond
FULL_ROW_WIDTH = 768.0  # columns; narrower rows are summed several at once
VOCABULARY = 16384.0  # columns; wider softmax rows belong to the loss, whose backward pass is one kernel instead of two
CUDNN_NCHW = "cudnn_nchw"  # variant of batch norm: cuDNN's on NCHW images, which uses one thread block per channel
CHANNEL_CACHE_BYTES = 100.0 * 1024.0  # bytes; a smaller channel stays on chip, so its thread block reads it only once
BLOCK_SHARPNESS, WAVE_SHARPNESS = 4.0, 3.0  # exponents of smooth maxima: one block against bandwidth; several waves against one


def seconds(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the seconds of one call of each memory-bound kernel, [gpus, operators, batches]."""
    transfer = cache_hit_share(stack, gpus, p)
    moved = (stack.read + stack.write) * byte_passes(stack)
    transfer *= 1.0 / p["memory.l2_speedup"] - 1.0
    transfer += 1.0
    transfer *= moved / bandwidth_share(stack, p)
    transfer /= gpus.bandwidth
    pace = 1.0 / (gpus.sms * gpus.clock)
    arithmetic = element_count(stack) * stack.parameter(p, "memory.clocks_per_element") * pace
    total = soft_max(transfer, arithmetic, p["memory.overlap_exponent"])
    if stack.parameter(p, "batchnorm.clocks_per_row").any():
        total = channel_bound(stack, gpus, p, total)
    total += reduction_rows(stack) * stack.parameter(p, "memory.clocks_per_row") * pace
    total += stack.parameter(p, "memory.fixed_seconds") * gpus.latency
    return total


def cache_hit_share(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the share of each kernel's bytes that the L2 cache still holds."""
    return resident_share(stack.read + stack.write, stack.size("resident", p["memory.recent_share"]), gpus, p)


def bandwidth_share(stack: OperatorStack, p: Parameters) -> Array:
    """Return the share of bandwidth that each kernel achieves; softmax keeps a short row in registers and reads it once."""
    share = stack.parameter(p, "memory.bandwidth_share")
    if not any(op.kind == "softmax" for op in stack.ops):
        return share
    short = stack.is_kind("softmax") & (stack.size("width") <= REGISTER_COLUMNS)
    return np.where(short, p["memory.bandwidth_share.softmax_in_registers"], share)


def reduction_rows(stack: OperatorStack) -> Array:
    """Return the effective number of rows that a kernel reduces; beyond 65,536 rows, and if rows are narrow, each costs less."""
    count = stack.size("rows", 0.0)
    first = np.minimum(count, TWO_STAGE_ROWS)
    count = np.where(stack.is_kind("norm_backward"), first + SECOND_STAGE * (count - first), count)
    width_share = np.minimum(FULL_ROW_WIDTH / np.maximum(stack.size("width", FULL_ROW_WIDTH), 1.0), 1.0)
    return np.where(stack.is_kind("reduce_columns"), first * width_share, count)


def channel_bound(stack: OperatorStack, gpus: GpuColumns, p: Parameters, total: Array) -> Array:
    """Return batch norm's seconds with a thread block per channel: about the larger of a block's and all blocks' `total`."""
    channels = stack.size("width", 0.0) / gpus.sms
    waves = channels / stack.parameter(p, "batchnorm.channels_per_sm")
    cached_row = UNITS[stack.unit].bytes * stack.parameter(p, "batchnorm.cached_clocks_per_byte")
    row = np.where(_channel_cached(stack), cached_row, stack.parameter(p, "batchnorm.clocks_per_row"))
    block = soft_max(waves, np.ones_like(waves), WAVE_SHARPNESS) * stack.size("rows", 0.0) * row
    pace = np.where(gpus.native["tf32"] > 0, 1.0, p["batchnorm.pre_ampere_clock_ratio"]) / gpus.clock
    per_channel = channels * stack.parameter(p, "batchnorm.clocks_per_channel")
    return soft_max(total, block * pace, BLOCK_SHARPNESS) + per_channel * pace


def byte_passes(stack: OperatorStack) -> Array:
    """Return how often a kernel moves its bytes: softmax backward first multiplies gradient and output, except in the loss."""
    if not any(op.kind == "softmax_backward" for op in stack.ops):
        return min_byte_share(stack)
    twice = stack.is_kind("softmax_backward") & (stack.size("width") < VOCABULARY)
    return np.where(twice, 2.0, min_byte_share(stack))


def min_byte_share(stack: OperatorStack) -> Array:
    """Return the share of a kernel's bytes that it must move: below 1 for batch norm that keeps its channels on chip."""
    if not any(op.role == CUDNN_NCHW for op in stack.ops):
        return np.ones((len(stack.ops), 1))
    return np.where(_channel_cached(stack), np.where(stack.is_kind("batch_norm"), 2.0 / 3.0, 3.0 / 5.0), 1.0)


def _channel_cached(stack: OperatorStack) -> Mask:
    """Whether a thread block caches its channel: the input, and in the backward pass the gradient too."""
    tensors = np.where(stack.is_kind("batch_norm_backward"), 2.0, 1.0)
    channel = stack.size("rows", 0.0) * tensors * UNITS[stack.unit].bytes
    cached: Mask = stack.has_role(CUDNN_NCHW) & (channel <= CHANNEL_CACHE_BYTES)
    return cached


def element_count(stack: OperatorStack) -> Array:
    """Return each kernel's elements: as stated, else rows x width, else the larger of its bytes read and written, converted."""
    from_bytes = np.maximum(stack.read, stack.write) / UNITS[stack.unit].bytes
    stated = stack.size("elements", 0.0)
    rows = stack.size("rows", 0.0) * stack.size("width", 0.0)
    return np.where(stated > 0, stated, np.where(rows > 0, rows, from_bytes))
