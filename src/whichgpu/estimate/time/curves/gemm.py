"""Seconds of GEMMs: tiled arithmetic, reading of weights, and the cost of misaligned, quantised and per-expert GEMMs."""

from __future__ import annotations

from typing import Final

import numpy as np

from whichgpu.estimate.time.curves.gpus import MATRIX_ROWS, GpuColumns, power_bound
from whichgpu.estimate.time.curves.stack import Array, Mask, OperatorStack, Parameters, soft_max
from whichgpu.estimate.time.curves.tiles import SIMT_TILES, TENSOR_TILES, GemmShapes, TileModel, tiled_seconds
from whichgpu.estimate.time.units import UNITS

ALIGNED_ELEMENTS: Final = 8.0  # elements to which rows in memory must be aligned for tensor-core kernels
SMALL_SIDE: Final = 64.0  # largest m and n of the batched GEMMs that have their own kernels
MISALIGNED_TILE_SIDE: Final = 128.0  # smallest tile side of kernels for misaligned rows
TINY: Final = 1e-300  # avoids 0/0
CUBLASLT: Final = "cublaslt"  # cuBLASLt's kernels for quantised operands, which training runs (NVIDIA Transformer Engine)


def seconds(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the seconds of one call of each GEMM, [gpus, operators, batches]."""
    return seconds_and_read_share(stack, gpus, p)[0]


def seconds_and_read_share(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> tuple[Array, Array]:
    """Return the seconds of each GEMM and the share of them spent reading memory, near 1 for a memory-bound GEMM."""
    unit, rate = stack.unit, gpus.sustained_rates[stack.unit]
    grouped, batch, m = stack.is_kind("grouped_gemm"), stack.size("batch"), stack.size("m")
    gemms = GemmShapes(batch, np.where(grouped, m / np.maximum(batch, 1.0), m), stack.size("n"), stack.size("k"))
    # Kernels for many small GEMMs load single elements and several tiles per SM, so they need no alignment.
    small = (batch > 1) & (gemms.m <= SMALL_SIDE) & (gemms.n <= SMALL_SIDE)
    single = UNITS[unit].product_class == "fp32"
    odd = np.zeros_like(gemms.m, dtype=bool) if single else misaligned(stack, gemms) & ~small
    compute = tiled_seconds(gemms, tile_model(unit, odd, small, p), unit, gpus)
    emulated = np.asarray(UNITS[unit].below_16_bits & (gpus.native.get(unit, np.ones(1)) == 0))  # weights are dequantised
    dequantised = stack.is_kind("weight_only_gemm") | (emulated & ~grouped & (UNITS[unit].product_class != "int8"))
    if dequantised.any():  # These kernels fit their tiles to any number of rows and split k over all SMs.
        compute = np.where(dequantised, stack.flops / rate, compute)
    experts = (stack.size("unpacked", 0.0) > 0) | (emulated & grouped)
    if experts.any():
        slowest = stack.flops * dequantised_expert_slowdown(stack, gpus, p) / rate
        compute = np.maximum(compute, np.where(experts, slowest, 0.0))
    compute *= slowdown(stack, gemms, odd, gpus, p) / stack_peak_share(stack, gpus, p)
    np.maximum(compute, power_bound(stack.flops, unit, gpus, p), out=compute)
    memory, row_by_row = bandwidth_seconds(stack, gemms, small, gpus, p)
    np.minimum(compute, row_by_row, out=compute)
    total = soft_max(compute, memory, p["gemm.overlap_exponent"]) + p["gemm.fixed_seconds"] * gpus.latency
    return total, _fourth_power(memory) / (_fourth_power(memory) + _fourth_power(compute) + TINY)


def _fourth_power(times: Array) -> Array:
    squares = times * times
    squares *= squares
    return squares


def tile_model(unit: str, odd: Mask, small: Mask, p: Parameters) -> TileModel:
    """Return the tiles that libraries choose from for GEMMs in an arithmetic unit; `odd`: misaligned, `small`: batched small."""
    if UNITS[unit].product_class == "fp32":
        edge, fill, split = (p[f"gemm.{name}.fp32"] for name in ("half_rate_intensity", "k_pipeline_fill", "split_k_work_ratio"))
        return TileModel(SIMT_TILES, edge, fill, split, p["gemm.split_k_seconds"])
    edge, split = p["gemm.half_rate_intensity"], p["gemm.split_k_work_ratio"]
    min_side, fills = np.where(odd, MISALIGNED_TILE_SIDE, 0.0), np.where(small, 0.0, p["gemm.k_pipeline_fill"])
    return TileModel(TENSOR_TILES, edge, fills, split, p["gemm.split_k_seconds"], min_side)


def stack_peak_share(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the share of peak FLOP/s that each large GEMM achieves; cuBLASLt's fp8 kernels achieve one share on all chips."""
    share = peak_share(stack.unit, gpus, p)
    stated = p.get(f"gemm.peak_share.{stack.unit}.{CUBLASLT}")
    if stated is None or not (library := stack.has_role(CUBLASLT)).any():
        return share
    return np.where(library & (gpus.native[stack.unit] > 0), stated, share)


def peak_share(unit: str, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the share of peak FLOP/s that large GEMMs achieve in an arithmetic unit such as fp8, less if it is emulated."""
    stated = p.get(f"gemm.peak_share.{unit}", p["gemm.peak_share"])
    share = gpus.architecture_share(p, f"gemm.architecture_multiplier.{UNITS[unit].product_class}") * stated
    if unit == "fp4":  # Kernels measured on the B300 do not reach its higher fp4 peak, but reach the fp8 rate of the B200.
        share = share * gpus.architecture_factor(p, "gemm.architecture_multiplier.fp4")
    if unit == "bf16":
        share = np.where(gpus.native[unit] > 0, share, p["gemm.peak_share.bf16_in_fp32"])
    elif UNITS[unit].below_16_bits:
        share = np.where(gpus.native[unit] > 0, share, p["gemm.peak_share"] * p["gemm.peak_share.dequantised"])
    return share


def misaligned(stack: OperatorStack, gemms: GemmShapes) -> Mask:
    """Whether operand rows are misaligned for tensor-core kernels; the batch does not matter.

    Rows lie along k, or along m in weight gradients, which sum over tokens; an expert's mean number of tokens is no row's length.
    """
    odd_m, odd_n, odd_k = (np.mod(side, ALIGNED_ELEMENTS) > 0 for side in (gemms.m, gemms.n, gemms.k))
    odd_rows = np.where(stack.has_role("wgrad"), odd_m, odd_k)
    return odd_n | np.where(stack.is_kind("grouped_gemm"), odd_m & odd_k, odd_rows)


def slowdown(stack: OperatorStack, gemms: GemmShapes, odd: Mask, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the factor by which a GEMM's arithmetic is slower: misaligned rows, transposed operands, dequantised weights."""
    unit = stack.unit
    factor = np.ones((len(gpus), len(stack.ops), 1)) * stack.parameter(p, "gemm.arithmetic_slowdown")
    if UNITS[unit].product_class == "16bit" and (grouped := stack.is_kind("grouped_gemm")).any():
        newest = gpus.matrix_rows >= MATRIX_ROWS["tcgen05"]
        factor = factor * np.where(grouped & newest, p["gemm.grouped_slowdown.tcgen05"], 1.0)
    bulk = gpus.bulk_copies > 0  # Bulk copies (TMA) need alignment, so misaligned rows cost these chips more.
    if odd.any():
        even = (np.mod(gemms.n, 2.0) == 0) & (np.mod(gemms.k, 2.0) == 0)  # Pairs of elements can still be loaded at once.
        by_pairs = np.where(even, p["gemm.misaligned_slowdown.even"], p["gemm.misaligned_slowdown"])
        with_tma = p["gemm.misaligned_slowdown.tf32"] if unit == "tf32" else by_pairs
        cost = np.where(bulk, with_tma, p["gemm.misaligned_slowdown.before_tma"])
        factor = factor * np.where(odd & (gpus.native[unit] > 0), cost, 1.0)
    if unit == "tf32":
        dgrad = np.where(stack.has_role("dgrad"), p["gemm.transposed_slowdown.tf32_dgrad"], 1.0)
        transposed = np.where(stack.has_role("wgrad"), p["gemm.transposed_slowdown.tf32_wgrad"], dgrad)
        factor = factor * np.where(bulk, transposed, 1.0)
    return factor


def dequantised_expert_slowdown(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the smallest slowdown of MoE GEMMs that dequantise their weights, reached with full tiles."""
    dequantising = np.where(stack.size("unpacked", 0.0) > 0, p["gemm.arithmetic_slowdown.weight_only_gemm"], 1.0)
    # Kernels that dequantise experts use mma.sync only, which misses the full rate of chips with asynchronous instructions.
    return dequantising / np.where(gpus.async_matrix > 0, p["gemm.peak_share.mma_sync"], 1.0)


def bandwidth_seconds(
    stack: OperatorStack, gemms: GemmShapes, small: Mask, gpus: GpuColumns, p: Parameters
) -> tuple[Array, Array]:
    """Return the seconds to move all operands once, and those of re-reading weights for every row beyond the first."""
    moved = stack.read + stack.write
    unit_share = p.get(f"gemm.bandwidth_share.{stack.unit}", p["gemm.bandwidth_share"])
    share = unit_share * stack.parameter(p, "gemm.bandwidth_multiplier")
    if small.any():  # The share of bandwidth grows to the usual one at four times SMALL_SIDE.
        growth = np.clip((np.maximum(gemms.m, gemms.n) / SMALL_SIDE - 1.0) / 3.0, 0.0, 1.0)
        small_share = p["gemm.bandwidth_share.small_batched"]
        share = np.where(gemms.batch > 1, small_share + (share - small_share) * growth, share)
    rate = gpus.bandwidth * gpus.architecture_factor(p, "gemm.architecture_multiplier.bandwidth") * share
    vectors, several = stack.has_role("gguf"), stack.has_role("gguf_2025") & (np.minimum(gemms.m, gemms.n) > 1)
    if vectors.any() or several.any():  # llama.cpp's kernels keep few loads in flight.
        per_clock = np.where(several, p["gemm.llama_cpp_bytes_per_clock.several_rows"], p["gemm.llama_cpp_bytes_per_clock"])
        rate = np.where(vectors | several, np.minimum(rate, per_clock * gpus.sms * gpus.clock), rate)
    cached = resident_share(moved, stack.size("resident", 0.0), gpus, p)
    memory = moved * (1.0 - cached * (1.0 - 1.0 / p["gemm.l2_speedup"])) / rate
    weights = gemms.batch * np.maximum(gemms.m, gemms.n) * gemms.k
    repeats = np.maximum(np.minimum(gemms.m, gemms.n) - 1.0, 0.0)  # The mean rows of an expert may be below 1.
    row_by_row = repeats * weights * p["gemm.row_by_row_read_ratio"] * UNITS[stack.unit].bytes
    return memory, row_by_row / gpus.bandwidth


def resident_share(moved: Array, recent: Array, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the share of bytes served by the L2 cache: those touched just before (`recent`), if everything fits in it."""
    fits = moved / gpus.l2
    np.subtract(p["l2.overflow_share"], fits, out=fits)
    fits /= p["l2.overflow_share"] - p["l2.fits_share"]
    return recent * np.clip(fits, 0.0, 1.0, out=fits)
