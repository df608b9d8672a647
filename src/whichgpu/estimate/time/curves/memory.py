"""Operators bound by bandwidth: bytes at a share of it, fewer where the cache holds them; elements and rows at the SMs' pace."""

from __future__ import annotations

import numpy as np

from whichgpu.estimate.time.curves.gemm import resident_share
from whichgpu.estimate.time.curves.gpus import GpuColumns
from whichgpu.estimate.time.curves.stack import Array, Parameters, Stack, soft_max

BYTES = {"fp64": 8.0, "fp32": 4.0, "tf32": 4.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5}
SHORT = 1024.0  # columns of a row that a block keeps in registers
MANY_ROWS, SECOND_STAGE = 65536.0, 0.2  # rows beyond which sums go in two stages; what a row costs then
USUAL_WIDTH = 768.0
VOCABULARY = 16384.0  # softmax rows longer than any attention's: the loss, whose backward pass is one kernel, not two


def seconds(stack: Stack, gpus: GpuColumns, p: Parameters) -> Array:
    """Seconds of each, [gpus, operators, batches]."""
    held = hits(stack, gpus, p)
    moved = (stack.read + stack.write) * passes(stack)
    held *= 1.0 / p["memory.cache"] - 1.0
    held += 1.0
    held *= moved / share(stack, p)
    held /= gpus.bandwidth
    pace = 1.0 / (gpus.sms * gpus.clock)
    work = soft_max(held, elements(stack) * stack.each(p, "memory.element") * pace, p["memory.sharpness"])
    work += rows(stack) * stack.each(p, "memory.row") * pace
    work = np.maximum(work, one_by_one(stack, gpus, p))
    work += stack.each(p, "memory.start") * gpus.latency
    return work


def hits(stack: Stack, gpus: GpuColumns, p: Parameters) -> Array:
    """The share of the bytes that the L2 still holds."""
    return resident_share(stack.read + stack.write, stack.size("resident", p["memory.resident"]), gpus, p)


def share(stack: Stack, p: Parameters) -> Array:
    """The share of bandwidth that each reaches; softmax keeps a short row in registers and reads it once."""
    reached = stack.each(p, "memory.share")
    if not any(op.kind == "softmax" for op in stack.ops):
        return reached
    return np.where(stack.kind("softmax") & (stack.size("width") <= SHORT), p["memory.share.softmax.short"], reached)


def rows(stack: Stack) -> Array:
    """Rows that cost something each; PyTorch sums very many of them in two stages, and narrow ones several at once."""
    count = stack.size("rows", 0.0)
    first = np.minimum(count, MANY_ROWS)
    count = np.where(stack.kind("norm_backward"), first + SECOND_STAGE * (count - first), count)
    narrow = np.minimum(USUAL_WIDTH / np.maximum(stack.size("width", USUAL_WIDTH), 1.0), 1.0)
    return np.where(stack.kind("reduce_columns"), first * narrow, count)


def one_by_one(stack: Stack, gpus: GpuColumns, p: Parameters) -> Array:
    """Where one block goes over all rows of a channel: as many channels at a time as the SMs hold."""
    each = stack.each(p, "memory.serial")
    if not each.any():
        return np.zeros((1, 1, 1))
    return stack.size("rows", 0.0) * each * np.maximum(stack.size("width", 0.0) / (2.0 * gpus.sms), 1.0) / gpus.clock


def passes(stack: Stack) -> Array:
    """How often a kind goes over its bytes: PyTorch's softmax multiplies gradient and output first, but not the loss's."""
    if not any(op.kind == "softmax_backward" for op in stack.ops):
        return np.ones((len(stack.ops), 1))
    twice = stack.kind("softmax_backward") & (stack.size("width") < VOCABULARY)
    return np.where(twice, 2.0, 1.0)


def elements(stack: Stack) -> Array:
    """Elements of each: as stated, as rows and width, or as many as its larger side's bytes hold."""
    held = np.maximum(stack.read, stack.write) / BYTES.get(stack.unit, 2.0)
    stated = stack.size("elements", 0.0)
    rows = stack.size("rows", 0.0) * stack.size("width", 0.0)
    return np.where(stated > 0, stated, np.where(rows > 0, rows, held))
