"""Weights: bytes by precision, against published file sizes, and their shares under a layout."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.unit import shapes
from whichgpu.base.errors import UnknownName
from whichgpu.base.units import GB, GIB
from whichgpu.estimate.memory.gguf_mix import MIXES, TYPES, GgufModelTraits, has_more_bits, tensor_type
from whichgpu.estimate.memory.quantisation import (
    canonical_precision,
    is_gguf,
    precisions,
    split_weights,
    weight_bytes,
    weight_range,
)
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.precisions import GGUF_PRECISIONS, PRECISIONS
from whichgpu.workload.shapes import Mlp, Transformer, WeightsOnly
from whichgpu.workload.workload import Parallel


def test_llama_3_8b_in_bf16_is_14_96_gib() -> None:
    assert round(weight_bytes(shapes.LLAMA_3_8B, "bf16") / GIB, 2) == 14.96


def test_a_seven_billion_model_at_8_16_and_32_bits_is_7_14_and_28_gb() -> None:
    """Llama-2-7B has 6.74 billion: 7.01 GB with its embedding and head in 16 bit, 13.48 GB, 26.95 GB."""
    sizes = [round(weight_bytes(shapes.LLAMA_2_7B, name) / GB, 2) for name in ("int8", "fp16", "fp32")]
    assert sizes == [7.01, 13.48, 26.95]
    assert all(abs(size - stated) / stated < 0.04 for size, stated in zip(sizes, (7, 14, 28), strict=True))


def test_mixtral_counts_all_its_experts_in_memory() -> None:
    assert round(weight_bytes(shapes.MIXTRAL, "bf16") / GB, 1) == 93.4
    assert count_parameters(shapes.MIXTRAL).active * 3 < count_parameters(shapes.MIXTRAL).total


# Sizes of files as published, GB: Meta-Llama-3-8B, Llama-2-7B, Meta-Llama-3-70B, Mixtral-8x7B as quantised since February 2024.
FILES = [
    (shapes.LLAMA_3_8B, "q2_k", 3.18),
    (shapes.LLAMA_3_8B, "q3_k_s", 3.66),
    (shapes.LLAMA_3_8B, "q3_k_m", 4.02),
    (shapes.LLAMA_3_8B, "q3_k_l", 4.32),
    (shapes.LLAMA_3_8B, "q4_0", 4.66),
    (shapes.LLAMA_3_8B, "q4_k_s", 4.69),
    (shapes.LLAMA_3_8B, "q4_k_m", 4.92),
    (shapes.LLAMA_3_8B, "q5_k_m", 5.73),
    (shapes.LLAMA_3_8B, "q6_k", 6.60),
    (shapes.LLAMA_3_8B, "q8_0", 8.54),
    (shapes.LLAMA_3_8B, "iq1_s", 2.02),
    (shapes.LLAMA_3_8B, "iq2_xs", 2.61),
    (shapes.LLAMA_3_8B, "iq2_m", 2.95),
    (shapes.LLAMA_3_8B, "iq3_xxs", 3.27),
    (shapes.LLAMA_3_8B, "iq3_xs", 3.52),
    (shapes.LLAMA_3_8B, "iq3_m", 3.78),
    (shapes.LLAMA_3_8B, "iq4_xs", 4.45),
    (shapes.LLAMA_2_7B, "q3_k_m", 3.30),
    (shapes.LLAMA_2_7B, "q4_k_m", 4.08),
    (shapes.LLAMA_2_7B, "q5_k_m", 4.78),
    (shapes.LLAMA_2_7B, "q6_k", 5.53),
    (shapes.LLAMA_2_7B, "q8_0", 7.16),
    (shapes.LLAMA_3_70B, "q2_k", 26.38),
    (shapes.LLAMA_3_70B, "q4_k_m", 42.52),
    (shapes.LLAMA_3_70B, "q5_k_m", 49.95),
    (shapes.MIXTRAL, "q4_k_m", 28.45),
    (shapes.MIXTRAL, "q8_0", 49.62),
]


@pytest.mark.parametrize(("shape", "mix", "published"), FILES, ids=lambda value: getattr(value, "name", str(value)))
def test_gguf_mixes_are_within_a_percent_of_published_files(shape: Transformer, mix: str, published: float) -> None:
    assert weight_bytes(shape, mix) / GB == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize(
    ("mix", "published"), [("q4_k_m", 0.808), ("q8_0", 1.32)], ids=("tied head in q6_k", "tied head in q8_0")
)
def test_small_files_differ_by_the_tokenizer_they_carry(mix: str, published: float) -> None:
    tokenizer = 7_900_000  # 128,256 tokens and 280,147 merges in the file's header
    assert (weight_bytes(shapes.LLAMA_32_1B, mix) + tokenizer) / GB == pytest.approx(published, rel=0.01)


def test_rows_that_do_not_divide_into_blocks_fall_back() -> None:
    """Qwen2.5-0.5B has rows of 896: its q4_k_m file is mostly q5_0 and q8_0, 398 MB of which 6 are the tokenizer."""
    qwen = GgufModelTraits(layers=24, groups=7, experts=1)
    assert tensor_type("q4_k_m", "attn_q", 8, qwen, 896) == "q5_0"
    assert tensor_type("q4_k_m", "output", 0, qwen, 896) == "q8_0"
    assert tensor_type("q4_k_m", "ffn_down", 8, qwen, 4864) in ("q4_k", "q6_k")
    assert (weight_bytes(shapes.QWEN_05B, "q4_k_m") + 6_000_000) / GB == pytest.approx(0.398, rel=0.01)


def test_more_bits_go_to_the_first_and_last_eighth_and_every_third_between() -> None:
    assert [layer for layer in range(32) if has_more_bits(layer, 32)] == [
        0,
        1,
        2,
        3,
        6,
        9,
        12,
        15,
        18,
        21,
        24,
        27,
        28,
        29,
        30,
        31,
    ]


# Published checkpoints, GB: AWQ of Llama-3.1-8B, FP8 of Meta-Llama-3-8B.
@pytest.mark.parametrize(("precision", "published"), [("int4", 5.73), ("fp8", 9.08)])
def test_serving_precisions_leave_embedding_and_head_in_16_bit(precision: str, published: float) -> None:
    assert weight_bytes(shapes.LLAMA_3_8B, precision) / GB == pytest.approx(published, rel=0.005)
    counted = count_parameters(shapes.LLAMA_3_8B)
    weights = split_weights(shapes.LLAMA_3_8B, precision)
    assert weights.embedding + weights.head == 2 * (counted.embedding + counted.head)


@pytest.mark.parametrize(
    ("precision", "bits"), [("fp8", 8.0), ("int8", 8.0), ("int4", 4.15625), ("nvfp4", 4.5), ("fp16", 16.0), ("tf32", 32.0)]
)
def test_bits_of_a_linear_weight(precision: str, bits: float) -> None:
    weights = split_weights(shapes.LLAMA_3_70B, precision)
    linear = weights.linear + weights.keys_values
    assert 8 * linear / count_parameters(shapes.LLAMA_3_70B).linear == pytest.approx(bits, rel=0.001)


def test_autocast_keeps_its_weights_in_fp32() -> None:
    assert weight_bytes(shapes.LLAMA_3_8B, "amp-bf16") == weight_bytes(shapes.LLAMA_3_8B, "fp32")


@pytest.mark.parametrize(
    "shape", [shapes.LLAMA_3_8B, shapes.MIXTRAL, shapes.DEEPSEEK_V3, shapes.BERT_LARGE, shapes.WHISPER_SMALL]
)
@pytest.mark.parametrize(("precision", "width"), [("bf16", 2), ("fp32", 4)])
def test_unquantised_weights_are_parameters_times_width(shape: Transformer, precision: str, width: int) -> None:
    assert weight_bytes(shape, precision) == width * count_parameters(shape).total


def test_every_precision_has_bytes_and_every_type_a_sane_size() -> None:
    assert {canonical_precision(name) for name in (*PRECISIONS, *GGUF_PRECISIONS)} <= set(precisions())
    for name in precisions():
        assert 0 < weight_bytes(shapes.MIXTRAL, name) <= weight_bytes(shapes.MIXTRAL, "fp32")
    assert set(MIXES.values()) <= set(TYPES)
    assert all(1 <= TYPES[base].bits <= 32 for base in MIXES.values())
    assert all(1 <= block.bits <= 64 for block in TYPES.values())  # files may hold f64 and i64 tensors in addition to weights


def test_names_are_read_loosely_and_unknown_ones_refused() -> None:
    assert canonical_precision("Q4_K") == "q4_k_m"
    assert is_gguf("q8_0")
    assert not is_gguf("bf16")
    with pytest.raises(UnknownName) as refused:
        weight_bytes(shapes.LLAMA_3_8B, "q4_k_x")
    assert "q4_k_m" in refused.value.choices


def test_file_size_counts_if_the_precision_is_the_file_s() -> None:
    read = replace(shapes.LLAMA_3_8B, stored_bytes=4_912_898_304)
    assert weight_bytes(read) == weight_bytes(read, "q4_k_m") == 4_912_898_304
    assert weight_bytes(read, "bf16") == weight_bytes(shapes.LLAMA_3_8B, "bf16")
    assert weight_bytes(WeightsOnly("", 1000, 3000)) == 3000
    assert weight_bytes(WeightsOnly("", 1000, 3000), "fp32") == 4000


def test_ranges_are_exact_for_unquantised_precisions_only() -> None:
    assert weight_range("bf16") == weight_range(None) == (1.0, 1.0)
    assert weight_range("q4_k_m")[1] > 1 > weight_range("int4")[0]


def test_tensor_parallel_splits_matrices_and_vocabulary_but_not_norms() -> None:
    whole, half = weight_bytes(shapes.LLAMA_3_8B, "bf16"), weight_bytes(shapes.LLAMA_3_8B, "bf16", Parallel(tp=2))
    assert round(half / GIB, 2) == 7.48  # as vLLM's profile of Llama-3-8B at tp 2 says
    assert 2 * half - whole == 2 * count_parameters(shapes.LLAMA_3_8B).norm


def test_key_projections_are_replicated_beyond_the_key_heads() -> None:
    at_8 = weight_bytes(shapes.LLAMA_3_8B, "bf16", Parallel(tp=8))
    at_16 = weight_bytes(shapes.LLAMA_3_8B, "bf16", Parallel(tp=16))
    assert at_16 > at_8 / 2


def test_experts_are_split_by_the_larger_degree() -> None:
    experts = split_weights(shapes.DEEPSEEK_V3, "fp8").experts
    plain = weight_bytes(shapes.DEEPSEEK_V3, "fp8", Parallel())
    assert plain - weight_bytes(shapes.DEEPSEEK_V3, "fp8", Parallel(ep=8)) == experts - -(-experts // 8)
    assert weight_bytes(shapes.DEEPSEEK_V3, "fp8", Parallel(tp=8, ep=8)) == weight_bytes(
        shapes.DEEPSEEK_V3, "fp8", Parallel(tp=8)
    )


def test_stages_hold_their_layers_and_one_end() -> None:
    counted = count_parameters(shapes.LLAMA_3_70B)
    staged = weight_bytes(shapes.LLAMA_3_70B, "bf16", Parallel(pp=4))
    assert staged == pytest.approx(2 * (20 * counted.layer + counted.head), rel=1e-4)
    tied, small = weight_bytes(shapes.LLAMA_32_1B, "bf16", Parallel(pp=2)), count_parameters(shapes.LLAMA_32_1B)
    assert tied == pytest.approx(2 * (8 * small.layer + small.embedding), rel=1e-4)


def test_weight_bytes_of_other_shapes() -> None:
    assert weight_bytes(Mlp("", (9000, 4000, 4000, 32)), "fp32") == 4 * 52_136_032
    assert weight_bytes(Mlp("", (256, 256)), "q8_0") == TYPES["q8_0"].size(256 * 257)
