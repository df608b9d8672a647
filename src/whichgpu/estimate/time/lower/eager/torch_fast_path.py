"""Adjustments of traced calls that need the whole pass, such as MultiheadAttention's fast path: memory layouts and kernels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from whichgpu.workload.tables import Dims, TableOperator

# Share of the traced views that remain (assumed) when `MultiheadAttention` takes its C++ fast path in inference.
FAST_PATH_VIEWS = 0.4
NORM, NORM_BACKWARD = "aten.native_layer_norm.default", "aten.native_layer_norm_backward.default"


def as_run_on_gpu(operators: Sequence[TableOperator], training: bool, amp: bool) -> tuple[TableOperator, ...]:
    """Return the traced operators of a pass, adjusted to what runs on a GPU."""
    adapted: Iterable[TableOperator] = operators
    packed = _packed_attention(operators)
    if packed and not training and not amp:
        adapted = _fast_path(operators, packed)
    elif packed and training:
        adapted = _sequence_first(operators)
    return tuple(_with_layouts(adapted, operators))


def short_name(operator: TableOperator) -> str:
    """Return an operator's name without namespace and overload.

    >>> short_name(TableOperator("forward", "aten.relu_.default", "float32", 1))
    'relu_'
    """
    return operator.name.removeprefix("aten.").partition(".")[0]


def _with_layouts(adapted: Iterable[TableOperator], operators: Sequence[TableOperator]) -> Iterable[TableOperator]:
    """Mark clones before an in-place operator as plain copies, and gradients of concatenated tensors as strided."""
    forward = [operator for operator in operators if operator.phase == "forward" and operator.outputs]
    in_place = {operator.outputs[0] for operator in forward if short_name(operator).endswith("_")}
    cat_inputs = {shape for operator in forward if short_name(operator) == "cat" for shape in operator.inputs if len(shape) == 4}
    for operator in adapted:
        name = short_name(operator)
        if name == "clone" and operator.phase == "forward" and operator.outputs[0] in in_place:
            yield replace(operator, name="aten.copy_.default")
        elif name in ("add", "threshold_backward") and operator.phase == "backward" and operator.outputs[0] in cat_inputs:
            yield replace(operator, name=f"aten.{name}_strided.default")
        elif operator.name == "aten.div.Scalar" and operator.phase == "backward":  # This is the gradient of a mean.
            yield replace(operator, name="aten.expanded.default")
        else:
            yield operator


def _packed_attention(operators: Sequence[TableOperator]) -> Dims | None:
    """Return the shape [3, tokens, batch, hidden] of MultiheadAttention's transposed queries, keys and values, else None."""
    for operator in operators:
        if short_name(operator) == "clone" and operator.phase == "forward" and len(operator.outputs[0]) == 4:
            three, tokens, batch, hidden = operator.outputs[0]
            if three == (3, 0) and batch == (0, 1) and not tokens[1] and not hidden[1]:
                return operator.outputs[0]
    return None


def _fast_path(operators: Sequence[TableOperator], packed: Dims) -> Iterable[TableOperator]:
    """Yield the operators of the fast path (no gradients, no autocast): the bias is part of the GEMM, nothing is transposed."""
    _, tokens, batch, hidden = packed
    transposed = {packed, (tokens, batch, hidden)}
    biased = (tokens, batch, (3 * hidden[0], 0))
    for operator in operators:
        name = short_name(operator)
        if name == "clone" and operator.outputs[0] in transposed:
            continue
        if name == "add" and operator.outputs[0] == biased:
            continue
        if not operator.inputs:
            yield replace(operator, count=max(1, round(operator.count * FAST_PATH_VIEWS)))
        else:
            yield operator


def _sequence_first(operators: Sequence[TableOperator]) -> Iterable[TableOperator]:
    """Yield the operators with the copies of the sequence-first layout in training: each layer norm but the first copies its
    input; in the backward pass each copies its input and, every other time, its gradient."""
    for operator in operators:
        yield operator
        if operator.name in (NORM, NORM_BACKWARD) and operator.count > 1:
            copies = operator.count - 1
            copies = copies * 3 // 2 if operator.name == NORM_BACKWARD else copies
            shape = operator.inputs[0]
            yield replace(operator, name="aten.clone.default", count=copies, inputs=(shape,), outputs=(shape,))
