"""Multi-layer perceptrons and recommendation models in PyTorch eager."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichgpu.estimate.time.lower.eager.attention import softmax
from whichgpu.estimate.time.lower.eager.functional import elementwise, linear
from whichgpu.estimate.time.lower.eager.kernels import KernelWriter, MatrixSizes
from whichgpu.estimate.time.lower.eager.optimizer import optimizer_ops
from whichgpu.estimate.time.lower.numerics import numerics
from whichgpu.estimate.time.operators import Number, Op, gemm
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.shapes import Dlrm, Mlp
from whichgpu.workload.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Sequence


def perceptron_step(workload: Workload, shape: Mlp, batch: Number) -> list[Op]:
    """Return the operators of a training step or forward pass: linear layers with activations between them, and a loss."""
    write = _writer(workload)
    x = _mlp(write, MatrixSizes(batch, shape.units[0], write.stream), shape.units[1:], inputs=True)
    if not workload.training:
        return write.ops
    softmax(write, write.cast(x, 4))
    write.tiny_kernels(2)
    write.tiny_kernels(3, "backward")
    tensors = 2.0 * (len(shape.units) - 1)
    return write.ops + optimizer_ops(workload, count_parameters(shape).total, tensors, write.numerics.widths.parameter)


def recommendation_pass(workload: Workload, shape: Dlrm, batch: Number) -> list[Op]:
    """Return the operators of DLRM (arXiv 1906.00091): embedding rows, an MLP on dense features, pairwise products, an MLP."""
    write = _writer(workload)
    dim, vectors = shape.embedding_dim, len(shape.tables) + 1
    _mlp(write, MatrixSizes(batch, shape.bottom[0], write.stream), shape.bottom[1:], inputs=True)
    row = batch * dim * write.stream
    for rows in shape.tables:
        sizes = {"rows": batch, "width": float(dim), "table": float(rows)}
        write.move("embedding", row, row, width=write.stream, sizes=sizes)
    joined = MatrixSizes(batch, vectors * dim, write.stream)
    write.elementwise(joined, joined.width, joined.width, kind="copy")
    write.put(gemm(vectors, vectors, dim, write.numerics.unit, write.compute, batch=batch))
    pairs = MatrixSizes(batch, shape.interaction, write.stream)
    write.elementwise(pairs, pairs.width, pairs.width, kind="copy")
    _mlp(write, pairs, shape.top)
    return write.ops


def _writer(workload: Workload) -> KernelWriter:
    return KernelWriter(numerics(workload.precision or "fp32", workload.year, workload.engine), workload.training)


def _mlp(write: KernelWriter, x: MatrixSizes, units: Sequence[int], inputs: bool = False) -> MatrixSizes:
    """Append an MLP with layers of `units` outputs; if `inputs`, `x` is the model's input, whose gradient is not computed."""
    first, last = len(write.ops), len(units) - 1
    for index, out in enumerate(units):
        x = linear(write, x, out, bias=True)
        if index == 0 and inputs:
            write.ops[first:] = [op for op in write.ops[first:] if op.role != "dgrad"]
        if index < last:
            x = elementwise(write, x, "relu")
    return x
