"""Seconds of convolutions on a GPU with round numbers, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.toy_gpu import NEUTRAL, number, stack, toy
from whichgpu.estimate.time.curves import conv
from whichgpu.estimate.time.operators import Op

NEAR = 1e-3


def conv_op(kind: str = "conv", unit: str = "fp16", flops: float = 0.0, moved: float = 0.0, role: str = "", **sizes: float) -> Op:
    plain = {"batch": 8.0, "height": 32.0, "width": 32.0, "cin": 256.0, "cout": 256.0, "kernel": 9.0, "stride": 1.0,
             "groups": 1.0, "nhwc": 1.0}  # fmt: skip
    fields = plain | sizes
    pixels = fields["batch"] * fields["height"] * fields["width"]
    work = flops or 2 * pixels * fields["cin"] * fields["cout"] * fields["kernel"] / fields["groups"]
    return Op(kind, unit, work, moved, 0.0, fields, role=role)


def seconds(op: Op, gpu: Any = None, **changed: float) -> float:
    return number(
        conv.seconds(stack(op), gpu or toy(), NEUTRAL | {name.replace("__", "."): value for name, value in changed.items()})
    )


IDEAL_SECONDS = 2 * 8 * 32 * 32 * 256 * 256 * 9 / 1e13


def test_a_convolution_is_a_gemm_over_pixels() -> None:
    """8192 pixels by 256 channels: 1024 tiles of 64 x 32 in 103 waves on ten SMs."""
    waves = 103 / 102.4
    for kind in ("conv", "conv_dgrad"):
        assert seconds(conv_op(kind)) == pytest.approx(IDEAL_SECONDS * waves, rel=1e-4)
    # Gradients of weights: 256 x 2304 results, 288 tiles in 29 waves; the pixels are the inner sum.
    assert seconds(conv_op("conv_wgrad")) == pytest.approx(IDEAL_SECONDS * 29 / 28.8, rel=1e-4)
    assert seconds(conv_op("conv_wgrad"), **{"conv.split_k_work_ratio.conv_wgrad": 1.002}) == pytest.approx(
        IDEAL_SECONDS * 1.002, rel=1e-4
    )
    assert seconds(conv_op("conv"), **{"conv.split_k_work_ratio.conv_wgrad": 1.002}) == pytest.approx(
        IDEAL_SECONDS * waves, rel=1e-4
    )
    assert seconds(conv_op("conv"), **{"conv.split_k_work_ratio": 1.002}) == pytest.approx(IDEAL_SECONDS * 1.002, rel=1e-4)


def test_shares_of_peak_by_unit_and_filter_size() -> None:
    one = conv_op(kernel=1.0)
    plain = seconds(one)
    assert seconds(one, **{"conv.peak_share_1x1.16bit": 0.5}) == pytest.approx(2 * plain, rel=NEAR)
    assert seconds(one, **{"conv.peak_share.16bit": 0.5}) == pytest.approx(plain, rel=NEAR)
    many = seconds(conv_op())
    assert seconds(conv_op(), **{"conv.peak_share.16bit": 0.5}) == pytest.approx(2 * many, rel=NEAR)
    assert seconds(conv_op(), toy(sm_rate_vs_reference={"fp16": 0.25}), **{"conv.peak_share.16bit": 0.25}) == pytest.approx(
        2 * many, rel=NEAR
    )
    assert seconds(conv_op(), **{"gemm.architecture_multiplier.16bit.Hopper": 0.5}) == pytest.approx(2 * many, rel=NEAR)
    dots = toy(matrix_convolutions=0.0, dot_product_share=0.5, winograd=0.0)
    assert seconds(conv_op(), dots, **{"conv.peak_share.nchw_before_ampere": 0.5}) == pytest.approx(4 * many, rel=NEAR)
    older = toy(winograd=0.0, native={"tf32": 0.0})
    nchw, point = conv_op(unit="fp32", nhwc=0.0), conv_op(unit="fp32", nhwc=0.0, kernel=1.0)
    assert seconds(nchw, older, **{"conv.peak_share.nchw_before_ampere": 0.5}) == pytest.approx(
        2 * seconds(nchw, older), rel=NEAR
    )
    newer = toy(winograd=0.0)
    for op, name in ((nchw, "conv.peak_share.fp32_nchw"), (point, "conv.peak_share_1x1.fp32_nchw")):
        assert seconds(op, newer, **{name: 0.5}) == pytest.approx(2 * seconds(op, newer), rel=NEAR)
        assert seconds(op, older, **{name: 0.5}) == pytest.approx(seconds(op, older), rel=NEAR)


def test_fp32_nchw_has_no_split_k() -> None:
    """64 pixels and 32 channels are one tile: on one SM of ten, whatever the length of the inner sum."""
    nchw, last = (conv_op(unit="fp32", nhwc=nhwc, batch=1.0, height=8.0, width=8.0, cout=32.0) for nhwc in (0.0, 1.0))
    assert seconds(nchw, toy(winograd=0.0), **{"conv.split_k_work_ratio": 1.5}) == pytest.approx(
        2 * 64 * 32 * 2304 / 1e12, rel=NEAR
    )
    assert seconds(last, toy(winograd=0.0), **{"conv.split_k_work_ratio": 1.5}) == pytest.approx(
        1.5 * 2 * 64 * 32 * 2304 / 1e13, rel=NEAR
    )


@pytest.mark.parametrize(
    ("sizes", "kind", "expected"),
    [
        ({}, "conv", False),  # 1024 pixels: too large an image with channels last
        ({"height": 30.0, "width": 30.0}, "conv", True),
        ({"height": 10.0, "width": 10.0}, "conv", True),
        ({"height": 9.0, "width": 11.0}, "conv", False),
        ({"height": 30.0, "width": 30.0, "cin": 127.0}, "conv", False),
        ({"height": 30.0, "width": 30.0, "cin": 128.0}, "conv", True),
        ({}, "conv_dgrad", True),
        ({"height": 26.0, "width": 26.0}, "conv_dgrad", False),
        ({"height": 28.0, "width": 25.0}, "conv_dgrad", True),
        ({"cin": 64.0, "cout": 128.0}, "conv_dgrad", True),
        ({"cin": 64.0, "cout": 127.0}, "conv_dgrad", False),
        ({"nhwc": 0.0}, "conv", True),
        ({"nhwc": 0.0, "cin": 32.0}, "conv", True),
        ({"nhwc": 0.0, "cin": 31.0}, "conv", False),
        ({"nhwc": 0.0, "kernel": 25.0}, "conv", True),
        ({"nhwc": 0.0, "kernel": 49.0}, "conv", False),
        ({"height": 30.0, "width": 30.0, "kernel": 25.0}, "conv", False),
        ({"nhwc": 0.0, "stride": 2.0}, "conv", False),
        ({"nhwc": 0.0, "groups": 2.0}, "conv", False),
    ],
)
def test_shapes_for_which_libraries_use_winograd(sizes: Any, kind: str, expected: bool) -> None:
    op = conv_op(kind, "fp32", flops=2.25e9, **sizes)
    assert number(conv.min_flops(stack(op), toy())) == pytest.approx(1e9 if expected else 2.25e9)
    assert number(conv.min_flops(stack(op), toy(winograd=0.0))) == 2.25e9


def test_matrix_units_do_not_use_winograd() -> None:
    half, single = (conv_op("conv", unit, flops=2.25e9, nhwc=0.0) for unit in ("fp16", "tf32"))
    assert number(conv.min_flops(stack(half), toy())) == 2.25e9
    assert number(conv.min_flops(stack(half), toy(matrix_convolutions=0.0))) == pytest.approx(1e9)
    assert number(conv.min_flops(stack(single), toy())) == 2.25e9
    assert number(conv.min_flops(stack(single), toy(native={"tf32": 0.0}))) == pytest.approx(1e9)
    narrow = conv_op("conv", "int8", flops=2.25e9, nhwc=0.0)
    assert number(conv.min_flops(stack(narrow), toy(matrix_convolutions=0.0))) == 2.25e9


def test_winograd_is_used_only_if_faster_with_its_filter_transform() -> None:
    nchw, last = conv_op(unit="fp32", nhwc=0.0), conv_op(unit="fp32", height=30.0, width=30.0)
    plain, small = (seconds(op, toy(winograd=0.0)) for op in (nchw, last))
    assert seconds(nchw, **{"conv.winograd_speedup.nchw": 2.0}) == pytest.approx(plain / 2, rel=NEAR)
    assert seconds(nchw, toy(native={"tf32": 0.0}), **{"conv.winograd_speedup.nchw_before_ampere": 2.0}) == pytest.approx(
        plain / 2, rel=NEAR
    )
    setup = 256 * 256 * 1.0 / (10 * 1e9)
    assert seconds(last, **{"conv.winograd_speedup": 2.0, "conv.winograd_filter_transform_clocks": 1.0}) == pytest.approx(
        small / 2 + setup, rel=NEAR
    )
    assert seconds(last, **{"conv.winograd_speedup": 2.0, "conv.winograd_filter_transform_clocks": 1e9}) == pytest.approx(
        small, rel=NEAR
    )


def test_strided_input_gradients_and_groups_are_slower() -> None:
    for kind, stride, kernel, factor in (("conv_dgrad", 2.0, 9.0, 3.0), ("conv_dgrad", 1.0, 9.0, 1.0),
                                         ("conv_dgrad", 2.0, 1.0, 1.0), ("conv", 2.0, 9.0, 1.0)):  # fmt: skip
        op = conv_op(kind, stride=stride, kernel=kernel)
        assert seconds(op, **{"conv.strided_dgrad_slowdown": 3.0}) == pytest.approx(factor * seconds(op), rel=NEAR)
    grouped = conv_op(groups=4.0)
    assert seconds(grouped, **{"conv.grouped_slowdown": 2.0}) == pytest.approx(2 * seconds(grouped), rel=NEAR)
    assert seconds(conv_op(), **{"conv.grouped_slowdown": 2.0}) == pytest.approx(seconds(conv_op()), rel=NEAR)


def test_several_groups_of_few_channels_share_a_gemm() -> None:
    """64 groups of four channels each, sixteen groups per GEMM: four GEMMs of 64 channels."""
    op = conv_op(groups=64.0)
    # 8192 x 64 results four times over an inner sum of 576: 32 tiles of 256 x 128 (half empty) or 128 of 256 x 32 each ...
    fewest = min(
        int(np.ceil(4 * np.ceil(8192 / rows) * np.ceil(64 / columns) / 10)) * rows * columns
        for rows, columns in ((256, 128), (128, 256), (128, 128), (64, 128), (128, 64), (64, 64), (256, 32), (64, 32))
    )
    assert seconds(op, **{"conv.min_group_channels": 64.0}) == pytest.approx(2 * fewest * 576 / 1e12, rel=NEAR)


def test_images_of_three_channels_are_padded_to_four_without_matrix_units() -> None:
    op = conv_op(cin=3.0, cout=64.0, kernel=49.0)
    pixels, inner = 8 * 32 * 32, 4 * 49
    fewest = min(
        int(np.ceil(np.ceil(pixels / rows) * np.ceil(64 / columns) / 10)) * rows * columns
        for rows, columns in ((128, 64), (64, 64), (256, 32), (64, 32), (64, 128))
    )
    plain = toy(sustained_rates={"fp32": 1e12}, sm_rates={"fp32": 1e11})
    assert seconds(op, plain) == pytest.approx(2 * fewest * inner / 1e11, rel=NEAR)
    assert seconds(op, plain, **{"conv.few_channels_peak_share.16bit": 0.5}) == pytest.approx(
        2 * 2 * fewest * inner / 1e11, rel=NEAR
    )
    eight = conv_op(cin=8.0, cout=64.0, kernel=49.0)
    assert seconds(eight, plain) < seconds(op, plain)  # eight channels need no padding
    single = conv_op(cin=3.0, cout=64.0, kernel=49.0, nhwc=0.0, unit="fp32")
    older = toy(sustained_rates={"fp32": 1e12}, sm_rates={"fp32": 1e11}, native={"tf32": 0.0})
    assert seconds(single, older, **{"conv.few_channels_peak_share.nchw_before_ampere": 0.5}) == pytest.approx(
        2 * seconds(single, older), rel=NEAR
    )
    assert seconds(single, plain, **{"conv.few_channels_peak_share.nchw_before_ampere": 0.5}) == pytest.approx(
        seconds(single, plain), rel=NEAR
    )
    nchw = conv_op(cin=3.0, cout=64.0, kernel=49.0, nhwc=0.0)
    assert seconds(nchw, plain, **{"conv.few_channels_nchw_slowdown": 3.0}) == pytest.approx(3 * seconds(op, plain), rel=NEAR)


def test_depthwise_convolutions_cost_clocks_per_tap() -> None:
    sizes: Any = {"cin": 256.0, "cout": 256.0, "groups": 256.0, "flops": 2e9}
    taps = 2e9 / (2 * 10 * 1e9)
    assert seconds(conv_op(**sizes)) == pytest.approx(taps, rel=NEAR)
    assert seconds(conv_op(**sizes), **{"conv.depthwise_clocks_per_tap.16bit": 2.0}) == pytest.approx(2 * taps, rel=NEAR)
    assert seconds(conv_op(unit="fp32", **sizes), **{"conv.depthwise_clocks_per_tap.fp32_nhwc": 3.0}) == pytest.approx(
        3 * taps, rel=NEAR
    )
    assert seconds(conv_op("conv_dgrad", stride=2.0, **sizes)) == pytest.approx(4 * taps, rel=NEAR)
    assert seconds(conv_op(stride=2.0, **sizes)) == pytest.approx(taps, rel=NEAR)
    assert seconds(conv_op(nhwc=0.0, **sizes), **{"conv.depthwise_nchw_slowdown.16bit": 2.0}) == pytest.approx(2 * taps, rel=NEAR)
    assert seconds(conv_op(**sizes), **{"conv.depthwise_pixel_taps": 9.0}) == pytest.approx(2 * taps, rel=NEAR)
    for unit, kernel, factor in (("fp32", 49.0, 5.0), ("fp32", 25.0, 1.0), ("fp16", 49.0, 1.0)):
        op = conv_op(unit=unit, kernel=kernel, **sizes)
        assert seconds(op, **{"conv.depthwise_large_filter_slowdown": 5.0}) == pytest.approx(factor * taps, rel=NEAR)


def test_depthwise_fp32_nchw_uses_pytorchs_own_kernel() -> None:
    """256 channels of nine weights each: per channel one warp for each image, at most eight, starts a sum."""
    sizes: Any = {"unit": "fp32", "nhwc": 0.0, "cin": 256.0, "cout": 256.0, "groups": 256.0, "flops": 2e9}
    taps = 2e9 / (2 * 10 * 1e9)
    assert seconds(
        conv_op(**sizes), **{"conv.depthwise_clocks_per_tap.fp32_nchw": 3.0, "conv.depthwise_nchw_slowdown.16bit": 9.0}
    ) == pytest.approx(3 * taps, rel=NEAR)
    assert seconds(conv_op(**sizes), **{"conv.depthwise_clocks_per_pixel.fp32_nchw": 9.0}) == pytest.approx(2 * taps, rel=NEAR)
    assert seconds(conv_op(kernel=49.0, **sizes), **{"conv.depthwise_large_filter_slowdown": 5.0}) == pytest.approx(
        taps, rel=NEAR
    )
    for images, warps in ((4.0, 4), (64.0, 8)):
        begun = 256 * 9 * warps * 1e3 / (10 * 1e9)
        op = conv_op("conv_wgrad", batch=images, **sizes)
        assert seconds(op, **{"conv.depthwise_clocks_per_warp": 1e3}) == pytest.approx(taps + begun, rel=NEAR)
    assert seconds(conv_op(**sizes), **{"conv.depthwise_clocks_per_warp": 1e3}) == pytest.approx(taps, rel=NEAR)


def test_fixed_seconds_scale_with_the_latency_of_the_gpu() -> None:
    starts: Any = {"conv.fixed_seconds.16bit": 1.0, "conv.gather_fixed_seconds": 0.5}
    assert seconds(conv_op(), toy(latency=2.0), **starts) - seconds(conv_op()) == pytest.approx(3.0, abs=1e-6)


def test_bytes_that_a_stride_skips_are_not_read() -> None:
    """1x1 conv_op with a stride of two read a quarter of the pixels: 2 x 2 x 4 x 4 of the input's, 8 channels of 2 bytes."""
    sizes: Any = {"batch": 1.0, "height": 4.0, "width": 4.0, "cin": 8.0, "kernel": 1.0, "stride": 2.0}
    unread = 16 * 4 * 8 * 2 * 0.75
    assert number(conv.moved_bytes(stack(conv_op(moved=10000.0, **sizes)))) == pytest.approx(10000 - unread)
    assert number(conv.moved_bytes(stack(conv_op("conv_dgrad", moved=10000.0, **sizes)))) == 10000
    assert number(conv.moved_bytes(stack(conv_op(moved=10000.0, **(sizes | {"kernel": 9.0}))))) == 10000
    assert number(conv.moved_bytes(stack(conv_op(moved=800.0, **sizes)))) == 200  # never below a quarter


def test_a_convolution_of_many_bytes_is_memory_bound() -> None:
    op = conv_op(moved=1e12)
    assert seconds(op) == pytest.approx(1.0, rel=NEAR)
    assert seconds(op, **{"conv.bandwidth_share": 0.5}) == pytest.approx(2.0, rel=NEAR)
    small = conv_op(moved=4e5, flops=1.0, batch=1.0, height=1.0, width=1.0, cin=8.0, cout=8.0)
    cached = seconds(
        small, toy(sustained_rates={"fp16": 1e19}, sm_rates={"fp16": 1e18}), **{"conv.recent_share": 0.5, "conv.l2_speedup": 4.0}
    )
    assert cached == pytest.approx(4e5 * (1 - 0.5 * 0.75) / 1e12, rel=NEAR)


@pytest.mark.parametrize(
    ("sizes", "unit", "transposes"),
    [({"nhwc": 0.0}, "fp16", True), ({}, "fp16", False), ({"nhwc": 0.0}, "fp32", False),
     ({"nhwc": 0.0, "kernel": 1.0}, "fp16", False),
     ({"nhwc": 0.0, "kernel": 1.0, "stride": 2.0}, "fp16", True),
     ({"nhwc": 0.0, "kernel": 1.0, "width": 31.0, "height": 31.0}, "fp16", True),
     ({"nhwc": 0.0, "groups": 256.0}, "fp16", False), ({"nhwc": 0.0, "cin": 3.0}, "fp16", False)],
)  # fmt: skip
def test_nchw_tensors_are_transposed_for_tensor_cores(sizes: Any, unit: str, transposes: bool) -> None:
    op = conv_op(unit=unit, moved=1e9, **sizes)
    more = seconds(op, conv__layout_conversion_passes__16bit=2.0, conv__layout_conversion_seconds__16bit=0.5) - seconds(op)
    assert more == pytest.approx(0.5 + 2e9 / 1e12 if transposes else 0.0, abs=1e-9)
    assert seconds(op, toy(matrix_convolutions=0.0), conv__layout_conversion_seconds__16bit=0.5) == pytest.approx(
        seconds(op, toy(matrix_convolutions=0.0))
    )


def test_fixed_seconds_by_kind_of_convolution() -> None:
    def begun(op: Op, **p: float) -> float:
        return seconds(op, **p) - seconds(op)

    starts: Any = {
        "conv.fixed_seconds.16bit": 1.0,
        "conv.fixed_seconds.fp32": 2.0,
        "conv.fixed_seconds.tf32": 3.0,
        "conv.gather_fixed_seconds": 0.5,
        "conv.group_fixed_seconds": 0.1,
        "conv.fixed_seconds.depthwise": 7.0,
        "conv.depthwise_seconds_per_tap.16bit": 0.01,
        "conv.depthwise_seconds_per_tap.fp32": 0.02,
    }
    for op, expected in (
        (conv_op(), 1.5), (conv_op(kernel=1.0), 1.0), (conv_op(unit="fp32"), 2.5), (conv_op(unit="tf32", kernel=1.0), 3.0),
        (conv_op(unit="fp32", groups=4.0), 2.8), (conv_op(groups=4.0), 1.5),
        (conv_op(groups=256.0), 7.09), (conv_op(unit="fp32", groups=256.0), 7.18), (conv_op(groups=256.0, nhwc=0.0), 7.0),
        (conv_op("conv_dgrad", groups=256.0), 7.0),
    ):  # fmt: skip
        assert begun(op, **starts) == pytest.approx(expected, abs=1e-6)
