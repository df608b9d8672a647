"""MoE and multi-head latent attention (MLA) in a config.json, under the keys that different models use."""

from __future__ import annotations

from whichgpu.base.messages import msg
from whichgpu.workload.hf.fields import Fields
from whichgpu.workload.shapes import Experts, LatentAttention, SparseIndexer

SHARED_WIDTHS = ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size")
# Families that weight the output of the shared expert by a gate of one output.
GATED_SHARED_EXPERTS = ("qwen2_moe", "qwen3_next", "qwen3_5_moe")


def experts_of(fields: Fields, family: str, hidden: int) -> Experts | None:
    """Return the MoE sizes (experts and their widths) of a config; None for a dense model."""
    keys = ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
    count = fields.size(*keys, default=0, low=0, high=100_000)
    if count <= 1 or not fields.flag("is_moe", default=True):
        return None
    if family == "longcat_flash":
        return _longcat(fields, count, hidden)
    active = fields.size(
        "num_experts_per_tok", "moe_top_k", "num_experts_per_token", "moe_k", "moe_topk", "top_k", "top_k_experts", high=100_000
    )
    if active > count:
        raise fields.error("num_experts_per_tok", msg("config.range", value=active, low=1, high=count))
    ffn = fields.size("moe_intermediate_size", "intermediate_size", "ffn_hidden_size")
    if family == "gemma4":  # Three norms, a scale of the router's input and one of each expert.
        other = 4 * hidden + count
    else:
        other = count if family == "gpt_oss" else hidden if family in GATED_SHARED_EXPERTS else 0
    return Experts(
        count=count,
        active=active,
        ffn=ffn,
        shared_ffn=_shared(fields, family, ffn),
        dense_layers=_dense_layers(fields),
        every=fields.layers(
            "decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval", "expert_layer_period", default=1
        ),
        bias=family == "gpt_oss",
        other=other,
    )


def _longcat(fields: Fields, count: int, hidden: int) -> Experts:
    """Return LongCat's experts: every second MLP has some beside it; some choices of the router are experts that do nothing."""
    idle = fields.size("zero_expert_num", default=0, low=0)
    active = fields.size("moe_topk") * count // (count + idle)
    dense = fields.size("ffn_hidden_size")
    return Experts(count, max(1, active), fields.size("expert_ffn_hidden_size"), dense, every=2, other=idle * hidden)


def _shared(fields: Fields, family: str, ffn: int) -> int:
    """Return the total MLP width of the shared experts, which every token passes through."""
    if family == "llama4":
        return ffn
    if family == "gemma4":  # Each layer has a dense MLP beside its experts.
        return fields.size("intermediate_size")
    shared = fields.get("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")
    if shared is not None and not any(key in fields for key in SHARED_WIDTHS):
        keys = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")
        return ffn * fields.size(*keys, low=0, high=1000)
    return fields.size(*SHARED_WIDTHS, default=0, low=0)


def _dense_layers(fields: Fields) -> int:
    """Return the number of layers with a dense MLP instead of experts."""
    kinds = fields.words("mlp_layer_types")
    if kinds:
        return next((index for index, kind in enumerate(kinds) if kind != "dense"), len(kinds))
    listed = fields.get("mlp_only_layers")
    if isinstance(listed, list | tuple) and listed:
        return min(len(listed), fields.layers("num_hidden_layers"))
    return fields.layers("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers", default=0, low=0)


def indexer_of(fields: Fields) -> SparseIndexer | None:
    """Return the sizes of sparse attention's indexer (DeepSeek-V3.2, GLM-5); None if the model has none."""
    if "index_topk" not in fields or "kv_lora_rank" not in fields:
        return None
    return SparseIndexer(fields.size("index_n_heads"), fields.size("index_head_dim"), fields.size("index_topk"))


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
