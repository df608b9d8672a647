"""llama.cpp's rule for mixes, case by case: which matrices get more bits. Bits a weight are those llama.cpp prints."""

from __future__ import annotations

import pytest

from whichgpu.estimate.memory.gguf_mix import MIXES, TYPES, GgufModelTraits, tensor_type

TRAITS = GgufModelTraits(layers=32, groups=1, experts=1)
GROUPED = GgufModelTraits(layers=32, groups=4, experts=1)
SEVENTY = GgufModelTraits(layers=80, groups=8, experts=1)
EIGHT = GgufModelTraits(layers=32, groups=4, experts=8)
FALCON = GgufModelTraits(layers=32, groups=1, experts=1, falcon=True)
ROW = 4096

BITS = {
    "f32": 32, "f16": 16, "bf16": 16, "q4_0": 4.5, "q4_1": 5, "q5_0": 5.5, "q5_1": 6, "q8_0": 8.5, "q2_k": 2.625, "q3_k": 3.4375,
    "q4_k": 4.5, "q5_k": 5.5, "q6_k": 6.5625, "iq1_s": 1.5625, "iq1_m": 1.75, "iq2_xxs": 2.0625, "iq2_xs": 2.3125,
    "iq2_s": 2.5625,
    "iq3_xxs": 3.0625, "iq3_s": 3.4375, "iq4_nl": 4.5, "iq4_xs": 4.25, "tq1_0": 1.6875, "tq2_0": 2.0625, "mxfp4": 4.25,
    "i8": 8, "i16": 16, "i32": 32, "i64": 64, "f64": 64, "q8_1": 9, "q8_k": 9.125, "nvfp4": 4.5, "q1_0": 1.125,
}  # fmt: skip


def test_every_type_has_its_bits_in_blocks_of_32_or_256() -> None:
    assert {name: block.bits for name, block in TYPES.items()} == BITS
    whole = ("f32", "f16", "bf16", "f64", "i8", "i16", "i32", "i64")
    small = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q8_1", "iq4_nl", "mxfp4")
    odd = {"nvfp4": 64, "q1_0": 128}
    assert {name: block.weights for name, block in TYPES.items()} == {
        name: 1 if name in whole else 32 if name in small else odd.get(name, 256) for name in TYPES
    }


def test_weights_fill_whole_blocks() -> None:
    assert [TYPES["q4_k"].size(weights) for weights in (1, 256, 257)] == [144, 144, 288]


@pytest.mark.parametrize(
    ("mix", "role", "layer", "traits", "expected"),
    [
        # the head
        ("q4_k_m", "output", 0, TRAITS, "q6_k"),
        ("q8_0", "output", 0, TRAITS, "q8_0"),
        ("f16", "output", 0, TRAITS, "f16"),
        ("q4_k_m", "output", 0, FALCON, "q8_0"),
        ("iq2_xs", "output", 0, TRAITS, "q5_k"),
        ("iq3_xxs", "output", 0, TRAITS, "q5_k"),
        ("mxfp4_moe", "output", 0, EIGHT, "q8_0"),
        # embeddings
        ("iq1_s", "token_embd", 0, TRAITS, "q2_k"),
        ("iq2_m", "token_embd", 0, TRAITS, "iq3_s"),
        ("iq3_xxs", "token_embd", 0, TRAITS, "iq3_s"),
        ("tq2_0", "token_embd", 0, TRAITS, "q4_k"),
        ("q4_k_m", "token_embd", 0, TRAITS, "q4_k"),
        ("q5_k_s", "token_embd", 0, TRAITS, "q5_k"),
        # values
        ("iq2_xs", "attn_v", 9, TRAITS, "q2_k"),
        ("iq2_m", "attn_v", 9, TRAITS, "iq3_s"),
        ("iq2_xs", "attn_v", 9, GROUPED, "q4_k"),
        ("iq2_xs", "attn_v", 9, GgufModelTraits(32, 1, 4), "q4_k"),
        ("iq2_xs", "attn_v", 9, GgufModelTraits(32, 3, 3), "q2_k"),
        ("q2_k", "attn_v", 9, TRAITS, "q3_k"),
        ("q2_k", "attn_v", 9, GROUPED, "q4_k"),
        ("q2_k_s", "attn_v", 9, GROUPED, "q4_k"),
        ("q2_k_s", "attn_v", 9, TRAITS, "q2_k"),
        ("iq3_m", "attn_v", 9, TRAITS, "q4_k"),
        ("q3_k_m", "attn_v", 1, TRAITS, "q5_k"),
        ("q3_k_m", "attn_v", 2, TRAITS, "q4_k"),
        ("q3_k_l", "attn_v", 9, TRAITS, "q5_k"),
        ("iq4_xs", "attn_v", 9, GROUPED, "q5_k"),
        ("iq4_xs", "attn_v", 9, TRAITS, "iq4_xs"),
        ("q4_k_m", "attn_v", 9, TRAITS, "q6_k"),
        ("q4_k_m", "attn_v", 10, TRAITS, "q4_k"),
        ("q5_k_m", "attn_v", 10, TRAITS, "q5_k"),
        ("q4_k_s", "attn_v", 3, TRAITS, "q5_k"),
        ("q4_k_s", "attn_v", 4, TRAITS, "q4_k"),
        ("q4_k_m", "attn_v", 11, SEVENTY, "q5_k"),
        ("q4_k_m", "attn_v", 11, GgufModelTraits(80, 1, 1), "q4_k"),
        ("q4_k_m", "attn_v", 11, GgufModelTraits(81, 8, 1), "q4_k"),
        ("q4_k_m", "attn_v", 10, EIGHT, "q8_0"),
        # keys and queries
        ("q4_k_m", "attn_k", 10, EIGHT, "q8_0"),
        ("iq2_xs", "attn_k", 10, EIGHT, "q4_k"),
        ("q4_k_m", "attn_k", 10, TRAITS, "q4_k"),
        ("iq3_xs", "attn_k", 10, TRAITS, "iq3_xxs"),
        ("iq3_xxs", "attn_q", 10, TRAITS, "iq2_s"),
        # down
        ("iq2_xs", "ffn_down", 3, TRAITS, "q2_k"),
        ("iq2_xs", "ffn_down", 4, TRAITS, "iq2_xs"),
        ("iq2_m", "ffn_down", 3, TRAITS, "iq3_s"),
        ("q2_k", "ffn_down", 10, TRAITS, "q3_k"),
        ("q3_k_m", "ffn_down", 1, TRAITS, "q5_k"),
        ("q3_k_m", "ffn_down", 2, TRAITS, "q4_k"),
        ("q3_k_m", "ffn_down", 10, FALCON, "q3_k"),
        ("q3_k_m", "ffn_down", 9, FALCON, "q4_k"),
        ("q3_k_l", "ffn_down", 10, TRAITS, "q5_k"),
        ("q3_k_l", "ffn_down", 10, FALCON, "q4_k"),
        ("q4_k_m", "ffn_down", 1, FALCON, "q6_k"),
        ("q4_k_m", "ffn_down", 2, FALCON, "q5_k"),
        ("q4_k_m", "ffn_down", 10, FALCON, "q4_k"),
        ("q4_k_m", "ffn_down", 9, TRAITS, "q6_k"),
        ("q5_k_m", "ffn_down", 10, TRAITS, "q5_k"),
        ("iq3_m", "ffn_down", 3, TRAITS, "q4_k"),
        ("iq3_m", "ffn_down", 6, TRAITS, "iq3_s"),
        ("iq3_m", "ffn_down", 6, EIGHT, "q4_k"),
        ("iq3_m", "ffn_down", 7, EIGHT, "iq3_s"),
        ("q2_k_s", "ffn_down", 3, TRAITS, "q4_k"),
        ("q2_k_s", "ffn_down", 4, TRAITS, "q2_k"),
        ("q4_k_s", "ffn_down", 3, TRAITS, "q5_k"),
        ("q4_k_s", "ffn_down", 3, FALCON, "q4_k"),
        ("q4_k_s", "ffn_down_exps", 4, TRAITS, "q4_k"),
        ("q4_k_m", "ffn_down_shexp", 9, TRAITS, "q6_k"),
        # the attention's output
        ("q3_k_l", "attn_output", 10, FALCON, "q4_k"),
        ("q3_k_m", "attn_output", 10, FALCON, "q3_k"),
        ("q4_k_m", "attn_output", 10, EIGHT, "q5_k"),
        ("q5_k_m", "attn_output", 10, EIGHT, "q5_k"),
        ("q6_k", "attn_output", 10, EIGHT, "q6_k"),
        ("iq2_m", "attn_output", 10, TRAITS, "iq3_s"),
        ("iq1_m", "attn_output", 10, TRAITS, "iq2_xxs"),
        ("iq2_xs", "attn_output", 10, TRAITS, "iq2_xs"),
        ("q3_k_m", "attn_output", 10, TRAITS, "q4_k"),
        ("q4_k_m", "attn_output", 10, TRAITS, "q4_k"),
        # fused queries, keys and values
        ("q4_k_m", "attn_qkv", 10, TRAITS, "q5_k"),
        ("q5_k_m", "attn_qkv", 10, TRAITS, "q6_k"),
        ("q4_k_s", "attn_qkv", 10, TRAITS, "q4_k"),
        # gate and up: the middle layers
        ("iq3_xs", "ffn_gate", 3, TRAITS, "iq3_s"),
        ("iq3_xs", "ffn_gate", 4, TRAITS, "iq3_xxs"),
        ("iq3_xs", "ffn_up", 27, TRAITS, "iq3_xxs"),
        ("iq3_xs", "ffn_up", 28, TRAITS, "iq3_s"),
        ("q4_k_m", "ffn_gate", 9, TRAITS, "q4_k"),
        # the rest
        ("mxfp4_moe", "ffn_up_exps", 0, EIGHT, "mxfp4"),
        ("mxfp4_moe", "attn_q", 0, EIGHT, "q8_0"),
        ("f32", "attn_v", 0, EIGHT, "f32"),
        ("q4_k_m", "something_else", 0, TRAITS, "q4_k"),
    ],
)
def test_the_rule(mix: str, role: str, layer: int, traits: GgufModelTraits, expected: str) -> None:
    assert tensor_type(mix, role, layer, traits, ROW) == expected


@pytest.mark.parametrize(
    ("mix", "row", "expected"),
    [("q4_k_s", 4096 + 32, "q5_0"), ("q6_k", 96, "q8_0"), ("q5_k_s", 96, "q5_1"), ("q2_k_s", 96, "iq4_nl"), ("tq1_0", 96, "q4_0"),
     ("q4_k_s", 100, "f16"), ("q8_0", 96, "q8_0"), ("q8_0", 100, "f16")],
)  # fmt: skip
def test_rows_that_do_not_divide_into_blocks_fall_back_to_smaller_ones(mix: str, row: int, expected: str) -> None:
    assert tensor_type(mix, "ffn_gate", 10, TRAITS, row) == expected


def test_head_with_indivisible_rows_uses_eight_bits() -> None:
    assert tensor_type("q4_k_m", "output", 0, TRAITS, 4096 + 32) == "q8_0"


def test_every_mix_has_a_type_for_every_role() -> None:
    roles = ("output", "token_embd", "attn_v", "attn_k", "attn_q", "attn_output", "attn_qkv", "ffn_down", "ffn_gate", "ffn_up")
    for mix in MIXES:
        assert {tensor_type(mix, role, 5, TRAITS, ROW) for role in roles} <= set(TYPES)
