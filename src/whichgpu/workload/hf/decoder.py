"""Shapes of decoder-only language models from their configs."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from whichgpu.base.messages import msg
from whichgpu.workload.hf.families import FAMILIES, Family, family_name
from whichgpu.workload.hf.fields import Fields
from whichgpu.workload.hf.hybrid import mixer_of, pattern_of
from whichgpu.workload.hf.mixture import experts_of, indexer_of, latent_of
from whichgpu.workload.shapes import FullHeads, Transformer

ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "swiglu": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_python": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu",  # Both names mean the same kernel.
    "gelu_accurate": "gelu",
    "relu": "relu",
    "relu2": "relu",
    "quick_gelu": "quick_gelu",
}
MAX_CONTEXT_TOKENS = 10**9  # Largest context in tokens that a config may state (assumed).
CONTEXT_KEYS = (
    "max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length", "max_sequence_length", "model_max_length",
    "context_length",
)  # fmt: skip
WINDOW_KEYS = ("sliding_window", "attention_chunk_size", "window_size", "attention_window_size")
HEAD_KEYS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")
FOUR_TIMES_WIDE = (
    "gpt2", "gptj", "gpt_neo", "gpt_bigcode", "codegen", "bloom", "falcon", "openai-gpt", "gpt_neox_japanese", "rwkv",
)  # fmt: skip
OUTPUT_GATES = ("qwen3_next", "qwen3_5", "qwen3_5_moe")  # families whose attention has an output gate
SHARING_KEYS = ("gemma3n", "gemma4")  # families whose last layers share keys and values of earlier ones
GLOBAL_HEAD_DIM = 512  # of Gemma 4 if the config states none (its configuration class in transformers 5.23)
CONTEXT = 2048  # Context in tokens if the config states none (assumed).
STRETCHED = ("linear", "dynamic", "yarn")  # Kinds of RoPE scaling whose factor is not included in max_position_embeddings.


def decoder(fields: Fields, model_type: str) -> Transformer:
    """Return a decoder's sizes (its shape) from its config; an unknown model type is read as Llama-like, as most are."""
    name = family_name(model_type)
    family = _as_configured(fields, name, FAMILIES.get(name, FAMILIES["llama"]))
    hidden = fields.size("hidden_size", "n_embd", "d_model", "dim")
    pattern = pattern_of(fields, name, 0) if name == "nemotron_h" else ""
    layers = len(pattern) or fields.layers("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    layers *= 2 if name == "longcat_flash" else 1  # Each of LongCat's layers has two attentions with an MLP after each.
    pattern = pattern or pattern_of(fields, name, layers)
    attends = not pattern or pattern.strip("r-+R") != ""
    heads = fields.size(*HEAD_KEYS, high=100_000) if attends else 1
    mla = latent_of(fields)
    head_dim = mla.nope_dim + mla.rope_dim if mla else _head_dim(fields, hidden, heads)
    kv_heads = heads if mla or not attends else _kv_heads(fields, name, heads)
    ffn = 1 if pattern.strip("r") == "" and pattern else _ffn(fields, name, hidden)
    context = _context(fields, name)
    window, global_every = _window(fields, family, layers, context)
    shape = Transformer(
        name=fields.name,
        model_type=model_type.removesuffix("_text"),
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=ffn,
        vocab=fields.size("vocab_size", "padded_vocab_size", high=10**8),
        gated=family.gated,
        norm=family.norm,
        activation=activation(fields, family.activation),
        tied=fields.flag("tie_word_embeddings", default=family.tied),
        rope=family.rope,
        positions=0 if family.position_offset is None else context + family.position_offset,
        max_context=context,
        qkv_bias=family.qkv_bias,
        out_bias=family.out_bias,
        mlp_bias=family.mlp_bias,
        qk_norm=family.qk_norm,
        norms=family.norms,
        parallel_block=family.parallel,
        embedding_norm=family.embedding_norm,
        dropout=fields.fraction("resid_pdrop", "hidden_dropout", "dropout", "resid_dropout", default=family.dropout),
        window=window,
        global_every=global_every,
        experts=experts_of(fields, name, hidden),
        mla=mla,
        sparse=indexer_of(fields),
        recurrent=mixer_of(fields, name) if pattern else None,
        pattern=pattern,
        head_bias=family.head_bias,
        norm_affine=family.norm_affine,
        norm_bias=family.norm_bias,
        full_heads=_full_heads(fields, head_dim, kv_heads) if name == "gemma4" and window else None,
        kv_shared=min(fields.layers("num_kv_shared_layers", default=0, low=0), layers - 1) if name in SHARING_KEYS else 0,
        layer_other=_layer_other(fields, name, family, (hidden, heads, kv_heads, head_dim)),
    )
    if "hidden_size_per_layer_input" in fields:
        shape = _with_layer_inputs(fields, shape)
    if name == "gemma3n":
        shape = _with_streams(fields, shape)
    if "cross_attention_layers" in fields:
        shape = _without_image_layers(fields, shape)
    return _projected(fields, shape) if name == "opt" else shape


def activation(fields: Fields, default: str) -> str:
    """Return this project's name of the config's activation function; one without such a name keeps its own."""
    key = fields.word("hidden_act", "hidden_activation", "activation_function", "activation", default=default)
    return ACTIVATIONS.get(key, key)


def _as_configured(fields: Fields, name: str, family: Family) -> Family:
    """Return the decoder family's properties, overridden by what this config states on biases, norms and parallel blocks."""
    if family.bias_key:
        bias = fields.flag(family.bias_key, default=family.qkv_bias)
        family = replace(family, qkv_bias=bias, out_bias=bias, mlp_bias=bias)
    if fields.flag("attention_bias", default=False) and family.out_follows:
        family = replace(family, out_bias=True)
    elif "attention_bias" in fields:
        family = replace(family, out_bias=False)
    if name == "falcon":
        family = _falcon(fields, family)
    return replace(
        family,
        qkv_bias=fields.flag("attention_bias", "qkv_bias", "use_qkv_bias", "add_qkv_bias", default=family.qkv_bias),
        out_bias=fields.flag("attention_out_bias", default=family.out_bias),
        mlp_bias=fields.flag("mlp_bias", default=family.mlp_bias),
        head_bias=fields.flag("lm_head_bias", default=family.head_bias),
        # Llama 4's query and key norms have no weights.
        qk_norm=fields.flag("use_qk_norm", "qk_layernorm", default=family.qk_norm) and name != "llama4",
        parallel=fields.flag("use_parallel_residual", default=family.parallel),
    )


def _falcon(fields: Fields, family: Family) -> Family:
    """Return Falcon's block layout: attention and MLP in sequence, in parallel after one norm, or in parallel after two."""
    new = fields.flag("new_decoder_architecture", default=False)
    parallel = new or fields.flag("parallel_attn", default=True)
    norms = fields.size("num_ln_in_parallel_attn", default=2 if new else 1, high=2) if parallel else 2
    return replace(family, norms=norms, parallel=parallel, rope=not fields.flag("alibi", default=False))


def _head_dim(fields: Fields, hidden: int, heads: int) -> int:
    stated = fields.size("head_dim", "kv_channels", default=0)
    if not stated and hidden % heads:
        raise fields.error("num_attention_heads", msg("config.indivisible", value=heads, whole=hidden, other="hidden_size"))
    return stated or hidden // heads


def _full_heads(fields: Fields, head_dim: int, kv_heads: int) -> FullHeads:
    """Return the heads of Gemma 4's layers with full attention, as its configuration class fills them in."""
    layers = fields.get("per_layer_config")
    own = next((one for one in layers.values() if isinstance(one, Mapping)), {}) if isinstance(layers, Mapping) else None
    same = fields.flag("attention_k_eq_v", default=False)
    if own is not None:
        stated = Fields(own, fields.name, "per_layer_config.")
        width, heads = stated.size("head_dim", default=head_dim), stated.size("num_key_value_heads", default=kv_heads)
    else:
        width = fields.size("global_head_dim", default=GLOBAL_HEAD_DIM)
        heads = fields.size("num_global_key_value_heads", default=kv_heads) if same else kv_heads
    return FullHeads(width, heads, same)


def _kv_heads(fields: Fields, name: str, heads: int) -> int:
    """Return the number of KV heads: as many as query heads (MHA), fewer (GQA), or one (MQA)."""
    one = name == "gpt_bigcode" and fields.flag("multi_query", default=True)
    if name == "falcon" and not fields.flag("new_decoder_architecture", default=False):
        one = fields.flag("multi_query", default=True)
        default = heads
    elif name == "chatglm":
        default = fields.size("multi_query_group_num", default=heads)
    else:
        default = fields.size("num_key_value_heads", "num_kv_heads", "n_head_kv", "kv_n_heads", default=heads)
    count = 1 if one else default
    if heads % count:
        raise fields.error(
            "num_key_value_heads", msg("config.indivisible", value=count, whole=heads, other="num_attention_heads")
        )
    return count


def _ffn(fields: Fields, name: str, hidden: int) -> int:
    """Return the width of the MLP; GPT-style configs omit it and mean four times the hidden size."""
    if name == "mpt":
        return hidden * fields.size("expansion_ratio", default=4, high=64)
    if name == "xlstm":
        multiple = fields.size("ffn_round_up_to_multiple_of", default=64)
        return -int(-hidden * fields.fraction("ffn_proj_factor", default=2.667, high=64) // multiple) * multiple
    four = 4 * hidden if name in FOUR_TIMES_WIDE else fields.size("moe_intermediate_size", default=0) or None
    first = ("intermediate_size_mlp",) if name == "llama4" else ()
    both = 2 if name == "qwen" else 1  # Configs of the first Qwen models state the widths of the gate and up matrices as one sum.
    keys = (*first, "intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "hidden_dim", "dim_ff", "dff")
    widths = fields.get(*keys)
    if isinstance(widths, list) and widths:  # Gemma 3n states the same width for every layer.
        fields = Fields({"intermediate_size": max(widths, key=lambda one: one if isinstance(one, int) else 0)}, fields.name)
    stated = fields.size(*keys, default=four, low=both) // both
    if name == "lfm2" and fields.flag("block_auto_adjust_ff_dim", default=True):
        multiple = fields.size("block_multiple_of", default=256)
        return -(-(2 * stated // 3) // multiple) * multiple
    return stated // 2 if name == "recurrent_gemma" else stated


def _context(fields: Fields, name: str) -> int:
    stated = fields.size(*CONTEXT_KEYS, default=CONTEXT, high=MAX_CONTEXT_TOKENS)
    scaling = fields.nested("rope_scaling") or fields.nested("rope_parameters")
    if scaling is None or name == "gemma3" or scaling.word("rope_type", "type") not in STRETCHED:
        return stated
    factor = scaling.get("factor")
    if not isinstance(factor, int | float) or not 1 <= factor <= 10_000:
        return stated
    stretched = int(factor * scaling.size("original_max_position_embeddings", default=stated, high=MAX_CONTEXT_TOKENS))
    return min(max(stated, stretched), MAX_CONTEXT_TOKENS)


def _window(fields: Fields, family: Family, layers: int, context: int) -> tuple[int, int]:
    """Return the window in tokens of sliding-window or chunked attention, and every how many layers one has full attention."""
    window = fields.size(*WINDOW_KEYS, default=family.window, low=0, high=MAX_CONTEXT_TOKENS)
    kinds = fields.words("layer_types") or fields.words("attention_layers")
    if not window or not fields.flag("use_sliding_window", default=family.windowed or bool(kinds)) or (window >= context > 0):
        return 0, 0
    if kinds:
        seeing = sum(kind in ("full_attention", "global") for kind in kinds)
        return (0, 0) if seeing >= len(kinds) else (window, round(layers / seeing) if seeing else 0)
    pattern = fields.get("sliding_window_pattern", "_sliding_window_pattern", "no_rope_layer_interval")
    every = pattern if isinstance(pattern, int) and 0 < pattern <= layers else family.global_every
    return (0, 0) if every == 1 else (window, every)


def _layer_other(fields: Fields, name: str, family: Family, sizes: tuple[int, int, int, int]) -> int:
    """Return the parameters of one attention layer that no other field of the shape covers."""
    hidden, heads, kv_heads, head_dim = sizes
    # Qwen3-Next and its kin gate the output of attention by a projection as wide as the queries.
    gate = hidden * heads * head_dim if fields.flag("attn_output_gate", default=name in OUTPUT_GATES) else 0
    if name == "lfm3" and fields.flag("use_attention_gate", default=True):
        gate = hidden * heads  # one gate per head
    # GPT-OSS has an attention sink per head, Apertus two parameters in its activation, Persimmon biases of query and key norms.
    sinks = {"gpt_oss": heads, "apertus": 2, "persimmon": 2 * head_dim, "fuyu": 2 * head_dim}.get(name, 0)
    wide = (heads + kv_heads - 2) * head_dim if family.qk_norm and family.wide_qk_norm else 0
    return gate + sinks + wide


def _with_layer_inputs(fields: Fields, shape: Transformer) -> Transformer:
    """Add Gemma 4's embeddings of every layer: a narrow vector per token and layer, with projections in and out of the layer."""
    width = fields.size("hidden_size_per_layer_input", low=0)
    rows = fields.size("vocab_size_per_layer_input", default=shape.vocab, high=10**8)
    if not width:
        return shape
    of_layer = 2 * width * shape.hidden + shape.hidden
    outside = shape.layers * width * (rows + shape.hidden) + width
    return replace(shape, layer_other=shape.layer_other + of_layer, other=shape.other + outside)


def _with_streams(fields: Fields, shape: Transformer) -> Transformer:
    """Add Gemma 3n's parallel streams (AltUp, arXiv 2301.13310) and low-rank residual (LAuReL, arXiv 2411.07501)."""
    hidden, streams = shape.hidden, fields.size("altup_num_inputs", default=4, high=64)
    residual = 2 * hidden * fields.size("laurel_rank", default=64) + hidden
    mixing = streams**2 + streams**3 + hidden * streams + 2 * hidden
    outside = 2 * (streams - 1) * hidden**2
    return replace(shape, layer_other=shape.layer_other + residual + mixing, other=shape.other + outside)


def _without_image_layers(fields: Fields, shape: Transformer) -> Transformer:
    """Return Llama 3.2 Vision's shape with its cross-attention layers as weights only, since text tokens skip them.

    Such a layer has norms of queries and keys and two gates more than a plain one; the embedding has eight tokens more.
    """
    count = len(fields.sizes("cross_attention_layers", low=0, max_count=shape.layers - 1))
    width = shape.head_dim * (shape.heads + shape.kv_heads)
    layer = 2 * shape.hidden * width + 3 * shape.hidden * shape.ffn + 2 * shape.hidden + 2 * shape.head_dim + 2
    return replace(shape, layers=shape.layers - count, other=shape.other + count * layer + 8 * shape.hidden)


def _projected(fields: Fields, shape: Transformer) -> Transformer:
    """Apply OPT-350M's features: embeddings narrower than the hidden size, and no norm after the last layer."""
    width = fields.size("word_embed_proj_dim", default=shape.hidden)
    final = fields.flag("do_layer_norm_before", default=True) and not fields.flag("_remove_final_layer_norm", default=False)
    return replace(shape, embedding=0 if width == shape.hidden else width, final_norm=final)
