"""Seconds of fused attention kernels: GEMMs and exponentials per query block; in decode, the time to read the KV cache."""

from __future__ import annotations

import numpy as np

from whichgpu.estimate.time.curves.gpus import GpuColumns, power_bound
from whichgpu.estimate.time.curves.stack import Array, OperatorStack, Parameters, soft_max

QUERY_BLOCK = 128.0  # queries one SM processes at a time (FlashAttention-2, arXiv 2307.08691)
SPLIT_KEYS = 256.0  # keys per block when the KV cache is split over SMs (Flash-Decoding, arXiv 2311.01282)
REFERENCE_HEAD_DIM = 128.0  # head dimension at which `attention.decode_clocks_per_key` is stated


def seconds(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the seconds of one call of each attention kernel, [gpus, operators, batches]."""
    decoding = stack.is_kind("decode_attention")
    if decoding.all():
        return _decode(stack, gpus, p)
    if not decoding.any():
        return _query_blocks(stack, gpus, p)
    return np.where(decoding, _decode(stack, gpus, p), _query_blocks(stack, gpus, p))


def _query_blocks(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the seconds when each SM runs a block of queries over its visible keys; a causal mask makes the blocks uneven."""
    unit = stack.unit
    dim, keys, queries = stack.size("dim"), stack.size("keys"), stack.size("queries")
    pairs = stack.flops / (4.0 * dim)
    padded_keys = np.ceil(keys / QUERY_BLOCK) * QUERY_BLOCK
    imbalance = 1.0 + stack.size("causal", 0.0) * p["attention.causal_imbalance_keys"] / padded_keys
    blocks = stack.size("batch") * stack.size("heads") * np.ceil(queries / QUERY_BLOCK)
    padding = np.ceil(queries / QUERY_BLOCK) * QUERY_BLOCK / queries * padded_keys / keys
    dropout = np.where(stack.has_role("dropout"), stack.parameter(p, "attention.dropout_slowdown"), 1.0)
    multiplier = gpus.architecture_factor(p, "gemm.architecture_multiplier.16bit")
    share = stack.parameter(p, "attention.peak_share") / dropout * multiplier
    waves_per_block = np.ceil(blocks / gpus.sms) / blocks
    gemms = stack.flops * np.maximum(waves_per_block / gpus.sm_rates[unit], 1.0 / gpus.sustained_rates[unit]) / share
    exponentials = pairs * p["attention.clocks_per_exponential"] * np.maximum(waves_per_block, 1.0 / gpus.sms) / gpus.clock
    compute = np.maximum((gemms + exponentials) * (imbalance * padding), power_bound(stack.flops, unit, gpus, p))
    return _with_memory(compute, stack.read + stack.write, stack, gpus, p)


def _decode(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the seconds of one query per sequence: the KV cache is read once, by one SM per head unless keys are split."""
    batch, keys = stack.size("batch"), stack.size("keys")
    whole = stack.has_role("whole")
    blocks = batch * np.where(whole, stack.size("heads"), stack.size("kv_heads") * np.ceil(keys / SPLIT_KEYS))
    block_keys = np.where(whole, keys, np.minimum(keys, SPLIT_KEYS))
    block_seconds = block_keys * (stack.size("dim") / REFERENCE_HEAD_DIM) * p["attention.decode_clocks_per_key"] / gpus.clock
    serial = block_seconds * np.maximum(blocks / (gpus.sms * p["attention.decode_blocks_per_sm"]), 1.0)
    compute = stack.flops / (gpus.sustained_rates[stack.unit] * p["attention.decode_peak_share"])
    # llama.cpp's kernel reads the KV cache again for each query head of a group.
    reads = np.where(stack.has_role("gguf"), stack.size("heads") / stack.size("kv_heads"), 1.0)
    return _with_memory(np.maximum(serial, compute), stack.read * reads + stack.write, stack, gpus, p)


def _with_memory(compute: Array, moved: Array, stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    memory = moved / (gpus.bandwidth * p["attention.bandwidth_share"])
    fixed = stack.parameter(p, "attention.fixed_seconds") * gpus.latency
    return soft_max(compute, memory, p["attention.overlap_exponent"]) + fixed
