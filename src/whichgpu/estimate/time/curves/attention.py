"""Attention in one kernel: products and exponentials over blocks of queries; when decoding, the cache over bandwidth."""

from __future__ import annotations

import numpy as np

from whichgpu.estimate.time.curves.gpus import GpuColumns
from whichgpu.estimate.time.curves.power import power_bound
from whichgpu.estimate.time.curves.stack import Array, OperatorStack, Parameters, soft_max

BLOCK = 128.0  # queries that one SM takes at a time (arXiv 2307.08691)
SPLIT = 256.0  # keys of one block where the cache is split over SMs (arXiv 2311.01282)
DIM = 128.0


def seconds(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Seconds of each, [gpus, operators, batches]."""
    decoding = stack.kind("decode_attention")
    if decoding.all():
        return _decode(stack, gpus, p)
    if not decoding.any():
        return _blocks(stack, gpus, p)
    return np.where(decoding, _decode(stack, gpus, p), _blocks(stack, gpus, p))


def _blocks(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Blocks of queries over SMs, each going over the keys it sees; a causal mask leaves blocks uneven."""
    unit = stack.unit
    dim, keys, queries = stack.size("dim"), stack.size("keys"), stack.size("queries")
    pairs = stack.flops / (4.0 * dim)
    seen = np.ceil(keys / BLOCK) * BLOCK  # whole blocks of them
    uneven = 1.0 + stack.size("causal", 0.0) * p["attention.causal"] / seen
    blocks = stack.size("batch") * stack.size("heads") * np.ceil(queries / BLOCK)
    padded = np.ceil(queries / BLOCK) * BLOCK / queries * seen / keys
    waves = np.ceil(blocks / gpus.sms)
    dropped = np.where(stack.role("dropout"), stack.each(p, "attention.dropout"), 1.0)
    share = stack.each(p, "attention.share") / dropped * gpus.factor(p, "gemm.factor.tensor")
    alone = waves / blocks
    products = stack.flops * np.maximum(alone / gpus.sm_rates[unit], 1.0 / gpus.rates[unit]) / share
    exponents = pairs * p["attention.exponent"] * np.maximum(alone, 1.0 / gpus.sms) / gpus.clock
    compute = np.maximum((products + exponents) * (uneven * padded), power_bound(stack.flops, unit, gpus, p))
    memory = (stack.read + stack.write) / (gpus.bandwidth * p["attention.bandwidth"])
    return soft_max(compute, memory, p["attention.sharpness"]) + stack.each(p, "attention.start") * gpus.latency


def _decode(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """One query a sequence: the cache is read once. Unless it is split over SMs, one SM goes over all keys of a head."""
    batch, keys = stack.size("batch"), stack.size("keys")
    whole = stack.role("whole")
    blocks = batch * np.where(whole, stack.size("heads"), stack.size("kv_heads") * np.ceil(keys / SPLIT))
    block_keys = np.where(whole, keys, np.minimum(keys, SPLIT))
    one = block_keys * (stack.size("dim") / DIM) * p["attention.key"] / gpus.clock
    serial = one * np.maximum(blocks / (gpus.sms * p["attention.occupancy"]), 1.0)
    compute = stack.flops / (gpus.rates[stack.unit] * p["attention.decode"])
    often = np.where(stack.role("gguf"), stack.size("heads") / stack.size("kv_heads"), 1.0)  # each head of queries by itself
    memory = (stack.read * often + stack.write) / (gpus.bandwidth * p["attention.bandwidth"])
    return (
        soft_max(memory, np.maximum(serial, compute), p["attention.sharpness"]) + stack.each(p, "attention.start") * gpus.latency
    )
