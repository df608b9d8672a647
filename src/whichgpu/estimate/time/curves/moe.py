"""Seconds of fused MoE kernels: routing, quantisation, both grouped GEMMs, activation and weighted sum of one layer's experts.

Experts with few rows wait for their weights and experts with many rows for the matrix units. A kernel has both at a time, so the
seconds of reading and of arithmetic add up; the fastest kernels of vLLM, SGLang and TensorRT-LLM follow that within about 10%.
"""

from __future__ import annotations

import numpy as np

from whichgpu.estimate.time.curves.gpus import GpuColumns
from whichgpu.estimate.time.curves.stack import Array, OperatorStack, Parameters
from whichgpu.estimate.time.units import UNITS

ACTIVATION_BYTES = 2.0  # bytes per element between the kernels, which are 16-bit


def seconds(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the seconds of one MoE layer's routed experts, [gpus, operators, batches]."""
    return seconds_and_read_share(stack, gpus, p)[0]


def seconds_and_read_share(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> tuple[Array, Array]:
    """Return the seconds of each MoE layer and the share of them spent reading weights and moving activations."""
    native = gpus.native.get(stack.unit, np.ones(1)) > 0
    dequantised = stack.has_role("dequantised") | (UNITS[stack.unit].below_16_bits & ~native)
    memory = weight_seconds(stack, dequantised, gpus, p) + activation_bytes(stack) * p["moe.activation_passes"] / gpus.bandwidth
    fixed = np.where(dequantised, p["moe.fixed_seconds.moe.dequantised"], stack.parameter(p, "moe.fixed_seconds"))
    fixed = fixed * gpus.latency * gpus.architecture_factor(p, "moe.architecture_multiplier.fixed_seconds")
    total = memory + padded_flops(stack, p) / flop_rate(stack, dequantised, gpus, p) + fixed
    return total, memory / total


def weight_seconds(stack: OperatorStack, dequantised: Array, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the seconds to read the weights of all experts touched."""
    share = np.where(dequantised, p["moe.bandwidth_share.dequantised"], p["moe.bandwidth_share"])
    share = share * gpus.architecture_factor(p, "moe.architecture_multiplier.bandwidth")
    return stack.size("weight") / (gpus.bandwidth * np.minimum(share, 1.0))


def activation_bytes(stack: OperatorStack) -> Array:
    """Return the bytes that the chain's kernels move beside weights if each reads its input and writes its output once."""
    rows, hidden, inner = stack.size("rows"), stack.size("hidden"), stack.size("ffn")
    operands = np.where(stack.has_role("dequantised"), ACTIVATION_BYTES, min(UNITS[stack.unit].bytes, ACTIVATION_BYTES))
    gathered = rows * hidden * (ACTIVATION_BYTES + operands)
    activated = rows * inner * (2.0 * stack.size("ups") * ACTIVATION_BYTES + 2.0 * operands)
    summed = 2.0 * rows * hidden * ACTIVATION_BYTES + stack.size("tokens") * hidden * ACTIVATION_BYTES
    return gathered + activated + summed


def padded_flops(stack: OperatorStack, p: Parameters) -> Array:
    """Return the FLOPs of both grouped GEMMs with the rows that pad each expert's last tile and the filling of the k loop."""
    hidden, inner, ups, fill = stack.size("hidden"), stack.size("ffn"), stack.size("ups"), p["moe.k_pipeline_fill"]
    rows = stack.size("rows") + p["moe.padding_rows"] * stack.size("touched")
    return 2.0 * rows * (ups * inner * (hidden + fill) + hidden * (inner + fill))


def flop_rate(stack: OperatorStack, dequantised: Array, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the FLOP/s of large experts; narrower weights with units of their own run no slower than 16-bit ones."""
    by_role = {role: _peak_share(role, gpus, p) for role in {role for _, role in stack.kind_roles} | {"16bit", "dequantised"}}
    share = np.stack([by_role[role][:, 0] for _, role in stack.kind_roles], axis=1)[:, stack.pair_index]
    rate = gpus.sustained_rates[stack.unit] * share
    if UNITS[stack.unit].below_16_bits:
        rate = np.maximum(rate, gpus.sustained_rates["bf16"] * by_role["16bit"])
    return np.where(dequantised, gpus.sustained_rates[stack.unit] * by_role["dequantised"], rate)


def _peak_share(role: str, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the share of peak by weight format and by the matrix instructions of each chip; [gpus, 1, 1]."""
    name = f"moe.peak_share.{role}"
    by_instruction = [p.get(f"{name}.{instruction}", p[name]) for instruction in gpus.matrix_instructions]
    return np.array(by_instruction)[:, None, None] * gpus.architecture_factor(p, "moe.architecture_multiplier.peak")
