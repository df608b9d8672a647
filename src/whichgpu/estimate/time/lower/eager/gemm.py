"""Products of matrices and attention, as PyTorch calls them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from whichgpu.estimate.time.lower.eager.call import Call, LoweringOptions, elements
from whichgpu.estimate.time.lower.eager.elementwise import cast, clone, memory_op
from whichgpu.estimate.time.operators import Number, Op, gemm

if TYPE_CHECKING:
    from whichgpu.estimate.time.lower.eager.call import Sizes

HEAD_DIM = 64.0  # of every Vision Transformer there is a table of; the operator itself does not say


def matmul(call: Call, options: LoweringOptions) -> list[Op]:
    """addmm, mm and bmm; what role a product has shows in where the batch is."""
    first, second = call.inputs[-2:]
    batch, rows, inner, columns = (first[0] if len(first) == 3 else 1.0), first[-2], first[-1], second[-1]
    role = "forward" if call.phase == "forward" else _gradient_role(call, rows, inner)
    width = options.narrow_width if options.narrow else call.width
    op = gemm(rows, columns, inner, options.narrow or call.unit(options, options.gemm32), width, batch=batch, role=role)
    return [call.mine(op)]


def _gradient_role(call: Call, rows: Number, inner: Number) -> str:
    """A product that sums over the batch makes the gradient of a weight."""
    if call.growing:
        return "wgrad" if call.growing[-2][-1] else "dgrad"
    return "wgrad" if np.all(np.greater(inner, rows)) else "dgrad"


def attention(call: Call, options: LoweringOptions) -> list[Op]:
    """Fused attention: queries, keys and values in, output and log-sum-exp out."""
    query, key = call.inputs[:2]
    return [_attention(call, options, query, key, "attention", 2)]


def attention_backward(call: Call, options: LoweringOptions) -> list[Op]:
    """Its backward: five products for the forward's two."""
    query, key = call.inputs[1:3]
    return [_attention(call, options, query, key, "attention_backward", 5)]


def _attention(call: Call, options: LoweringOptions, query: Sizes, key: Sizes, kind: str, products: int) -> Op:
    batch, heads, queries, dim = query
    sizes = {
        "batch": batch, "heads": heads, "kv_heads": key[1], "queries": queries, "keys": key[2], "dim": dim,
        "causal": float(call.attributes.get("causal", False)),
    }  # fmt: skip
    q, kv = elements(query) * call.width, elements(key) * call.width
    read, written = (q + 2 * kv, q) if kind == "attention" else (3 * q + 2 * kv, q + 2 * kv)
    pairs = queries * key[2] * (0.5 if sizes["causal"] else 1.0)
    flops = 2.0 * products * batch * heads * pairs * dim
    return call.op(kind, call.unit(options, options.gemm32), read, written, flops=flops, sizes=sizes)


def native_attention(call: Call, options: LoweringOptions) -> list[Op]:
    """MultiheadAttention without gradients, seen as one call. Under autocast PyTorch makes its steps one by one after all."""
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
        memory_op(replace(call, outputs=(three,)), options, "pointwise", 6 * elements(query), 6 * elements(query), "strided")
    )
    return steps
