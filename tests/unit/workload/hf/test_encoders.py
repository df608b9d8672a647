"""Encoders and what their configs switch on and off, each by the weights it adds."""

from __future__ import annotations

from typing import Any

import pytest

from whichgpu.workload.hf import shape_from_config
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.shapes import Transformer

HIDDEN, LAYERS = 64, 3
DEBERTA: dict[str, Any] = {
    "model_type": "deberta-v2", "hidden_size": HIDDEN, "intermediate_size": 128, "num_hidden_layers": LAYERS,
    "num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 512, "type_vocab_size": 0,
}  # fmt: skip
RELATIVE = DEBERTA | {"relative_attention": True, "position_buckets": 32, "pos_att_type": "p2c|c2p"}
SQUARE = HIDDEN * (HIDDEN + 1)


def total(config: dict[str, Any], **changes: Any) -> int:
    shape = shape_from_config(config | changes, "m")
    assert isinstance(shape, Transformer)
    return count_parameters(shape).total


def test_relative_attention_adds_a_table_of_positions_and_its_projections() -> None:
    assert total(RELATIVE) - total(DEBERTA) == 2 * 32 * HIDDEN + LAYERS * 2 * SQUARE
    assert total(RELATIVE, share_att_key=True) - total(DEBERTA) == 2 * 32 * HIDDEN  # the keys' own projections do
    assert total(RELATIVE, pos_att_type=["c2p"]) - total(DEBERTA) == 2 * 32 * HIDDEN + LAYERS * SQUARE
    assert total(RELATIVE, pos_att_type=7) - total(DEBERTA) == 2 * 32 * HIDDEN
    assert total(RELATIVE, norm_rel_ebd="layer_norm") - total(RELATIVE) == 2 * HIDDEN
    assert total(RELATIVE, conv_kernel_size=3) - total(RELATIVE) == 3 * HIDDEN * HIDDEN + 3 * HIDDEN


@pytest.mark.parametrize(
    ("changes", "span"),
    [({"position_buckets": -1}, 512), ({"position_buckets": -1, "max_relative_positions": 100}, 100),
     ({"position_buckets": None, "max_relative_positions": -1}, 512), ({"position_buckets": 16}, 16)],
)  # fmt: skip
def test_positions_reach_as_far_as_the_first_size_that_is_one(changes: dict[str, Any], span: int) -> None:
    assert total(RELATIVE, share_att_key=True, **changes) - total(DEBERTA) == 2 * span * HIDDEN


def test_the_first_deberta_projects_without_a_bias_of_keys() -> None:
    old = DEBERTA | {"model_type": "deberta"}
    both = total(old, relative_attention=True, pos_att_type=["c2p", "p2c"], max_relative_positions=32)
    one = total(old, relative_attention=True, pos_att_type=["c2p"], max_relative_positions=32)
    assert both - one == LAYERS * (HIDDEN * HIDDEN + HIDDEN)  # the inverse relative projection has a bias
    assert total(old) > total(old, position_biased_input=False)


T5: dict[str, Any] = {
    "model_type": "t5",
    "d_model": 64,
    "d_ff": 128,
    "d_kv": 16,
    "num_heads": 4,
    "num_layers": 2,
    "vocab_size": 100,
}


def test_an_encoder_alone_is_one_stack_and_no_head() -> None:
    both = shape_from_config(T5, "m")
    alone = shape_from_config(T5 | {"architectures": ["T5EncoderModel"]}, "m")
    assert isinstance(both, Transformer)
    assert isinstance(alone, Transformer)
    assert (both.encoder_layers, both.layers, both.causal) == (2, 2, True)
    assert (alone.encoder_layers, alone.layers, alone.causal, alone.head) == (0, 2, False, False)
    layer = 4 * 64 * 64 + 2 * 64 * 128 + 2 * 64  # four projections of 4 x 16, two matrices, two norms
    assert count_parameters(alone).total == 100 * 64 + 2 * layer + 64 + 32 * 4
