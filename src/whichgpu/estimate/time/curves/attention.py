"""Seconds of fused attention kernels: GEMMs and exponentials per query block; in decode, the time to read the KV cache."""

from __future__ import annotations

import numpy as np

from whichgpu.estimate.time.curves.gemm import resident_share
from whichgpu.estimate.time.curves.gpus import GpuColumns, power_bound
from whichgpu.estimate.time.curves.stack import Array, OperatorStack, Parameters, soft_max
from whichgpu.estimate.time.units import UNITS

QUERY_BLOCK = 128.0  # queries one SM processes at a time, against tiles of as many keys (FlashAttention-2, arXiv 2307.08691)
BACKWARD_FLOPS_RATIO = 2.5  # The backward kernel recomputes scores, then four gradients (FlashAttention-2).
SPLIT_KEYS = 128.0  # fewest keys of one part when the KV cache is split over SMs (Flash-Decoding, arXiv 2311.01282)
MAX_SPLITS = 128.0  # parts of one sequence (FlashAttention-3's heuristic)
REFERENCE_HEAD_DIM = 128.0  # head dimension at which `attention.decode_clocks_per_key` is stated
MLA = "mla"  # variant of attention kernels; in decode all query heads share the latents (DeepSeek-V2, arXiv 2405.04434)
MLA_ROWS = 64.0  # query heads of one block in MLA kernels that do not split the keys


def seconds(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the seconds of one call of each attention kernel, [gpus, operators, batches]."""
    decoding = stack.is_kind("decode_attention")
    if decoding.all():
        return _decode(stack, gpus, p)
    if not decoding.any():
        return _query_blocks(stack, gpus, p)
    return np.where(decoding, _decode(stack, gpus, p), _query_blocks(stack, gpus, p))


def _query_blocks(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the seconds of attention over whole sequences: each SM runs a block of queries over tiles of their visible keys.

    Kernels with asynchronous matrix instructions keep one block per SM, so that loading its queries and writing its results
    adds to the arithmetic; others overlap the two in several blocks per SM.
    """
    asynchronous = gpus.async_matrix > 0
    share = stack.parameter(p, "attention.peak_share") * np.where(asynchronous, 1.0, p["attention.peak_share_ratio.synchronous"])
    share = share * gpus.architecture_factor(p, "attention.architecture_multiplier.peak")
    dropout = np.where(stack.has_role("dropout"), stack.parameter(p, "attention.dropout_slowdown"), 1.0)
    slowdown = dropout * _narrow_slowdown(stack, gpus, p) / share
    exponential = np.where(asynchronous, p["attention.clocks_per_exponential"], p["attention.clocks_per_exponential.synchronous"])
    start = stack.parameter(p, "attention.clocks_per_query_block")
    start = start * np.where(asynchronous, 1.0, p["attention.query_block_ratio.synchronous"])
    blocks, pairs, flops_per_pair = _tiles(stack)
    unit, rounds = _wide(stack.unit), np.ceil(blocks / gpus.sms)  # blocks that an SM runs one after another
    gemms = pairs * flops_per_pair * np.maximum(rounds / gpus.sm_rates[unit], blocks / gpus.sustained_rates[unit])
    compute = gemms * slowdown + rounds * (pairs * exponential + start) / gpus.clock
    compute = np.maximum(compute, power_bound(stack.flops, stack.unit, gpus, p))
    moved = stack.read + stack.write
    cached = resident_share(moved, np.ones_like(moved), gpus, p)  # The kernel before has just written the operands.
    memory = moved * (1.0 - cached * (1.0 - 1.0 / p["memory.l2_speedup"])) / _bandwidth(gpus, p)
    overlapped = soft_max(compute, memory, p["attention.overlap_exponent"])
    return np.where(asynchronous, compute + memory, overlapped) + _fixed(stack, gpus, p)


def _tiles(stack: OperatorStack) -> tuple[Array, Array, Array]:
    """Return the query blocks, the query-key pairs of the tiles of one block, and the FLOPs per pair.

    A causal mask leaves half of the tiles on the diagonal unused.
    """
    keys, queries, dim = stack.size("keys"), stack.size("queries"), stack.size("dim")
    value_dim = stack.size("value_dim", 0.0)
    flops_per_pair = 2.0 * (dim + np.where(value_dim > 0, value_dim, dim))
    flops_per_pair = flops_per_pair * np.where(stack.is_kind("attention_backward"), BACKWARD_FLOPS_RATIO, 1.0)
    heads = stack.size("batch") * stack.size("heads")
    visible = stack.flops / (flops_per_pair * heads * queries)  # keys that a query sees, on average
    diagonal = stack.size("causal", 0.0) * np.minimum(queries, QUERY_BLOCK) / 2.0
    block_keys = np.maximum(visible * (np.ceil(keys / QUERY_BLOCK) * QUERY_BLOCK / keys) + diagonal, QUERY_BLOCK)
    return heads * np.ceil(queries / QUERY_BLOCK), QUERY_BLOCK * block_keys, flops_per_pair


def _narrow_slowdown(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the factor on the seconds of 16-bit attention for operands below 16 bits; fp8 gains less than in plain GEMMs.

    With a KV cache below 16 bits chips either multiply in fp8 or dequantise every tile.
    """
    in_fp8 = 1.0 / p["attention.fp8_speedup"]
    if UNITS[stack.unit].below_16_bits:
        return np.where(gpus.native[stack.unit] > 0, in_fp8, 1.0)
    narrow = stack.size("narrow_kv", 0.0) > 0
    if not narrow.any():
        return np.ones((1, 1, 1))
    stated = np.where(gpus.async_matrix > 0, in_fp8, 1.0)
    return np.where(narrow, gpus.fitted_value(p, "attention.dequantise_slowdown", stated), 1.0)


def _wide(unit: str) -> str:
    return "bf16" if UNITS[unit].below_16_bits else unit


def _decode(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the seconds of attention in decode: one query per sequence, which reads the KV cache once.

    Keys are split over all SMs, whose results are then combined part by part; the query heads of a KV head share one tile. In
    PyTorch (kernel variant `whole`) one SM reads the keys of one query head instead.
    """
    batch, keys, heads = stack.size("batch"), stack.size("keys"), stack.size("heads")
    mla, whole = stack.has_role(MLA), stack.has_role("whole")
    compute = stack.flops / (gpus.sustained_rates[stack.unit] * p["attention.decode_peak_share"])
    if mla.any():
        compute = np.where(mla, _mla_compute(stack, gpus, p), compute)
    if whole.any():
        head = keys * (stack.size("dim") / REFERENCE_HEAD_DIM) * p["attention.decode_clocks_per_key"] / gpus.clock
        serial = head * np.maximum(batch * heads / (gpus.sms * p["attention.decode_blocks_per_sm"]), 1.0)
        compute = np.where(whole, np.maximum(serial, compute), compute)
    memory = (stack.read * _reads(stack, gpus, p) + stack.write) / _bandwidth(gpus, p)
    starts = batch * stack.size("kv_heads") * p["attention.decode_clocks_per_sequence"] / gpus.sms
    splits = np.minimum(np.ceil(keys / SPLIT_KEYS), MAX_SPLITS) * p["attention.decode_clocks_per_split"]
    total = soft_max(compute, memory, p["attention.overlap_exponent.decode_attention"])
    return total + np.where(whole, 0.0, starts + splits) / gpus.clock + _fixed(stack, gpus, p)


def _reads(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Return how often a decode kernel reads the KV cache: once, or for each query head of a group.

    llama.cpp's kernel reads it again from memory; `per-head` from the L2, but on AMD's GPUs, whose L2 is split, from memory.
    """
    again = stack.size("heads") / stack.size("kv_heads") - 1.0
    amd = np.array([target.startswith("gfx") for target in gpus.targets])[:, None, None]
    per_head = stack.has_role("per-head") | (stack.has_role("per-head-amd") & amd)
    cost = np.where(amd | stack.has_role("gguf"), 1.0, 1.0 / p["memory.l2_speedup"])
    return 1.0 + np.where(per_head | stack.has_role("gguf"), again * cost, 0.0)


def _mla_compute(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the arithmetic seconds of MLA decode, whose query heads fill the rows of a matrix instruction.

    NVIDIA's chips without asynchronous instructions have no kernel that splits a cache below 16 bits: one SM reads a sequence's
    keys.
    """
    batch, keys, heads = stack.size("batch"), stack.size("keys"), stack.size("heads")
    narrow, asynchronous = UNITS[stack.unit].below_16_bits, gpus.async_matrix > 0
    nvidia = np.array([target.startswith("sm_") for target in gpus.targets])[:, None, None]
    unsplit = narrow & nvidia & ~asynchronous
    rows = np.where(unsplit, MLA_ROWS, gpus.matrix_rows)
    padding = np.ceil(heads / rows) * rows / heads
    share = np.where(asynchronous, p["attention.mla_peak_share"], p["attention.mla_peak_share.synchronous"])
    if narrow:
        speedup = gpus.fitted_value(p, "attention.mla_fp8_speedup", np.full_like(gpus.sms, p["attention.mla_fp8_speedup"]))
        share = share * np.where(gpus.native[stack.unit] > 0, speedup, 1.0)
    share = share * gpus.architecture_factor(p, "attention.architecture_multiplier.peak")
    compute = stack.flops * padding / (gpus.sustained_rates[_wide(stack.unit)] * share)
    sequence = keys * p["attention.mla_unsplit_clocks_per_key"] / gpus.clock
    serial = sequence * np.maximum(batch * np.ceil(heads / MLA_ROWS) / gpus.sms, 1.0)
    return np.where(unsplit, np.maximum(serial, compute), compute)


def _bandwidth(gpus: GpuColumns, p: Parameters) -> Array:
    factor = gpus.architecture_factor(p, "attention.architecture_multiplier.bandwidth")
    return gpus.bandwidth * factor * p["attention.bandwidth_share"]


def _fixed(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    factor = gpus.architecture_factor(p, "attention.architecture_multiplier.fixed")
    return stack.parameter(p, "attention.fixed_seconds") * gpus.latency * factor
