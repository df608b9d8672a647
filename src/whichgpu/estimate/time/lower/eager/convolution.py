"""Rules for convolutions: forward, input gradient, weight gradient, and separate kernels for the bias."""

from __future__ import annotations

from math import prod

from whichgpu.estimate.time.lower.eager.call import Call, LoweringOptions, Sizes, elements
from whichgpu.estimate.time.operators import Number, Op

# Channels per group for which cuDNN has kernels that run all groups at once; other widths run one group after another.
GROUPED_WIDTHS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
ROLES = {"conv": "forward", "conv_dgrad": "dgrad", "conv_wgrad": "wgrad"}


def forward(call: Call, options: LoweringOptions) -> list[Op]:
    """Return cuDNN's kernel, then the bias, which PyTorch adds separately (ATen/native/Convolution.cpp)."""
    image, weight, *bias = call.inputs
    output = call.outputs[0]
    if call.attributes.get("transposed", False):  # This is the input gradient of the opposite convolution.
        ops = _kernels(call, options, "conv_dgrad", output, image, weight)
    else:
        ops = _kernels(call, options, "conv", image, output, weight)
    if bias:
        size = elements(output) * call.width
        ops.append(call.op("elementwise", call.unit(options), size, size, sizes={"elements": elements(output)}, role="strided"))
    return ops


def backward(call: Call, options: LoweringOptions) -> list[Op]:
    """Return the gradient kernels of the input (none in the first layer), of the weight, and of the bias, which is a sum."""
    gradient, image, weight = call.inputs[:3]
    transposed = bool(call.attributes.get("transposed", False))
    before, after = (gradient, image) if transposed else (image, gradient)
    of_input, of_weight, of_bias = call.attributes["mask"]
    ops = _kernels(call, options, "conv" if transposed else "conv_dgrad", before, after, weight) if of_input else []
    if of_weight:
        ops += _kernels(call, options, "conv_wgrad", before, after, weight)
    return [*ops, _bias_gradient(call, options, gradient)] if of_bias else ops


def _bias_gradient(call: Call, options: LoweringOptions, gradient: Sizes) -> Op:
    channels = gradient[1]
    sizes = {"rows": elements(gradient) / channels, "width": channels}
    read, written = elements(gradient) * call.width, channels * call.width
    return call.op("reduce_columns", call.unit(options), read, written, sizes=sizes)


def _kernels(call: Call, options: LoweringOptions, kind: str, before: Sizes, after: Sizes, weight: Sizes) -> list[Op]:
    """Return the kernels of one convolution or gradient: one kernel, or one per group with copies of the group's slices."""
    groups = float(call.attributes.get("groups", 1))
    if groups == 1 or before[1] / groups in GROUPED_WIDTHS or after[1] == groups:
        return [_kernel(call, options, kind, before, after, weight, groups)]
    group_before, group_after = ((shape[0], shape[1] / groups, *shape[2:]) for shape in (before, after))
    group_weight = (weight[0] / groups, *weight[1:])
    kernel = _kernel(call, options, kind, group_before, group_after, group_weight, 1.0)
    slices = [_slice(call, options, elements(shape)) for shape in (group_before, group_after)]
    return [op.times(groups) for op in (kernel, *slices)]


def _slice(call: Call, options: LoweringOptions, size: Number) -> Op:
    moved = size * call.width
    return call.op("copy", call.unit(options), moved, moved, sizes={"elements": size}, role="strided")


def _kernel(call: Call, options: LoweringOptions, kind: str, before: Sizes, after: Sizes, weight: Sizes, groups: float) -> Op:
    """Return the kernel that maps `before` to `after`; a third spatial axis counts as more images and more taps."""
    taps = float(prod(weight[2:]))
    *depth, height, width = after[2:] if len(after) > 3 else (1.0, *after[2:])
    element = options.quantised_width if options.quantised_unit else call.width
    sides: dict[str, Number] = {
        "conv": elements(after) * element,
        "conv_dgrad": elements(before) * element,
        "conv_wgrad": elements(weight) * element,
    }
    # The previous kernel has just written the input (in backward: the output's gradient); in inference buffers are reused too.
    recent = sides["conv"] + sides["conv_dgrad"] if not options.training else sides["conv_dgrad" if kind == "conv" else "conv"]
    return call.op(
        kind,
        options.quantised_unit or call.unit(options, options.conv32),
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
            "resident": recent / sum(sides.values()),
        },
        role=ROLES[kind],
    )
