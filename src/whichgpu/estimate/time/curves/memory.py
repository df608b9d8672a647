"""Operators bound by bandwidth: bytes at a share of it, fewer where the cache holds them; elements and rows at the SMs' pace."""

from __future__ import annotations

import numpy as np

from whichgpu.estimate.time.curves.gemm import resident_share
from whichgpu.estimate.time.curves.gpus import GpuColumns
from whichgpu.estimate.time.curves.stack import Array, Mask, OperatorStack, Parameters, soft_max
from whichgpu.estimate.time.units import UNITS

SHORT = 1024.0  # columns of a row that a block keeps in registers
MANY_ROWS, SECOND_STAGE = 65536.0, 0.2  # rows beyond which sums go in two stages; what a row costs then
USUAL_WIDTH = 768.0
VOCABULARY = 16384.0  # softmax rows longer than any attention's: the loss, whose backward pass is one kernel, not two
CUDNN_PLANES = "cudnn_planes"  # cuDNN's normalisation of planes of pixels: one block for each channel
KEPT = 100.0 * 1024.0  # bytes of a channel that such a block keeps, so that it reads them once
BESIDE, BESIDE_ONE = 4.0, 3.0  # sharpness: of a block's pace against bandwidth, and of channels in turns against one


def seconds(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Seconds of each, [gpus, operators, batches]."""
    held = hits(stack, gpus, p)
    moved = (stack.read + stack.write) * passes(stack)
    held *= 1.0 / p["memory.cache"] - 1.0
    held += 1.0
    held *= moved / share(stack, p)
    held /= gpus.bandwidth
    pace = 1.0 / (gpus.sms * gpus.clock)
    work = soft_max(held, elements(stack) * stack.each(p, "memory.element") * pace, p["memory.sharpness"])
    if stack.each(p, "memory.serial").any():
        work = by_channel(stack, gpus, p, work)
    work += rows(stack) * stack.each(p, "memory.row") * pace
    work += stack.each(p, "memory.start") * gpus.latency
    return work


def hits(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """The share of the bytes that the L2 still holds."""
    return resident_share(stack.read + stack.write, stack.size("resident", p["memory.resident"]), gpus, p)


def share(stack: OperatorStack, p: Parameters) -> Array:
    """The share of bandwidth that each reaches; softmax keeps a short row in registers and reads it once."""
    reached = stack.each(p, "memory.share")
    if not any(op.kind == "softmax" for op in stack.ops):
        return reached
    return np.where(stack.kind("softmax") & (stack.size("width") <= SHORT), p["memory.share.softmax.short"], reached)


def rows(stack: OperatorStack) -> Array:
    """Rows that cost something each; PyTorch sums very many of them in two stages, and narrow ones several at once."""
    count = stack.size("rows", 0.0)
    first = np.minimum(count, MANY_ROWS)
    count = np.where(stack.kind("norm_backward"), first + SECOND_STAGE * (count - first), count)
    narrow = np.minimum(USUAL_WIDTH / np.maximum(stack.size("width", USUAL_WIDTH), 1.0), 1.0)
    return np.where(stack.kind("reduce_columns"), first * narrow, count)


def by_channel(stack: OperatorStack, gpus: GpuColumns, p: Parameters, work: Array) -> Array:
    """Where one block goes over all rows of a channel, no SM is faster than a block; and each channel costs something besides."""
    channels = stack.size("width", 0.0) / gpus.sms
    turns = channels / stack.each(p, "memory.abreast")
    row = np.where(_kept(stack), UNITS[stack.unit].bytes * stack.each(p, "memory.kept"), stack.each(p, "memory.serial"))
    alone = soft_max(turns, np.ones_like(turns), BESIDE_ONE) * stack.size("rows", 0.0) * row
    pace = np.where(gpus.native["tf32"] > 0, 1.0, p["memory.older"]) / gpus.clock
    return soft_max(work, alone * pace, BESIDE) + channels * stack.each(p, "memory.channel") * pace


def passes(stack: OperatorStack) -> Array:
    """How often a kind goes over its bytes: PyTorch's softmax multiplies gradient and output first, but not the loss's."""
    if not any(op.kind == "softmax_backward" for op in stack.ops):
        return once(stack)
    twice = stack.kind("softmax_backward") & (stack.size("width") < VOCABULARY)
    return np.where(twice, 2.0, once(stack))


def once(stack: OperatorStack) -> Array:
    """The share of its bytes that a kernel has to move: one that keeps a channel does not read it a second time."""
    if not any(op.role == CUDNN_PLANES for op in stack.ops):
        return np.ones((len(stack.ops), 1))
    return np.where(_kept(stack), np.where(stack.kind("batch_norm"), 2.0 / 3.0, 3.0 / 5.0), 1.0)


def _kept(stack: OperatorStack) -> Mask:
    """Whether a block keeps its channel: what it normalises, and the gradient too."""
    sides = np.where(stack.kind("batch_norm_backward"), 2.0, 1.0)
    channel = stack.size("rows", 0.0) * sides * UNITS[stack.unit].bytes
    kept: Mask = stack.role(CUDNN_PLANES) & (channel <= KEPT)
    return kept


def elements(stack: OperatorStack) -> Array:
    """Elements of each: as stated, as rows and width, or as many as its larger side's bytes hold."""
    held = np.maximum(stack.read, stack.write) / UNITS[stack.unit].bytes
    stated = stack.size("elements", 0.0)
    rows = stack.size("rows", 0.0) * stack.size("width", 0.0)
    return np.where(stated > 0, stated, np.where(rows > 0, rows, held))
