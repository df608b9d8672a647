"""Rules for PyTorch's GEMM and attention calls."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from whichgpu.estimate.time.lower.eager.call import Call, LoweringOptions, Sizes, elements
from whichgpu.estimate.time.lower.eager.elementwise import cast, clone, memory_op
from whichgpu.estimate.time.operators import Number, Op, gemm

# Tokens above which corrections of attention do not apply, which were learnt from networks of at most 1,025 tokens.
LONG_TOKENS = 2048
HEAD_DIM = 64.0  # elements per head in every tabled Vision Transformer, which the operator does not state


def matmul(call: Call, options: LoweringOptions) -> list[Op]:
    """Return the GEMM of addmm, mm or bmm, as forward, input-gradient or weight-gradient GEMM by where the batch dimension is."""
    first, second = call.inputs[-2:]
    batch, rows, inner, columns = (first[0] if len(first) == 3 else 1.0), first[-2], first[-1], second[-1]
    role = "forward" if call.phase == "forward" else _gradient_role(call, rows, inner)
    width = options.quantised_width if options.quantised_unit else call.width
    unit = options.quantised_unit or call.unit(options, options.gemm32)
    return [call.adopt(gemm(rows, columns, inner, unit, width, batch=batch, role=role))]


def _gradient_role(call: Call, rows: Number, inner: Number) -> str:
    """Return whether a gradient GEMM is of the weight (`wgrad`: it sums over the batch) or of the input (`dgrad`)."""
    if call.growing:
        return "wgrad" if call.growing[-2][-1] else "dgrad"
    return "wgrad" if np.all(np.greater(inner, rows)) else "dgrad"


def attention(call: Call, options: LoweringOptions) -> list[Op]:
    """Return the kernel of fused attention, which reads queries, keys and values and writes the output."""
    query, key = call.inputs[:2]
    kind = "long_attention" if min(float(np.max(query[2])), float(np.max(key[2]))) > LONG_TOKENS else "attention"
    return [_attention(call, options, query, key, kind)]


def attention_backward(call: Call, options: LoweringOptions) -> list[Op]:
    """Return the backward kernel of fused attention, which runs five GEMMs where forward runs two."""
    query, key = call.inputs[1:3]
    return [_attention(call, options, query, key, "attention_backward")]


def _attention(call: Call, options: LoweringOptions, query: Sizes, key: Sizes, kind: str) -> Op:
    batch, heads, queries, dim = query
    causal = float(call.attributes.get("causal", False))
    sizes = {"batch": batch, "heads": heads, "kv_heads": key[1], "queries": queries, "keys": key[2], "dim": dim, "causal": causal}
    q, kv = elements(query) * call.width, elements(key) * call.width
    read, written, gemms = (3 * q + 2 * kv, q + 2 * kv, 5) if kind == "attention_backward" else (q + 2 * kv, q, 2)
    pairs = queries * key[2] * (0.5 if causal else 1.0)
    flops = 2.0 * gemms * batch * heads * pairs * dim
    return call.op(kind, call.unit(options, options.gemm32), read, written, flops=flops, sizes=sizes)


def native_attention(call: Call, options: LoweringOptions) -> list[Op]:
    """Return the kernels of the single call MultiheadAttention makes without gradients; autocast runs its steps separately."""
    query, _, _, weight, _, projection = call.inputs[:6]
    batch, tokens, hidden = query
    heads = hidden / HEAD_DIM
    qkv = replace(call, inputs=((batch * tokens, hidden), (hidden, weight[0])))
    fused = replace(call, inputs=((batch, heads, tokens, HEAD_DIM),) * 3)
    out = replace(call, inputs=((batch * tokens, hidden), (hidden, projection[0])))
    steps = [*matmul(qkv, options), *attention(fused, options), *matmul(out, options)]
    if not options.amp:
        return steps
    three = (3.0, tokens, batch, hidden)
    for shape in (query, weight, projection):
        steps += cast(replace(call, outputs=(shape,), grown=(shape is query,)), options)
    for shape in (query, three):
        steps += clone(replace(call, outputs=(shape,)), options)
    steps.append(
        memory_op(replace(call, outputs=(three,)), options, "elementwise", 6 * elements(query), 6 * elements(query), "strided")
    )
    return steps
