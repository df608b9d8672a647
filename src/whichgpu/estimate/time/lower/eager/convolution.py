"""Convolutions: forward, gradient of the input, gradient of the weights, and the bias apart from them."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from whichgpu.estimate.time.lower.eager.call import Call, LoweringOptions, elements
from whichgpu.estimate.time.operators import Number, Op

if TYPE_CHECKING:
    from whichgpu.estimate.time.lower.eager.call import Sizes

# Channels of a group for which cuDNN has kernels that take all groups at once; wider ones run one group after another.
GROUPED_WIDTHS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
ROLES = {"conv": "forward", "conv_dgrad": "dgrad", "conv_wgrad": "wgrad"}


def forward(call: Call, options: LoweringOptions) -> list[Op]:
    """The library's kernel, then an addition where there is a bias: PyTorch makes it apart (ATen/native/Convolution.cpp)."""
    image, weight, *bias = call.inputs
    made = call.outputs[0]
    if call.attributes.get("transposed", False):  # the gradient of the input of the convolution that runs the other way
        ops = _kernels(call, options, "conv_dgrad", made, image, weight)
    else:
        ops = _kernels(call, options, "conv", image, made, weight)
    if bias:
        size = elements(made) * call.width
        ops.append(call.op("pointwise", call.unit(options), size, size, sizes={"elements": elements(made)}, role="strided"))
    return ops


def backward(call: Call, options: LoweringOptions) -> list[Op]:
    """Gradients of the input (the first layer has none), of the weight, and of the bias: the last a plain sum."""
    gradient, image, weight = call.inputs[:3]
    turned = bool(call.attributes.get("transposed", False))
    before, after = (gradient, image) if turned else (image, gradient)
    of_input, of_weight, of_bias = call.attributes["mask"]
    ops = _kernels(call, options, "conv" if turned else "conv_dgrad", before, after, weight) if of_input else []
    if of_weight:
        ops += _kernels(call, options, "conv_wgrad", before, after, weight)
    return [*ops, _bias_gradient(call, options, gradient)] if of_bias else ops


def _bias_gradient(call: Call, options: LoweringOptions, gradient: Sizes) -> Op:
    channels = gradient[1]
    sizes = {"rows": elements(gradient) / channels, "width": channels}
    read, written = elements(gradient) * call.width, channels * call.width
    return call.op("reduce_columns", call.unit(options), read, written, sizes=sizes)


def _kernels(call: Call, options: LoweringOptions, kind: str, before: Sizes, after: Sizes, weight: Sizes) -> list[Op]:
    """What the library runs for one convolution or gradient: a kernel, or one for each group between copies of its slices."""
    groups = float(call.attributes.get("groups", 1))
    if groups == 1 or before[1] / groups in GROUPED_WIDTHS or after[1] == groups:
        return [_kernel(call, options, kind, before, after, weight, groups)]
    narrow_before, narrow_after = ((shape[0], shape[1] / groups, *shape[2:]) for shape in (before, after))
    narrow_weight = (weight[0] / groups, *weight[1:])
    kernel = _kernel(call, options, kind, narrow_before, narrow_after, narrow_weight, 1.0)
    slices = [_slice(call, options, elements(shape)) for shape in (narrow_before, narrow_after)]
    return [op.times(groups) for op in (kernel, *slices)]


def _slice(call: Call, options: LoweringOptions, size: Number) -> Op:
    moved = size * call.width
    return call.op("copy", call.unit(options), moved, moved, sizes={"elements": size}, role="strided")


def _kernel(call: Call, options: LoweringOptions, kind: str, before: Sizes, after: Sizes, weight: Sizes, groups: float) -> Op:
    """One kernel of a convolution that makes `after` of `before`; depth counts as more images, its taps as more taps."""
    taps = float(prod(weight[2:]))
    *depth, height, width = after[2:] if len(after) > 3 else (1.0, *after[2:])
    element = options.narrow_width if options.narrow else call.width
    sides: dict[str, Number] = {
        "conv": elements(after) * element,
        "conv_dgrad": elements(before) * element,
        "conv_wgrad": elements(weight) * element,
    }
    # What the kernel before has just made: the image, or the gradient of the result; without gradients buffers are used again.
    fresh = sides["conv"] + sides["conv_dgrad"] if not options.training else sides["conv_dgrad" if kind == "conv" else "conv"]
    return call.op(
        kind,
        options.narrow or call.unit(options, options.conv32),
        sum(size for name, size in sides.items() if name != kind),
        sides[kind],
        flops=2.0 * elements(after) * taps * before[1] / groups,
        sizes={
            "batch": after[0] * elements(tuple(depth)),
            "height": height,
            "width": width,
            "cin": before[1],
            "cout": after[1],
            "kernel": taps,
            "stride": float(call.attributes.get("stride", [1])[-1]),
            "groups": groups,
            "nhwc": float(options.nhwc),
            "resident": fresh / sum(sides.values()),
        },
        role=ROLES[kind],
    )
