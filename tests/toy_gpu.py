"""A GPU with round numbers and neutral curve parameters, so that seconds can be worked out by hand.

Ten SMs of 1 TFLOP/s at 1 GHz, 1 TB/s, an L2 cache of a megabyte; every share is 1, no fixed seconds, full overlap.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from whichgpu.estimate.time.curves.gpus import GpuColumns
from whichgpu.estimate.time.curves.stack import OperatorStack, stack_operators
from whichgpu.estimate.time.operators import Number, Op
from whichgpu.estimate.time.units import UNITS

ZEROS = """
    gemm.fixed_seconds gemm.half_rate_intensity gemm.k_pipeline_fill gemm.half_rate_intensity.fp32 gemm.k_pipeline_fill.fp32
    gemm.split_k_seconds conv.half_rate_intensity conv.k_pipeline_fill conv.half_rate_intensity.fp32 conv.k_pipeline_fill.fp32
    conv.split_k_seconds conv.recent_share conv.layout_conversion_passes.16bit conv.layout_conversion_passes.tf32
    conv.layout_conversion_seconds.16bit conv.layout_conversion_seconds.tf32 conv.winograd_filter_transform_clocks
    conv.gather_fixed_seconds conv.depthwise_clocks_per_pixel.fp32_nchw conv.depthwise_clocks_per_warp
    conv.group_fixed_seconds conv.depthwise_pixel_taps conv.fixed_seconds.16bit conv.fixed_seconds.fp32
    conv.fixed_seconds.tf32 conv.fixed_seconds.depthwise conv.depthwise_seconds_per_tap.16bit
    conv.depthwise_seconds_per_tap.fp32 memory.recent_share memory.clocks_per_element memory.clocks_per_row
    batchnorm.clocks_per_row batchnorm.clocks_per_channel memory.fixed_seconds attention.clocks_per_query_block
    attention.clocks_per_exponential attention.decode_clocks_per_key attention.fixed_seconds
    attention.clocks_per_exponential.synchronous attention.decode_clocks_per_sequence attention.decode_clocks_per_split
    attention.mla_unsplit_clocks_per_key
""".split()
ONES = """
    gemm.peak_share gemm.peak_share.bf16_in_fp32 gemm.peak_share.dequantised
    gemm.arithmetic_slowdown gemm.misaligned_slowdown gemm.misaligned_slowdown.tf32 gemm.misaligned_slowdown.before_tma
    gemm.misaligned_slowdown.even gemm.transposed_slowdown.tf32_wgrad gemm.transposed_slowdown.tf32_dgrad gemm.bandwidth_share
    gemm.bandwidth_multiplier gemm.bandwidth_share.small_batched gemm.l2_speedup conv.l2_speedup conv.bandwidth_share
    conv.min_group_channels conv.winograd_speedup conv.winograd_speedup.nchw conv.peak_share.fp32_nchw
    conv.peak_share_1x1.fp32_nchw conv.few_channels_peak_share.nchw_before_ampere conv.depthwise_clocks_per_tap.fp32_nchw
    conv.winograd_speedup.nchw_before_ampere conv.strided_dgrad_slowdown conv.grouped_slowdown conv.few_channels_nchw_slowdown
    conv.few_channels_peak_share.16bit conv.few_channels_peak_share.fp32 conv.few_channels_peak_share.tf32
    conv.peak_share.16bit conv.peak_share.fp32 conv.peak_share.tf32 conv.peak_share_1x1.16bit conv.peak_share_1x1.fp32
    conv.peak_share_1x1.tf32 conv.peak_share.nchw_before_ampere conv.depthwise_clocks_per_tap.fp32_nhwc
    conv.depthwise_clocks_per_tap.16bit conv.depthwise_large_filter_slowdown conv.depthwise_nchw_slowdown.16bit
    batchnorm.channels_per_sm batchnorm.cached_clocks_per_byte batchnorm.pre_ampere_clock_ratio memory.l2_speedup
    memory.bandwidth_share memory.bandwidth_share.softmax_in_registers attention.dropout_slowdown attention.peak_share
    attention.bandwidth_share attention.decode_blocks_per_sm attention.decode_peak_share attention.peak_share_ratio.synchronous
    attention.query_block_ratio.synchronous attention.fp8_speedup attention.mla_peak_share attention.mla_peak_share.synchronous
    attention.mla_fp8_speedup mmq.slowdown mmq.slowdown.dot_products mmq.vector_products_per_clock
    mmq.vector_products_per_clock.amd mmq.nested_scales_slowdown
""".split()
SHARP, NEVER = 1e4, 1e9  # exponent of a maximum without overlap; ratio that no operator reaches
NEUTRAL = {
    **dict.fromkeys(ZEROS, 0.0), **dict.fromkeys(ONES, 1.0), "l2.overflow_share": 1.0, "l2.fits_share": 0.5,
    **{f"{curve}.overlap_exponent": SHARP for curve in ("gemm", "conv", "memory", "attention")},
    "attention.overlap_exponent.decode_attention": SHARP,
    **dict.fromkeys(("gemm.row_by_row_read_ratio", "gemm.split_k_work_ratio", "gemm.split_k_work_ratio.fp32",
                     "conv.split_k_work_ratio", "conv.split_k_work_ratio.conv_wgrad", "mmq.operations_per_clock",
                     "mmq.unpacked_weights_per_clock", "mmq.vector_weights_per_clock"), NEVER),
}  # fmt: skip


def column(value: float) -> np.ndarray:
    """The value as a column of one GPU."""
    return np.full((1, 1, 1), value)


def toy(**changed: Any) -> GpuColumns:
    """Columns of the GPU with some of them changed; `sustained_rates={"fp16": 2e13}` changes one unit."""
    each: dict[str, float] = {"matrix_units": 1.0, "matrix_convolutions": 1.0, "dot_product_share": 1.0, "winograd": 1.0,
                              "bulk_copies": 1.0,
                              "async_matrix": 1.0, "matrix_rows": 64.0, "fp32_pj": 0.0, "fp16_pj": 0.0,
                              "bandwidth": 1e12,
                              "sms": 10.0, "l2": 1e6, "clock": 1e9, "latency": 1.0, "tdp": np.inf}  # fmt: skip
    units: dict[str, float] = {
        "peaks": 1e13,
        "clocked_peaks": 1e13,
        "sustained_peaks": 1e13,
        "sustained_rates": 1e13,
        "sm_rate_vs_reference": 1.0,
        "sm_rates": 1e12,
        "native": 1.0,
    }
    values: dict[str, Any] = {name: column(value) for name, value in each.items()}
    values |= {name: {unit: column(value) for unit in UNITS} for name, value in units.items()}
    columns = GpuColumns(
        ids=("toy",), architectures=("Hopper",), rooflines=("",),
        targets=("sm_90",), matrix_instructions=("wgmma",),
        **values,
    )  # fmt: skip
    replaced: dict[str, Any] = {}
    for name, value in changed.items():
        if isinstance(value, dict):
            replaced[name] = getattr(columns, name) | {unit: column(one) for unit, one in value.items()}
        else:
            replaced[name] = value if isinstance(value, tuple) else column(value)
    return replace(columns, **replaced)


def stack(*ops: Op) -> OperatorStack:
    """A stack of operators that all use one unit."""
    return stack_operators(ops[0].unit, ops)


def number(values: Any) -> float:
    """The only number in an array."""
    return float(np.asarray(values).ravel()[0])


def elementwise(elements: Number, read_width: float, write_width: float, unit: str = "bf16") -> Op:
    """An elementwise operator that reads and writes these bytes per element."""
    return Op("elementwise", unit, read=elements * read_width, write=elements * write_width, sizes={"elements": elements})
