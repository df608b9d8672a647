"""Seconds of attention kernels on a GPU with round numbers, by hand."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.toy_gpu import NEUTRAL, number, stack, toy
from whichgpu.estimate.time.curves import attention
from whichgpu.estimate.time.operators import Op

NEAR = 1e-3


def seconds(op: Op, gpu: Any = None, **changed: float) -> float:
    return number(
        attention.seconds(stack(op), gpu or toy(), NEUTRAL | {name.replace("__", "."): value for name, value in changed.items()})
    )


def attention_op(kind: str = "attention", moved: float = 0.0, role: str = "", **sizes: float) -> Op:
    plain = {"batch": 2.0, "heads": 5.0, "kv_heads": 1.0, "queries": 128.0, "keys": 128.0, "dim": 64.0}
    fields = plain | sizes
    flops = 4.0 * fields["batch"] * fields["heads"] * fields["queries"] * fields["keys"] * fields["dim"]
    return Op(kind, "fp16", flops, moved, 0.0, fields, role=role)


def test_blocks_of_queries_visit_the_keys_they_attend_to() -> None:
    """Ten blocks of 128 queries on ten SMs."""
    one = 4 * 128 * 128 * 64 / 1e12
    assert seconds(attention_op()) == pytest.approx(one, rel=NEAR)
    assert seconds(attention_op(batch=2.2)) == pytest.approx(2 * one, rel=NEAR)  # an eleventh block
    assert seconds(attention_op(queries=64.0)) == pytest.approx(one, rel=NEAR)  # blocks are whole
    assert seconds(attention_op(keys=192.0)) == pytest.approx(2 * one, rel=NEAR)
    assert seconds(attention_op(queries=129.0)) == pytest.approx(2 * one, rel=NEAR)
    assert seconds(attention_op(), attention__peak_share=0.5) == pytest.approx(2 * one, rel=NEAR)
    assert seconds(attention_op(role="dropout"), attention__dropout_slowdown=3.0) == pytest.approx(3 * one, rel=NEAR)
    assert seconds(attention_op(), attention__dropout_slowdown=3.0) == pytest.approx(one, rel=NEAR)
    assert seconds(attention_op(), attention__clocks_per_query_block=1e6) == pytest.approx(one + 1e-3, rel=NEAR)
    long = attention_op(queries=256.0, keys=256.0)
    causal = replace(long, flops=long.flops / 2, sizes={**long.sizes, "causal": 1.0})  # 3 of 4 tiles are computed
    assert seconds(causal) == pytest.approx(3 / 4 * seconds(long), rel=NEAR)
    assert seconds(attention_op(), attention__clocks_per_exponential=1.0) == pytest.approx(one + 128 * 128 / 1e9, rel=NEAR)
    assert seconds(attention_op(batch=20.0), toy(sustained_rates={"fp16": 5e12})) == pytest.approx(
        20 * one, rel=NEAR
    )  # the whole's rate bounds
    assert seconds(attention_op(), attention__fixed_seconds=1.0) == pytest.approx(1.0 + one, rel=NEAR)


def test_attention_of_many_bytes_is_memory_bound() -> None:
    assert seconds(attention_op(moved=1e12)) == pytest.approx(1.0, rel=NEAR)
    assert seconds(attention_op(moved=1e12), attention__bandwidth_share=0.8) == pytest.approx(1.25, rel=NEAR)
    assert seconds(attention_op("decode_attention", moved=1e12), attention__bandwidth_share=0.8) == pytest.approx(1.25, rel=NEAR)


@pytest.mark.parametrize(
    ("role", "target", "reads"),
    [
        ("split", "sm_90", 1.0),
        ("per-head", "sm_90", 3.0),  # Four more heads read at twice the speed.
        ("per-head", "gfx942", 5.0),
        ("per-head-amd", "sm_90", 1.0),
        ("per-head-amd", "gfx942", 5.0),
        ("gguf", "sm_90", 5.0),
    ],
)
def test_query_heads_of_a_group_read_the_keys_once_or_each(role: str, target: str, reads: float) -> None:
    """Five query heads share one KV head of 1 TB."""
    op = attention_op("decode_attention", moved=1e12, role=role)
    assert seconds(op, toy(targets=(target,)), memory__l2_speedup=2.0) == pytest.approx(reads, rel=NEAR)


def test_decode_attention_is_split_over_sms_or_not() -> None:
    """Keys of 64 elements cost half of those of 128. 2 sequences of 5 heads: one SM per head, or each head split over all SMs."""
    quick = toy(sustained_rates={"fp16": 1e18})
    whole = attention_op("decode_attention", queries=1.0, keys=2048.0, role="whole")
    head = 2048 * 0.5 * 1e3 / 1e9
    assert seconds(whole, quick, attention__decode_clocks_per_key=1e3) == pytest.approx(head, rel=NEAR)
    twice = attention_op("decode_attention", batch=4.0, queries=1.0, keys=2048.0, role="whole")
    assert seconds(twice, quick, attention__decode_clocks_per_key=1e3) == pytest.approx(2 * head, rel=NEAR)
    assert seconds(twice, quick, attention__decode_clocks_per_key=1e3, attention__decode_blocks_per_sm=2.0) == pytest.approx(
        head, rel=NEAR
    )
    op = attention_op("decode_attention", queries=1.0, keys=2048.0, role="split")
    assert seconds(op, quick, attention__decode_clocks_per_key=1e9) < 1e-6
    assert seconds(op, quick, attention__decode_clocks_per_sequence=1e6) == pytest.approx(2 * 1e6 / 10 / 1e9, rel=NEAR)
    assert seconds(op, quick, attention__decode_clocks_per_split=1e6) == pytest.approx(16 * 1e6 / 1e9, rel=NEAR)
    assert seconds(op, attention__decode_peak_share=0.5) == pytest.approx(4 * 10 * 2048 * 64 / 1e13 / 0.5, rel=NEAR)


def test_heads_of_mla_are_padded_to_matrix_instructions() -> None:
    """Five heads are padded to matrix instructions of 64 rows; without such instructions a cache below 16 bits is not split."""
    few = attention_op("decode_attention", queries=1.0, keys=2048.0, role="mla")
    many = attention_op("decode_attention", heads=64.0, queries=1.0, keys=2048.0, role="mla")
    assert seconds(few) == pytest.approx(seconds(many), rel=NEAR) == pytest.approx(4 * 128 * 2048 * 64 / 1e13, rel=NEAR)
    older = toy(async_matrix=0.0, matrix_rows=16.0, sustained_rates={"bf16": 1e18, "fp8": 1e18})
    narrow = replace(many, unit="fp8")
    assert seconds(narrow, older, attention__mla_unsplit_clocks_per_key=1e3) == pytest.approx(2048 * 1e3 / 1e9, rel=NEAR)
    assert seconds(many, older, attention__mla_unsplit_clocks_per_key=1e3) < 1e-4


def test_prefill_in_fp8_or_with_an_fp8_cache_is_faster_on_gpus_with_fp8() -> None:
    plain, narrow = attention_op(), attention_op(narrow_kv=1.0)
    faster = {"attention__fp8_speedup": 1.25}
    assert seconds(narrow, **faster) == pytest.approx(seconds(plain) / 1.25, rel=NEAR)
    assert seconds(replace(plain, unit="fp8"), **faster) == pytest.approx(seconds(plain) / 1.25, rel=NEAR)
    assert seconds(narrow, toy(async_matrix=0.0), **faster) == pytest.approx(seconds(plain), rel=NEAR)
    assert seconds(narrow, attention__dequantise_slowdown__sm_90=3.0) == pytest.approx(3 * seconds(plain), rel=NEAR)
