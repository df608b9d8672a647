"""Configs as hypothesis draws them: of every family, with any of the known keys set to anything."""

from __future__ import annotations

from hypothesis import strategies as st

from whichgpu.workload.hf import READERS
from whichgpu.workload.hf.families import FAMILIES, SAME
from whichgpu.workload.hf.towers import TOWERS

KEYS = (
    "hidden_size n_embd d_model intermediate_size n_inner ffn_dim d_ff num_hidden_layers n_layer num_layers encoder_layers "
    "decoder_layers num_attention_heads n_head num_heads num_key_value_heads head_dim d_kv vocab_size max_position_embeddings "
    "n_positions num_local_experts n_routed_experts num_experts num_experts_per_tok moe_intermediate_size n_shared_experts "
    "shared_expert_intermediate_size first_k_dense_replace decoder_sparse_step mlp_only_layers kv_lora_rank q_lora_rank "
    "qk_nope_head_dim qk_rope_head_dim v_head_dim sliding_window use_sliding_window layer_types sliding_window_pattern "
    "rope_scaling attention_bias tie_word_embeddings hidden_act architectures id2label image_size patch_size num_channels "
    "text_config vision_config thinker_config attn_config ffn_config decoder_ffn_dim decoder_attention_heads "
    "max_target_positions projection_dim feed_forward_proj pos_att_type relative_attention position_buckets tables bottom top "
    "embedding_dim table image resid_pdrop multi_query new_decoder_architecture word_embed_proj_dim expansion_ratio depth "
    "embed_dim mlp_ratio deepstack_visual_indexes"
).split()
TYPES = sorted({*READERS, *FAMILIES, *SAME, *TOWERS, "dlrm", "traced", "mixtral", "deepseek_v3", "dbrx", "novel"})
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 4096), st.sampled_from([10**30, -(10**30), 2**63, 128, 64, 8]),
    st.floats(), st.text(max_size=8), st.sampled_from(["gelu", "gated-gelu", "full_attention", "linear_attention", "yarn"]),
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from([*KEYS, "model_type", "type", "factor"]), inner, max_size=6)
    ),
    max_leaves=12,
)
sizes = st.sampled_from([1, 2, 4, 8, 16, 64, 128, 256])
plausible = st.fixed_dictionaries(
    dict.fromkeys(("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"), sizes)
)
configs = st.builds(
    lambda kind, base, wild: {"model_type": kind} | base | wild,
    st.sampled_from(TYPES),
    st.one_of(plausible, st.just({})),
    st.dictionaries(st.sampled_from(KEYS), values, max_size=10),
)
