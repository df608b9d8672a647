"""Seconds of memory-bound operators on a GPU with round numbers, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.toy_gpu import NEUTRAL, number, stack, toy
from whichgpu.estimate.time.curves import memory
from whichgpu.estimate.time.curves.evaluate import roofline_seconds
from whichgpu.estimate.time.operators import Op

NEAR = 1e-3


def memory_op(
    kind: str = "elementwise", unit: str = "fp16", read: float = 1e9, write: float = 1e9, role: str = "", **sizes: float
) -> Op:
    return Op(kind, unit, 0.0, read, write, sizes, role=role)


def seconds(op: Op, gpu: Any = None, **changed: float) -> float:
    return number(
        memory.seconds(stack(op), gpu or toy(), NEUTRAL | {name.replace("__", "."): value for name, value in changed.items()})
    )


def test_seconds_are_bytes_over_a_share_of_bandwidth() -> None:
    assert seconds(memory_op()) == pytest.approx(2e-3, rel=NEAR)
    assert seconds(memory_op(), memory__bandwidth_share=0.5) == pytest.approx(4e-3, rel=NEAR)
    assert seconds(memory_op(), **{"memory.bandwidth_share.elementwise": 0.25}) == pytest.approx(8e-3, rel=NEAR)
    assert seconds(memory_op(), memory__fixed_seconds=1.0) == pytest.approx(1.002, rel=NEAR)
    small = memory_op(read=2e5, write=2e5)
    assert seconds(small, memory__recent_share=0.5, memory__l2_speedup=4.0) == pytest.approx(4e-7 * (1 - 0.5 * 0.75), rel=NEAR)


def test_clocks_per_element_and_row_are_shared_by_the_sms() -> None:
    pace = 1e3 / (10 * 1e9)
    assert seconds(memory_op(elements=1e6), memory__clocks_per_element=1e3) == pytest.approx(1e6 * pace, rel=NEAR)
    assert seconds(memory_op(rows=1e4, width=200.0), memory__clocks_per_element=1e3) == pytest.approx(2e6 * pace, rel=NEAR)
    assert seconds(memory_op(read=3e9), memory__clocks_per_element=1e3) == pytest.approx(
        1.5e9 * pace, rel=NEAR
    )  # of two bytes each
    assert seconds(memory_op(unit="fp32", read=3e9), memory__clocks_per_element=1e3) == pytest.approx(0.75e9 * pace, rel=NEAR)
    assert seconds(memory_op("norm", rows=5e6), memory__clocks_per_row=1e3) == pytest.approx(2e-3 + 5e6 * pace, rel=NEAR)


def test_reductions_of_many_rows_have_two_stages() -> None:
    def rows(kind: str, count: float, width: float = 768.0) -> float:
        return number(memory.reduction_rows(stack(memory_op(kind, rows=count, width=width))))

    assert rows("norm", 1e6) == 1e6
    assert rows("norm_backward", 65536.0) == 65536.0
    assert rows("norm_backward", 165536.0) == pytest.approx(65536 + 0.2 * 1e5)
    assert rows("reduce_columns", 1e6) == 65536.0
    assert rows("reduce_columns", 1000.0, 1536.0) == pytest.approx(500.0)
    assert rows("reduce_columns", 1000.0, 10.0) == pytest.approx(1000.0)


def test_softmax_reads_short_rows_once_and_its_gradient_reads_them_twice() -> None:
    for width, share in ((1024.0, 4e-3), (1025.0, 2e-3)):
        assert seconds(
            memory_op("softmax", width=width), **{"memory.bandwidth_share.softmax_in_registers": 0.5}
        ) == pytest.approx(share, rel=NEAR)
    assert seconds(memory_op("softmax_backward", width=1000.0)) == pytest.approx(4e-3, rel=NEAR)
    assert seconds(memory_op("softmax_backward", width=16384.0)) == pytest.approx(2e-3, rel=NEAR)  # the loss's is one kernel


def partly_overlapped(bytes_seconds: float, block_seconds: float) -> float:
    """Seconds of bandwidth and of a block's clocks, which overlap only in part."""
    return float((bytes_seconds**4 + block_seconds**4) ** 0.25)


@pytest.mark.parametrize(("width", "waves"), [(1.0, 1.0), (10.0, 2 ** (1 / 3)), (60.0, 6.0)])  # of ten SMs
def test_batchnorm_has_one_block_per_channel(width: float, waves: float) -> None:
    op = memory_op("batch_norm", rows=1e6, width=width)
    assert seconds(op, batchnorm__clocks_per_row=10.0) == pytest.approx(partly_overlapped(2e-3, 1e-2 * waves), rel=2e-3)
    assert seconds(op, batchnorm__clocks_per_row=10.0, batchnorm__clocks_per_channel=1e5) == pytest.approx(
        partly_overlapped(2e-3, 1e-2 * waves) + width / 10 * 1e-4, rel=2e-3
    )


def test_batchnorm_runs_several_channels_per_sm_and_fewer_clocks_before_ampere() -> None:
    op = memory_op("batch_norm", rows=1e6, width=120.0)
    assert seconds(op, batchnorm__clocks_per_row=10.0, batchnorm__channels_per_sm=2.0) == pytest.approx(
        partly_overlapped(2e-3, 6e-2), rel=2e-3
    )
    older = toy(native={"tf32": 0.0})
    assert seconds(
        op, older, batchnorm__clocks_per_row=10.0, batchnorm__channels_per_sm=2.0, batchnorm__pre_ampere_clock_ratio=0.5
    ) == pytest.approx(partly_overlapped(2e-3, 3e-2), rel=2e-3)


@pytest.mark.parametrize(("kind", "sides", "share"), [("batch_norm", 1, 2 / 3), ("batch_norm_backward", 2, 3 / 5)])
@pytest.mark.parametrize(("unit", "width"), [("fp32", 4), ("fp16", 2)])
def test_a_channel_that_fits_in_shared_memory_is_read_once(kind: str, sides: int, share: float, unit: str, width: int) -> None:
    max_rows = 100 * 1024 / sides / width

    def normalised(rows: float, role: str = "cudnn_nchw") -> tuple[float, float]:
        op = memory_op(kind, unit, rows=rows, width=1.0, role=role)
        changed = {f"batchnorm.clocks_per_row.{kind}.{role}": 1e-9, f"batchnorm.cached_clocks_per_byte.{kind}.{role}": 1e-9}
        floor = number(roofline_seconds(stack(op), toy(), NEUTRAL)[1])
        return seconds(op, **changed), floor

    assert normalised(max_rows) == pytest.approx((2e-3 * share, 2e-3 * share), rel=NEAR)
    assert normalised(max_rows + 1) == pytest.approx((2e-3, 2e-3), rel=NEAR)
    assert normalised(max_rows, "cudnn") == pytest.approx((2e-3, 2e-3), rel=NEAR)


def test_a_cached_channel_costs_clocks_per_byte() -> None:
    for unit, width in (("fp32", 4), ("fp16", 2)):
        op = memory_op("batch_norm", unit, 1e3, 1e3, rows=1e4, width=1.0, role="cudnn_nchw")
        assert seconds(op, batchnorm__clocks_per_row=7.0, batchnorm__cached_clocks_per_byte=3.0) == pytest.approx(
            1e4 * width * 3.0 / 1e9, rel=2e-3
        )
