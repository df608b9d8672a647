"""Seconds of fused MoE kernels: routing, quantisation, both grouped GEMMs, activation and weighted sum of one layer's experts.

Experts with few rows wait for their weights and experts with many rows for the matrix units. A kernel has both at a time, so the
seconds of reading and of arithmetic add up; the fastest kernels of vLLM, SGLang and TensorRT-LLM follow that within about 10%.
"""

from __future__ import annotations

import numpy as np

from whichgpu.estimate.time.curves.gpus import GpuColumns
from whichgpu.estimate.time.curves.stack import Array, Mask, OperatorStack, Parameters
from whichgpu.estimate.time.units import UNITS

ACTIVATION_BYTES = 2.0  # bytes per element between the kernels, which are 16-bit


def seconds(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the seconds of one MoE layer's routed experts, [gpus, operators, batches]."""
    native = gpus.native.get(stack.unit, np.ones(1)) > 0
    dequantised = weight_only(stack) | (UNITS[stack.unit].below_16_bits & ~native)
    memory = weight_seconds(stack, dequantised, gpus, p) + activation_bytes(stack) * p["moe.activation_passes"] / gpus.bandwidth
    compute = padded_flops(stack, gpus, p) / flop_rate(stack, dequantised, gpus, p)
    return memory + compute + latency(stack, dequantised, gpus, p) + quantisation(stack, dequantised, gpus, p)


def formats(stack: OperatorStack) -> list[tuple[str, str]]:
    """Return the weights' format and the engine of each distinct kernel variant (`role`), which is named `format.engine`."""
    return [(role.partition(".")[0], role.partition(".")[2]) for _, role in stack.kind_roles]


def weight_only(stack: OperatorStack) -> Mask:
    """Return a mask of the operators whose weights are dequantised on every chip, [operators, 1]."""
    return np.array([name == "dequantised" for name, _ in formats(stack)])[stack.pair_index][:, None]


def chip_factor(gpus: GpuColumns, p: Parameters, name: str) -> Array:
    """Return factor `name` of each chip: its matrix instructions' (wgmma) times its compute target's (sm_90), [gpus, 1, 1]."""
    prefix = f"moe.architecture_multiplier.{name}"
    factors = {one: p.get(f"{prefix}.{one}", 1.0) for one in set(gpus.matrix_instructions)}
    return np.array([factors[one] for one in gpus.matrix_instructions])[:, None, None] * gpus.architecture_factor(p, prefix)


def latency(stack: OperatorStack, dequantised: Mask, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the seconds that pass whatever the tokens' number: start of each kernel, its loop over k, and sorting by expert."""
    by_engine = [p.get(f"moe.fixed_seconds.{engine}", 1.0) for _, engine in formats(stack)]
    kernels = np.where(dequantised, p["moe.fixed_seconds.dequantised"], p["moe.fixed_seconds"]) * _by_role(stack, by_engine)
    loops = (stack.size("hidden") + stack.size("ffn")) * p["moe.k_seconds"]
    sorting = stack.size("touched") * p["moe.expert_seconds"]
    return ((kernels + loops) * chip_factor(gpus, p, "fixed_seconds") + sorting) * gpus.latency


def quantisation(stack: OperatorStack, dequantised: Mask, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the seconds to quantise activations: no more than narrow weights save, since an engine could use 16-bit ones."""
    if not UNITS[stack.unit].below_16_bits:
        return np.zeros(1)
    kernels = p["moe.quantisation_seconds"] * chip_factor(gpus, p, "fixed_seconds") * gpus.latency
    weights = stack.size("touched") * stack.size("hidden") * stack.size("ffn") * (stack.size("ups") + 1.0)
    longer = np.maximum(weights * ACTIVATION_BYTES / np.maximum(stack.size("weight"), 1.0), 1.0)  # reading of 16-bit weights
    saved = weight_seconds(stack, dequantised, gpus, p) * (longer - 1.0)
    return np.where(dequantised, 0.0, np.minimum(kernels, saved))


def weight_seconds(stack: OperatorStack, dequantised: Mask, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the seconds to read the weights of all experts touched."""
    share = np.where(dequantised, p["moe.bandwidth_share.dequantised"], p["moe.bandwidth_share"])
    share = share * chip_factor(gpus, p, "bandwidth")
    return stack.size("weight") / (gpus.bandwidth * np.minimum(share, 1.0))


def activation_bytes(stack: OperatorStack) -> Array:
    """Return the bytes an MoE layer's kernels move in addition to weights if each reads its input and writes its output once."""
    rows, hidden, inner = stack.size("rows"), stack.size("hidden"), stack.size("ffn")
    operands = np.where(weight_only(stack), ACTIVATION_BYTES, min(UNITS[stack.unit].bytes, ACTIVATION_BYTES))
    gathered = rows * hidden * (ACTIVATION_BYTES + operands)
    activated = rows * inner * (2.0 * stack.size("ups") * ACTIVATION_BYTES + 2.0 * operands)
    summed = 2.0 * rows * hidden * ACTIVATION_BYTES + stack.size("tokens") * hidden * ACTIVATION_BYTES
    return gathered + activated + summed


def padded_flops(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the FLOPs of both grouped GEMMs with the rows that pad each expert's last tile and the filling of the k loop."""
    hidden, inner, ups, fill = stack.size("hidden"), stack.size("ffn"), stack.size("ups"), p["moe.k_pipeline_fill"]
    padding = {one: [_padding_rows(p, *pair, one) for pair in formats(stack)] for one in set(gpus.matrix_instructions)}
    by_role = np.array([padding[one] for one in gpus.matrix_instructions])[:, stack.pair_index][:, :, None]
    rows = stack.size("rows") + by_role * stack.size("touched")
    return 2.0 * rows * (ups * inner * (hidden + fill) + hidden * (inner + fill))


def flop_rate(stack: OperatorStack, dequantised: Mask, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the FLOP/s of large experts; narrower weights with units of their own run no slower than 16-bit ones."""
    rate = gpus.sustained_rates[stack.unit] * _peak_shares(stack, formats(stack), gpus, p)
    as_16_bit = _peak_shares(stack, [("16bit", engine) for _, engine in formats(stack)], gpus, p)
    emulated = [("dequantised", f"{weights}.{engine}" if weights == "mxfp4" else engine) for weights, engine in formats(stack)]
    dequantising = _peak_shares(stack, emulated, gpus, p)
    if UNITS[stack.unit].below_16_bits:
        rate = np.maximum(rate, gpus.sustained_rates["bf16"] * as_16_bit)
    return np.where(dequantised, gpus.sustained_rates[stack.unit] * dequantising, rate)


def _by_role(stack: OperatorStack, values: list[float]) -> Array:
    """Return a value of each distinct kernel variant as a column over operators, [operators, 1]."""
    return np.array(values)[stack.pair_index][:, None]


def _padding_rows(p: Parameters, weights: str, engine: str, instruction: str) -> float:
    return p.get(f"moe.padding_rows.{weights}.{engine}.{instruction}", p["moe.padding_rows"])


def _peak_shares(stack: OperatorStack, pairs: list[tuple[str, str]], gpus: GpuColumns, p: Parameters) -> Array:
    """Return the share of peak by format, engine and each chip's matrix instructions, [gpus, operators, 1]."""
    shares = {one: [_peak_share(p, *pair, one) for pair in pairs] for one in set(gpus.matrix_instructions)}
    by_role = np.array([shares[one] for one in gpus.matrix_instructions])
    return by_role[:, stack.pair_index][:, :, None] * chip_factor(gpus, p, "peak")


def _peak_share(p: Parameters, weights: str, engine: str, instruction: str) -> float:
    name = f"moe.peak_share.{weights}"
    multiplier = p.get(f"{name}.{engine}.{instruction}", p.get(f"{name}.{engine}", 1.0))
    return p.get(f"{name}.{instruction}", p[name]) * multiplier
