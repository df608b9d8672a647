"""Parameters are counted exactly. The counts are those of the reference implementations (transformers 5.22, meta device)."""

from __future__ import annotations

from typing import Any

import pytest

from whichgpu.workload.hf import shape_from_config
from whichgpu.workload.parameters import Parameters, count_parameters, mixture_layers
from whichgpu.workload.shapes import Dlrm, Mlp, Transformer, WeightsOnly

LLAMA = {"model_type": "llama", "vocab_size": 128256, "num_key_value_heads": 8, "tie_word_embeddings": False}
LLAMA_8B = LLAMA | {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32}
MISTRAL_7B = LLAMA_8B | {"model_type": "mistral", "vocab_size": 32000, "sliding_window": 4096, "max_position_embeddings": 32768}
MIXTRAL = MISTRAL_7B | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None}
BERT_BASE = {
    "model_type": "bert", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2,
}  # fmt: skip
BERT_LARGE = BERT_BASE | {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}
QWEN_05B = {
    "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
    "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True,
}  # fmt: skip
QWEN3_30B = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48, "num_attention_heads": 32,
    "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "num_experts": 128, "num_experts_per_tok": 8,
    "moe_intermediate_size": 768, "decoder_sparse_step": 1, "mlp_only_layers": [],
}  # fmt: skip
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128, "n_shared_experts": 1,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "moe_layer_freq": 1, "kv_lora_rank": 512,
    "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280,
}  # fmt: skip
GPT_OSS = {
    "model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 24, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 201088, "num_local_experts": 32, "num_experts_per_tok": 4,
    "attention_bias": True, "sliding_window": 128,
}  # fmt: skip
GEMMA3_4B = {
    "model_type": "gemma3",
    "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
                    "sliding_window": 1024},
    "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152, "image_size": 896, "intermediate_size": 4304,
                      "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": False},
}  # fmt: skip
T5_BASE = {"model_type": "t5", "d_model": 768, "d_ff": 3072, "d_kv": 64, "num_heads": 12, "num_layers": 12, "vocab_size": 32128}
WHISPER = {
    "model_type": "whisper", "d_model": 1280, "encoder_layers": 32, "decoder_layers": 32, "encoder_ffn_dim": 5120,
    "decoder_ffn_dim": 5120, "encoder_attention_heads": 20, "decoder_attention_heads": 20, "vocab_size": 51866,
    "num_mel_bins": 128, "max_source_positions": 1500, "max_target_positions": 448,
}  # fmt: skip
FALCON_7B = {
    "model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71, "vocab_size": 65024,
    "multi_query": True, "parallel_attn": True, "new_decoder_architecture": False, "alibi": False, "bias": False,
}  # fmt: skip
OPT_350M = {
    "model_type": "opt", "hidden_size": 1024, "ffn_dim": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
    "vocab_size": 50272, "max_position_embeddings": 2048, "word_embed_proj_dim": 512, "do_layer_norm_before": False,
}  # fmt: skip
PHI_2 = {
    "model_type": "phi", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 32, "num_attention_heads": 32,
    "vocab_size": 51200,
}  # fmt: skip
DEBERTA = BERT_BASE | {
    "model_type": "deberta-v2", "vocab_size": 128100, "type_vocab_size": 0, "relative_attention": True, "position_buckets": 256,
    "norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": "p2c|c2p", "position_biased_input": False,
}  # fmt: skip
VIT = {
    "model_type": "vit", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "image_size": 224, "patch_size": 16, "architectures": ["ViTForImageClassification"],
    "id2label": {str(n): str(n) for n in range(1000)},
}  # fmt: skip
CLIP = {
    "model_type": "clip", "projection_dim": 768,
    "text_config": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12},
    "vision_config": {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24,
                      "patch_size": 14},
}  # fmt: skip
MAVERICK = {
    "model_type": "llama4",
    "text_config": {"model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
                    "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
                    "vocab_size": 202048, "num_local_experts": 128, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2,
                    "max_position_embeddings": 1048576},
    "vision_config": {"model_type": "llama4_vision_model", "hidden_size": 1408, "image_size": 336, "intermediate_size": 5632,
                      "num_attention_heads": 16, "num_hidden_layers": 34, "patch_size": 14, "projector_input_dim": 4096,
                      "projector_output_dim": 4096, "vision_output_dim": 4096},
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "total"),
    [
        pytest.param(LLAMA_8B, 8_030_261_248, id="llama-3-8b"),
        pytest.param(
            LLAMA | {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64},
            70_553_706_496,
            id="llama-3.1-70b",
        ),
        pytest.param(MISTRAL_7B, 7_241_732_096, id="mistral-7b"),
        pytest.param(MIXTRAL, 46_702_792_704, id="mixtral-8x7b"),
        pytest.param(GPT2, 124_439_808, id="gpt2"),
        pytest.param(GPT2 | {"n_embd": 1600, "n_layer": 48, "n_head": 25}, 1_557_611_200, id="gpt2-xl"),
        pytest.param(BERT_BASE, 109_514_298, id="bert-base"),
        pytest.param(BERT_LARGE, 335_174_458, id="bert-large"),
        pytest.param(QWEN_05B, 494_032_768, id="qwen2.5-0.5b"),
        pytest.param(QWEN_05B | {"model_type": "llama"}, 494_005_120, id="qwen2.5-0.5b without its biases"),
        pytest.param(QWEN3_30B, 30_532_122_624, id="qwen3-30b-a3b"),
        pytest.param(DEEPSEEK_V3, 671_026_404_352, id="deepseek-v3"),
        pytest.param(GPT_OSS, 20_914_757_184, id="gpt-oss-20b"),
        pytest.param(GEMMA3_4B, 4_300_079_472, id="gemma-3-4b with its vision tower"),
        pytest.param(T5_BASE, 222_903_552, id="t5-base"),
        pytest.param(WHISPER, 1_543_490_560, id="whisper-large-v3"),
        pytest.param(FALCON_7B, 6_921_720_704, id="falcon-7b"),
        pytest.param(OPT_350M, 331_196_416, id="opt-350m"),
        pytest.param(PHI_2, 2_779_683_840, id="phi-2"),
        pytest.param(DEBERTA, 184_551_780, id="deberta-v3-base"),
        pytest.param(VIT, 86_567_656, id="vit-base"),
        pytest.param(CLIP, 427_616_513, id="clip-vit-l-14"),
        pytest.param(MAVERICK, 401_583_781_376, id="llama-4-maverick"),
    ],
)
def test_the_count_is_the_reference_implementations(config: dict[str, Any], total: int) -> None:
    assert _count(config).total == total


def test_moe_counts_all_experts_and_active_ones() -> None:
    assert _count(MIXTRAL).active == 12_879_925_248
    assert _count(DEEPSEEK_V3).active == pytest.approx(37.55e9, rel=0.002)
    assert _count(LLAMA_8B).active == _count(LLAMA_8B).total
    assert _count(MIXTRAL).experts == 32 * 8 * 3 * 4096 * 14336


def test_moe_layers_exclude_the_dense_ones() -> None:
    for config, layers in ((MIXTRAL, 32), (DEEPSEEK_V3, 58), (MAVERICK, 24), (LLAMA_8B, 0)):
        shape = shape_from_config(config, "")
        assert isinstance(shape, Transformer)
        assert mixture_layers(shape) == layers


def test_parameters_of_a_dense_decoder_add_up() -> None:
    counted = _count(LLAMA_8B)
    assert counted.embedding == counted.head == 128256 * 4096
    assert counted.norm == 65 * 4096
    assert counted.layer == 218_112_000
    assert counted.linear + counted.norm + counted.embedding + counted.head == counted.total


def test_an_encoder_decoders_layers_differ_by_the_attention_across() -> None:
    counted = _count(T5_BASE)
    assert counted.layer - counted.encoder_layer == 4 * 768 * 768 + 768
    assert 12 * (counted.layer + counted.encoder_layer) + counted.embedding + 2 * 32 * 12 + 2 * 768 == counted.total


def test_other_shapes_are_counted_too() -> None:
    assert count_parameters(Mlp("", (784, 2048, 2048, 10))).total == 5_824_522
    assert count_parameters(WeightsOnly("", 7, 14)).total == 7
    # MLPerf's DLRM: 26 tables of 128, perceptrons 13-512-256-128 and 479-1024-1024-512-256-1
    dlrm = count_parameters(Dlrm("", 128, (1000,) * 26, (13, 512, 256, 128), (1024, 1024, 512, 256, 1)))
    assert dlrm.embedding == 26_000 * 128
    assert dlrm.total - dlrm.embedding == 171_392 + 2_197_505
    assert dlrm.active == dlrm.total - dlrm.embedding + 26 * 128


def _count(config: dict[str, Any]) -> Parameters:
    return count_parameters(shape_from_config(config, "model"))
