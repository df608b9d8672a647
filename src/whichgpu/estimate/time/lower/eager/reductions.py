"""Normalisations, softmax, sums and pools."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from whichgpu.estimate.time.lower.eager.call import IMAGE_AXES, Call, LoweringOptions, elements
from whichgpu.estimate.time.lower.eager.elementwise import Rule, memory_op
from whichgpu.estimate.time.operators import Number, Op

if TYPE_CHECKING:
    from whichgpu.estimate.time.lower.eager.call import Sizes


def batch_norm(call: Call, options: LoweringOptions) -> list[Op]:
    """Over a batch in training: statistics, then the result, so the input is read twice. Otherwise elementwise."""
    image = call.inputs[0]
    size = elements(image) * call.width
    if not options.training:
        return _evaluated_norm(call, options, size)
    return [memory_op(call, options, "batch_norm", 2 * size, size, role=_norm_kernel(call, options), **_image_sizes(image))]


def _evaluated_norm(call: Call, options: LoweringOptions, size: Number) -> list[Op]:
    """With statistics from training. Where weights are of 16 bits too, two small kernels make them ready each time."""
    ops = [memory_op(call, options, "pointwise", size, size, "normalise" if call.width == 2 else "strided")]
    if call.width == 2 and not options.amp:
        channels = call.inputs[0][1]
        ops += 2 * [call.op("pointwise", "fp32", 4 * channels, 4 * channels, sizes={"elements": channels})]
    return ops


def batch_norm_backward(call: Call, options: LoweringOptions) -> list[Op]:
    """Two sums over gradient and input, then the gradient of the input from both."""
    image = call.inputs[0]
    size = elements(image) * call.width
    return [
        memory_op(call, options, "batch_norm_backward", 4 * size, size, role=_norm_kernel(call, options), **_image_sizes(image))
    ]


def _norm_kernel(call: Call, options: LoweringOptions) -> str:
    """Whose kernel: cuDNN's where input or weights are of fp32 (not in bf16), else PyTorch's own; one for each layout."""
    planes = _is_nchw(call, options)
    if call.width == 4 or (options.amp and options.half == "fp16"):
        return "cudnn_planes" if planes else "cudnn"
    return "channels_first" if planes else ""


def _is_nchw(call: Call, options: LoweringOptions) -> bool:
    """Whether images lie in planes of pixels."""
    return not options.nhwc and len(call.inputs[0]) >= IMAGE_AXES


def _image_sizes(image: Sizes) -> dict[str, Number]:
    pixels = elements(image[2:])
    return {"batch": image[0], "channels": image[1], "pixels": pixels, "rows": image[0] * pixels, "width": image[1]}


def layer_norm(call: Call, options: LoweringOptions) -> list[Op]:
    """One kernel, a row of it at a time."""
    image = call.inputs[0]
    size = elements(image) * call.width
    return [memory_op(call, options, "norm", size, size, "", rows=elements(image[:-1]), width=image[-1])]


def layer_norm_backward(call: Call, options: LoweringOptions) -> list[Op]:
    """The gradient of the input, and those of weight and bias in a second kernel over all rows."""
    image = call.inputs[0]
    size = elements(image) * call.width
    return [memory_op(call, options, "norm_backward", 2 * size, size, "", rows=elements(image[:-1]), width=image[-1])]


def group_norm(call: Call, options: LoweringOptions) -> list[Op]:
    """Statistics first, then the result."""
    image, groups = call.inputs[0], call.outputs[1][-1]
    size = elements(image) * call.width
    rows = image[0] * groups
    return [memory_op(call, options, "norm", 2 * size, size, rows=rows, width=elements(image) / rows)]


def group_norm_backward(call: Call, options: LoweringOptions) -> list[Op]:
    """Sums over gradient and input, then the gradient of the input."""
    image, groups = call.inputs[0], call.inputs[2][-1]
    size = elements(image) * call.width
    rows = image[0] * groups
    return [memory_op(call, options, "norm_backward", 4 * size, size, rows=rows, width=elements(image) / rows)]


def softmax_rule(kind: str, reads: float, over: int = -1) -> Rule:
    """A softmax or its backward over one of the sizes; of the loss over classes, which come second."""

    def rule(call: Call, options: LoweringOptions) -> list[Op]:
        scores = call.outputs[0]
        width = scores[over]
        whole = elements(scores)
        size = whole * call.width
        return [memory_op(call, options, kind, reads * size, size, rows=whole / width, width=width)]

    return rule


def reduce(call: Call, options: LoweringOptions) -> list[Op]:
    """Sums and means: over pixels like a pool, over the last sizes a `reduce`, over the first (biases) a `reduce_columns`."""
    whole, left = elements(call.inputs[0]), elements(call.outputs[0])
    kept_first = call.grown[0] if call.growing else len(call.outputs[0]) > 1 and call.outputs[0][0] == call.inputs[0][0]
    if kept_first and len(call.inputs[0]) == 4 and len(call.outputs[0]) == 4:
        return [memory_op(call, options, "pool", whole * call.width, left * call.width, "_adaptive_avg_pool2d")]
    sizes = {"rows": left, "width": whole / left} if kept_first else {"rows": whole / left, "width": left}
    kind = "reduce" if kept_first else "reduce_columns"
    return [memory_op(call, options, kind, whole * call.width, left * call.width, role="", **sizes)]


def max_pool(call: Call, options: LoweringOptions) -> list[Op]:
    """Maxima and where they were, which are 8 bytes each."""
    made = elements(call.outputs[0])
    return [memory_op(call, options, "pool", elements(call.inputs[0]) * call.width, made * (call.width + 8), elements=4 * made)]


def max_pool_backward(call: Call, options: LoweringOptions) -> list[Op]:
    """Every pixel asks each window that holds it, so that windows close together cost more."""
    gradient, written = elements(call.inputs[0]), elements(call.outputs[0])
    asked = 2 * np.sqrt(gradient * written)
    return [memory_op(call, options, "pool_backward", gradient * (call.width + 8), written * call.width, elements=asked)]


def average_pool(call: Call, options: LoweringOptions) -> list[Op]:
    """Its kernel's pace follows the results, however large the windows; one of four pixels is the usual."""
    given, made = elements(call.inputs[0]), elements(call.outputs[0])
    return [memory_op(call, options, "pool", given * call.width, made * call.width, elements=4 * made)]


def average_pool_backward(call: Call, options: LoweringOptions) -> list[Op]:
    """Like that of maxima, but every window is divided anew."""
    gradient, written = elements(call.inputs[0]), elements(call.outputs[0])
    asked = 4 * np.sqrt(gradient * written)
    return [memory_op(call, options, "pool_backward", gradient * call.width, written * call.width, elements=asked)]
