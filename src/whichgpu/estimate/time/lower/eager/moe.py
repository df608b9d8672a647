"""MoE layers as the `transformers` library runs them in PyTorch eager."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from whichgpu.estimate.time.lower.eager.attention import softmax
from whichgpu.estimate.time.lower.eager.functional import CUBLASLT, PHASES, activation, add, linear, quantise
from whichgpu.estimate.time.lower.eager.kernels import STRIDED, KernelWriter, MatrixSizes
from whichgpu.estimate.time.lower.routing import routed_rows, touched_experts
from whichgpu.estimate.time.operators import Number, Op
from whichgpu.workload.shapes import Transformer

ROUTING_KERNELS = 25  # number of small kernels that choose experts, sort tokens by expert and count them
MlpWriter = Callable[[KernelWriter, Transformer, MatrixSizes, float], MatrixSizes]


def moe_block(write: KernelWriter, shape: Transformer, x: MatrixSizes, mlp: MlpWriter) -> MatrixSizes:
    """Append the router, sorting of rows by expert, two grouped GEMMs around an activation, and the weighted sum of rows.

    Rows of experts on other GPUs are masked before and after every GEMM, even if there are none.
    """
    experts = shape.experts
    assert experts is not None
    write.sum_gradients(x, 2)
    router = linear(write, x, experts.count)
    softmax(write, write.cast(router, 4))
    write.tiny_kernels(ROUTING_KERNELS)
    write.tiny_kernels(ROUTING_KERNELS, "backward")
    routed = MatrixSizes(routed_rows(experts, x.rows), x.columns, write.compute)
    touched = touched_experts(experts, x.rows)
    _gather_rows(write, x, routed)
    _mask_foreign_rows(write, routed)
    ups = 2 if shape.gated else 1
    inner = grouped_gemm(write, routed, ups * experts.ffn, touched, experts.count)
    _mask_foreign_rows(write, inner, copied=True)
    inner = _gated_activation(write, shape, inner.like(experts.ffn))
    out = grouped_gemm(write, inner, shape.hidden, touched, experts.count)
    _mask_foreign_rows(write, out, copied=True)
    summed = _weighted_sum(write, x, out)
    return add(write, summed, mlp(write, shape, x, experts.shared_ffn)) if experts.shared_ffn else summed


def _gather_rows(write: KernelWriter, x: MatrixSizes, routed: MatrixSizes) -> None:
    """Append the gather of rows by expert; in the backward pass their gradients are sorted and added."""
    write.move("embedding", routed.bytes, routed.bytes, width=routed.width, sizes=routed.sizes)
    write.backward(x, 0, x.width)
    write.tiny_kernels(ROUTING_KERNELS, "backward")
    write.backward(routed, routed.width, routed.width, role=STRIDED)


def _mask_foreign_rows(write: KernelWriter, x: MatrixSizes, copied: bool = False) -> None:
    """Append the zeroing of rows that belong to experts on other GPUs: in place, or in a copy."""
    for phase in PHASES:
        if copied or phase == "backward":
            write.copy(x.elements, x.width, x.width, phase)
        write.elementwise(x, 0, x.width, phase=phase, role=STRIDED)


def _gated_activation(write: KernelWriter, shape: Transformer, x: MatrixSizes) -> MatrixSizes:
    """Append the activation and its product with the other half of a fused gate-up tensor; return the sizes of the result."""
    if not shape.gated:
        return activation(write, shape.activation, x)
    write.elementwise(x, x.width, x.width, role=STRIDED)
    write.elementwise(x, 2 * x.width, x.width, role=STRIDED)
    write.backward(x, 2 * x.width, x.width)
    for _ in range(2):
        write.backward(x, 2 * x.width, x.width, role=STRIDED)
    write.concat(x.like(2 * x.columns), "backward")
    return x


def _weighted_sum(write: KernelWriter, x: MatrixSizes, out: MatrixSizes) -> MatrixSizes:
    """Append the product of rows and router weights in fp32, its reordering, and the sum over the experts of each token."""
    wide = out.like(width=4)
    write.elementwise(out, out.width, 4, role=STRIDED)
    write.move("embedding", wide.bytes, wide.bytes, width=4, sizes=wide.sizes)
    sizes = {"elements": x.elements}
    write.move("elementwise", wide.bytes, x.elements * 4.0, width=4, sizes=sizes)  # sums over a token's experts
    summed = write.cast(x.like(width=4), write.compute)
    write.transpose(wide, "backward")
    write.backward(wide, 0, 4)
    write.backward(wide, 4, 4, role=STRIDED)
    write.backward(out, 4 + out.width, 4, role=STRIDED)
    write.backward(wide, 4, 4, role=STRIDED)
    write.copy(out.elements, 4, out.width, "backward")
    write.reduce(wide, "backward")
    return summed


def grouped_gemm(write: KernelWriter, x: MatrixSizes, out: float, touched: Number, count: int) -> MatrixSizes:
    """Append one kernel that runs a GEMM for each expert touched; weight gradients are written for every expert."""
    unit, width, k, role = write.numerics.unit, x.width, x.columns, "eager"
    if write.numerics.operand_unit:
        quantise(write, x, x.like(out), "expert")
        unit, width, role = write.numerics.operand_unit, write.numerics.widths.operand, CUBLASLT
    flops = 2.0 * x.rows * k * out
    weights = touched * k * out * width
    output = x.like(out)
    inputs, outputs = x.elements * width, output.elements * width  # as operands
    op = Op("grouped_gemm", unit, flops, inputs + weights, output.bytes, _sizes(x.rows, out, k, touched), role=role)
    write.put(op)
    write.put(replace(op, read=outputs + weights, write=x.bytes, sizes=_sizes(x.rows, k, out, touched)), "backward")
    if write.trains_weights:
        whole = count * k * out * x.width
        sizes = _sizes(count * out, k, x.rows / count, float(count))
        earlier = whole if write.accumulates else 0.0
        write.put(replace(op, read=inputs + outputs + earlier, write=whole, sizes=sizes), "backward")
    return output


def _sizes(m: Number, n: Number, k: Number, batch: Number) -> dict[str, Number]:
    return {"m": m, "n": n, "k": k, "batch": batch}
