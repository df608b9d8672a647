"""Rules for PyTorch's normalisations, softmax, sums and pooling."""

from __future__ import annotations

import numpy as np

from whichgpu.estimate.time.lower.eager.call import IMAGE_AXES, Call, LoweringOptions, Sizes, elements
from whichgpu.estimate.time.lower.eager.elementwise import Rule, memory_op
from whichgpu.estimate.time.operators import Number, Op


def batch_norm(call: Call, options: LoweringOptions) -> list[Op]:
    """Return batch norm: in training it computes statistics, then the result, reading the input twice; else it is elementwise."""
    size = elements(call.inputs[0]) * call.width
    if options.training:
        return [_training_batch_norm(call, options, "batch_norm", 2)]
    ops = [memory_op(call, options, "elementwise", size, size, "batch_norm_inference" if call.width == 2 else "strided")]
    if call.width == 2 and not options.amp:  # Two small kernels convert 16-bit weights at every call.
        channels = call.inputs[0][1]
        ops += 2 * [call.op("elementwise", "fp32", 4 * channels, 4 * channels, sizes={"elements": channels})]
    return ops


def batch_norm_backward(call: Call, options: LoweringOptions) -> list[Op]:
    """Return batch norm backward: two sums over gradient and input, from which the gradient of the input follows."""
    return [_training_batch_norm(call, options, "batch_norm_backward", 4)]


def _training_batch_norm(call: Call, options: LoweringOptions, kind: str, reads: int) -> Op:
    image = call.inputs[0]
    size, pixels = elements(image) * call.width, elements(image[2:])
    sizes = {"batch": image[0], "channels": image[1], "pixels": pixels, "rows": image[0] * pixels, "width": image[1]}
    return memory_op(call, options, kind, reads * size, size, role=_batch_norm_kernel(call, options), **sizes)


def _batch_norm_kernel(call: Call, options: LoweringOptions) -> str:
    """Return the batch-norm kernel's variant: cuDNN's for fp32 input or weights (not bf16), else PyTorch's; by memory format."""
    nchw = not options.nhwc and len(call.inputs[0]) >= IMAGE_AXES
    if call.width == 4 or (options.amp and options.half == "fp16"):
        return "cudnn_nchw" if nchw else "cudnn"
    return "torch_nchw" if nchw else ""


def layer_norm_rule(kind: str, reads: int) -> Rule:
    """Return a rule (PyTorch call to kernels) for layer norm: one kernel over rows; backward's time includes weight gradients."""

    def rule(call: Call, options: LoweringOptions) -> list[Op]:
        rows = call.inputs[0]
        size = elements(rows) * call.width
        return [memory_op(call, options, kind, reads * size, size, "", rows=elements(rows[:-1]), width=rows[-1])]

    return rule


layer_norm, layer_norm_backward = layer_norm_rule("norm", 1), layer_norm_rule("norm_backward", 2)


def group_norm(call: Call, options: LoweringOptions) -> list[Op]:
    """Return group norm: one kernel for the statistics, one for the result."""
    return [_group_norm(call, options, "norm", 2, call.outputs[1])]


def group_norm_backward(call: Call, options: LoweringOptions) -> list[Op]:
    """Return group norm backward: sums over gradient and input, then the gradient of the input."""
    return [_group_norm(call, options, "norm_backward", 4, call.inputs[2])]


def _group_norm(call: Call, options: LoweringOptions, kind: str, reads: int, statistics: Sizes) -> Op:
    image = call.inputs[0]
    size, rows = elements(image) * call.width, image[0] * statistics[-1]
    return memory_op(call, options, kind, reads * size, size, rows=rows, width=elements(image) / rows)


def softmax_rule(kind: str, reads: float, axis: int = -1) -> Rule:
    """Return a rule (PyTorch call to kernels) for softmax or its backward over an axis; the loss uses axis 1, the classes."""

    def rule(call: Call, options: LoweringOptions) -> list[Op]:
        scores = call.outputs[0]
        count, width = elements(scores), scores[axis]
        size = count * call.width
        return [memory_op(call, options, kind, reads * size, size, rows=count / width, width=width)]

    return rule


def reduce(call: Call, options: LoweringOptions) -> list[Op]:
    """Return the kernel of a sum or mean: `pool` over pixels, `reduce` over the last axes, `reduce_columns` over the first."""
    inputs, outputs = elements(call.inputs[0]), elements(call.outputs[0])
    keeps_batch = call.grown[0] if call.growing else len(call.outputs[0]) > 1 and call.outputs[0][0] == call.inputs[0][0]
    if keeps_batch and len(call.inputs[0]) == IMAGE_AXES and len(call.outputs[0]) == IMAGE_AXES:
        return [memory_op(call, options, "pool", inputs * call.width, outputs * call.width, "_adaptive_avg_pool2d")]
    sizes = {"rows": outputs, "width": inputs / outputs} if keeps_batch else {"rows": inputs / outputs, "width": outputs}
    kind = "reduce" if keeps_batch else "reduce_columns"
    return [memory_op(call, options, kind, inputs * call.width, outputs * call.width, role="", **sizes)]


def pool_rule(index_bytes: int) -> Rule:
    """Return a rule (PyTorch call to kernels) for pooling, timed by its results; max pooling also writes `index_bytes` each."""

    def rule(call: Call, options: LoweringOptions) -> list[Op]:
        inputs, outputs = elements(call.inputs[0]) * call.width, elements(call.outputs[0])
        return [memory_op(call, options, "pool", inputs, outputs * (call.width + index_bytes), elements=4 * outputs)]

    return rule


def pool_backward_rule(index_bytes: int, cost: int) -> Rule:
    """Return a rule (PyTorch call to kernels) for pooling backward: a pixel visits each window over it, at `cost` per visit."""

    def rule(call: Call, options: LoweringOptions) -> list[Op]:
        gradient, written = elements(call.inputs[0]), elements(call.outputs[0])
        visits: Number = cost * np.sqrt(gradient * written)
        read = gradient * (call.width + index_bytes)
        return [memory_op(call, options, "pool_backward", read, written * call.width, elements=visits)]

    return rule


max_pool, max_pool_backward = pool_rule(index_bytes=8), pool_backward_rule(index_bytes=8, cost=2)
average_pool, average_pool_backward = pool_rule(index_bytes=0), pool_backward_rule(index_bytes=0, cost=4)
