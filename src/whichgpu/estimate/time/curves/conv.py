"""Seconds of convolutions: implicit GEMMs over pixels, kernels on CUDA cores (few channels, depthwise), layout conversions."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from whichgpu.estimate.time.curves.gemm import resident_share
from whichgpu.estimate.time.curves.gpus import GpuColumns, power_bound
from whichgpu.estimate.time.curves.stack import Array, Mask, OperatorStack, Parameters, soft_max
from whichgpu.estimate.time.curves.tiles import CONV_TILES, GemmShapes, TileModel, tiled_seconds
from whichgpu.estimate.time.units import UNITS

# Tensor-core kernels need this many input channels; frameworks, and engines below 16 bits, pad images to the other two numbers.
FEW_CHANNELS, PADDED_CHANNELS, ENGINE_PADDED_CHANNELS = 8.0, 4.0, 16.0
# Limits of Winograd kernels: fewest channels in NHWC and in NCHW; fewest and most pixels of an NHWC image in the forward pass.
WINOGRAD_NHWC_CHANNELS, WINOGRAD_NCHW_CHANNELS = 128.0, 32.0
WINOGRAD_MIN_PIXELS, WINOGRAD_MAX_PIXELS = 100.0, 900.0
WINOGRAD_GRADIENT_PIXELS = 700.0  # fewest pixels of an NHWC image for which gradients use Winograd kernels
WINOGRAD_SAVING = 2.25  # factor by which the smallest transform, F(2x2, 3x3), reduces multiplications
MAX_DEPTHWISE_TAPS = 25.0  # fp32 depthwise gradients of filters with more taps have no NHWC kernel of their own
DEPTHWISE_WARPS = 8.0  # most warps that sum the gradient of one depthwise weight, one per image


def seconds(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the seconds of one call of each convolution, [gpus, operators, batches]."""
    depthwise = _is_depthwise(stack)
    compute = _implicit_gemm(stack, gpus, p)
    if depthwise.any():
        compute = np.where(depthwise, _depthwise_seconds(stack, gpus, p), compute)
    np.maximum(compute, power_bound(min_flops(stack, gpus), stack.unit, gpus, p), out=compute)
    moved = moved_bytes(stack)
    transfer = resident_share(moved, stack.size("resident", p["conv.recent_share"]), gpus, p)
    transfer *= 1.0 / p["conv.l2_speedup"] - 1.0
    transfer += 1.0
    transfer *= moved / stack.parameter(p, "conv.bandwidth_share")
    transfer /= gpus.bandwidth
    start = _start_seconds(stack, depthwise, p) * gpus.latency
    return soft_max(compute, transfer, p["conv.overlap_exponent"]) + _layout_conversion(stack, gpus, p) + start


def moved_bytes(stack: OperatorStack) -> Array:
    """Return the bytes that each convolution reads and writes; filters smaller than their stride leave input unread."""
    read = np.minimum(stack.size("kernel") / stack.size("stride") ** 2, 1.0)
    pixels = stack.size("batch") * stack.size("height") * stack.size("width") * stack.size("stride") ** 2
    unread = pixels * stack.size("cin") * UNITS[stack.unit].bytes * (1.0 - read)
    total = stack.read + stack.write
    return np.maximum(total - np.where(stack.is_kind("conv_dgrad"), 0.0, unread), 0.25 * total)


def _is_depthwise(stack: OperatorStack) -> Mask:
    groups = stack.size("groups")
    return (groups > 1) & (groups >= stack.size("cin"))


def _has_few_channels(stack: OperatorStack) -> Mask:
    return (stack.size("groups") <= 1) & (stack.size("cin") < FEW_CHANNELS)


def _implicit_gemm(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the seconds of an implicit GEMM; groups of few channels are merged into blocks padded with zeros."""
    unit, row = stack.unit, UNITS[stack.unit]
    cin, cout, groups, taps = (stack.size(name) for name in ("cin", "cout", "groups", "kernel"))
    pixels = stack.size("batch") * stack.size("height") * stack.size("width")
    inner = np.where(groups > 1, np.minimum(np.maximum(cin / groups, p["conv.min_group_channels"]), cin), cin)
    outer = cout * inner / cin
    few, nchw = _has_few_channels(stack), _is_nchw(stack)
    if row.below_16_bits:  # Engines that compute below 16 bits pad images with few channels.
        inner = np.where(few, ENGINE_PADDED_CHANNELS, inner)
        cin = np.maximum(cin, inner)
    dgrad, wgrad = stack.is_kind("conv_dgrad"), stack.is_kind("conv_wgrad")
    gemms = GemmShapes(
        cin / inner,
        np.where(wgrad, outer, pixels),
        np.where(wgrad, inner * taps, np.where(dgrad, inner, outer)),
        np.where(wgrad, pixels, np.where(dgrad, outer, inner) * taps),
    )
    unsplit = nchw & stack.is_kind("conv") & (row.product_class == "fp32")  # No fp32 NCHW forward kernel splits k.
    split = np.where(unsplit, np.inf, stack.parameter(p, "conv.split_k_work_ratio"))
    tiles = _tile_model(unit, taps, split, p)
    compute = tiled_seconds(gemms, tiles, unit, gpus) / _peak_share(stack, taps, gpus, p)
    transformed = _uses_winograd(stack) & (gpus.winograd > 0) & ((unit == "fp32") | (gpus.matrix_convolutions < 1))
    if transformed.any():
        with_ampere, before_ampere = p["conv.winograd_speedup.nchw"], p["conv.winograd_speedup.nchw_before_ampere"]
        nchw_speedup = np.where(_has_ampere_kernels(gpus), with_ampere, before_ampere)
        gain = np.where(nchw, nchw_speedup, p["conv.winograd_speedup"])
        setup = np.where(nchw, 0.0, cin * cout * p["conv.winograd_filter_transform_clocks"]) / (gpus.sms * gpus.clock)
        compute = np.where(transformed, np.minimum(compute, compute / gain + setup), compute)
    strided = np.where(dgrad & (stack.size("stride") > 1) & (taps > 1), p["conv.strided_dgrad_slowdown"], 1.0)
    compute *= strided * np.where(groups > 1, p["conv.grouped_slowdown"], 1.0)
    if few.any() and not row.below_16_bits:
        padded = replace(gemms, n=np.where(wgrad, cin * taps, gemms.n), k=np.where(wgrad, pixels, PADDED_CHANNELS * taps))
        slower = np.where(nchw, p["conv.few_channels_nchw_slowdown"], 1.0) if row.product_class != "fp32" else 1.0
        share = stack.parameter(p, f"conv.few_channels_peak_share.{row.conv_class}")
        if row.conv_class == "fp32":
            older_share = stack.parameter(p, "conv.few_channels_peak_share.nchw_before_ampere")
            share = np.where(nchw & ~_has_ampere_kernels(gpus), older_share, share)
        compute = np.where(few, tiled_seconds(padded, tiles, "fp32", gpus) * (slower / share), compute)
    return compute


def _tile_model(unit: str, taps: Array, split: Array, p: Parameters) -> TileModel:
    if UNITS[unit].product_class == "fp32":
        simt_edge, simt_fill = p["conv.half_rate_intensity.fp32"], p["conv.k_pipeline_fill.fp32"]
        return TileModel(CONV_TILES, simt_edge, simt_fill, split, p["conv.split_k_seconds"])
    edge = np.where(taps > 1, p["conv.half_rate_intensity"], p["gemm.half_rate_intensity"])
    return TileModel(CONV_TILES, edge, p["conv.k_pipeline_fill"], split, p["conv.split_k_seconds"])


def _peak_share(stack: OperatorStack, taps: Array, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the share of peak FLOP/s that convolutions achieve; chips without matrix units run fp32 NCHW kernels (assumed)."""
    unit = UNITS[stack.unit].conv_class
    share = _by_filter(stack, taps, unit, p)
    before_ampere = stack.parameter(p, "conv.peak_share.nchw_before_ampere")
    if unit == "fp32":
        nchw = np.where(_has_ampere_kernels(gpus), _by_filter(stack, taps, "fp32_nchw", p), before_ampere)
        share = np.where(_is_nchw(stack), nchw, share)
    else:
        fed = share ** np.sqrt(gpus.sm_rate_vs_reference[stack.unit])  # Slower matrix units achieve a higher share.
        share = np.where(gpus.matrix_convolutions > 0, fed, before_ampere * gpus.dot_product_share)
    return share * gpus.architecture_factor(p, f"gemm.architecture_multiplier.{UNITS[stack.unit].product_class}")


def _by_filter(stack: OperatorStack, taps: Array, kernel: str, p: Parameters) -> Array:
    """Return the share of peak FLOP/s that convolution kernels of class `kernel` achieve; 1x1 filters have a separate value."""
    return np.where(
        taps > 1, stack.parameter(p, f"conv.peak_share.{kernel}"), stack.parameter(p, f"conv.peak_share_1x1.{kernel}")
    )


def _has_ampere_kernels(gpus: GpuColumns) -> Mask:
    """Return which GPUs run the fp32 NCHW kernels written for Ampere; earlier ones had separate kernels per generation."""
    ampere: Mask = gpus.native["tf32"] > 0
    return ampere


def _is_nchw(stack: OperatorStack) -> Mask:
    nchw: Mask = stack.size("nhwc") < 1
    return nchw


def _uses_winograd(stack: OperatorStack) -> Mask:
    """Return which convolutions libraries run as Winograd transforms (arXiv 1509.09308): 3x3 filters over many channels.

    NHWC has such kernels only for small images in forward and for larger ones in gradients; NCHW also has some for 5x5 filters
    (Fourier transforms, arXiv 1412.7580).
    """
    smallest = np.minimum(stack.size("cin"), stack.size("cout"))
    largest = np.maximum(stack.size("cin"), stack.size("cout"))
    image = stack.size("height") * stack.size("width")
    forward = (smallest >= WINOGRAD_NHWC_CHANNELS) & (image >= WINOGRAD_MIN_PIXELS) & (image <= WINOGRAD_MAX_PIXELS)
    gradient = (largest >= WINOGRAD_NHWC_CHANNELS) & (image >= WINOGRAD_GRADIENT_PIXELS)
    nhwc = np.where(stack.is_kind("conv"), forward, gradient)
    dense: Mask = (stack.size("stride") <= 1) & (stack.size("groups") <= 1)
    three, five = (stack.size("kernel") == taps for taps in (9, 25))
    has_kernel: Mask = np.where(_is_nchw(stack), (three | five) & (smallest >= WINOGRAD_NCHW_CHANNELS), three & nhwc)
    return dense & has_kernel


def min_flops(stack: OperatorStack, gpus: GpuColumns) -> Array:
    """Return the FLOPs of each convolution by the cheapest algorithm in use, which bound its time from below."""
    no_matrix = gpus.native["tf32"] < 1 if stack.unit == "tf32" else gpus.matrix_convolutions < 1
    fewer = _uses_winograd(stack) & (no_matrix | (stack.unit == "fp32")) & (gpus.winograd > 0)
    return np.where(fewer & (not UNITS[stack.unit].below_16_bits), stack.flops / WINOGRAD_SAVING, stack.flops)


def _depthwise_seconds(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the seconds of all taps of all pixels on CUDA cores; input gradients also visit pixels that a stride skips."""
    taps = stack.size("kernel")
    visits = stack.flops / 2.0 * np.where(stack.is_kind("conv_dgrad"), stack.size("stride") ** 2, 1.0)
    per_pixel = 1.0 + p["conv.depthwise_pixel_taps"] / taps  # factor that adds the clocks per pixel to those of its taps
    if UNITS[stack.unit].bytes > 2.0:
        clocks = visits * stack.parameter(p, "conv.depthwise_clocks_per_tap.fp32_nhwc") * per_pixel
        large = np.where(taps > MAX_DEPTHWISE_TAPS, stack.parameter(p, "conv.depthwise_large_filter_slowdown"), 1.0)
        clocks = np.where(_is_nchw(stack), _depthwise_nchw_clocks(stack, visits, p), clocks * large)
    else:
        clocks = visits * stack.parameter(p, "conv.depthwise_clocks_per_tap.16bit") * per_pixel
        clocks = clocks * np.where(_is_nchw(stack), p["conv.depthwise_nchw_slowdown.16bit"], 1.0)
    return clocks / (gpus.sms * gpus.clock)


def _depthwise_nchw_clocks(stack: OperatorStack, visits: Array, p: Parameters) -> Array:
    """Return the SM clocks of PyTorch's fp32 NCHW depthwise kernels; the weight gradient starts several warps per weight."""
    taps = stack.size("kernel")
    warps = stack.size("cin") * taps * np.minimum(stack.size("batch"), DEPTHWISE_WARPS)
    warp_start = np.where(stack.is_kind("conv_wgrad"), warps * p["conv.depthwise_clocks_per_warp"], 0.0)
    per_tap = stack.parameter(p, "conv.depthwise_clocks_per_tap.fp32_nchw")
    per_pixel = stack.parameter(p, "conv.depthwise_clocks_per_pixel.fp32_nchw")
    return visits * (per_tap + per_pixel / taps) + warp_start


def _layout_conversion(stack: OperatorStack, gpus: GpuColumns, p: Parameters) -> Array:
    """Return the seconds to transpose NCHW tensors before and after NHWC tensor-core kernels; some 1x1 filters need none."""
    image = stack.size("height") * stack.size("width")
    direct = (stack.size("kernel") <= 1) & (stack.size("stride") <= 1) & (np.mod(image, 8.0) == 0)
    transposed = _is_nchw(stack) & ~direct & ~_is_depthwise(stack) & ~_has_few_channels(stack)
    if UNITS[stack.unit].product_class != "16bit" or not transposed.any():
        return np.zeros((1, 1, 1))
    unit = UNITS[stack.unit].conv_class
    passes, fixed = p[f"conv.layout_conversion_passes.{unit}"], p[f"conv.layout_conversion_seconds.{unit}"]
    cost = (stack.read + stack.write) * (passes / gpus.bandwidth) + fixed
    return np.where(transposed & (gpus.matrix_convolutions > 0), cost, 0.0)


def _start_seconds(stack: OperatorStack, depthwise: Mask, p: Parameters) -> Array:
    """Return a kernel's fixed seconds; filters above 1x1 take longer, and fp32 adds seconds for each further group."""
    unit, taps = UNITS[stack.unit].conv_class, stack.size("kernel")
    gather = np.where(taps > 1, stack.parameter(p, "conv.gather_fixed_seconds"), 0.0)
    dense = stack.parameter(p, f"conv.fixed_seconds.{unit}") + gather
    if unit == "fp32":
        dense = dense + (stack.size("groups") - 1.0) * stack.parameter(p, "conv.group_fixed_seconds")
    tap = p[f"conv.depthwise_seconds_per_tap.{'16bit' if UNITS[stack.unit].bytes <= 2.0 else 'fp32'}"]
    latency = np.where(_is_nchw(stack) | ~stack.is_kind("conv"), 0.0, taps * tap)
    return np.where(depthwise, stack.parameter(p, "conv.fixed_seconds.depthwise") + latency, dense)
