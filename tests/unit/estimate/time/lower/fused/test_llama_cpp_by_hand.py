"""llama.cpp's kernels, counted by hand for a layer of small numbers."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from msgspec.structs import replace

from tests.unit.shapes import LLAMA_3_8B
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.curves.evaluate import operator_seconds
from whichgpu.estimate.time.curves.gpus import build_gpu_columns
from whichgpu.estimate.time.lower import lower, lower_prefill_at_depth
from whichgpu.estimate.time.operators import Op
from whichgpu.workload.spelling import fill_defaults
from whichgpu.workload.tasks import Task
from whichgpu.workload.workload import Workload

GPUS = Catalog().gpu_by_id
# One layer: 8 heads of 16, 2 of keys; a gated layer of 384.
SHAPE = replace(
    LLAMA_3_8B, layers=1, hidden=128, heads=8, kv_heads=2, head_dim=16, ffn=384, vocab=1000, max_context=4096, tied=False
)


def kernels(task: Task, precision: str, year: int | None, tokens: int = 1, **more: object) -> tuple[Op, ...]:
    fields = {"precision": precision, "engine": "llama.cpp", "year": year, "seq_in": tokens, "batch": 1, **more}
    return lower(fill_defaults(Workload(task, "", **fields), SHAPE), SHAPE).ops  # type: ignore[arg-type]


def kind_counts(ops: tuple[Op, ...]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for op in ops:
        counts[op.kind] += float(np.max(op.count))  # type: ignore[assignment]
    return counts


def products(ops: tuple[Op, ...]) -> list[Op]:
    return [op for op in ops if op.kind in ("gemm", "weight_only_gemm")]


def test_a_token_is_a_kernel_for_every_operator_before_2025() -> None:
    counts = kind_counts(kernels("decode", "f16", 2024, 256))
    # q, k, v, out, gate, up, down, and the head
    assert counts["gemm"] == 8
    # two norms and the last one
    assert counts["norm"] == 3
    # three residual sums, three multiplications by norms' weights; four for positions and cache; the activation and the gate;
    # the sampler
    assert counts["elementwise"] == 3 + 3 + 4 + 2 + 1
    fused = kind_counts(kernels("decode", "f16", 2025, 256))
    assert fused["elementwise"] == 4 + 1 + 1
    assert (fused["gemm"], fused["norm"]) == (8, 3)


@pytest.mark.parametrize(("precision", "kind", "width"), [("f16", "gemm", 2.0), ("q8_0", "mmq_gemm", 34 / 32)])
def test_since_2026_one_row_takes_one_kernel_for_gate_up_and_activation(precision: str, kind: str, width: float) -> None:
    ops = kernels("decode", precision, 2026, 256)
    counts = kind_counts(ops)
    assert counts[kind] == 7  # q, k, v, out, gate and up, down, and the head
    assert counts["elementwise"] == 4 + 1  # positions and cache, and the sampler
    assert counts["reduce"] == (7 if kind == "mmq_gemm" else 0)  # one input for gate and up
    both = next(op for op in ops if op.sizes.get("n") == 2 * 384)
    assert both.read == pytest.approx(2 * 128 * 384 * width, rel=0.01)  # nearly all of it weights
    assert both.write == 384 * 4  # the product of gate and up, in fp32
    assert both.flops == 2 * 2 * 128 * 384
    more = kind_counts(kernels("decode", precision, 2026, 256, batch=2))
    assert (more[kind], more["elementwise"]) == (8, 4 + 1 + 1)


def test_decode_reads_quantised_weights_as_stored_and_quantises_inputs_per_gemm() -> None:
    ops = kernels("decode", "q8_0", 2024, 256)
    own = [op for op in ops if op.kind == "weight_only_gemm"]
    assert sum(op.count for op in own) == 8
    assert sum(op.count for op in ops if op.role == "quantise") == 8
    gate = next(op for op in own if op.sizes["n"] == 384)
    assert gate.read == pytest.approx(128 * 4 + 128 * 384 * 34 / 32)  # fp32 inputs; 32 weights in 34 bytes
    assert all(op.role == "gguf" for op in own)


@pytest.mark.parametrize(("tokens", "passes"), [(512, 1.0), (2048, 4.0), (100, 1.0)])
def test_prompt_is_processed_in_fp16_micro_batches(tokens: int, passes: float) -> None:
    weights = 128 * (128 + 2 * 32 + 128 + 3 * 384)
    ops = kernels("prefill", "q8_0", 2024, tokens)
    layer = [op for op in products(ops) if op.sizes["m"] == min(tokens, 512) and op.sizes["batch"] == 1]
    assert sum(op.count for op in layer) == 7 * passes
    assert {(op.kind, op.unit) for op in layer} == {("gemm", "fp16_fp16acc")}
    assert sum(op.flops * op.count for op in layer) == pytest.approx(2 * tokens * weights)
    widened = [op for op in ops if op.kind == "copy" and op.read == op.sizes["elements"] * 34 / 32]
    assert sum(op.write * op.count for op in widened) == pytest.approx(2 * weights * passes)
    plain = kernels("prefill", "f16", 2026, tokens)
    assert sum(op.count for op in plain if op.kind == "copy") == 14 * passes  # inputs and results, and nothing to widen


def test_since_2025_quantised_weights_are_multiplied_as_stored_for_any_row_count() -> None:
    ops = kernels("prefill", "q8_0", None, 2048)
    own = [op for op in ops if op.kind == "mmq_gemm" and op.sizes["m"] == 512]
    assert sum(op.count for op in own) == 7 * 4
    assert {op.unit for op in own} == {"int8"}
    assert {op.sizes["n"] for op in own} == {128.0, 32.0, 384.0}  # keys and values are narrower than queries
    assert not [op for op in ops if op.kind == "copy"]


def test_numbers_of_32_bits_are_called_by_both_names_and_need_no_cast() -> None:
    for task, tokens in (("decode", 100), ("prefill", 100)):
        short, long = (kernels(task, name, 2024, tokens, kv_precision="fp16") for name in ("f32", "fp32"))  # type: ignore[arg-type]
        assert short == long
        assert {op.unit for op in products(short) if op.sizes["batch"] == 1} == {"tf32"}
        assert len([op for op in short if op.kind == "copy"]) == (0 if task == "decode" else 3)  # of attention alone


def test_scores_of_a_prompt_are_written_out_before_2025() -> None:
    ops = kernels("prefill", "f16", 2024, 1024)
    assert not [op for op in ops if op.kind == "attention"]
    (softmax,) = (op for op in ops if op.kind == "softmax")
    # two micro-batches, of which the first sees 512 keys and the second 1024
    assert softmax.count == 2
    assert softmax.read * softmax.count == pytest.approx(4 * 8 * 512 * (512 + 1024))
    batched = [op for op in products(ops) if op.sizes["batch"] == 8]
    assert sum(op.flops * op.count for op in batched) == pytest.approx(2 * 2 * 16 * 8 * 512 * (512 + 1024))
    assert [op.kind for op in kernels("prefill", "f16", 2025, 1024) if "attention" in op.kind] == ["attention"]


def test_many_batches_at_once_are_each_alone() -> None:
    """Below and above the rows from which a library multiplies."""
    shape, batches = SHAPE, np.array([1.0, 32.0, 64.0, 700.0])
    workload = fill_defaults(Workload("decode", "", precision="q4_k_m", engine="llama.cpp", seq_in=64), shape)
    for quantity in ("flops", "read", "write"):
        many = np.sum([getattr(op, quantity) * op.count * np.ones(4) for op in lower(workload, shape, batches).ops], axis=0)
        alone = [sum(float(getattr(op, quantity) * op.count) for op in lower(workload, shape, batch).ops) for batch in batches]
        assert many.tolist() == pytest.approx(alone)


def mmq_seconds(gpu: str, rows: float, side: float = 4096.0, **sizes: float) -> float:
    weight = sizes.get("batch", 1.0) * side**2 / 2
    op = Op("mmq_gemm", "int8", 2.0 * rows * side**2, rows * side * 4.0 + weight, rows * side * 4.0,
            {"m": rows, "n": side, "k": side, "batch": 1.0, "weight": weight, **sizes})  # fmt: skip
    return float(operator_seconds([op], build_gpu_columns([GPUS[gpu]])).seconds.item())


def test_pascal_multiplies_quantised_weights_in_dot_products() -> None:
    """A P40's prefill of Llama 7B takes 13.2 GFLOP a token, at 912 tokens a second (llama.cpp pull request 4766)."""
    rate = 2 * 512 * 4096**2 / mmq_seconds("p40", 512.0)
    assert 11e12 < rate < 16e12
    assert rate > GPUS["p40"].peaks["fp32"]


def test_up_to_eight_rows_are_vectors_and_more_are_tiles() -> None:
    """Eight rows of weights with nested scales take longer than nine, which are multiplied on matrix units."""
    few, many = (mmq_seconds("ryzen-ai-max-395", rows, nested_scales=1.0) for rows in (8.0, 9.0))
    assert few > mmq_seconds("ryzen-ai-max-395", 8.0)
    assert few > many > mmq_seconds("ryzen-ai-max-395", 1.0)


def test_experts_with_few_rows_fill_their_tiles_badly() -> None:
    """Of 512 tokens each of 128 experts gets 32, of 2048 tokens 128, in tiles of 128 either way."""
    some, all_four = (
        mmq_seconds("ryzen-ai-max-395", 8.0 * tokens, 1024.0, batch=128.0, tokens=tokens) for tokens in (512.0, 2048.0)
    )
    assert some < all_four < 2.0 * some


def test_tile_columns_without_a_token_cost_nothing_on_nvidia() -> None:
    """Prompts of 128 and 512 tokens give each of 128 experts 8 and 32 rows: 25.5 and 47.8 ms for Qwen3 30B-A3B on an H200."""
    some, all_four = (mmq_seconds("h200-sxm", 8.0 * tokens, 1024.0, batch=128.0, tokens=tokens) for tokens in (128.0, 512.0))
    assert 1.5 * some < all_four < 2.5 * some


def test_mmq_does_no_more_per_clock_on_a_data_centre_chip() -> None:
    """An SM of the H200 has four times the int8 peak of a GeForce card's; its prefill of an 8B reaches 159 TFLOP/s in 4 bits."""
    rates = {gpu: 2 * 2048 * 4096**2 / mmq_seconds(gpu, 2048.0) for gpu in ("h200-sxm", "rtx-4090")}
    assert 110e12 < rates["h200-sxm"] < 190e12
    per_clock = {gpu: rate / ((GPUS[gpu].sms or 0) * (GPUS[gpu].boost_clock_hz or 0)) for gpu, rate in rates.items()}
    assert per_clock["h200-sxm"] == pytest.approx(per_clock["rtx-4090"], rel=0.35)


@pytest.mark.parametrize(("rows", "low", "high"), [(1.0, 10.0, 15.0), (8.0, 3.5, 6.0)])
def test_vector_kernels_unpack_a_limited_number_of_weights_per_clock(rows: float, low: float, high: float) -> None:
    """On the H200 one row of an 8B takes 3.1e12 weights a second, whatever their bits; each further row 0.65 ms."""
    h200 = GPUS["h200-sxm"]
    weights_per_clock = 16384**2 / mmq_seconds("h200-sxm", rows, 16384.0) / ((h200.sms or 0) * (h200.boost_clock_hz or 0))
    assert low < weights_per_clock < high


def test_since_2026_experts_of_few_tokens_are_multiplied_as_vectors() -> None:
    """Eight tokens read their experts once; ten are multiplied in tiles, which unpack them more slowly."""
    as_vectors, in_tiles = (
        mmq_seconds("h200-sxm", 64.0, 1024.0, batch=50.0, tokens=8.0, vector_tokens=tokens) for tokens in (8.0, 1.0)
    )
    assert as_vectors < in_tiles


def test_matrices_beyond_the_cache_are_read_for_every_tile_of_rows() -> None:
    """The GB10 has 24 MB of L2 cache; an 8192 x 8192 matrix in 4 bits takes 34 MB."""
    for side, share in ((4096.0, 0.0), (12288.0, 1.0)):
        per_tile = mmq_seconds("gb10", 2048.0, side) - mmq_seconds("gb10", 1920.0, side)
        arithmetic = 2.0 * 128 * side**2 / (250e12 * 0.75 / 2.8)
        moved = (128 * side * 8.0 + share * side**2 / 2) / 273e9
        assert per_tile == pytest.approx(arithmetic + moved / 0.77, rel=0.1)


def test_chips_without_fast_int8_dequantise_for_cublas() -> None:
    """The copy of the weights is written and read; 16-bit units then multiply."""
    for gpu, unit in (("v100-sxm-16gb", "fp16"), ("p100-sxm-16gb", "fp16"), ("gtx-980-ti", "fp32")):
        chip = GPUS[gpu]
        copied = 4.0 * 4096**2 / chip.memory_bandwidth
        assert mmq_seconds(gpu, 64.0) > mmq_seconds(gpu, 63.0) + 0.3 * copied
        rate = 2 * 8192 * 4096**2 / mmq_seconds(gpu, 8192.0)
        assert 0.5 * chip.peaks[unit] < rate < chip.peaks[unit] * 1.1


def test_few_queries_at_a_depth_are_attended_as_in_decode() -> None:
    workload = fill_defaults(Workload("prefill", "", precision="q4_0", engine="llama.cpp", year=2025, seq_in=8, batch=1), SHAPE)
    (op,) = (one for one in lower_prefill_at_depth(workload, SHAPE, 1000.0).ops if "attention" in one.kind)
    assert op.kind == "decode_attention"
    assert op.sizes["keys"] == 1008.0
    assert op.sizes["queries"] == 8.0


def test_micro_batches_read_the_weights_once_each() -> None:
    workload = fill_defaults(
        Workload("prefill", "", precision="q4_0", engine="llama.cpp", year=2025, seq_in=2048, batch=1), SHAPE
    )
    for tokens, passes in ((0.0, 4.0), (2048.0, 1.0)):  # 512 tokens by default
        products_of = [one for one in lower_prefill_at_depth(workload, SHAPE, 0.0, tokens).ops if one.kind == "mmq_gemm"]
        assert products_of[0].sizes["m"] * passes == 2048.0
        assert float(np.max(products_of[0].count)) == passes
