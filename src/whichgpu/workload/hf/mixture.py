"""MoE and multi-head latent attention (MLA) in a config.json, under the keys that different models use."""

from __future__ import annotations

from whichgpu.base.messages import msg
from whichgpu.workload.hf.fields import Fields
from whichgpu.workload.shapes import Experts, LatentAttention


def experts_of(fields: Fields, family: str, hidden: int) -> Experts | None:
    """Return the MoE sizes (experts and their widths) of a config; None for a dense model."""
    keys = ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
    count = fields.size(*keys, default=0, low=0, high=100_000)
    if count <= 1:
        return None
    active = fields.size("num_experts_per_tok", "moe_top_k", "num_experts_per_token", "moe_k", "moe_topk", "top_k", high=100_000)
    if active > count:
        raise fields.error("num_experts_per_tok", msg("config.range", value=active, low=1, high=count))
    ffn = fields.size("moe_intermediate_size", "intermediate_size", "ffn_hidden_size")
    return Experts(
        count=count,
        active=active,
        ffn=ffn,
        shared_ffn=_shared(fields, family, ffn),
        dense_layers=_dense_layers(fields),
        every=fields.layers("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval", default=1),
        bias=family == "gpt_oss",
        other={"gpt_oss": count, "qwen2_moe": hidden}.get(family, 0),
    )


def _shared(fields: Fields, family: str, ffn: int) -> int:
    """Return the total MLP width of the shared experts, which every token passes through."""
    if family == "llama4":
        return ffn
    shared = fields.get("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")
    if shared is not None and "shared_expert_intermediate_size" not in fields:
        keys = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")
        return ffn * fields.size(*keys, low=0, high=1000)
    return fields.size("shared_expert_intermediate_size", "shared_intermediate_size", default=0, low=0)


def _dense_layers(fields: Fields) -> int:
    """Return the number of layers with a dense MLP instead of experts."""
    listed = fields.get("mlp_only_layers")
    if isinstance(listed, list | tuple) and listed:
        return min(len(listed), fields.layers("num_hidden_layers"))
    return fields.layers("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers", default=0, low=0)


def latent_of(fields: Fields) -> LatentAttention | None:
    """Return the sizes of multi-head latent attention (MLA); None if the model has none."""
    if "kv_lora_rank" not in fields:
        return None
    return LatentAttention(
        kv_rank=fields.size("kv_lora_rank"),
        q_rank=fields.size("q_lora_rank", default=0, low=0),
        nope_dim=fields.size("qk_nope_head_dim"),
        rope_dim=fields.size("qk_rope_head_dim"),
        value_dim=fields.size("v_head_dim"),
    )
