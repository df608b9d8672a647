"""Kernels of linear-attention and state-space layers (gated DeltaNet, Mamba and their kin) between their projections.

A prefill runs in chunks of tokens: scores inside a chunk, and products with the state of the chunks before it (gated DeltaNet:
arXiv 2412.06464, section 3.3; Mamba-2: 2405.21060, section 6). A decode step reads and writes each sequence's state once.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from whichgpu.estimate.memory.training.recurrent import CHUNK_TOKENS
from whichgpu.estimate.time.operators import Number, Op
from whichgpu.workload.shapes import RecurrentMixer

FP32_BYTES = 4  # of an element of states whose type neither the config nor the engine states
# Products per chunk of each kind: of chunk x key and chunk x value (scores and their use), and of key x value (the state's).
# The delta rule also multiplies keys by keys, solves a triangular system, and subtracts what the state holds already.
CHUNK_PRODUCTS = {"gated_delta": (2, 2, 3), "kda": (2, 2, 3), "mamba2": (1, 1, 2), "lightning": (1, 1, 2),
                  "mlstm": (1, 1, 2)}  # fmt: skip
# Tensors of a token and head that separate kernels write or read again: of a key's width, of a value's, scores of its chunk.
# flash-linear-attention (0.6): keys in four kernels, the transformed keys and values and the corrected values of the delta rule,
# each chunk's matrix of keys in fp32 and its inverse; what the L2 cache holds is not counted.
PASSED_ON = {"gated_delta": (6.0, 4.0, 6.0), "kda": (6.0, 4.0, 6.0)}
PASSED_ON_WITHOUT_DELTA = (2.0, 2.0, 3.0)
# Framework calls of a recurrence that the host launches: eight Triton kernels, each as long as 2.25 of PyTorch's own calls (two
# models in vLLM 0.26 beside an H200: 1.7 and 2.9); a fused kernel and the states' copies around it.
SCAN_CALLS = {"chunked": 18.0, "fused": 8.0}
# The same in training: kernels of flash-linear-attention 0.6 in autograd functions, each as long as four calls, beside an H200.
TRAINING_SCAN_CALLS = 32.0
GRADIENT_CALLS = 14.0 / 8.0  # kernels of the backward pass for each of the forward pass
GRADIENT_PRODUCTS = 3.0  # products of the backward pass for each of the forward pass: two gradients, and the states again


def mixer_ops(
    mixer: RecurrentMixer,
    batch: Number,
    tokens: Number,
    decoding: bool,
    unit: str,
    width: float,
    calls: Number = 1.0,
    kernels: str = "chunked",
    scan_calls: float = TRAINING_SCAN_CALLS,
) -> list[Op]:
    """Return convolution, recurrence and gated norm of a mixer over `tokens` new tokens of `batch` sequences.

    `kernels` says how an engine runs the chunks of a prefill: `chunked` in separate kernels, or `fused` in one;
    `scan_calls` is the framework calls that launch them.
    """
    dtype = "fp32" if width >= 4 else unit
    ops = []
    if mixer.conv_channels:
        window = batch * mixer.conv_state * width if decoding else 0.0
        moved = tokens * mixer.conv_channels * width + window
        ops.append(
            Op("elementwise" if decoding else "short_conv", dtype, 0.0, moved, moved, {"elements": moved / width}, calls=calls)
        )
    if mixer.state:
        recurrence = _recurrence(mixer, batch, tokens, decoding, unit, width, kernels)
        ops.append(recurrence.with_calls(calls * (scan_calls if recurrence.kind == "scan" else 1.0)))
        gated = tokens * mixer.outward * width
        sizes = {"rows": tokens, "width": float(mixer.outward)}
        ops.append(Op("norm", dtype, 0.0, 2.0 * gated, gated, sizes, calls=calls, role="fused"))
    return ops


def mixer_gradient_ops(forward: Sequence[Op]) -> list[Op]:
    """Return the backward kernels of a mixer's forward ones.

    A gradient reads what the forward kernel read and its result's gradient, and writes a gradient for all that was read. Products
    of chunks have two gradients each, and the states between chunks, which are not saved, are computed again.
    """
    return [_gradient(op) for op in forward]


def _gradient(op: Op) -> Op:
    sizes = {**op.sizes, "between": GRADIENT_PRODUCTS * op.sizes["between"]} if "between" in op.sizes else op.sizes
    moved = {"read": op.read + 2.0 * op.write, "write": op.read + op.write}
    calls = op.calls * (GRADIENT_CALLS if op.kind == "scan" else 1.0)
    return replace(op, flops=GRADIENT_PRODUCTS * op.flops, **moved, sizes=sizes, calls=calls)


def _recurrence(
    mixer: RecurrentMixer, batch: Number, tokens: Number, decoding: bool, unit: str, width: float, kernels: str
) -> Op:
    """Return the kernels that update the states and read the outputs from them."""
    states = batch * mixer.state * float(mixer.state_bytes or FP32_BYTES)
    inputs, outputs = tokens * mixer.inward * width, tokens * mixer.outward * width
    products = CHUNK_PRODUCTS.get(mixer.kind)
    if decoding or products is None:
        moved = (states + (inputs + outputs) / 2.0, states + outputs)
        return Op("elementwise", "fp32", 0.0, *moved, {"elements": batch * float(mixer.state)})
    by_key, by_value, by_state = products
    depth = CHUNK_TOKENS * (by_key * mixer.key_dim / mixer.value_dim + by_value) + by_state * mixer.key_dim
    flops = 2.0 * tokens * mixer.heads * mixer.value_dim * depth
    keys, values, scores = PASSED_ON.get(mixer.kind, PASSED_ON_WITHOUT_DELTA)
    passed = (
        keys * mixer.key_dim + values * mixer.value_dim + scores * CHUNK_TOKENS + 2.0 * mixer.state / mixer.heads / CHUNK_TOKENS
    )
    sizes = {"chunks": tokens / batch / CHUNK_TOKENS, "between": tokens * mixer.heads * passed * width}
    read = (inputs + outputs) / 2.0 + states  # The gate, as wide as the output, is not read here.
    role = f"{kernels}_kda" if mixer.kind == "kda" else kernels
    return Op("scan", unit, flops, read, outputs + states, sizes, role=role)
