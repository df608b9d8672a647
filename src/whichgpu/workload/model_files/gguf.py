"""Convert a GGUF file's header to the shape of its model and the bytes of its weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.workload.hf import shape_from_config
from whichgpu.workload.hf.decoder import MAX_CONTEXT_TOKENS
from whichgpu.workload.hf.families import unsupported
from whichgpu.workload.hf.fields import Fields
from whichgpu.workload.model_files.gguf_header import GgufTensor, Header, read_header
from whichgpu.workload.model_files.gguf_types import file_precision, role_widths
from whichgpu.workload.shapes import Dlrm, TracedShape, Transformer

Size = Callable[..., int]  # Function that returns a number of the metadata by its key, within bounds.

MAX_PARTS = 1000  # Largest number of files of a split model (set by judgement).
_PART = re.compile(r"(.*-)(\d{5})-of-(\d{5})\.gguf", re.DOTALL)

# Model types of config.json by GGUF's name of the architecture, for those that differ.
ARCHITECTURES: Mapping[str, str] = {
    "command-r": "cohere",
    "cohere2": "cohere2",
    "deepseek2": "deepseek_v3",
    "gpt-oss": "gpt_oss",
    "gptneox": "gpt_neox",
    "glm4moe": "glm4_moe",
    "granitemoe": "granitemoe",
    "hunyuan-dense": "hunyuan_v1_dense",
    "hunyuan-moe": "hunyuan_v1_moe",
    "phi2": "phi",
    "minimax-m2": "minimax_m2",
    "qwen2moe": "qwen2_moe",
    "qwen2vl": "qwen2_vl",
    "qwen3moe": "qwen3_moe",
    "qwen3vl": "qwen3_vl",
    "qwen3vlmoe": "qwen3_vl_moe",
    "starcoder": "gpt_bigcode",
}
# Model types of hybrid decoders, whose recurrent layers GGUF describes by the keys of `ssm` and `shortconv`.
HYBRIDS: Mapping[str, str] = {
    "granitehybrid": "granitemoehybrid",
    "lfm2": "lfm2",
    "lfm2moe": "lfm2_moe",
    "qwen3next": "qwen3_next",
    "qwen35": "qwen3_5",
    "qwen35moe": "qwen3_5_moe",
}
# Architectures that are not text decoders: towers, adapters, encoder-decoders and other recurrent models.
UNSUPPORTED = frozenset(
    "clip t5 t5encoder mamba mamba2 jamba rwkv6 rwkv6qwen2 rwkv7 arwkv7 falcon-h1 nemotron_h plamo2 "
    "kimi-linear wavtokenizer-dec whisper flux sd3 sdxl".split()
)


def read_gguf(path: Path) -> tuple[Transformer, dict[str, int]]:
    """Return the shape of the model in a GGUF file (all parts of a split one), and its weights' bytes by tensor type."""
    header = read_header(path)
    tensors = _all_tensors(path, header)
    weights: dict[str, int] = {}
    for tensor in tensors:
        weights[tensor.type] = weights.get(tensor.type, 0) + tensor.bytes
    shape = _shape(path, header, {tensor.name: tensor for tensor in tensors})
    precision = file_precision(tensors, header.metadata)
    if not precision:
        raise UsageError("bad-gguf", msg("error.bad-gguf", path=str(path), why=msg("gguf.no-weights")), msg("hint.bad-gguf"))
    stored = replace(shape, stored_bytes=sum(weights.values()), stored_widths=role_widths(tensors))
    return replace(stored, native=precision, file_format="gguf"), weights


def _all_tensors(path: Path, header: Header) -> tuple[GgufTensor, ...]:
    """Return the tensors of this file and of the other parts of a split model, found by name: model-00001-of-00003.gguf."""
    parts = header.metadata.get("split.count", 0)
    if not isinstance(parts, int) or parts <= 1:
        return header.tensors
    match = _PART.fullmatch(path.name)
    if not match or int(match[3]) != parts or parts > MAX_PARTS:
        message = msg("error.bad-gguf", path=str(path), why=msg("gguf.part-name", n=parts))
        raise UsageError("bad-gguf", message, msg("hint.gguf-parts"))
    others = [path.with_name(f"{match[1]}{part:05}-of-{parts:05}.gguf") for part in range(1, parts + 1) if part != int(match[2])]
    return header.tensors + tuple(tensor for other in others for tensor in read_header(other).tensors)


def _shape(path: Path, header: Header, tensors: Mapping[str, GgufTensor]) -> Transformer:
    name = path.name
    fields = Fields(header.metadata, name)
    architecture = fields.word("general.architecture")
    if not architecture:
        raise fields.error("general.architecture", msg("config.missing"))
    if architecture in UNSUPPORTED or (f"{architecture}.ssm.state_size" in fields and architecture not in HYBRIDS):
        raise unsupported(name, architecture)
    config = _config(fields, architecture, header, tensors)
    shape = shape_from_config(config, fields.word("general.name") or path.stem)
    assert not isinstance(shape, TracedShape | Dlrm)  # No GGUF architecture has these shapes.
    return _as_stored(shape, tensors)


def _config(fields: Fields, architecture: str, header: Header, tensors: Mapping[str, GgufTensor]) -> dict[str, Any]:
    """Convert a GGUF file's metadata to the keys of a config.json."""

    def size(key: str, **bounds: int) -> int:
        """Return a number of the GGUF metadata, or the largest one if it is stated per layer."""
        name = f"{architecture}.{key}"
        value = fields.get(name)
        if isinstance(value, tuple):
            return Fields({name: max(value, default=0)}, fields.name).size(name, **bounds)
        return fields.size(name, **bounds)

    layers, heads = size("block_count", high=10_000), size("attention.head_count", high=100_000)
    layers -= min(size("nextn_predict_layers", default=0, low=0), layers - 1)  # Exclude multi-token prediction (MTP) layers.
    experts = size("expert_count", default=0, low=0, high=100_000)
    mixture = "mixtral" if architecture == "llama" and experts else architecture
    embedding = tensors.get("token_embd.weight")
    stored_vocabulary = embedding.sizes[1] if embedding and len(embedding.sizes) > 1 else 0
    vocabulary = stored_vocabulary or header.lengths.get("tokenizer.ggml.tokens", 0) or size("vocab_size", high=10**8)
    config: dict[str, Any] = {
        "model_type": "llama" if mixture in ("traced", "dlrm") else HYBRIDS.get(mixture) or ARCHITECTURES.get(mixture, mixture),
        "hidden_size": size("embedding_length"),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": size("attention.head_count_kv", default=heads, high=100_000),
        "num_kv_heads": size("attention.head_count_kv", default=heads, high=100_000),
        "new_decoder_architecture": size("attention.head_count_kv", default=1, high=100_000) > 1,
        "multi_query": size("attention.head_count_kv", default=heads, high=100_000) == 1,
        "vocab_size": vocabulary,
        "max_position_embeddings": size("context_length", default=2048, high=MAX_CONTEXT_TOKENS),
        "tie_word_embeddings": "output.weight" not in tensors,
        "sliding_window": size("attention.sliding_window", default=0, low=0, high=MAX_CONTEXT_TOKENS),
        "use_sliding_window": True,
    }
    width = size("feed_forward_length", default=0, low=0) or size("expert_feed_forward_length")
    config["intermediate_size"] = config["ffn_dim"] = width
    if head_dim := size("attention.key_length", default=0):
        config["head_dim"] = head_dim
    if experts:
        config |= _experts(size, experts, mixture)
    if rank := size("attention.kv_lora_rank", default=0):
        config |= _latent(size, rank)
    if architecture in HYBRIDS:
        config |= _recurrent(size, architecture, fields.get(f"{architecture}.attention.head_count_kv"))
    return config


def _recurrent(size: Size, architecture: str, kv_heads: Any) -> dict[str, Any]:
    """Convert the sizes of recurrent layers to config.json's keys; layers without KV heads are recurrent.

    The keys of gated DeltaNet are those that llama.cpp's converter of Qwen3-Next writes.
    """
    config: dict[str, Any] = {}
    if isinstance(kv_heads, tuple):
        config["layer_types"] = ["full_attention" if count else "mamba" for count in kv_heads]
    if architecture.startswith("lfm2"):
        return config | {"conv_L_cache": size("shortconv.l_cache", default=3), "block_auto_adjust_ff_dim": False}
    heads, groups, state = size("ssm.time_step_rank"), size("ssm.group_count", default=1), size("ssm.state_size")
    width, taps = size("ssm.inner_size") // heads, size("ssm.conv_kernel", default=4)
    if architecture == "granitehybrid":
        sizes = {"mamba_n_heads": heads, "mamba_d_head": width, "mamba_d_state": state, "mamba_n_groups": groups}
        return config | sizes | {"mamba_d_conv": taps}
    return config | {
        "linear_num_value_heads": heads,
        "linear_value_head_dim": width,
        "linear_num_key_heads": groups,
        "linear_key_head_dim": state,
        "linear_conv_kernel_dim": taps,
        "full_attention_interval": size("full_attention_interval", default=4),
    }


def _experts(size: Size, count: int, architecture: str) -> dict[str, Any]:
    counts = {
        "num_local_experts": count,
        "num_experts_per_tok": size("expert_used_count", high=100_000),
        "first_k_dense_replace": size("leading_dense_block_count", default=0, low=0, high=10_000),
        "interleave_moe_layer_step": size("interleave_moe_layer_step", default=1, high=10_000),
    }
    width = size("expert_feed_forward_length", default=0, low=0) or size("feed_forward_length")
    counts["moe_intermediate_size"] = width
    shared = size("expert_shared_feed_forward_length", default=0, low=0)
    counts["shared_expert_intermediate_size"] = shared or width * size("expert_shared_count", default=0, low=0, high=1000)
    if architecture == "llama4":
        counts["intermediate_size"] = counts["moe_intermediate_size"]
        counts["intermediate_size_mlp"] = size("feed_forward_length")
    return counts


def _latent(size: Size, rank: int) -> dict[str, Any]:
    """Convert MLA's sizes to config.json's keys; in newer files `_mla` keys hold the head sizes, other keys the KV cache's."""
    rotary = size("rope.dimension_count")
    key = size("attention.key_length_mla", default=0) or size("attention.key_length")
    return {
        "kv_lora_rank": rank,
        "q_lora_rank": size("attention.q_lora_rank", default=0, low=0),
        "qk_rope_head_dim": rotary,
        "qk_nope_head_dim": key - rotary,
        "v_head_dim": size("attention.value_length_mla", default=0) or size("attention.value_length"),
    }


def _as_stored(shape: Transformer, tensors: Mapping[str, GgufTensor]) -> Transformer:
    """Correct the biases and norms of a model's shape by the tensors that its GGUF file has."""

    first = next((name.split(".")[1] for name in tensors if name.endswith((".attn_q.weight", ".attn_qkv.weight"))), "0")
    first = first if shape.pattern else "0"  # The first layers of a hybrid decoder have no attention.

    def has(*names: str) -> bool:
        return any(f"blk.{first}.{name}" in tensors for name in names)

    if not has("attn_norm.weight", "attn_q.weight", "attn_qkv.weight", "attn_output.weight"):
        return shape
    return replace(
        shape,
        qkv_bias=has("attn_q.bias", "attn_qkv.bias"),
        out_bias=has("attn_output.bias"),
        mlp_bias=has("ffn_up.bias", "ffn_down.bias"),
        qk_norm=has("attn_q_norm.weight") and shape.mla is None,
    )
