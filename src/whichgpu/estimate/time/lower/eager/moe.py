"""Mixtures of experts as the `transformers` library runs them in PyTorch eager."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from whichgpu.estimate.time.lower.eager.attention import softmax
from whichgpu.estimate.time.lower.eager.functional import PHASES, activation, add, linear
from whichgpu.estimate.time.lower.eager.kernels import STRIDED, Tensor, Writer
from whichgpu.estimate.time.lower.fused.layers import routed_rows, touched
from whichgpu.estimate.time.operators import Op
from whichgpu.workload.shapes import Transformer

if TYPE_CHECKING:
    from whichgpu.estimate.time.operators import Number

SORTING = 25  # small kernels that choose experts, sort tokens to them and count
Mlp = Callable[[Writer, Transformer, Tensor, float], Tensor]


def mixture(write: Writer, shape: Transformer, x: Tensor, mlp: Mlp) -> Tensor:
    """Router, rows sorted to experts, two grouped products with an activation between, rows weighted and added back.

    Rows of experts on other GPUs are blanked out before and after every product, whether there are any or not.
    """
    experts = shape.experts
    assert experts is not None
    write.fan_out(x, 2)
    router = linear(write, x, experts.count)
    softmax(write, write.cast(router, 4))
    write.small(SORTING)
    write.small(SORTING, "backward")
    routed = Tensor(routed_rows(experts, x.rows), x.columns, write.compute)
    visited = touched(experts, x.rows)
    _gathered(write, x, routed)
    _blanked(write, routed)
    ups = 2 if shape.gated else 1
    inner = grouped(write, routed, ups * experts.ffn, visited, experts.count)
    _blanked(write, inner, copied=True)
    inner = _activated(write, shape, inner.shaped(experts.ffn))
    out = grouped(write, inner, shape.hidden, visited, experts.count)
    _blanked(write, out, copied=True)
    summed = _weighted_sum(write, x, out)
    return add(write, summed, mlp(write, shape, x, experts.shared_ffn)) if experts.shared_ffn else summed


def _gathered(write: Writer, x: Tensor, routed: Tensor) -> None:
    """Rows copied to where their expert's are; their gradients are sorted and added."""
    write.move("embedding", routed.bytes, routed.bytes, width=routed.width, sizes=routed.sizes)
    write.back(x, 0, x.width)
    write.small(SORTING, "backward")
    write.back(routed, routed.width, routed.width, role=STRIDED)


def _blanked(write: Writer, x: Tensor, copied: bool = False) -> None:
    """Rows of no expert here set to zero: in place, or in a copy."""
    for phase in PHASES:
        if copied or phase == "backward":
            write.copy(x.elements, x.width, x.width, phase)
        write.each(x, 0, x.width, phase=phase, role=STRIDED)


def _activated(write: Writer, shape: Transformer, x: Tensor) -> Tensor:
    """The activation, and its product with the other half of a joined tensor."""
    if not shape.gated:
        return activation(write, shape.activation, x)
    write.each(x, x.width, x.width, role=STRIDED)
    write.each(x, 2 * x.width, x.width, role=STRIDED)
    write.back(x, 2 * x.width, x.width)
    for _ in range(2):
        write.back(x, 2 * x.width, x.width, role=STRIDED)
    write.join(x.shaped(2 * x.columns), "backward")
    return x


def _weighted_sum(write: Writer, x: Tensor, out: Tensor) -> Tensor:
    """Rows times their share in fp32, put back in order and summed over a token's experts."""
    wide = out.shaped(width=4)
    write.each(out, out.width, 4, role=STRIDED)
    write.move("embedding", wide.bytes, wide.bytes, width=4, sizes=wide.sizes)
    sizes = {"elements": x.elements}
    write.move("pointwise", wide.bytes, x.elements * 4.0, width=4, sizes=sizes)  # a token's experts summed
    told = write.cast(x.shaped(width=4), write.compute)
    write.turn(wide, "backward")
    write.back(wide, 0, 4)
    write.back(wide, 4, 4, role=STRIDED)
    write.back(out, 4 + out.width, 4, role=STRIDED)
    write.back(wide, 4, 4, role=STRIDED)
    write.copy(out.elements, 4, out.width, "backward")
    write.reduce(wide, "backward")
    return told


def grouped(write: Writer, x: Tensor, out: float, visited: Number, count: int) -> Tensor:
    """One product for each expert visited, in one kernel; weights' gradients come for every expert."""
    unit, width, k = write.numerics.unit, x.width, x.columns
    flops = 2.0 * x.rows * k * out
    weights = visited * k * out * width
    made = x.shaped(out)
    op = Op("grouped_gemm", unit, flops, x.bytes + weights, made.bytes, _sizes(x.rows, out, k, visited), role="framework")
    write.put(op)
    write.put(replace(op, read=made.bytes + weights, write=x.bytes, sizes=_sizes(x.rows, k, out, visited)), "backward")
    if not write.frozen and not write.lora_rank:
        whole = count * k * out * width
        sizes = _sizes(count * out, k, x.rows / count, float(count))
        write.put(replace(op, read=x.bytes + made.bytes, write=whole, sizes=sizes), "backward")
    return made


def _sizes(m: Number, n: Number, k: Number, batch: Number) -> dict[str, Number]:
    return {"m": m, "n": n, "k": k, "batch": batch}
