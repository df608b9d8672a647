"""Seconds of llama.cpp's own kernels for quantised weights: MMVQ for a few rows, MMQ for more, experts included.

MMVQ multiplies up to eight rows as vectors: an SM unpacks a number of weights per clock, then multiplies each by every row in
integer dot products. MMQ multiplies tiles of 128 weight rows by up to 128 input rows in int8: it loads and unpacks a tile's
weights, then multiplies, and reads the weights again for the next 128 input rows. It multiplies with mma.sync from shared memory,
so that an SM of a data-centre chip does no more per clock than one of a GeForce card, whatever its peak.
The experts of an MoE layer share one kernel, whose tile width follows the number of tokens, not the rows of an expert
(ggml/src/ggml-cuda/mmq.cuh, mmvq.cu; pull requests 15525 and 26977).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from whichgpu.estimate.time.curves.gemm import peak_share
from whichgpu.estimate.time.curves.gpus import GpuColumns, power_bound
from whichgpu.estimate.time.curves.stack import Array, Mask, OperatorStack, Parameters, soft_max

MAX_VECTOR_ROWS: Final = 8.0  # rows up to which MMVQ multiplies (MMVQ_MAX_BATCH_SIZE)
MAX_TILE_COLUMNS: Final = 128.0  # input rows of MMQ's largest tile (mmq_x)
TILE_WEIGHT_ROWS: Final = 128.0  # rows of the weight matrix in a tile (mmq_y)
GPU_TARGETS: Final = ("sm_", "gfx")  # targets of the CUDA and HIP back ends
# Targets on which MMQ divides all tiles evenly over the SMs (stream-k): NVIDIA from Volta on, and CDNA.
STREAM_K: Final = ("sm_7", "sm_8", "sm_9", "sm_1", "gfx908", "gfx90a", "gfx94", "gfx95")
VECTORS_MEASURED: Final = ("sm_8", "sm_9", "sm_1")  # targets with measured decode steps of llama.cpp: Ampere to Blackwell
TILE_STEP: Final = 8.0  # input rows by which tiles grow
MIN_TILE_COLUMNS_ELSEWHERE: Final = 32.0  # input rows of the smallest tile for experts in the Vulkan back end
EXPERT_COLUMNS_PER_TOKEN: Final = 0.25  # tile columns that are multiplied for each expert, per token of the step; measured (lhl)
PART_TILE: Final = 0.5  # share of an expert's last tile that is empty, on average
DEQUANTISED_ROWS: Final = 64.0  # rows from which chips without int8 matrix units dequantise for cuBLAS (MMQ_DP4A_MAX_BATCH_SIZE)
DEQUANTISED_BYTES: Final = 4.0  # bytes per weight of an fp16 copy of the weights: written, then read by the GEMM
UNPACKING_OVERLAP: Final = 4.0  # exponent by which MMQ's reading and unpacking overlap, assumed: copies are asynchronous
VECTOR_OVERLAP: Final = 2.0  # exponent by which MMVQ's reading and dot products overlap, from 1 to 8 rows on Strix Halo (lhl)


def seconds(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the seconds of one call of each GEMM, [gpus, operators, batches]."""
    return seconds_and_read_share(stack, gpus, p)[0]


def seconds_and_read_share(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> tuple[Array, Array]:
    """Return the seconds of each GEMM and the share of them spent reading."""
    experts, tokens = stack.size("batch"), stack.size("tokens", 0.0)
    grouped = tokens > 0
    rows = stack.size("m") / np.maximum(experts, 1.0)
    tokens = np.where(grouped, tokens, rows)
    tiles, columns = _tiles(rows, tokens, grouped, gpus)
    read = _read_seconds(stack, tiles, gpus, p)
    multiplied = _tile_seconds(stack, tiles * columns * experts, gpus, p) * _idle_factor(stack, tiles, grouped, gpus)
    vectors = tokens <= np.where(grouped, stack.size("vector_tokens", 1.0), MAX_VECTOR_ROWS)
    unpacking = _unpacked(stack, experts, gpus, p["mmq.unpacked_weights_per_clock"])
    total = multiplied + soft_max(unpacking, read, UNPACKING_OVERLAP)
    if vectors.any():
        # The vector kernels unpack an expert's weights again for every token that was routed to it.
        unpacked = np.where(grouped, stack.size("m"), 1.0)
        total = np.where(vectors, soft_max(_vector_seconds(stack, unpacked, gpus, p), read, VECTOR_OVERLAP), total)
    total += p["gemm.fixed_seconds"] * gpus.latency
    return total, read / (read + np.where(vectors, 0.0, multiplied))


def slowdown(gpus: GpuColumns, p: Parameters) -> Array:
    """Return the slowdown of MMQ against plain int8 GEMMs: on matrix units, in dot products; without int8 it is 1 (cuBLAS)."""
    per_clock = gpus.peaks["int8"] / (gpus.sms * gpus.clock)
    matrix_units = p["mmq.slowdown"] * np.maximum(per_clock / p["mmq.operations_per_clock"], 1.0)
    own = np.where(gpus.matrix_units > 0, matrix_units, p["mmq.slowdown.dot_products"])
    return np.where(gpus.native["int8"] > 0, own, 1.0)


def _tiles(rows: Array, tokens: Array, grouped: Mask, gpus: GpuColumns) -> tuple[Array, Array]:
    """Return the tiles side by side that cover a matrix's or an expert's rows, and the columns of one."""
    tiles = np.ceil(np.maximum(tokens, 1.0) / MAX_TILE_COLUMNS)
    dense = np.ceil(np.maximum(tokens, 1.0) / (tiles * TILE_STEP)) * TILE_STEP
    dense = np.where(_whole_tiles(gpus) & (tiles > 1), MAX_TILE_COLUMNS, dense)
    nvidia = np.array([target.startswith("sm_") for target in gpus.targets])[:, None, None]
    min_columns = np.where(nvidia, TILE_STEP, MIN_TILE_COLUMNS_ELSEWHERE)
    by_tokens = np.ceil(tokens * EXPERT_COLUMNS_PER_TOKEN / TILE_STEP) * TILE_STEP
    by_rows = np.ceil((rows + TILE_STEP / 2.0) / TILE_STEP) * TILE_STEP  # NVIDIA's kernel skips columns without a token.
    expert = np.clip(np.where(nvidia, by_rows, by_tokens), min_columns, MAX_TILE_COLUMNS)
    columns = np.where(grouped, expert, dense)
    return np.where(grouped, np.maximum(rows / columns + PART_TILE, 1.0), tiles), columns


def _idle_factor(stack: OperatorStack, tiles: Array, grouped: Mask, gpus: GpuColumns) -> Array:
    """Return the factor by which SMs without a tile in the last wave slow down a GEMM; with stream-k all SMs share all tiles."""
    all_tiles = tiles * np.ceil(stack.size("n") / TILE_WEIGHT_ROWS)
    waves = np.ceil(all_tiles / gpus.sms) * gpus.sms / all_tiles
    return np.where(_whole_tiles(gpus) & ~grouped & (gpus.native[stack.unit] > 0), waves, 1.0)


def _whole_tiles(gpus: GpuColumns) -> Mask:
    """Whether an SM multiplies whole tiles on each GPU, [gpus, 1, 1]."""
    whole = [target.startswith(GPU_TARGETS) and not target.startswith(STREAM_K) for target in gpus.targets]
    return np.array(whole)[:, None, None]


def _tile_seconds(stack: OperatorStack, padded_rows: Array, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the arithmetic seconds of all tiles with `padded_rows` input rows, of all experts."""
    flops = 2.0 * padded_rows * stack.size("n") * stack.size("k")
    rate = gpus.sustained_rates[stack.unit] * peak_share(stack.unit, gpus, p) / slowdown(gpus, p)
    return np.maximum(flops / rate, power_bound(stack.flops, stack.unit, gpus, p))


def _vector_seconds(stack: OperatorStack, unpacked: Array, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the seconds of MMVQ's dot products; on AMD weights with nested scales (K-quants, IQ) take more work to unpack."""
    amd = np.array([target.startswith("gfx") for target in gpus.targets])[:, None, None]
    nested = np.where(stack.size("nested_scales", 0.0) > 0, p["mmq.nested_scales_slowdown"], 1.0)
    products = stack.size("m") * stack.size("n") * stack.size("k")
    per_clock = np.where(amd, p["mmq.vector_products_per_clock.amd"] / nested, p["mmq.vector_products_per_clock"])
    unpacking = np.where(_unpacking_measured(gpus), _unpacked(stack, unpacked, gpus, p["mmq.vector_weights_per_clock"]), 0.0)
    return products / (per_clock * gpus.sms * gpus.clock) + unpacking


def _unpacking_measured(gpus: GpuColumns) -> Mask:
    """Return whether the unpacking of vector kernels was measured on chips like each GPU; it does not bound the others."""
    return np.array([target.startswith(VECTORS_MEASURED) for target in gpus.targets])[:, None, None]


def _unpacked(stack: OperatorStack, matrices: Array, gpus: GpuColumns, per_clock: float) -> Array:
    """Return the seconds to unpack the weights of `matrices` matrices, at `per_clock` weights per clock of an SM."""
    weights = np.maximum(matrices, 1.0) * stack.size("n") * stack.size("k")
    return weights / (per_clock * gpus.sms * gpus.clock)


def _read_seconds(stack: OperatorStack, tiles: Array, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the seconds to move the operands: weights once for each tile of input rows, unless they stay in the L2 cache."""
    experts, weight = np.maximum(stack.size("batch"), 1.0), stack.size("weight", 0.0)
    missed = np.clip(weight / experts / gpus.l2 - 1.0, 0.0, 1.0)
    again = weight * (tiles - 1.0) * missed
    copied = (gpus.native[stack.unit] == 0) & (stack.size("m") / experts >= DEQUANTISED_ROWS)
    again = np.where(copied, experts * stack.size("n") * stack.size("k") * DEQUANTISED_BYTES, again)
    share = p["gemm.bandwidth_share"] * p["gemm.bandwidth_multiplier.weight_only_gemm"]
    rate = gpus.bandwidth * gpus.architecture_factor(p, "gemm.architecture_multiplier.bandwidth") * share
    return (stack.read + stack.write + again) / rate
