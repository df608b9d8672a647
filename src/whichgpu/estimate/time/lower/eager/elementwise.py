"""Rules for PyTorch's elementwise kernels, copies and casts: vectorised, or several times slower if an operand prevents that."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whichgpu.estimate.time.lower.eager.call import IMAGE_AXES, Call, LoweringOptions, elements
from whichgpu.estimate.time.operators import Number, Op

Rule = Callable[[Call, LoweringOptions], list[Op]]
INDEX_PUT_KERNELS = 8.0  # number of kernels; PyTorch first sorts the indices, in several small kernels


def elementwise(call: Call, options: LoweringOptions) -> list[Op]:
    """Return one kernel that reads every input and writes every output."""
    read, written = _input_and_output_bytes(call)
    slow = _is_broadcast(call)
    if _mixes_widths(call, options):
        read, slow = read * (0.75 if call.alike else 0.5), True
    return [memory_op(call, options, "elementwise", read, written, "strided" if slow else None)]


def _input_and_output_bytes(call: Call) -> tuple[Number, Number]:
    read, written = (sum(elements(shape) for shape in side) * call.width for side in (call.inputs, call.outputs))
    return read, written


def _mixes_widths(call: Call, options: LoweringOptions) -> bool:
    """Whether a 16-bit operand is combined into an fp32 result (residual sum, layer scale), which PyTorch does not vectorise."""
    if not options.amp or call.phase != "forward" or call.dtype != "float32":
        return False
    return call.alike if call.name == "add" else call.name == "mul" and len(call.inputs[0]) == 3 < len(call.inputs[-1])


def _is_broadcast(call: Call) -> bool:
    """Whether an operand other than a scalar is smaller than the result, which PyTorch does not vectorise."""
    return len(call.inputs) == 2 and not call.alike and bool(call.inputs[0] and call.inputs[1])


def strided_elementwise(call: Call, options: LoweringOptions) -> list[Op]:
    """Return an elementwise kernel on a slice of a larger tensor."""
    return [memory_op(call, options, "elementwise", *_input_and_output_bytes(call), "strided")]


def memory_op(
    call: Call, options: LoweringOptions, kind: str, read: Number, written: Number, role: str | None = None, **sizes: Number
) -> Op:
    """Return a memory-bound kernel from the bytes it moves; `role`, its variant, is the name of the PyTorch call by default."""
    if "elements" not in sizes:
        counts = [elements(shape) for shape in (*call.inputs[:1], call.outputs[0])]
        sizes["elements"] = maximum(counts[0], counts[-1])
    sizes["resident"] = _resident_share(call, options, read, written)
    role = call.name.removesuffix("_") if role is None else role
    return call.op(kind, call.unit(options), read, written, sizes=sizes, role=role)


def _resident_share(call: Call, options: LoweringOptions, read: Number, written: Number) -> Number:
    """Return the share of a kernel's bytes that the L2 cache may still hold.

    Without gradients the same few buffers are reused. In training results are saved, so only the first input was written just
    before, by the previous kernel; an in-place result overwrites that input.
    """
    if not call.grown or not call.grown[0]:
        return 0.0  # Weights are read and written once per step.
    if not options.training:
        return 1.0
    recent = elements(call.inputs[0]) * call.width if call.inputs else 0.0
    if call.name.endswith("_"):
        recent = recent + written
    share = recent / maximum(read + written, 1.0)
    return min(share, 1.0) if isinstance(share, float) else np.minimum(share, 1.0)


def maximum(one: Number, other: Number) -> Number:
    """Return the larger number; two floats are compared in plain Python, which takes a tenth of the time."""
    if isinstance(one, float) and isinstance(other, float):
        return max(one, other)
    return np.maximum(one, other)


def copy_rule(kind: str, role: str | None = None) -> Rule:
    """Return a rule (PyTorch call to kernels) for a kernel that copies its first input to its first output."""

    def rule(call: Call, options: LoweringOptions) -> list[Op]:
        read = elements(call.inputs[0]) * call.width if call.inputs else 0.0
        return [memory_op(call, options, kind, read, elements(call.outputs[0]) * call.width, role)]

    return rule


def result_rule(kind: str, role: str | None = None, reads: int = 1, mask_read: int = 0, mask_written: int = 0) -> Rule:
    """Return a rule (PyTorch call to kernels): it reads `reads` tensors of the result's size, writes one, moves mask bytes."""

    def rule(call: Call, options: LoweringOptions) -> list[Op]:
        size = elements(call.outputs[0])
        read, written = size * (reads * call.width + mask_read), size * (call.width + mask_written)
        return [memory_op(call, options, kind, read, written, role)]

    return rule


clone = result_rule("copy", "strided")  # copies a transposed tensor or a slice; whole rows stay together
fill = result_rule("elementwise", reads=0)
broadcast_gradient = result_rule("elementwise", "strided", reads=0)  # the gradient of a mean copies one value to many elements
dropout = result_rule("dropout", mask_written=1)
dropout_backward = result_rule("elementwise", mask_read=1)


def cast(call: Call, options: LoweringOptions) -> list[Op]:
    """Return a cast between fp32 and 16 bits, or a copy between devices or layouts."""
    size = elements(call.outputs[0])
    upcast = options.amp and call.dtype == "float32"
    source_width = (2 if upcast else 4) if options.amp else call.width
    return [memory_op(call, options, "copy", size * source_width, size * call.width, "upcast" if upcast else "")]


def concatenate(call: Call, options: LoweringOptions) -> list[Op]:
    """Return the concatenation of inputs into each row of the result; NCHW images are copied whole."""
    size = elements(call.outputs[0]) * call.width
    if not options.nhwc and len(call.outputs[0]) == IMAGE_AXES:
        return [memory_op(call, options, "copy", size, size, "")]
    return [memory_op(call, options, "transpose", size, size, "concat")]


def scatter(call: Call, options: LoweringOptions) -> list[Op]:
    """Return the gradient kernels of slices and selections: zeros are written, then a part is overwritten."""
    count = elements(call.inputs[0])
    zeros = memory_op(call, options, "elementwise", 0.0, elements(call.outputs[0]) * call.width)
    copied = call.op("copy", call.unit(options), count * call.width, count * call.width, sizes={"elements": count})
    return [zeros, copied]


def index_put(call: Call, options: LoweringOptions) -> list[Op]:
    """Return the kernels of PyTorch's `index_put`, which adds rows at given indices."""
    count = elements(call.inputs[-1])
    op = call.op("elementwise", call.unit(options), count * call.width, count * call.width, sizes={"elements": count})
    return [op.times(INDEX_PUT_KERNELS)]
