"""Operators of a traced network whose weights are frozen and whose linear layers have LoRA adapters (arXiv 2106.09685)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from whichgpu.workload.tables import Dims, TableOperator


def with_adapters(operators: Sequence[TableOperator], layers: Sequence[TableOperator], rank: int) -> tuple[TableOperator, ...]:
    """Return a training step without gradients of weights, and with adapters of a rank on `layers`."""
    frozen = [result for one in operators for result in _without_weight_gradients(one)]
    return (*frozen, *(product for layer in layers for product in _adapter(layer, rank)))


def _without_weight_gradients(operator: TableOperator) -> Iterator[TableOperator]:
    """Yield the operator unless its results are gradients of weights, which alone do not depend on the batch."""
    grown = [any(slope for _, slope in dims) for dims in operator.outputs]
    if operator.phase != "backward" or not grown:
        yield operator
    elif "mask" in operator.attributes:
        if operator.attributes["mask"][0]:
            attributes = {**operator.attributes, "mask": [True, False, False]}
            yield replace(operator, outputs=operator.outputs[:1], attributes=attributes)
    elif any(grown):
        yield operator


def _adapter(layer: TableOperator, rank: int) -> Iterator[TableOperator]:
    """Yield the products of a low-rank adapter, forward and backward, and the sums with the layer's own results."""
    rows, (inputs, outputs), narrow = layer.inputs[-2][0], layer.inputs[-1], (rank, 0)

    def product(phase: str, left: Dims, right: Dims) -> TableOperator:
        return replace(layer, phase=phase, name="aten.mm.default", inputs=(left, right), outputs=((left[0], right[1]),))

    def addition(phase: str, dims: Dims) -> TableOperator:
        return replace(layer, phase=phase, name="aten.add.Tensor", inputs=(dims, dims), outputs=(dims,))

    yield product("forward", (rows, inputs), (inputs, narrow))
    yield product("forward", (rows, narrow), (narrow, outputs))
    yield addition("forward", (rows, outputs))
    yield product("backward", (rows, outputs), (outputs, narrow))
    yield product("backward", (narrow, rows), (rows, outputs))
    yield product("backward", (rows, narrow), (narrow, inputs))
    yield product("backward", (narrow, rows), (rows, inputs))
    yield addition("backward", (rows, inputs))
