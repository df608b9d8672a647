"""Kernels of linear-attention and state-space layers (gated DeltaNet, Mamba and their kin) between their projections.

A prefill runs in chunks of tokens: scores inside a chunk, and products with the state of the chunks before it (gated DeltaNet:
arXiv 2412.06464, section 3.3; Mamba-2: 2405.21060, section 6). A decode step reads and writes each sequence's state once.
"""

from __future__ import annotations

from whichgpu.estimate.time.operators import Number, Op
from whichgpu.workload.shapes import RecurrentMixer

CHUNK_TOKENS = 64  # tokens of a chunk in flash-linear-attention and FlashInfer; Mamba-2's kernels take 64 to 256
# Products per chunk of each kind: of chunk x key and chunk x value (scores and their use), and of key x value (the state's).
# The delta rule also multiplies keys by keys, solves a triangular system, and subtracts what the state holds already.
CHUNK_PRODUCTS = {"gated_delta": (2, 2, 3), "kda": (2, 2, 3), "mamba2": (1, 1, 2), "lightning": (1, 1, 2),
                  "mlstm": (1, 1, 2)}  # fmt: skip


def mixer_ops(
    mixer: RecurrentMixer, batch: Number, tokens: Number, decoding: bool, unit: str, width: float, calls: Number = 1.0
) -> list[Op]:
    """Return convolution, recurrence and gated norm of a mixer over `tokens` new tokens of `batch` sequences."""
    dtype = "fp32" if width >= 4 else unit
    ops = []
    if mixer.conv_channels:
        window = batch * mixer.conv_state * width if decoding else 0.0
        ops.append(_moving(dtype, tokens * mixer.conv_channels * width + window, calls, width))
    if mixer.state:
        ops.append(_recurrence(mixer, batch, tokens, decoding, unit, width, calls))
        gated = tokens * mixer.outward * width
        sizes = {"rows": tokens, "width": float(mixer.outward)}
        ops.append(Op("norm", dtype, 0.0, 2.0 * gated, gated, sizes, calls=calls, role="fused"))
    return ops


def _recurrence(
    mixer: RecurrentMixer, batch: Number, tokens: Number, decoding: bool, unit: str, width: float, calls: Number
) -> Op:
    """Return the kernel that updates the states and reads the outputs from them."""
    states = batch * mixer.state * float(mixer.state_bytes)
    inputs, outputs = tokens * mixer.inward * width, tokens * mixer.outward * width
    products = CHUNK_PRODUCTS.get(mixer.kind)
    if decoding or products is None:
        moved = (states + (inputs + outputs) / 2.0, states + outputs)
        return Op("elementwise", "fp32", 0.0, *moved, {"elements": batch * float(mixer.state)}, calls=calls)
    by_key, by_value, by_state = products
    depth = CHUNK_TOKENS * (by_key * mixer.key_dim / mixer.value_dim + by_value) + by_state * mixer.key_dim
    flops = 2.0 * tokens * mixer.heads * mixer.value_dim * depth
    sizes = {"m": tokens, "n": float(mixer.value_dim), "k": float(depth), "batch": float(mixer.heads)}
    return Op("gemm", unit, flops, inputs + states, outputs + states, sizes, role="forward", calls=calls)


def _moving(dtype: str, moved: Number, calls: Number, width: float) -> Op:
    return Op("elementwise", dtype, 0.0, moved, moved, {"elements": moved / width}, calls=calls)
