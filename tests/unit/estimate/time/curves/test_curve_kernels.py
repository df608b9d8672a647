"""Seconds of convolutions, attention and what bandwidth bounds, on a GPU of round numbers, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.toy_gpu import PLAIN, of, told, toy
from whichgpu.estimate.time.curves import attention, conv, memory
from whichgpu.estimate.time.curves.evaluate import roofline_seconds
from whichgpu.estimate.time.operators import Op

NEAR = 1e-3


def filters(kind: str = "conv", unit: str = "fp16", flops: float = 0.0, moved: float = 0.0, role: str = "", **sizes: float) -> Op:
    plain = {"batch": 8.0, "height": 32.0, "width": 32.0, "cin": 256.0, "cout": 256.0, "kernel": 9.0, "stride": 1.0,
             "groups": 1.0, "nhwc": 1.0}  # fmt: skip
    known = plain | sizes
    pixels = known["batch"] * known["height"] * known["width"]
    work = flops or 2 * pixels * known["cin"] * known["cout"] * known["kernel"] / known["groups"]
    return Op(kind, unit, work, moved, 0.0, known, role=role)


def convolved(op: Op, gpu: Any = None, **changed: float) -> float:
    return told(conv.seconds(of(op), gpu or toy(), PLAIN | {name.replace("__", "."): value for name, value in changed.items()}))


WHOLE = 2 * 8 * 32 * 32 * 256 * 256 * 9 / 1e13


def test_a_convolution_is_a_product_over_pixels() -> None:
    """8192 pixels by 256 channels: 1024 tiles of 64 x 32 in 103 waves on ten SMs."""
    waves = 103 / 102.4
    for kind in ("conv", "conv_dgrad"):
        assert convolved(filters(kind)) == pytest.approx(WHOLE * waves, rel=1e-4)
    # Gradients of weights: 256 x 2304 results, 288 tiles in 29 waves; the pixels are the inner sum.
    assert convolved(filters("conv_wgrad")) == pytest.approx(WHOLE * 29 / 28.8, rel=1e-4)
    assert convolved(filters("conv_wgrad"), **{"conv.split_k_work_ratio.conv_wgrad": 1.002}) == pytest.approx(
        WHOLE * 1.002, rel=1e-4
    )
    assert convolved(filters("conv"), **{"conv.split_k_work_ratio.conv_wgrad": 1.002}) == pytest.approx(WHOLE * waves, rel=1e-4)
    assert convolved(filters("conv"), **{"conv.split_k_work_ratio": 1.002}) == pytest.approx(WHOLE * 1.002, rel=1e-4)


def test_shares_of_peak_are_of_the_unit_and_of_filters_with_and_without_neighbours() -> None:
    one = filters(kernel=1.0)
    plain = convolved(one)
    assert convolved(one, **{"conv.peak_share_1x1.16bit": 0.5}) == pytest.approx(2 * plain, rel=NEAR)
    assert convolved(one, **{"conv.peak_share.16bit": 0.5}) == pytest.approx(plain, rel=NEAR)
    many = convolved(filters())
    assert convolved(filters(), **{"conv.peak_share.16bit": 0.5}) == pytest.approx(2 * many, rel=NEAR)
    assert convolved(filters(), toy(sm_rate_vs_reference={"fp16": 0.25}), **{"conv.peak_share.16bit": 0.25}) == pytest.approx(
        2 * many, rel=NEAR
    )
    assert convolved(filters(), **{"gemm.architecture_multiplier.16bit.Hopper": 0.5}) == pytest.approx(2 * many, rel=NEAR)
    dots = toy(matrix_convolutions=0.0, dot_product_share=0.5, winograd=0.0)
    assert convolved(filters(), dots, **{"conv.peak_share.nchw_before_ampere": 0.5}) == pytest.approx(4 * many, rel=NEAR)
    older = toy(winograd=0.0, native={"tf32": 0.0})
    planes, point = filters(unit="fp32", nhwc=0.0), filters(unit="fp32", nhwc=0.0, kernel=1.0)
    assert convolved(planes, older, **{"conv.peak_share.nchw_before_ampere": 0.5}) == pytest.approx(
        2 * convolved(planes, older), rel=NEAR
    )
    newer = toy(winograd=0.0)
    for op, name in ((planes, "conv.peak_share.fp32_nchw"), (point, "conv.peak_share_1x1.fp32_nchw")):
        assert convolved(op, newer, **{name: 0.5}) == pytest.approx(2 * convolved(op, newer), rel=NEAR)
        assert convolved(op, older, **{name: 0.5}) == pytest.approx(convolved(op, older), rel=NEAR)


def test_fp32_on_planes_does_not_split_the_inner_sum() -> None:
    """64 pixels and 32 channels are one tile: on one SM of ten, however long its sum."""
    planes, last = (filters(unit="fp32", nhwc=nhwc, batch=1.0, height=8.0, width=8.0, cout=32.0) for nhwc in (0.0, 1.0))
    assert convolved(planes, toy(winograd=0.0), **{"conv.split_k_work_ratio": 1.5}) == pytest.approx(
        2 * 64 * 32 * 2304 / 1e12, rel=NEAR
    )
    assert convolved(last, toy(winograd=0.0), **{"conv.split_k_work_ratio": 1.5}) == pytest.approx(
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
def test_where_libraries_trade_multiplications_for_transforms(sizes: Any, kind: str, expected: bool) -> None:
    op = filters(kind, "fp32", flops=2.25e9, **sizes)
    assert told(conv.min_flops(of(op), toy())) == pytest.approx(1e9 if expected else 2.25e9)
    assert told(conv.min_flops(of(op), toy(winograd=0.0))) == 2.25e9


def test_matrix_units_multiply_rather_than_transform() -> None:
    half, single = (filters("conv", unit, flops=2.25e9, nhwc=0.0) for unit in ("fp16", "tf32"))
    assert told(conv.min_flops(of(half), toy())) == 2.25e9
    assert told(conv.min_flops(of(half), toy(matrix_convolutions=0.0))) == pytest.approx(1e9)
    assert told(conv.min_flops(of(single), toy())) == 2.25e9
    assert told(conv.min_flops(of(single), toy(native={"tf32": 0.0}))) == pytest.approx(1e9)
    narrow = filters("conv", "int8", flops=2.25e9, nhwc=0.0)
    assert told(conv.min_flops(of(narrow), toy(matrix_convolutions=0.0))) == 2.25e9


def test_transforms_gain_where_they_pay_for_themselves() -> None:
    planes, last = filters(unit="fp32", nhwc=0.0), filters(unit="fp32", height=30.0, width=30.0)
    plain, small = (convolved(op, toy(winograd=0.0)) for op in (planes, last))
    assert convolved(planes, **{"conv.winograd_speedup.nchw": 2.0}) == pytest.approx(plain / 2, rel=NEAR)
    assert convolved(planes, toy(native={"tf32": 0.0}), **{"conv.winograd_speedup.nchw_before_ampere": 2.0}) == pytest.approx(
        plain / 2, rel=NEAR
    )
    setup = 256 * 256 * 1.0 / (10 * 1e9)
    assert convolved(last, **{"conv.winograd_speedup": 2.0, "conv.winograd_filter_transform_clocks": 1.0}) == pytest.approx(
        small / 2 + setup, rel=NEAR
    )
    assert convolved(last, **{"conv.winograd_speedup": 2.0, "conv.winograd_filter_transform_clocks": 1e9}) == pytest.approx(
        small, rel=NEAR
    )


def test_gradients_of_strided_filters_and_groups_cost_more() -> None:
    for kind, stride, kernel, factor in (("conv_dgrad", 2.0, 9.0, 3.0), ("conv_dgrad", 1.0, 9.0, 1.0),
                                         ("conv_dgrad", 2.0, 1.0, 1.0), ("conv", 2.0, 9.0, 1.0)):  # fmt: skip
        op = filters(kind, stride=stride, kernel=kernel)
        assert convolved(op, **{"conv.strided_dgrad_slowdown": 3.0}) == pytest.approx(factor * convolved(op), rel=NEAR)
    grouped = filters(groups=4.0)
    assert convolved(grouped, **{"conv.grouped_slowdown": 2.0}) == pytest.approx(2 * convolved(grouped), rel=NEAR)
    assert convolved(filters(), **{"conv.grouped_slowdown": 2.0}) == pytest.approx(convolved(filters()), rel=NEAR)


def test_groups_of_few_channels_are_made_several_at_once() -> None:
    """64 groups of four channels each, made sixteen at once: four products of 64 channels."""
    op = filters(groups=64.0)
    # 8192 x 64 results four times over an inner sum of 576: 32 tiles of 256 x 128 (half empty) or 128 of 256 x 32 each ...
    least = min(
        int(np.ceil(4 * np.ceil(8192 / rows) * np.ceil(64 / columns) / 10)) * rows * columns
        for rows, columns in ((256, 128), (128, 256), (128, 128), (64, 128), (128, 64), (64, 64), (256, 32), (64, 32))
    )
    assert convolved(op, **{"conv.min_group_channels": 64.0}) == pytest.approx(2 * least * 576 / 1e12, rel=NEAR)


def test_images_of_three_channels_run_on_plain_lanes_padded_to_four() -> None:
    op = filters(cin=3.0, cout=64.0, kernel=49.0)
    pixels, inner = 8 * 32 * 32, 4 * 49
    least = min(
        int(np.ceil(np.ceil(pixels / rows) * np.ceil(64 / columns) / 10)) * rows * columns
        for rows, columns in ((128, 64), (64, 64), (256, 32), (64, 32), (64, 128))
    )
    plain = toy(sustained_rates={"fp32": 1e12}, sm_rates={"fp32": 1e11})
    assert convolved(op, plain) == pytest.approx(2 * least * inner / 1e11, rel=NEAR)
    assert convolved(op, plain, **{"conv.few_channels_peak_share.16bit": 0.5}) == pytest.approx(
        2 * 2 * least * inner / 1e11, rel=NEAR
    )
    eight = filters(cin=8.0, cout=64.0, kernel=49.0)
    assert convolved(eight, plain) < convolved(op, plain)  # those are loaded as they are
    single = filters(cin=3.0, cout=64.0, kernel=49.0, nhwc=0.0, unit="fp32")
    older = toy(sustained_rates={"fp32": 1e12}, sm_rates={"fp32": 1e11}, native={"tf32": 0.0})
    assert convolved(single, older, **{"conv.few_channels_peak_share.nchw_before_ampere": 0.5}) == pytest.approx(
        2 * convolved(single, older), rel=NEAR
    )
    assert convolved(single, plain, **{"conv.few_channels_peak_share.nchw_before_ampere": 0.5}) == pytest.approx(
        convolved(single, plain), rel=NEAR
    )
    turned = filters(cin=3.0, cout=64.0, kernel=49.0, nhwc=0.0)
    assert convolved(turned, plain, **{"conv.few_channels_nchw_slowdown": 3.0}) == pytest.approx(
        3 * convolved(op, plain), rel=NEAR
    )


def test_depthwise_filters_take_every_tap_on_plain_lanes() -> None:
    sizes: Any = {"cin": 256.0, "cout": 256.0, "groups": 256.0, "flops": 2e9}
    taps = 2e9 / (2 * 10 * 1e9)
    assert convolved(filters(**sizes)) == pytest.approx(taps, rel=NEAR)
    assert convolved(filters(**sizes), **{"conv.depthwise_clocks_per_tap.16bit": 2.0}) == pytest.approx(2 * taps, rel=NEAR)
    assert convolved(filters(unit="fp32", **sizes), **{"conv.depthwise_clocks_per_tap.fp32_nhwc": 3.0}) == pytest.approx(
        3 * taps, rel=NEAR
    )
    assert convolved(filters("conv_dgrad", stride=2.0, **sizes)) == pytest.approx(4 * taps, rel=NEAR)
    assert convolved(filters(stride=2.0, **sizes)) == pytest.approx(taps, rel=NEAR)
    assert convolved(filters(nhwc=0.0, **sizes), **{"conv.depthwise_nchw_slowdown.16bit": 2.0}) == pytest.approx(
        2 * taps, rel=NEAR
    )
    assert convolved(filters(**sizes), **{"conv.depthwise_pixel_taps": 9.0}) == pytest.approx(2 * taps, rel=NEAR)
    for unit, kernel, factor in (("fp32", 49.0, 5.0), ("fp32", 25.0, 1.0), ("fp16", 49.0, 1.0)):
        op = filters(unit=unit, kernel=kernel, **sizes)
        assert convolved(op, **{"conv.depthwise_large_filter_slowdown": 5.0}) == pytest.approx(factor * taps, rel=NEAR)


def test_depthwise_filters_on_planes_in_fp32_are_the_frameworks_own() -> None:
    """256 channels of nine weights each: for every one as many warps as there are images, at most eight, begin to sum."""
    sizes: Any = {"unit": "fp32", "nhwc": 0.0, "cin": 256.0, "cout": 256.0, "groups": 256.0, "flops": 2e9}
    taps = 2e9 / (2 * 10 * 1e9)
    assert convolved(
        filters(**sizes), **{"conv.depthwise_clocks_per_tap.fp32_nchw": 3.0, "conv.depthwise_nchw_slowdown.16bit": 9.0}
    ) == pytest.approx(3 * taps, rel=NEAR)
    assert convolved(filters(**sizes), **{"conv.depthwise_clocks_per_pixel.fp32_nchw": 9.0}) == pytest.approx(2 * taps, rel=NEAR)
    assert convolved(filters(kernel=49.0, **sizes), **{"conv.depthwise_large_filter_slowdown": 5.0}) == pytest.approx(
        taps, rel=NEAR
    )
    for images, warps in ((4.0, 4), (64.0, 8)):
        begun = 256 * 9 * warps * 1e3 / (10 * 1e9)
        op = filters("conv_wgrad", batch=images, **sizes)
        assert convolved(op, **{"conv.depthwise_clocks_per_warp": 1e3}) == pytest.approx(taps + begun, rel=NEAR)
    assert convolved(filters(**sizes), **{"conv.depthwise_clocks_per_warp": 1e3}) == pytest.approx(taps, rel=NEAR)


def test_kernels_begin_later_where_clocks_are_slower() -> None:
    starts: Any = {"conv.fixed_seconds.16bit": 1.0, "conv.gather_fixed_seconds": 0.5}
    assert convolved(filters(), toy(latency=2.0), **starts) - convolved(filters()) == pytest.approx(3.0, abs=1e-6)


def test_bytes_that_a_stride_skips_are_not_read() -> None:
    """1x1 filters with a stride of two read a quarter of the pixels: 2 x 2 x 4 x 4 of the input's, 8 channels of 2 bytes."""
    sizes: Any = {"batch": 1.0, "height": 4.0, "width": 4.0, "cin": 8.0, "kernel": 1.0, "stride": 2.0}
    unread = 16 * 4 * 8 * 2 * 0.75
    assert told(conv.moved_bytes(of(filters(moved=10000.0, **sizes)))) == pytest.approx(10000 - unread)
    assert told(conv.moved_bytes(of(filters("conv_dgrad", moved=10000.0, **sizes)))) == 10000
    assert told(conv.moved_bytes(of(filters(moved=10000.0, **(sizes | {"kernel": 9.0}))))) == 10000
    assert told(conv.moved_bytes(of(filters(moved=800.0, **sizes)))) == 200  # never below a quarter


def test_a_convolution_of_many_bytes_is_bound_by_them() -> None:
    op = filters(moved=1e12)
    assert convolved(op) == pytest.approx(1.0, rel=NEAR)
    assert convolved(op, **{"conv.bandwidth_share": 0.5}) == pytest.approx(2.0, rel=NEAR)
    held = filters(moved=4e5, flops=1.0, batch=1.0, height=1.0, width=1.0, cin=8.0, cout=8.0)
    cached = convolved(
        held, toy(sustained_rates={"fp16": 1e19}, sm_rates={"fp16": 1e18}), **{"conv.recent_share": 0.5, "conv.l2_speedup": 4.0}
    )
    assert cached == pytest.approx(4e5 * (1 - 0.5 * 0.75) / 1e12, rel=NEAR)


@pytest.mark.parametrize(
    ("sizes", "unit", "turns"),
    [({"nhwc": 0.0}, "fp16", True), ({}, "fp16", False), ({"nhwc": 0.0}, "fp32", False),
     ({"nhwc": 0.0, "kernel": 1.0}, "fp16", False),
     ({"nhwc": 0.0, "kernel": 1.0, "stride": 2.0}, "fp16", True),
     ({"nhwc": 0.0, "kernel": 1.0, "width": 31.0, "height": 31.0}, "fp16", True),
     ({"nhwc": 0.0, "groups": 256.0}, "fp16", False), ({"nhwc": 0.0, "cin": 3.0}, "fp16", False)],
)  # fmt: skip
def test_planes_of_pixels_are_turned_for_tensor_cores(sizes: Any, unit: str, turns: bool) -> None:
    op = filters(unit=unit, moved=1e9, **sizes)
    more = convolved(op, conv__layout_conversion_passes__16bit=2.0, conv__layout_conversion_seconds__16bit=0.5) - convolved(op)
    assert more == pytest.approx(0.5 + 2e9 / 1e12 if turns else 0.0, abs=1e-9)
    assert convolved(op, toy(matrix_convolutions=0.0), conv__layout_conversion_seconds__16bit=0.5) == pytest.approx(
        convolved(op, toy(matrix_convolutions=0.0))
    )


def test_kernels_take_their_time_to_begin() -> None:
    def begun(op: Op, **p: float) -> float:
        return convolved(op, **p) - convolved(op)

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
    for op, seconds in (
        (filters(), 1.5), (filters(kernel=1.0), 1.0), (filters(unit="fp32"), 2.5), (filters(unit="tf32", kernel=1.0), 3.0),
        (filters(unit="fp32", groups=4.0), 2.8), (filters(groups=4.0), 1.5),
        (filters(groups=256.0), 7.09), (filters(unit="fp32", groups=256.0), 7.18), (filters(groups=256.0, nhwc=0.0), 7.0),
        (filters("conv_dgrad", groups=256.0), 7.0),
    ):  # fmt: skip
        assert begun(op, **starts) == pytest.approx(seconds, abs=1e-6)


def attended(op: Op, gpu: Any = None, **changed: float) -> float:
    return told(
        attention.seconds(of(op), gpu or toy(), PLAIN | {name.replace("__", "."): value for name, value in changed.items()})
    )


def looking(kind: str = "attention", moved: float = 0.0, role: str = "", **sizes: float) -> Op:
    plain = {"batch": 2.0, "heads": 5.0, "kv_heads": 1.0, "queries": 128.0, "keys": 128.0, "dim": 64.0}
    known = plain | sizes
    flops = 4.0 * known["batch"] * known["heads"] * known["queries"] * known["keys"] * known["dim"]
    return Op(kind, "fp16", flops, moved, 0.0, known, role=role)


def test_blocks_of_queries_go_over_the_keys_they_see() -> None:
    """Ten blocks of 128 queries on ten SMs."""
    one = 4 * 128 * 128 * 64 / 1e12
    assert attended(looking()) == pytest.approx(one, rel=NEAR)
    assert attended(looking(batch=2.2)) == pytest.approx(2 * one, rel=NEAR)  # an eleventh block
    assert attended(looking(queries=64.0)) == pytest.approx(one, rel=NEAR)  # blocks are whole
    assert attended(looking(keys=192.0)) == pytest.approx(2 * one, rel=NEAR)
    assert attended(looking(queries=129.0)) == pytest.approx(2 * one, rel=NEAR)
    assert attended(looking(), attention__peak_share=0.5) == pytest.approx(2 * one, rel=NEAR)
    assert attended(looking(role="dropout"), attention__dropout_slowdown=3.0) == pytest.approx(3 * one, rel=NEAR)
    assert attended(looking(), attention__dropout_slowdown=3.0) == pytest.approx(one, rel=NEAR)
    assert attended(looking(), attention__clocks_per_query_block=1e6) == pytest.approx(one + 1e-3, rel=NEAR)
    long = looking(queries=256.0, keys=256.0)
    causal = replace(long, flops=long.flops / 2, sizes={**long.sizes, "causal": 1.0})  # 3 of 4 tiles are computed
    assert attended(causal) == pytest.approx(3 / 4 * attended(long), rel=NEAR)
    assert attended(looking(), attention__clocks_per_exponential=1.0) == pytest.approx(one + 128 * 128 / 1e9, rel=NEAR)
    assert attended(looking(batch=20.0), toy(sustained_rates={"fp16": 5e12})) == pytest.approx(
        20 * one, rel=NEAR
    )  # the whole's rate bounds
    assert attended(looking(), attention__fixed_seconds=1.0) == pytest.approx(1.0 + one, rel=NEAR)


def test_attention_reads_and_writes() -> None:
    assert attended(looking(moved=1e12)) == pytest.approx(1.0, rel=NEAR)
    assert attended(looking(moved=1e12), attention__bandwidth_share=0.8) == pytest.approx(1.25, rel=NEAR)
    assert attended(looking("decode_attention", moved=1e12), attention__bandwidth_share=0.8) == pytest.approx(1.25, rel=NEAR)


def test_one_query_goes_over_the_cache_split_over_sms_or_not() -> None:
    """Keys of 64 numbers count half of those of 128; 2 sequences of 5 heads: an SM for each head, or all SMs for each key."""
    quick = toy(sustained_rates={"fp16": 1e18})
    whole = looking("decode_attention", queries=1.0, keys=2048.0, role="whole")
    head = 2048 * 0.5 * 1e3 / 1e9
    assert attended(whole, quick, attention__decode_clocks_per_key=1e3) == pytest.approx(head, rel=NEAR)
    twice = looking("decode_attention", batch=4.0, queries=1.0, keys=2048.0, role="whole")
    assert attended(twice, quick, attention__decode_clocks_per_key=1e3) == pytest.approx(2 * head, rel=NEAR)
    assert attended(twice, quick, attention__decode_clocks_per_key=1e3, attention__decode_blocks_per_sm=2.0) == pytest.approx(
        head, rel=NEAR
    )
    op = looking("decode_attention", queries=1.0, keys=2048.0, role="split")
    assert attended(op, quick, attention__decode_clocks_per_key=1e9) < 1e-6
    assert attended(op, quick, attention__decode_clocks_per_sequence=1e3) == pytest.approx(2 * 1e3 / 10 / 1e9, rel=1e-2)
    assert attended(op, quick, attention__decode_clocks_per_split=1e3) == pytest.approx(16 * 1e3 / 1e9, rel=1e-2)
    assert attended(op, attention__decode_peak_share=0.5) == pytest.approx(4 * 10 * 2048 * 64 / 1e13 / 0.5, rel=NEAR)


def test_heads_of_mla_fill_whole_instructions() -> None:
    """Five heads on instructions of 64 rows take what 64 heads take; without such instructions a narrow cache is not split."""
    few = looking("decode_attention", queries=1.0, keys=2048.0, role="mla")
    many = looking("decode_attention", heads=64.0, queries=1.0, keys=2048.0, role="mla")
    assert attended(few) == pytest.approx(attended(many), rel=NEAR) == pytest.approx(4 * 128 * 2048 * 64 / 1e13, rel=NEAR)
    older = toy(async_matrix=0.0, matrix_rows=16.0, sustained_rates={"bf16": 1e18, "fp8": 1e18})
    narrow = replace(many, unit="fp8")
    assert attended(narrow, older, attention__mla_unsplit_clocks_per_key=1e3) == pytest.approx(2048 * 1e3 / 1e9, rel=NEAR)
    assert attended(many, older, attention__mla_unsplit_clocks_per_key=1e3) < 1e-4


def test_prefill_in_fp8_or_over_a_narrow_cache_is_faster_where_the_chip_can() -> None:
    plain, narrow = looking(), looking(narrow_kv=1.0)
    faster = {"attention__fp8_speedup": 1.25}
    assert attended(narrow, **faster) == pytest.approx(attended(plain) / 1.25, rel=NEAR)
    assert attended(replace(plain, unit="fp8"), **faster) == pytest.approx(attended(plain) / 1.25, rel=NEAR)
    assert attended(narrow, toy(async_matrix=0.0), **faster) == pytest.approx(attended(plain), rel=NEAR)
    assert attended(narrow, attention__dequantise_slowdown__sm_90=3.0) == pytest.approx(3 * attended(plain), rel=NEAR)


def moving(
    kind: str = "elementwise", unit: str = "fp16", read: float = 1e9, write: float = 1e9, role: str = "", **sizes: float
) -> Op:
    return Op(kind, unit, 0.0, read, write, sizes, role=role)


def moved(op: Op, gpu: Any = None, **changed: float) -> float:
    return told(memory.seconds(of(op), gpu or toy(), PLAIN | {name.replace("__", "."): value for name, value in changed.items()}))


def test_bytes_over_bandwidth_at_a_share_of_it() -> None:
    assert moved(moving()) == pytest.approx(2e-3, rel=NEAR)
    assert moved(moving(), memory__bandwidth_share=0.5) == pytest.approx(4e-3, rel=NEAR)
    assert moved(moving(), **{"memory.bandwidth_share.elementwise": 0.25}) == pytest.approx(8e-3, rel=NEAR)
    assert moved(moving(), memory__fixed_seconds=1.0) == pytest.approx(1.002, rel=NEAR)
    small = moving(read=2e5, write=2e5)
    assert moved(small, memory__recent_share=0.5, memory__l2_speedup=4.0) == pytest.approx(4e-7 * (1 - 0.5 * 0.75), rel=NEAR)


def test_elements_and_rows_go_at_the_pace_of_the_sms() -> None:
    pace = 1e3 / (10 * 1e9)
    assert moved(moving(elements=1e6), memory__clocks_per_element=1e3) == pytest.approx(1e6 * pace, rel=NEAR)
    assert moved(moving(rows=1e4, width=200.0), memory__clocks_per_element=1e3) == pytest.approx(2e6 * pace, rel=NEAR)
    assert moved(moving(read=3e9), memory__clocks_per_element=1e3) == pytest.approx(1.5e9 * pace, rel=NEAR)  # of two bytes each
    assert moved(moving(unit="fp32", read=3e9), memory__clocks_per_element=1e3) == pytest.approx(0.75e9 * pace, rel=NEAR)
    assert moved(moving("norm", rows=5e6), memory__clocks_per_row=1e3) == pytest.approx(2e-3 + 5e6 * pace, rel=NEAR)


def test_very_many_rows_are_summed_in_two_stages() -> None:
    def rows(kind: str, count: float, width: float = 768.0) -> float:
        return told(memory.reduction_rows(of(moving(kind, rows=count, width=width))))

    assert rows("norm", 1e6) == 1e6
    assert rows("norm_backward", 65536.0) == 65536.0
    assert rows("norm_backward", 165536.0) == pytest.approx(65536 + 0.2 * 1e5)
    assert rows("reduce_columns", 1e6) == 65536.0
    assert rows("reduce_columns", 1000.0, 1536.0) == pytest.approx(500.0)
    assert rows("reduce_columns", 1000.0, 10.0) == pytest.approx(1000.0)


def test_softmax_reads_short_rows_once_and_its_gradient_twice() -> None:
    for width, share in ((1024.0, 4e-3), (1025.0, 2e-3)):
        assert moved(moving("softmax", width=width), **{"memory.bandwidth_share.softmax_in_registers": 0.5}) == pytest.approx(
            share, rel=NEAR
        )
    assert moved(moving("softmax_backward", width=1000.0)) == pytest.approx(4e-3, rel=NEAR)
    assert moved(moving("softmax_backward", width=16384.0)) == pytest.approx(2e-3, rel=NEAR)  # the loss's is one kernel


def together(bytes_seconds: float, block_seconds: float) -> float:
    """Bandwidth and a block's pace, which overlap but in part."""
    return float((bytes_seconds**4 + block_seconds**4) ** 0.25)


@pytest.mark.parametrize(("width", "turns"), [(1.0, 1.0), (10.0, 2 ** (1 / 3)), (60.0, 6.0)])  # of ten SMs
def test_one_block_may_go_over_all_rows_of_a_channel(width: float, turns: float) -> None:
    op = moving("batch_norm", rows=1e6, width=width)
    assert moved(op, batchnorm__clocks_per_row=10.0) == pytest.approx(together(2e-3, 1e-2 * turns), rel=2e-3)
    assert moved(op, batchnorm__clocks_per_row=10.0, batchnorm__clocks_per_channel=1e5) == pytest.approx(
        together(2e-3, 1e-2 * turns) + width / 10 * 1e-4, rel=2e-3
    )


def test_blocks_abreast_share_the_channels_and_older_chips_are_quicker_with_a_row() -> None:
    op = moving("batch_norm", rows=1e6, width=120.0)
    assert moved(op, batchnorm__clocks_per_row=10.0, batchnorm__channels_per_sm=2.0) == pytest.approx(
        together(2e-3, 6e-2), rel=2e-3
    )
    older = toy(native={"tf32": 0.0})
    assert moved(
        op, older, batchnorm__clocks_per_row=10.0, batchnorm__channels_per_sm=2.0, batchnorm__pre_ampere_clock_ratio=0.5
    ) == pytest.approx(together(2e-3, 3e-2), rel=2e-3)


@pytest.mark.parametrize(("kind", "sides", "share"), [("batch_norm", 1, 2 / 3), ("batch_norm_backward", 2, 3 / 5)])
@pytest.mark.parametrize(("unit", "width"), [("fp32", 4), ("fp16", 2)])
def test_a_channel_that_a_block_keeps_is_read_once(kind: str, sides: int, share: float, unit: str, width: int) -> None:
    most = 100 * 1024 / sides / width

    def normalised(rows: float, role: str = "cudnn_nchw") -> tuple[float, float]:
        op = moving(kind, unit, rows=rows, width=1.0, role=role)
        changed = {f"batchnorm.clocks_per_row.{kind}.{role}": 1e-9, f"batchnorm.cached_clocks_per_byte.{kind}.{role}": 1e-9}
        floor = told(roofline_seconds(of(op), toy(), PLAIN)[1])
        return moved(op, **changed), floor

    assert normalised(most) == pytest.approx((2e-3 * share, 2e-3 * share), rel=NEAR)
    assert normalised(most + 1) == pytest.approx((2e-3, 2e-3), rel=NEAR)
    assert normalised(most, "cudnn") == pytest.approx((2e-3, 2e-3), rel=NEAR)


def test_where_it_is_kept_a_row_costs_by_its_bytes() -> None:
    for unit, width in (("fp32", 4), ("fp16", 2)):
        op = moving("batch_norm", unit, 1e3, 1e3, rows=1e4, width=1.0, role="cudnn_nchw")
        assert moved(op, batchnorm__clocks_per_row=7.0, batchnorm__cached_clocks_per_byte=3.0) == pytest.approx(
            1e4 * width * 3.0 / 1e9, rel=2e-3
        )
