"""Differences of each decoder family from Llama beyond the numbers its config.json states.

Facts of the published architectures; every row is checked against the parameter counts of the reference implementations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg


class Family(msgspec.Struct, frozen=True):
    """Architecture of a decoder family as far as its config.json does not state it; the defaults are Llama's."""

    norm: Literal["rms", "layer"] = "rms"
    gated: bool = True
    activation: str = "silu"
    qkv_bias: bool = False
    out_bias: bool = False
    out_follows: bool = True  # whether the config's `attention_bias` applies to the output projection too
    bias_key: str = ""  # config key that switches all biases; empty if there is none
    mlp_bias: bool = False
    head_bias: bool = False
    tied: bool = False
    rope: bool = True
    qk_norm: bool = False
    wide_qk_norm: bool = False  # whether queries and keys are normalised over all heads together
    norms: int = 2
    norm_bias: bool = True
    norm_affine: bool = True
    parallel: bool = False
    embedding_norm: bool = False
    position_offset: int | None = None  # extra rows of the table of learned positions; None if there is no table
    dropout: float = 0.0
    window: int = 0  # sliding window in tokens if the config states none
    global_every: int = 0
    windowed: bool = True  # whether `sliding_window` applies if the config has no `use_sliding_window`


_LLAMA = Family()
_GEMMA = Family(activation="gelu_pytorch_tanh", tied=True)
_GPT = Family(norm="layer", gated=False, activation="gelu_new", qkv_bias=True, out_bias=True, mlp_bias=True, rope=False)
_COHERE = Family(norm="layer", norms=1, norm_bias=False, tied=True, parallel=True, wide_qk_norm=True)
_GLM = Family(qkv_bias=True, out_follows=False)

FAMILIES: Mapping[str, Family] = {
    "llama": _LLAMA,
    "apertus": Family(gated=False, qk_norm=True),
    "arcee": Family(gated=False, activation="relu2"),
    "bloom": replace(_GPT, activation="gelu", tied=True, embedding_norm=True),
    "chatglm": Family(qkv_bias=True),
    "codegen": replace(_GPT, qkv_bias=False, out_bias=False, head_bias=True, rope=True, norms=1, parallel=True),
    "cohere": _COHERE,
    "cohere2": replace(_COHERE, global_every=4),
    "dbrx": Family(norm="layer", norm_bias=False),
    "exaone4": Family(qk_norm=True, global_every=4),
    "ernie4_5": Family(bias_key="use_bias", tied=True),
    "ernie4_5_moe": Family(bias_key="use_bias", tied=True),
    "falcon": replace(_GPT, activation="gelu", qkv_bias=False, bias_key="bias", tied=True, norms=1, parallel=True, rope=True),
    "gemma": _GEMMA,
    "gemma2": replace(_GEMMA, norms=4, global_every=2),
    "gemma3": replace(_GEMMA, norms=4, qk_norm=True, global_every=6),
    "glm": _GLM,
    "glm4": replace(_GLM, norms=4),
    "glm4_moe": replace(_GLM, qkv_bias=False),
    "gpt2": replace(_GPT, tied=True, position_offset=0, dropout=0.1),
    "gpt_bigcode": replace(_GPT, activation="gelu_pytorch_tanh", tied=True, position_offset=0, dropout=0.1),
    "gpt_neo": replace(_GPT, qkv_bias=False, tied=True, position_offset=0, window=256, global_every=2),
    "gpt_neox": replace(_GPT, activation="gelu", rope=True, parallel=True),
    "gpt_oss": Family(qkv_bias=True, out_bias=True, global_every=2),
    "biogpt": replace(_GPT, activation="gelu", tied=True, position_offset=2),
    "falcon_mamba": Family(tied=True),
    "fuyu": replace(_GPT, activation="relu2", rope=True, qk_norm=True),
    "gemma3n": replace(_GEMMA, norms=4, qk_norm=True, global_every=5),
    "gemma4": replace(_GEMMA, norms=4, qk_norm=True, global_every=6),
    "gpt_neox_japanese": replace(_GPT, qkv_bias=False, out_bias=False, mlp_bias=False, activation="gelu", rope=True),
    "jais2": replace(_GPT, activation="relu2", rope=True),
    "nanochat": Family(gated=False, activation="relu2", norm_affine=False),
    "openai-gpt": replace(_GPT, tied=True, position_offset=0, dropout=0.1),
    "persimmon": replace(_GPT, activation="relu2", rope=True, qk_norm=True),
    "xglm": replace(_GPT, activation="gelu", tied=True),
    "mamba": Family(tied=True),
    "lfm2": Family(qk_norm=True, tied=True),
    "lfm2_moe": Family(qk_norm=True, tied=True),
    "lfm3": Family(qk_norm=True, tied=True, norms=4),
    "nemotron_h": Family(gated=False, activation="relu2"),
    "olmo_hybrid": Family(qk_norm=True, wide_qk_norm=True),
    "qwen3_5": Family(qk_norm=True),
    "qwen3_5_moe": Family(qk_norm=True),
    "qwen3_next": Family(qk_norm=True),
    "recurrent_gemma": replace(_GEMMA, out_bias=True, mlp_bias=True),
    "gptj": replace(_GPT, qkv_bias=False, out_bias=False, head_bias=True, rope=True, norms=1, parallel=True),
    "hunyuan_v1_dense": Family(qk_norm=True, tied=True),
    "hunyuan_v1_moe": Family(qk_norm=True, tied=True),
    "mpt": replace(_GPT, activation="gelu", qkv_bias=False, out_bias=False, mlp_bias=False, norm_bias=False, tied=True),
    "nemotron": Family(norm="layer", gated=False, activation="relu2"),
    "olmo": Family(norm="layer", norm_affine=False),
    "olmo2": Family(qk_norm=True, wide_qk_norm=True),
    "olmo3": Family(qk_norm=True, wide_qk_norm=True, global_every=4),
    "olmoe": Family(qk_norm=True, wide_qk_norm=True),
    "internlm2": Family(bias_key="bias"),
    "llama4": Family(global_every=4),
    "minimax_m2": Family(qk_norm=True, wide_qk_norm=True),
    "opt": replace(_GPT, bias_key="enable_bias", activation="relu", tied=True, position_offset=2, dropout=0.1),
    "phi": replace(_GPT, head_bias=True, rope=True, norms=1, parallel=True),
    "phimoe": Family(norm="layer", qkv_bias=True, out_bias=True, head_bias=True),
    "qwen": Family(qkv_bias=True),
    "qwen2": Family(qkv_bias=True, windowed=False),
    "qwen2_moe": Family(qkv_bias=True, windowed=False),
    "qwen3": Family(qk_norm=True, windowed=False),
    "qwen3_moe": Family(qk_norm=True, windowed=False),
    "seed_oss": Family(qkv_bias=True, out_follows=False),
    "smollm3": Family(tied=True, windowed=False),
    "stablelm": Family(norm="layer"),
    "rwkv": Family(norm="layer", gated=False, activation="relu2", rope=False, embedding_norm=True),
    "starcoder2": replace(_GPT, bias_key="use_bias", activation="gelu_pytorch_tanh", tied=True, rope=True),
}

# Families whose layers have the same parameters and operators as another family's.
SAME: Mapping[str, str] = {
    "gemma3_text": "gemma3",
    "gemma3n_text": "gemma3n",
    "gemma4_text": "gemma4",
    "gemma4_unified": "gemma4",
    "gemma4_unified_assistant": "gemma4",
    "gemma4_unified_text": "gemma4",
    "gpt-sw3": "gpt2",
    "glm4v": "glm4",
    "glm4v_moe": "glm4_moe",
    "llama4_text": "llama4",
    "mllama_text_model": "llama",
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_5_text": "qwen3_5",
    "qwen3_5_moe_text": "qwen3_5_moe",
    "qwen3_vl": "qwen3",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
    "qwen3_vl_moe_text": "qwen3_moe",
}

# Defaults of the reference implementation, for keys that published config files leave out.
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "gemma3": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262208,
        "sliding_window": 4096,
        "max_position_embeddings": 131072,
    },
    "gemma2": {"head_dim": 256, "sliding_window": 4096},
    "gemma": {"head_dim": 256},
    "deepseek_v2": {"num_experts_per_tok": 6},
    "glm4_moe": {"head_dim": 128},
    "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen2_moe": {
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632,
    },
    "bloom": {"max_position_embeddings": 2048},
    "gpt2": {"n_positions": 1024},
    "gptj": {"n_positions": 2048},
    "llama4": {"attention_chunk_size": 8192, "head_dim": 128},
}

# Model types that cannot be estimated, with the message that says which part of them is missing here.
UNSUPPORTED: Mapping[str, str] = {
    **dict.fromkeys(("albert", "hrm_text"), "missing.shared-weights"),
    **dict.fromkeys(("zamba", "zamba2"), "missing.shared-attention"),
    **dict.fromkeys(("musicgen", "musicgen_melody", "moshi"), "missing.codebooks"),
    **dict.fromkeys(("deepseek_v4", "qwen4_exp", "qwen4_exp_text"), "missing.residual-streams"),
    "blt": "missing.byte-patches",
    "prophetnet": "missing.token-streams",
    "trocr": "missing.encoder",
    "jetmoe": "missing.attention-experts",
    "longformer": "missing.global-tokens",
    "openelm": "missing.uneven-layers",
    "reformer": "missing.hashing",
}


def family_name(model_type: str) -> str:
    """Return the decoder family (such as llama) whose architecture a config's `model_type` has."""
    return SAME.get(model_type, model_type)


def unsupported(name: str, model_type: str, missing: str = "missing.layers") -> UsageError:
    """Return the error for a model type that cannot be estimated, with the part of it that is missing here."""
    message = msg("error.unsupported-model", name=name, type=model_type, missing=msg(missing))
    return UsageError("unsupported-model", message, msg("hint.unsupported-model"))
