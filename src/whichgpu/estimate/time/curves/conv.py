"""Convolutions: implicit products over pixels; few channels and depthwise ones on plain lanes; conversions of layout."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from whichgpu.estimate.time.curves.gemm import resident_share
from whichgpu.estimate.time.curves.gpus import GpuColumns
from whichgpu.estimate.time.curves.power import power_bound
from whichgpu.estimate.time.curves.stack import Array, Mask, OperatorStack, Parameters, soft_max
from whichgpu.estimate.time.curves.tiles import NARROW, Products, Tiling, tiled
from whichgpu.estimate.time.units import UNITS

FEW, PADDED = 8.0, 4.0  # input channels below which tensor-core kernels do not load; to how many images are padded
ENGINE_PADDED = 16.0
MANY, PLANAR_MANY = 128.0, 32.0  # channels from which Winograd's transforms pay: with channels last, with planes of pixels
SMALL, LARGE = 100.0, 900.0  # pixels of an image between which channels-last kernels have such transforms
BACKWARD_SMALL = 700.0  # and from which those for gradients do
WINOGRAD = 2.25  # multiplications saved by the smallest of them, F(2x2, 3x3)
FAR = 25.0  # taps beyond which depthwise gradients in fp32 have no kernel of their own with channels last
WARPS = 8.0  # that sum the gradient of one depthwise weight, at most: one for each image


def seconds(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Seconds of each, [gpus, operators, batches]."""
    depthwise = _depthwise(stack)
    compute = _products(stack, gpus, p)
    if depthwise.any():
        compute = np.where(depthwise, _taps(stack, gpus, p), compute)
    np.maximum(compute, power_bound(least_flops(stack, gpus), stack.unit, gpus, p), out=compute)
    bytes_ = moved(stack)
    held = resident_share(bytes_, stack.size("resident", p["conv.resident"]), gpus, p)
    held *= 1.0 / p["conv.cache"] - 1.0
    held += 1.0
    held *= bytes_ / stack.each(p, "conv.bandwidth")
    held /= gpus.bandwidth
    begun = _starting(stack, depthwise, p) * gpus.latency
    return soft_max(compute, held, p["conv.sharpness"]) + _converting(stack, gpus, p) + begun


def moved(stack: OperatorStack) -> Array:
    """Bytes read and written; filters smaller than their stride leave part of the input unread."""
    read = np.minimum(stack.size("kernel") / stack.size("stride") ** 2, 1.0)
    pixels = stack.size("batch") * stack.size("height") * stack.size("width") * stack.size("stride") ** 2
    unread = pixels * stack.size("cin") * UNITS[stack.unit].bytes * (1.0 - read)
    total = stack.read + stack.write
    return np.maximum(total - np.where(stack.kind("conv_dgrad"), 0.0, unread), 0.25 * total)


def _depthwise(stack: OperatorStack) -> Mask:
    groups = stack.size("groups")
    return (groups > 1) & (groups >= stack.size("cin"))


def _few(stack: OperatorStack) -> Mask:
    return (stack.size("groups") <= 1) & (stack.size("cin") < FEW)


def _products(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """As an implicit product; groups of few channels are made several at once, as one block with zeros in it."""
    unit = stack.unit
    cin, cout, groups, taps = (stack.size(name) for name in ("cin", "cout", "groups", "kernel"))
    pixels = stack.size("batch") * stack.size("height") * stack.size("width")
    inner = np.where(groups > 1, np.minimum(np.maximum(cin / groups, p["conv.block"]), cin), cin)
    outer = cout * inner / cin
    few = _few(stack)
    narrow = UNITS[unit].narrow
    if narrow:  # engines that compute so pad images themselves
        inner = np.where(few, ENGINE_PADDED, inner)
        cin = np.maximum(cin, inner)
    backward, weights = stack.kind("conv_dgrad"), stack.kind("conv_wgrad")
    products = Products(
        cin / inner,
        np.where(weights, outer, pixels),
        np.where(weights, inner * taps, np.where(backward, inner, outer)),
        np.where(weights, pixels, np.where(backward, outer, inner) * taps),
    )
    whole = _planes(stack) & stack.kind("conv") & (UNITS[unit].product_class == "single")  # no kernel there splits the inner sum
    split = np.where(weights, p["conv.split.wgrad"], np.where(whole, np.inf, p["conv.split"]))
    cut = _tiling(unit, taps, split, p)
    compute = tiled(products, cut, unit, gpus) / _share(stack, taps, gpus, p)
    transformed = _winograd(stack) & (gpus.winograd > 0) & ((unit == "fp32") | (gpus.matrix < 1))
    if transformed.any():
        planar = np.where(_newer(gpus), p["conv.winograd.plane"], p["conv.winograd.planar"])
        gain = np.where(_planes(stack), planar, p["conv.winograd"])
        setup = np.where(_planes(stack), 0.0, cin * cout * p["conv.winograd_setup"]) / (gpus.sms * gpus.clock)
        compute = np.where(transformed, np.minimum(compute, compute / gain + setup), compute)
    strided = np.where(backward & (stack.size("stride") > 1) & (taps > 1), p["conv.stride"], 1.0)
    compute *= strided * np.where(groups > 1, p["conv.grouped"], 1.0)
    if few.any() and not narrow:
        padded = replace(products, n=np.where(weights, cin * taps, products.n), k=np.where(weights, pixels, PADDED * taps))
        slower = np.where(_planes(stack), p["conv.few.turned"], 1.0) if UNITS[unit].product_class != "single" else 1.0
        reached = stack.each(p, f"conv.few.{UNITS[unit].conv_class}")
        if UNITS[unit].conv_class == "fp32":
            reached = np.where(_planes(stack) & ~_newer(gpus), stack.each(p, "conv.few.planar"), reached)
        compute = np.where(few, tiled(padded, cut, "fp32", gpus) * (slower / reached), compute)
    return compute


def _tiling(unit: str, taps: Array, split: Array, p: Parameters) -> Tiling:
    if UNITS[unit].product_class == "single":
        return Tiling(NARROW, p["conv.edge.fp32"], p["conv.ramp.fp32"], split, p["conv.split_seconds"])
    edge = np.where(taps > 1, p["conv.edge"], p["gemm.edge"])
    return Tiling(NARROW, edge, p["conv.ramp"], split, p["conv.split_seconds"])


def _share(stack: OperatorStack, taps: Array, gpus: GpuColumns, p: Parameters) -> Array:
    """The share of peak. Chips without matrix units run every unit as libraries have long done best: fp32 in planes."""
    unit = UNITS[stack.unit].conv_class
    reached = np.where(taps > 1, stack.each(p, f"conv.share.{unit}"), stack.each(p, f"conv.share1.{unit}"))
    planar = stack.each(p, "conv.planar")
    if unit == "fp32":
        newer = np.where(taps > 1, stack.each(p, "conv.plane"), stack.each(p, "conv.plane1"))
        reached = np.where(_planes(stack), np.where(_newer(gpus), newer, planar), reached)
    else:
        fed = reached ** np.sqrt(gpus.balance[stack.unit])  # slower matrix units are easier to feed
        reached = np.where(gpus.matrix > 0, fed, planar * gpus.dots)
    return reached * gpus.factor(p, f"gemm.factor.{UNITS[stack.unit].product_class}")


def _newer(gpus: GpuColumns) -> Mask:
    """Chips whose fp32 kernels on planes are those written for Ampere: libraries before had others for each generation."""
    newer: Mask = gpus.native["tf32"] > 0
    return newer


def _planes(stack: OperatorStack) -> Mask:
    planes: Mask = stack.size("nhwc") < 1
    return planes


def _winograd(stack: OperatorStack) -> Mask:
    """Where libraries trade multiplications for transforms (arXiv 1509.09308): fp32, 3x3 filters over many channels.

    With channels last there are such kernels for small images only, and for gradients on larger ones; on planes there are some
    for 5x5 filters too (by Fourier transforms, arXiv 1412.7580).
    """
    fewest = np.minimum(stack.size("cin"), stack.size("cout"))
    image = stack.size("height") * stack.size("width")
    most = np.maximum(stack.size("cin"), stack.size("cout"))
    forward = (fewest >= MANY) & (image >= SMALL) & (image <= LARGE)
    last = np.where(stack.kind("conv"), forward, (most >= MANY) & (image >= BACKWARD_SMALL))
    plain: Mask = (stack.size("stride") <= 1) & (stack.size("groups") <= 1)
    three, five = (stack.size("kernel") == taps for taps in (9, 25))
    apt: Mask = np.where(_planes(stack), (three | five) & (fewest >= PLANAR_MANY), three & last)
    return plain & apt


def least_flops(stack: OperatorStack, gpus: GpuColumns) -> Array:
    """FLOPs that must be done: of the smallest algorithm in use."""
    plain = gpus.native["tf32"] < 1 if stack.unit == "tf32" else gpus.matrix < 1
    fewer = _winograd(stack) & (plain | (stack.unit == "fp32")) & (gpus.winograd > 0)
    return np.where(fewer & (not UNITS[stack.unit].narrow), stack.flops / WINOGRAD, stack.flops)


def _taps(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Depthwise: every tap of every pixel on plain lanes; the input's gradient visits the pixels that a stride skips too."""
    single = UNITS[stack.unit].bytes > 2.0
    taps = stack.size("kernel")
    visited = stack.flops / 2.0 * np.where(stack.kind("conv_dgrad"), stack.size("stride") ** 2, 1.0)
    besides = 1.0 + p["conv.tap.besides"] / taps  # what a pixel costs apart from its taps
    clocks = visited * stack.each(p, "conv.tap.single" if single else "conv.tap.half") * besides
    if single:
        far = np.where(taps > FAR, stack.each(p, "conv.tap.far"), 1.0)
        clocks = np.where(_planes(stack), _plane_clocks(stack, visited, p), clocks * far)
    else:
        clocks = clocks * np.where(_planes(stack), p["conv.tap.turned"], 1.0)
    return clocks / (gpus.sms * gpus.clock)


def _plane_clocks(stack: OperatorStack, visited: Array, p: Parameters) -> Array:
    """Depthwise in fp32 on planes, as frameworks' own kernels do it: those of the weights begin some warps for each of them."""
    taps = stack.size("kernel")
    warps = stack.size("cin") * taps * np.minimum(stack.size("batch"), WARPS)
    begun = np.where(stack.kind("conv_wgrad"), warps * p["conv.tap.warp"], 0.0)
    return visited * (stack.each(p, "conv.tap.plane") + stack.each(p, "conv.tap.pixel") / taps) + begun


def _converting(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Tensor-core kernels want channels last: others are turned before and after, unless 1x1 filters read them as they are."""
    image = stack.size("height") * stack.size("width")
    plain = (stack.size("kernel") <= 1) & (stack.size("stride") <= 1) & (np.mod(image, 8.0) == 0)
    turned = _planes(stack) & ~plain & ~_depthwise(stack) & ~_few(stack)
    if UNITS[stack.unit].product_class != "tensor" or not turned.any():
        return np.zeros((1, 1, 1))
    unit = UNITS[stack.unit].conv_class
    cost = (stack.read + stack.write) * (p[f"conv.turn.{unit}"] / gpus.bandwidth) + p[f"conv.turn_seconds.{unit}"]
    return np.where(turned & (gpus.matrix > 0), cost, 0.0)


def _starting(stack: OperatorStack, depthwise: Mask, p: Parameters) -> Array:
    """What a kernel takes at least: gathering neighbours takes longer to begin, and fp32 begins each group anew."""
    unit, taps = UNITS[stack.unit].conv_class, stack.size("kernel")
    dense = stack.each(p, f"conv.start.{unit}") + np.where(taps > 1, stack.each(p, "conv.gather_seconds"), 0.0)
    if unit == "fp32":
        dense = dense + (stack.size("groups") - 1.0) * stack.each(p, "conv.group_seconds")
    each = p["conv.tap_seconds.half" if UNITS[stack.unit].bytes <= 2.0 else "conv.tap_seconds.single"]
    latency = np.where(_planes(stack) | ~stack.kind("conv"), 0.0, taps * each)
    return np.where(depthwise, stack.each(p, "conv.start.depthwise") + latency, dense)
