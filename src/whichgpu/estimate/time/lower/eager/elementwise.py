"""Elementwise kernels, copies and casts of PyTorch: vectorised, or several times slower where an operand does not let them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whichgpu.estimate.time.lower.eager.call import IMAGE_AXES, Call, LoweringOptions, elements
from whichgpu.estimate.time.operators import Number, Op

Rule = Callable[[Call, LoweringOptions], list[Op]]


def elementwise(call: Call, options: LoweringOptions) -> list[Op]:
    """One kernel that reads every input and writes every output."""
    read = sum(elements(shape) for shape in call.inputs) * call.width
    written = sum(elements(shape) for shape in call.outputs) * call.width
    slow = _broadcast(call)
    if _mixed(call, options):
        read, slow = read * (0.75 if call.alike else 0.5), True
    return [memory_op(call, options, "pointwise", read, written, "strided" if slow else None)]


def _mixed(call: Call, options: LoweringOptions) -> bool:
    """Whether one operand is of 16 bits and the result of fp32: a layer's result added to the residual, or scaled by a parameter.

    PyTorch's kernel for that is not vectorised.
    """
    if not options.amp or call.phase != "forward" or call.dtype != "float32":
        return False
    return call.alike if call.name == "add" else call.name == "mul" and len(call.inputs[0]) == 3 < len(call.inputs[-1])


def _broadcast(call: Call) -> bool:
    """Whether one operand is smaller than the result, a scalar apart: then the kernel is not vectorised."""
    return len(call.inputs) == 2 and not call.alike and bool(call.inputs[0] and call.inputs[1])


def strided_elementwise(call: Call, options: LoweringOptions) -> list[Op]:
    """An elementwise kernel on part of something larger."""
    read, written = (sum(elements(shape) for shape in side) * call.width for side in (call.inputs, call.outputs))
    return [memory_op(call, options, "pointwise", read, written, "strided")]


def memory_op(
    call: Call, options: LoweringOptions, kind: str, read: Number, written: Number, role: str | None = None, **sizes: Number
) -> Op:
    """A kernel by the bytes it moves; its role is its name unless another is given."""
    if "elements" not in sizes:
        whole = [elements(shape) for shape in (*call.inputs[:1], call.outputs[0])]
        sizes["elements"] = maximum(whole[0], whole[-1])
    sizes["resident"] = _resident(call, options, read, written)
    return call.op(
        kind, call.unit(options), read, written, sizes=sizes, role=call.name.removesuffix("_") if role is None else role
    )


def _resident(call: Call, options: LoweringOptions, read: Number, written: Number) -> Number:
    """The share of a kernel's bytes that the cache may still hold.

    Without gradients the same few buffers are used again and again. In training results are kept, so only the first input has
    just been written by the kernel before; in place the result is where that was.
    """
    if not call.grown or not call.grown[0]:
        return 0.0  # weights: read and written once a step
    if not options.training:
        return 1.0
    fresh = elements(call.inputs[0]) * call.width if call.inputs else 0.0
    if call.name.endswith("_"):
        fresh = fresh + written
    share = fresh / maximum(read + written, 1.0)
    return min(share, 1.0) if isinstance(share, float) else np.minimum(share, 1.0)


def maximum(one: Number, other: Number) -> Number:
    """Of two numbers or arrays; numbers alone are compared in Python, which takes a tenth of the time."""
    if isinstance(one, float) and isinstance(other, float):
        return max(one, other)
    return np.maximum(one, other)


def copy_rule(kind: str, role: str | None = None) -> Rule:
    """A kernel that moves its first input into its first output."""

    def rule(call: Call, options: LoweringOptions) -> list[Op]:
        read = elements(call.inputs[0]) * call.width if call.inputs else 0.0
        return [memory_op(call, options, kind, read, elements(call.outputs[0]) * call.width, role)]

    return rule


def cast(call: Call, options: LoweringOptions) -> list[Op]:
    """A cast between fp32 and 16 bits, or a copy between devices or layouts."""
    size = elements(call.outputs[0])
    widening = options.amp and call.dtype == "float32"
    given = (2 if widening else 4) if options.amp else call.width
    return [memory_op(call, options, "copy", size * given, size * call.width, "widen" if widening else "")]


def clone(call: Call, options: LoweringOptions) -> list[Op]:
    """A copy of something that was turned around, or is part of something larger; whole rows stay together."""
    size = elements(call.outputs[0]) * call.width
    return [memory_op(call, options, "copy", size, size, "strided")]


def concatenate(call: Call, options: LoweringOptions) -> list[Op]:
    """Inputs written one after another into each row of the result; whole planes of pixels are copied as they are."""
    size = elements(call.outputs[0]) * call.width
    if not options.nhwc and len(call.outputs[0]) == IMAGE_AXES:
        return [memory_op(call, options, "copy", size, size, "")]
    return [memory_op(call, options, "transpose", size, size, "join")]


def fill(call: Call, options: LoweringOptions) -> list[Op]:
    """A kernel that only writes."""
    return [memory_op(call, options, "pointwise", 0.0, elements(call.outputs[0]) * call.width)]


def scatter(call: Call, options: LoweringOptions) -> list[Op]:
    """Zeros, then a part of them written: gradients of slices and selections."""
    given, whole = elements(call.inputs[0]) * call.width, elements(call.outputs[0]) * call.width
    zeros = memory_op(call, options, "pointwise", 0.0, whole)
    copied = call.op("copy", call.unit(options), given, given, sizes={"elements": elements(call.inputs[0])})
    return [zeros, copied]


def dropout(call: Call, options: LoweringOptions) -> list[Op]:
    """Random numbers, the result, and a mask of a byte an element."""
    size = elements(call.outputs[0])
    return [memory_op(call, options, "dropout", size * call.width, size * (call.width + 1))]


def dropout_backward(call: Call, options: LoweringOptions) -> list[Op]:
    """The gradient where the mask lets it through."""
    size = elements(call.outputs[0])
    return [memory_op(call, options, "pointwise", size * (call.width + 1), size * call.width)]


def broadcast_gradient(call: Call, options: LoweringOptions) -> list[Op]:
    """The gradient of a mean: one value for many, divided by their number, so next to nothing is read."""
    return [memory_op(call, options, "pointwise", 0.0, elements(call.outputs[0]) * call.width, "strided")]


def index_put(call: Call, options: LoweringOptions) -> list[Op]:
    """Adding rows at given places: PyTorch sorts the places first, in several small kernels."""
    size = elements(call.inputs[-1]) * call.width
    op = call.op("pointwise", call.unit(options), size, size, sizes={"elements": elements(call.inputs[-1])})
    return [op.times(8.0)]
