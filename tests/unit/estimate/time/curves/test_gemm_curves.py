"""Seconds of GEMMs on a GPU with round numbers, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.toy_gpu import NEUTRAL, NEVER, number, stack, toy
from whichgpu.estimate.time.curves import gemm as curve
from whichgpu.estimate.time.curves.gpus import power_bound
from whichgpu.estimate.time.curves.stack import soft_max, stack_numbers
from whichgpu.estimate.time.curves.tiles import TENSOR_TILES, GemmShapes, TileModel, tiled_seconds
from whichgpu.estimate.time.operators import Op, gemm
from whichgpu.estimate.time.units import UNITS

TILE = 2 * 256 * 128 * 1000 / 1e12  # a tile of 256 x 128 over an inner sum of 1000, on one SM


def wave_seconds(
    m: float, n: float, k: float = 1000.0, batch: float = 1.0, tiles: Any = ((256, 128),), gpu: Any = None, **more: Any
) -> float:
    sizes = (np.array([[size]]) for size in (batch, m, n, k))
    model: dict[str, Any] = {"edge": 0.0, "fill": 0.0, "split": NEVER, "split_seconds": 0.0} | more
    return number(tiled_seconds(GemmShapes(*sizes), TileModel(tiles, **model), "fp16", gpu or toy()))


def test_tiles_run_on_the_sms_in_waves() -> None:
    assert wave_seconds(256, 128) == pytest.approx(TILE)
    assert wave_seconds(256, 1280) == pytest.approx(TILE)
    assert wave_seconds(256, 1281) == pytest.approx(2 * TILE)  # an eleventh tile waits for a tenth of the GPU
    assert wave_seconds(1, 1) == pytest.approx(TILE)  # a tile is computed completely
    assert wave_seconds(256, 128, batch=11.0) == pytest.approx(2 * TILE)
    assert wave_seconds(512, 640, batch=2.0) == pytest.approx(2 * TILE)


def test_the_fastest_tile_is_used() -> None:
    both = ((256, 128), (64, 64))
    assert wave_seconds(64, 64, tiles=both) == pytest.approx(TILE / 8)
    assert wave_seconds(256, 256, tiles=both) == pytest.approx(TILE / 4)  # sixteen small ones in two waves
    assert wave_seconds(64, 64, tiles=both, min_side=128.0) == pytest.approx(TILE)
    assert wave_seconds(64, 64, tiles=both, min_side=64.0) == pytest.approx(TILE / 8)


def test_small_tiles_load_more_bytes_per_flop() -> None:
    """With a half-rate intensity of 32, a 64 x 64 tile (32 FLOPs per element) runs at 1/2, the largest (85.3) at 1/1.375."""
    assert wave_seconds(64, 64, tiles=((64, 64),), edge=32.0) == pytest.approx(TILE / 8 * 2 / 1.375)
    assert wave_seconds(256, 128, edge=32.0) == pytest.approx(TILE)
    half = toy(sm_rate_vs_reference={"fp16": 0.5})
    assert wave_seconds(64, 64, tiles=((64, 64),), edge=32.0, gpu=half) == pytest.approx(TILE / 8 * 1.5 / 1.1875)


def test_the_pipeline_of_a_tile_has_to_fill() -> None:
    assert wave_seconds(256, 128, fill=100.0) == pytest.approx(1.1 * TILE)
    assert wave_seconds(256, 128, fill=100.0, gpu=toy(sm_rate_vs_reference={"fp16": 0.5})) == pytest.approx(1.05 * TILE)


def test_split_k_is_used_if_faster_and_never_exceeds_the_peak() -> None:
    assert wave_seconds(256, 128, split=2.0, split_seconds=1e-6) == pytest.approx(2 * TILE / 10 + 1e-6)
    assert wave_seconds(256, 128, split=2.0, split_seconds=1.0) == pytest.approx(TILE)
    assert wave_seconds(2560, 1280, gpu=toy(sustained_rates={"fp16": 1e12})) == pytest.approx(
        100 * TILE
    )  # the rate of the whole is less than of ten SMs


def test_tensor_core_tiles_are_those_of_the_libraries() -> None:
    assert {rows * columns for rows, columns in TENSOR_TILES} == {256 * 128, 128 * 128, 64 * 128, 64 * 64}


def seconds(op: Op, gpu: Any = None, **changed: float) -> float:
    return number(
        curve.seconds(stack(op), gpu or toy(), NEUTRAL | {name.replace("__", "."): value for name, value in changed.items()})
    )


def gemm_op(m: float = 2560.0, n: float = 1280.0, k: float = 1024.0, unit: str = "fp16", width: float = 2.0, **more: Any) -> Op:
    return gemm(m, n, k, unit, width, **more)


FULL = 2 * 2560 * 1280 * 1024 / 1e13


def test_a_large_gemm_runs_at_the_share_of_peak() -> None:
    assert seconds(gemm_op()) == pytest.approx(FULL, rel=1e-3)
    assert seconds(gemm_op(), gemm__peak_share=0.5) == pytest.approx(2 * FULL, rel=1e-3)
    assert seconds(gemm_op(), **{"gemm.peak_share.fp16": 0.25}) == pytest.approx(4 * FULL, rel=1e-3)
    assert seconds(gemm_op(), gemm__fixed_seconds=1.0) == pytest.approx(1.0 + FULL, rel=1e-3)
    assert seconds(
        gemm_op(), **{"gemm.architecture_multiplier.16bit.Hopper": 0.5, "gemm.architecture_multiplier.16bit.sm_90": 0.5}
    ) == pytest.approx(4 * FULL, rel=1e-3)


def test_a_gemm_of_few_rows_is_bound_by_reading_weights() -> None:
    moved = 2 * (8 * 4096 + 4096 * 4096 + 8 * 4096)
    narrow, quick = gemm_op(8.0, 4096.0, 4096.0), toy(sustained_rates={"fp16": 1e15}, sm_rates={"fp16": 1e14})
    assert seconds(narrow, quick) == pytest.approx(moved / 1e12, rel=1e-3)
    assert seconds(narrow, quick, gemm__bandwidth_share=0.5) == pytest.approx(2 * moved / 1e12, rel=1e-3)
    assert seconds(narrow, quick, gemm__bandwidth_multiplier=0.8) == pytest.approx(moved / 0.8e12, rel=1e-3)
    assert seconds(narrow, quick, **{"gemm.bandwidth_share.fp16": 0.5}) == pytest.approx(2 * moved / 1e12, rel=1e-3)
    assert seconds(narrow, quick, **{"gemm.architecture_multiplier.bandwidth.Hopper": 0.5}) == pytest.approx(
        2 * moved / 1e12, rel=1e-3
    )


def test_a_gemm_row_by_row_reads_the_weights_for_each_row() -> None:
    """A GEMM of two rows may skip tiling: the weights are then read once per row, at a cost."""
    two = gemm_op(2.0, 4096.0, 4096.0)
    tile = 2 * 64 * 64 * 4096 / 1e12 * 7  # 64 tiles on ten SMs: seven waves
    assert seconds(two, gemm__row_by_row_read_ratio=1e9) == pytest.approx(max(tile, 4096 * 4096 * 2 / 1e12), rel=2e-3)
    memory = 2 * (2 * 4096 + 4096 * 4096 + 2 * 4096) / 1e12
    assert seconds(two, gemm__row_by_row_read_ratio=1.0) == pytest.approx(memory, rel=2e-3)
    shapes = GemmShapes(*(np.array([[x]]) for x in (1.0, 2.0, 4096.0, 4096.0)))
    ratio = NEUTRAL | {"gemm.row_by_row_read_ratio": 3.0}
    again = number(curve.bandwidth_seconds(stack(two), shapes, np.array([[False]]), toy(), ratio)[1])
    assert again == pytest.approx(4096 * 4096 * 3 * 2 / 1e12)


def test_recently_used_bytes_come_from_l2_if_they_fit() -> None:
    p = NEUTRAL | {"l2.overflow_share": 1.0, "l2.fits_share": 0.5}
    shares = [
        number(curve.resident_share(np.array([[size]]), np.array([[0.8]]), toy(), p)) for size in (0.2e6, 0.5e6, 0.75e6, 1e6, 3e6)
    ]
    assert shares == pytest.approx([0.8, 0.8, 0.4, 0.0, 0.0])
    op = gemm_op(1.0, 400.0, 400.0)  # 321 kB
    op = replace(op, sizes={**op.sizes, "resident": 0.5})
    moved = 2 * (400 + 400 * 400 + 400)
    assert seconds(op, gemm__l2_speedup=4.0) == pytest.approx(moved * (1 - 0.5 * 0.75) / 1e12, rel=1e-3)


@pytest.mark.parametrize(
    ("n", "k", "role", "odd"),
    [(1024.0, 1024.0, "forward", False), (1025.0, 1024.0, "forward", True), (1024.0, 1028.0, "forward", True),
     (1024.0, 1028.0, "wgrad", False), (1032.0, 1024.0, "forward", False)],
)  # fmt: skip
def test_rows_are_aligned_at_multiples_of_eight(n: float, k: float, role: str, odd: bool) -> None:
    op = gemm_op(1024.0, n, k, role=role)
    sizes = GemmShapes(*(np.array([[size]]) for size in (1.0, 1024.0, n, k)))
    assert bool(number(curve.misaligned(stack(op), sizes))) is odd


def test_misaligned_gemms_are_slower_with_tma() -> None:
    costs: Any = {
        "gemm.misaligned_slowdown": 4.0,
        "gemm.misaligned_slowdown.even": 3.0,
        "gemm.misaligned_slowdown.tf32": 5.0,
        "gemm.misaligned_slowdown.before_tma": 2.0,
    }
    aligned = seconds(gemm_op(2560.0, 1280.0, 1024.0), **costs)
    assert aligned == pytest.approx(FULL, rel=1e-3)
    grown = {2: 1030 / 1024, 1: 1031 / 1024}
    assert seconds(gemm_op(k=1030.0), **costs) == pytest.approx(3 * FULL * grown[2], rel=1e-3)
    assert seconds(gemm_op(k=1031.0), **costs) == pytest.approx(4 * FULL * grown[1], rel=1e-3)
    older = toy(bulk_copies=0.0)
    assert seconds(gemm_op(k=1031.0), older, **costs) == pytest.approx(2 * FULL * grown[1], rel=1e-3)
    assert seconds(gemm_op(k=1031.0, unit="tf32", width=4.0), **costs) == pytest.approx(5 * FULL * grown[1], rel=1e-3)
    lacking = toy(native={"fp16": 0.0})
    assert seconds(gemm_op(k=1031.0), lacking, **costs) == pytest.approx(FULL * grown[1], rel=1e-3)
    assert seconds(gemm_op(k=1031.0, unit="fp32", width=4.0), **costs) == pytest.approx(
        FULL * grown[1], rel=1e-3
    )  # CUDA cores load any


def test_transposed_tf32_operands_are_slower_on_newer_gpus() -> None:
    costs: Any = {"gemm.transposed_slowdown.tf32_wgrad": 1.5, "gemm.transposed_slowdown.tf32_dgrad": 1.25}
    for role, cost in (("forward", 1.0), ("dgrad", 1.25), ("wgrad", 1.5)):
        assert seconds(gemm_op(unit="tf32", width=4.0, role=role), **costs) == pytest.approx(cost * FULL, rel=1e-3)
        assert seconds(gemm_op(role=role), **costs) == pytest.approx(FULL, rel=1e-3)
        older = toy(bulk_copies=0.0)
        assert seconds(gemm_op(unit="tf32", width=4.0, role=role), older, **costs) == pytest.approx(FULL, rel=1e-3)


def test_emulated_units_have_their_own_share_of_peak() -> None:
    costs: Any = {
        "gemm.peak_share.bf16_in_fp32": 0.5,
        "gemm.peak_share.dequantised": 0.25,
        "gemm.peak_share": 0.9,
    }
    for unit, width in (("bf16", 2.0), ("fp8", 1.0), ("int8", 1.0), ("fp4", 0.5)):
        has, lacks = (seconds(gemm_op(unit=unit, width=width), toy(native={unit: native}), **costs) for native in (1.0, 0.0))
        assert has == pytest.approx(FULL / 0.9, rel=1e-3)
        assert lacks == pytest.approx(FULL / (0.5 if unit == "bf16" else 0.9 * 0.25), rel=1e-3)


def test_small_batched_gemms_have_their_own_share_of_bandwidth() -> None:
    def small(side: float, share: float = 0.5) -> float:
        op = gemm(side, 64.0, 8.0, "fp16", 2.0, batch=100000.0)
        return seconds(op, gemm__bandwidth_share__small_batched=share) * 1e12 / float(op.read + op.write)

    assert small(64.0) == pytest.approx(2.0, rel=0.01)
    assert small(64.0, 1.0) == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize(("side", "share"), [(64.0, 0.5), (160.0, 0.75), (256.0, 1.0), (512.0, 1.0)])
def test_the_bandwidth_share_of_batched_gemms_grows_with_size(side: float, share: float) -> None:
    ops = [gemm(64.0, 64.0, 8.0, "fp16", 2.0, batch=1e5), gemm(side, 64.0, 8.0, "fp16", 2.0, batch=1e5)]
    quick = toy(sustained_rates={"fp16": 1e18}, sm_rates={"fp16": 1e17})
    seconds = curve.seconds(stack(*ops), quick, NEUTRAL | {"gemm.bandwidth_share.small_batched": 0.5})[0, 1, 0]
    assert seconds == pytest.approx((ops[1].read + ops[1].write) / (share * 1e12), rel=1e-3)


def test_parameters_by_class_of_unit() -> None:
    assert [UNITS[unit].product_class for unit in ("fp32", "fp64", "int8", "fp8", "fp4", "bf16", "tf32")] == [
        "fp32", "fp32", "int8", "fp8_fp4", "fp8_fp4", "16bit", "16bit",
    ]  # fmt: skip
    widths = {"fp64": 8.0, "fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5}
    assert {unit: UNITS[unit].bytes for unit in widths} == widths


def test_the_power_limit_bounds_the_flops() -> None:
    p = {
        "power.fp16_energy_per_flop.sm_90": 0.5,
        "power.fp16_energy_per_flop.Hopper": 9.0,
        "power.fp32_energy_per_flop.Hopper": 2.0,
    }
    flops = np.array([[1e12]])
    for unit, joules in (
        ("fp16", 0.5),
        ("bf16", 0.5),
        ("fp16_fp16acc", 0.5),
        ("tf32", 1.0),
        ("fp8", 0.285),
        ("int8", 0.25),
        ("fp4", 0.15),
        ("fp32", 2.0),
    ):
        assert number(power_bound(flops, unit, toy(tdp=100.0), p)) == pytest.approx(joules / 100)
    assert number(power_bound(flops, "fp16", toy(tdp=100.0, native={"fp16": 0.0}), p)) == 0.0
    assert seconds(gemm_op(), toy(tdp=1.0), **p) == pytest.approx(FULL * 1e13 * 0.5e-12, rel=1e-3)


def test_compute_and_memory_of_similar_length_overlap_only_in_part() -> None:
    a, b = np.array([3.0, 1.0]), np.array([4.0, 1.0])
    assert soft_max(a, b, 2.0).tolist() == pytest.approx([5.0, 2**0.5])


def test_numbers_and_arrays_stack() -> None:
    assert stack_numbers([1.0, 2.0]).tolist() == [[1.0], [2.0]]
    assert stack_numbers([1.0, np.array([2.0, 3.0])]).tolist() == [[1.0, 1.0], [2.0, 3.0]]
    assert stack_numbers([1.0, np.array(2.0)]).tolist() == [[1.0], [2.0]]


def test_a_parameter_is_looked_up_by_kind_and_role_then_kind_then_name() -> None:
    one, two, three = Op("gemm", "fp16", role="x"), Op("gemm", "fp16", role="y"), Op("weight_only_gemm", "fp16", role="x")
    p = {"a": 1.0, "a.gemm": 2.0, "a.gemm.x": 3.0}
    assert stack(one, two, three, one).parameter(p, "a").ravel().tolist() == [3.0, 2.0, 1.0, 3.0]
    assert stack(one, two, three).is_kind("gemm").ravel().tolist() == [True, True, False]
    assert stack(one, two, three).has_role("x").ravel().tolist() == [True, False, True]


def test_dequantising_gemms_have_tiles_for_few_rows() -> None:
    """Sixteen rows: a plain GEMM fills a quarter of its smallest tile; one with dequantised weights has tiles of sixteen rows."""
    sizes = {"m": 16.0, "n": 6400.0, "k": 1e5, "batch": 1.0}
    flops = 2 * 16 * 6400 * 1e5
    plain, packed = (Op(kind, "fp16", flops, 0.0, 0.0, sizes) for kind in ("gemm", "weight_only_gemm"))
    assert number(curve.seconds(stack(packed), toy(), NEUTRAL)) == pytest.approx(flops / 1e13, rel=1e-3)
    assert number(curve.seconds(stack(plain), toy(), NEUTRAL)) == pytest.approx(4 * flops / 1e13, rel=1e-3)
