"""An unmodified config.json becomes a shape; invalid values are errors that name the field."""

from __future__ import annotations

from typing import Any

import pytest

from whichgpu.base.errors import UsageError
from whichgpu.workload.hf import shape_from_config
from whichgpu.workload.shapes import Dlrm, TracedShape, Transformer

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192, "hidden_act": "silu",
}  # fmt: skip


def test_llama_is_read_as_it_is() -> None:
    shape = _read()
    assert (shape.hidden, shape.layers, shape.heads, shape.kv_heads, shape.head_dim) == (4096, 32, 32, 8, 128)
    assert (shape.norm, shape.gated, shape.activation, shape.rope, shape.tied) == ("rms", True, "silu", True, False)
    assert (shape.max_context, shape.positions, shape.window, shape.causal) == (8192, 0, 0, True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_attention_heads", 0),
        ("num_hidden_layers", -3),
        ("hidden_size", 10**30),
        ("vocab_size", "many"),
        ("vocab_size", None),
        ("intermediate_size", True),
        ("intermediate_size", 12.5),
        ("num_key_value_heads", 5),
        ("num_attention_heads", 31),
        ("model_type", None),
        ("head_dim", [128]),
        ("tie_word_embeddings", "yes"),
        ("max_position_embeddings", -1),
        ("resid_pdrop", float("nan")),
        ("num_local_experts", 8),  # and no word on how many are used
    ],
)
def test_invalid_values_are_refused_with_the_field_name(key: str, value: object) -> None:
    with pytest.raises(UsageError) as caught:
        _read(**{key: value})
    field = {"num_local_experts": "num_experts_per_tok"}.get(key, key)
    assert caught.value.kind == "bad-config"
    assert caught.value.message.values["field"] == field
    assert caught.value.hint is not None


def test_a_field_of_a_nested_config_is_named_by_its_path() -> None:
    config = {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size": -1, "num_hidden_layers": 2}}
    with pytest.raises(UsageError) as caught:
        shape_from_config(config, "x")
    assert caught.value.message.values["field"] == "text_config.hidden_size"


def test_fused_gate_up_size_is_halved_and_below_2_is_refused() -> None:
    assert _read(model_type="qwen", intermediate_size=22016).ffn == 11008
    with pytest.raises(UsageError, match="intermediate_size is 1, outside 2 to"):
        _read(model_type="qwen", intermediate_size=1)


def test_an_unknown_type_with_llamas_keys_keeps_its_name() -> None:
    shape = _read(model_type="brandnew")
    assert shape.model_type == "brandnew"
    assert shape.hidden == 4096


def test_recurrent_models_are_refused_rather_than_miscounted() -> None:
    unknown = {"layer_types": ["linear_attention", "full_attention"]}
    for config, kind in (({"model_type": "jamba"}, "bad-config"), (unknown, "unsupported-model")):
        with pytest.raises(UsageError) as caught:
            shape_from_config(LLAMA | config, "x")
        assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("config", "window", "every"),
    [
        ({"model_type": "mistral", "sliding_window": 4096}, 4096, 0),
        ({"model_type": "mistral", "sliding_window": None}, 0, 0),
        ({"model_type": "mistral", "sliding_window": 8192}, 0, 0),  # as wide as the context
        ({"model_type": "qwen2", "sliding_window": 4096}, 0, 0),  # written there, but not used unless said so
        ({"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": True}, 4096, 0),
        ({"model_type": "gemma2", "sliding_window": 4096}, 4096, 2),
        ({"model_type": "gemma3_text", "sliding_window": 512}, 512, 6),
        ({"model_type": "gemma3_text", "sliding_window": 512, "sliding_window_pattern": 4}, 512, 4),
        ({"model_type": "gpt_oss", "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 16}, 128, 2),
        ({"model_type": "cohere2", "sliding_window": 4096}, 4096, 4),
    ],
)
def test_windows_of_attention(config: dict[str, Any], window: int, every: int) -> None:
    shape = _read(**config)
    assert (shape.window, shape.global_every) == (window, every)


def test_stretched_rotary_positions_count_as_context() -> None:
    yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    assert _read(rope_scaling=yarn, max_position_embeddings=32768).max_context == 131072
    llama3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}
    assert _read(rope_scaling=llama3, max_position_embeddings=131072).max_context == 131072
    assert _read(rope_scaling={"type": "linear", "factor": "four"}).max_context == 8192


def test_heads_of_keys_and_values_under_every_spelling() -> None:
    falcon = {"num_key_value_heads": None, "num_attention_heads": 64, "multi_query": True}
    assert _read(**falcon, model_type="falcon").kv_heads == 1
    assert _read(**falcon, model_type="falcon", new_decoder_architecture=True, num_kv_heads=8).kv_heads == 8
    assert _read(model_type="gpt_bigcode", multi_query=True).kv_heads == 1
    assert _read(num_key_value_heads=None).kv_heads == 32


def test_moe_fields_in_every_spelling() -> None:
    qwen = _read(model_type="qwen2_moe", num_experts=60, num_experts_per_tok=4, moe_intermediate_size=1408,
                 shared_expert_intermediate_size=5632, decoder_sparse_step=2)  # fmt: skip
    assert qwen.experts is not None
    assert (qwen.experts.count, qwen.experts.active, qwen.experts.ffn, qwen.experts.shared_ffn) == (60, 4, 1408, 5632)
    assert (qwen.experts.every, qwen.ffn) == (2, 14336)
    glm = _read(model_type="glm4_moe", n_routed_experts=128, num_experts_per_tok=8, moe_intermediate_size=1408,
                n_shared_experts=2, first_k_dense_replace=1)  # fmt: skip
    assert glm.experts is not None
    assert (glm.experts.shared_ffn, glm.experts.dense_layers) == (2816, 1)
    assert _read(num_experts=None).experts is None
    assert _read(num_local_experts=0).experts is None


def test_latent_attention_keeps_its_ranks() -> None:
    shape = _read(model_type="deepseek_v3", kv_lora_rank=512, q_lora_rank=None, qk_nope_head_dim=128, qk_rope_head_dim=64,
                  v_head_dim=128)  # fmt: skip
    assert shape.mla is not None
    assert (shape.mla.kv_rank, shape.mla.q_rank, shape.head_dim, shape.kv_heads) == (512, 0, 192, 32)


def test_the_language_model_of_a_multimodal_one_is_read() -> None:
    inner = {key: value for key, value in LLAMA.items() if key != "max_position_embeddings"}
    for key in ("text_config", "llm_config", "language_config"):
        shape = shape_from_config({"model_type": "novel_vl", key: inner}, "x")
        assert isinstance(shape, Transformer)
        assert (shape.model_type, shape.hidden) == ("llama", 4096)
    omni = {"model_type": "qwen2_5_omni", "thinker_config": {"model_type": "thinker", "text_config": inner}}
    assert isinstance(shape_from_config(omni, "x"), Transformer)


def test_configs_within_configs_end_somewhere() -> None:
    config = dict(LLAMA)
    for _ in range(2000):
        config = {"model_type": "novel_vl", "text_config": config}
    with pytest.raises(UsageError):
        shape_from_config(config, "x")


def test_tied_heads_by_family_and_by_word() -> None:
    assert not _read().tied
    assert _read(model_type="gemma").tied
    assert _read(model_type="gemma", tie_word_embeddings=False).tied is False
    assert _read(tie_word_embeddings=True).tied
    nested = {"model_type": "llava", "text_config": LLAMA, "tie_word_embeddings": True}
    shape = shape_from_config(nested, "x")
    assert isinstance(shape, Transformer)
    assert shape.tied


def test_encoders_have_the_head_their_architecture_names() -> None:
    bert = LLAMA | {"model_type": "bert", "num_key_value_heads": None}
    masked, bare = shape_from_config(bert, "x"), shape_from_config(bert | {"architectures": ["BertModel"]}, "x")
    assert isinstance(masked, Transformer)
    assert isinstance(bare, Transformer)
    assert (masked.head, masked.lm_transform, masked.pooler, masked.causal) == (True, True, False, False)
    assert (bare.head, bare.lm_transform, bare.pooler) == (False, False, True)
    assert _read(architectures=["LlamaModel"]).head is False


def test_images_become_tokens() -> None:
    vit = {"model_type": "vit", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
           "num_attention_heads": 12, "image_size": [224, 224], "patch_size": 16}  # fmt: skip
    shape = shape_from_config(vit, "x")
    assert isinstance(shape, Transformer)
    assert shape.patches is not None
    assert (shape.patches.tokens, shape.positions, shape.vocab) == (197, 197, 0)
    with pytest.raises(UsageError):
        shape_from_config(vit | {"patch_size": 448}, "x")


def test_speech_is_of_a_fixed_length() -> None:
    shape = shape_from_config({"model_type": "whisper", "d_model": 384, "encoder_layers": 4, "decoder_layers": 4,
                               "decoder_ffn_dim": 1536, "decoder_attention_heads": 6, "vocab_size": 51865,
                               "max_target_positions": 448}, "x")  # fmt: skip
    assert isinstance(shape, Transformer)
    assert (shape.encoder_context, shape.max_context, shape.encoder_layers) == (1500, 448, 4)


def test_traced_models_and_recommenders() -> None:
    assert shape_from_config({"model_type": "traced", "table": "resnet50", "image": 224}, "r") == TracedShape(
        "r", "resnet50", 224
    )
    dlrm = {"model_type": "dlrm", "embedding_dim": 16, "tables": [100, 200], "bottom": [13, 64, 16], "top": [64, 1]}
    assert shape_from_config(dlrm, "d") == Dlrm("d", 16, (100, 200), (13, 64, 16), (64, 1))
    faults: list[dict[str, Any]] = [{"tables": []}, {"tables": [0]}, {"bottom": [13, 8]}, {"top": "64-1"}, {"tables": [None]}]
    for wrong in faults:
        with pytest.raises(UsageError) as caught:
            shape_from_config(dlrm | wrong, "d")
        assert caught.value.message.values["field"] == next(iter(wrong))
    with pytest.raises(UsageError):
        shape_from_config({"model_type": "traced"}, "r")


def _read(**changes: Any) -> Transformer:
    shape = shape_from_config(LLAMA | changes, "x")
    assert isinstance(shape, Transformer)
    return shape
