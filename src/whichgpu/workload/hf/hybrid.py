"""Linear-attention and state-space layers of hybrid decoders: sizes of their mixers, and which layers have them.

Facts of the reference implementations in the `transformers` library; parameter counts of each family are checked against them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from whichgpu.base.messages import msg
from whichgpu.workload.hf.families import unsupported
from whichgpu.workload.hf.fields import MAX_LAYERS, Fields, printable
from whichgpu.workload.shapes import RecurrentMixer

MAMBA = ("mamba", "falcon_mamba")  # families whose layers are Mamba mixers without attention and MLP
MAMBA2 = ("mamba2",)
ALL_RECURRENT = ("xlstm", "rwkv")  # families without attention whose layers have an MLP after the recurrent mixer
# Words of `layer_types` and similar lists for layers without attention.
RECURRENT_WORDS = ("linear_attention", "mamba", "mamba2", "recurrent", "conv")
# Letters of layers that consist of one part, by the words and signs of Nemotron-H's lists.
SINGLE_PARTS = {"linear_attention": "r", "mamba": "r", "M": "r", "full_attention": "a", "attention": "a", "*": "a",
                "mlp": "-", "-": "-", "moe": "+", "E": "+"}  # fmt: skip
STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def mixer_of(fields: Fields, family: str) -> RecurrentMixer:
    """Return the sizes of the recurrent layers of a config; raise an error if their kind is unknown."""
    if family in READERS:
        return READERS[family](fields)
    if "linear_num_value_heads" in fields:
        return _gated_delta(fields)
    raise unsupported(fields.name, fields.word("model_type"))


def pattern_of(fields: Fields, family: str, layers: int) -> str:
    """Return a letter per layer (see `Transformer.pattern`); empty if the config lists no layers of different kinds."""
    if family in (*MAMBA, *MAMBA2):
        return "r" * layers
    if family in ALL_RECURRENT:
        return "R" * layers
    if family == "falcon_h1":
        return "B" * layers
    if family == "nemotron_h":
        return _single_parts(fields)
    recurrent = _recurrent_indices(fields, family, layers)
    if family in READERS and not recurrent and not (fields.words("layer_types") or "full_attn_idxs" in fields):
        raise fields.error("layer_types", msg("config.missing"))
    return "".join("R" if index in recurrent else "A" for index in range(layers)) if recurrent else ""


def _single_parts(fields: Fields) -> str:
    """Return Nemotron-H's layers, each of which is one mixer, one MLP or one MoE."""
    pattern = fields.get("hybrid_override_pattern")
    signs = fields.words("layers_block_type") or tuple(pattern[:MAX_LAYERS] if isinstance(pattern, str) else "")
    unknown = next((sign for sign in signs if sign not in SINGLE_PARTS), None)
    if unknown is not None or not signs:
        sign = printable(repr(unknown))
        raise fields.error("hybrid_override_pattern", msg("config.not-choice", value=sign, choices=tuple(SINGLE_PARTS)))
    return "".join(SINGLE_PARTS[sign] for sign in signs)


def _recurrent_indices(fields: Fields, family: str, layers: int) -> frozenset[int]:
    """Return the indices of layers with a recurrent mixer instead of attention."""
    every = range(layers)
    words = fields.words("layer_types") or fields.words("layers_block_type")
    if words:
        return frozenset(index for index, word in enumerate(words[:layers]) if word in RECURRENT_WORDS)
    if family == "recurrent_gemma":
        blocks = fields.words("block_types") or ("recurrent", "recurrent", "attention")
        return frozenset(index for index in every if blocks[index % len(blocks)] in RECURRENT_WORDS)
    if family == "minimax":  # 0: lightning attention, 1: softmax attention
        kinds = fields.get("attn_type_list")
        return frozenset(index for index, kind in enumerate(kinds) if kind == 0) if isinstance(kinds, list) else frozenset()
    nested = fields.nested("linear_attn_config")
    listed = nested.get("kda_layers") if nested else None
    if isinstance(listed, list):  # Kimi's published configs count layers from 1.
        return frozenset(index - 1 for index in listed if isinstance(index, int))
    for key in ("attn_layer_indices", "full_attn_idxs"):
        listed = fields.get(key)
        if isinstance(listed, list) or (listed is None and family == "bamba" and key == "attn_layer_indices"):
            return frozenset(every) - {index for index in listed or () if isinstance(index, int)}
    if "attn_layer_period" in fields:
        period, offset = fields.size("attn_layer_period"), fields.size("attn_layer_offset", default=0, low=0)
        return frozenset(index for index in every if index % period != offset)
    group = fields.size("full_attention_interval", "layer_group_size", default=0, low=0)
    if group:
        return frozenset(index for index in every if (index + 1) % group)
    return frozenset()


def _state_bytes(fields: Fields) -> int | None:
    return STATE_BYTES.get(fields.word("mamba_ssm_cache_dtype", "mamba_ssm_dtype"))


def _gated_delta(fields: Fields) -> RecurrentMixer:
    """Gated DeltaNet of Qwen3-Next, Qwen3.5 and OLMo Hybrid: queries, keys, values, output gate, decay and step per head."""
    key_heads, heads = fields.size("linear_num_key_heads"), fields.size("linear_num_value_heads")
    key_dim, value_dim = fields.size("linear_key_head_dim"), fields.size("linear_value_head_dim")
    keys, values = key_heads * key_dim, heads * value_dim
    channels, taps = 2 * keys + values, fields.size("linear_conv_kernel_dim", default=4)
    return RecurrentMixer(
        "gated_delta", channels + values + 2 * heads, values, heads, key_dim, value_dim, channels, taps,
        other=channels * taps + 2 * heads + value_dim, state_bytes=_state_bytes(fields),
    )  # fmt: skip


def _kimi_delta(fields: Fields, low_rank: bool = True) -> RecurrentMixer:
    """Kimi delta attention: a decay per channel and an output gate, each of low rank (full in Ling 2.5); states in fp32."""
    nested = fields.nested("linear_attn_config") or fields
    heads = nested.size("linear_num_heads", "num_heads")
    dim = nested.size("linear_head_dim", "head_dim")
    taps = nested.size("linear_conv_kernel_dim", "short_conv_kernel_size", default=4)
    width = heads * dim
    gates = 2 * dim if low_rank else 2 * width
    inner = ((dim, width), (dim, width)) if low_rank else ()
    return RecurrentMixer(
        "kda", 3 * width + heads + gates, width, heads, dim, dim, 3 * width, taps, inner,
        other=3 * width * taps + heads + width + dim, state_bytes=4,
    )  # fmt: skip


def _full_rank_delta(fields: Fields) -> RecurrentMixer:
    return _kimi_delta(fields, low_rank=False)


def _mamba2(fields: Fields) -> RecurrentMixer:
    """Mamba-2: gate, input, one key and query per group of heads, and a step size per head."""
    heads = fields.size("mamba_n_heads", "mamba_num_heads", "n_mamba_heads", "num_heads")
    dim = fields.size("mamba_d_head", "mamba_head_dim", "mamba_headdim", "head_dim")
    state = fields.size("mamba_d_state", "ssm_state_size", "state_size")
    groups = fields.size("mamba_n_groups", "n_groups", "mamba_ngroups", default=1)
    taps = fields.size("mamba_d_conv", "conv_kernel", default=4)
    inner = fields.size("mamba_d_ssm", default=heads * dim)
    channels = inner + 2 * groups * state
    bias = channels if fields.flag("mamba_conv_bias", "use_conv_bias", default=True) else 0
    norm = 0 if fields.word("model_type") == "falcon_h1" and not fields.flag("mamba_rms_norm", default=False) else inner
    return RecurrentMixer(
        "mamba2", inner + channels + heads, inner, heads, state, dim, channels, taps,
        other=channels * taps + bias + 3 * heads + norm, state_bytes=_state_bytes(fields),
    )  # fmt: skip


def _mamba(fields: Fields) -> RecurrentMixer:
    """Mamba: a state of `state_size` elements per channel, and step sizes of low rank."""
    hidden = fields.size("hidden_size")
    inner = fields.size("mamba_expand", "expand", default=2) * hidden
    state = fields.size("mamba_d_state", "state_size", "d_state", default=16)
    rank = fields.size("mamba_dt_rank", "time_step_rank", default=-(-hidden // 16))
    taps = fields.size("mamba_d_conv", "conv_kernel", default=4)
    bias = inner if fields.flag("mamba_conv_bias", "use_conv_bias", default=True) else 0
    norms = rank + 2 * state if "mamba_dt_rank" in fields else 0  # Jamba normalises step sizes, keys and queries.
    return RecurrentMixer(
        "mamba", 2 * inner, inner, inner, state, 1, inner, taps, ((inner, rank + 2 * state), (rank, inner)),
        other=inner * taps + bias + inner * (state + 2) + norms, state_bytes=_state_bytes(fields),
    )  # fmt: skip


def _lightning(fields: Fields) -> RecurrentMixer:
    """Lightning attention of MiniMax-01: queries, keys, values and output gate of all heads."""
    heads = fields.size("num_attention_heads")
    dim = fields.size("head_dim", default=fields.size("hidden_size") // heads)
    return RecurrentMixer("lightning", 4 * heads * dim, heads * dim, heads, dim, dim, other=heads * dim)


def _short_convolution(fields: Fields) -> RecurrentMixer:
    """Short convolution of LFM2 between two gates."""
    hidden, taps = fields.size("hidden_size"), fields.size("conv_L_cache", default=3)
    bias = 5 * hidden if fields.flag("conv_bias", default=False) else 0
    return RecurrentMixer("short_conv", 3 * hidden, hidden, 0, 0, 0, hidden, taps, other=hidden * taps + bias)


def _linear_recurrent_unit(fields: Fields) -> RecurrentMixer:
    """RG-LRU of RecurrentGemma: one state per channel, gates with a block-diagonal matrix per head."""
    hidden = fields.size("hidden_size")
    width = fields.size("lru_width", default=hidden)
    heads = fields.size("num_attention_heads")
    taps = fields.size("conv1d_width", default=4)
    gates = 2 * (heads * (width // heads) ** 2 + width)
    other = gates + width * (taps + 2) + 2 * width + hidden
    return RecurrentMixer("rg_lru", 2 * width, width, width, 1, 1, width, taps, other=other)


def _matrix_lstm(fields: Fields) -> RecurrentMixer:
    """mLSTM of xLSTM (arXiv 2405.04517): queries, keys, values, output gate, and an input and a forget gate per head."""
    hidden, heads = fields.size("hidden_size"), fields.size("num_heads")
    keys = int(hidden * fields.fraction("qk_dim_factor", default=0.5))
    values = int(hidden * fields.fraction("v_dim_factor", default=1.0))
    gates = 2 * heads
    bias = 2 * (keys + values) + values + hidden if fields.flag("use_bias", default=False) else 0
    return RecurrentMixer(
        "mlstm", 2 * (keys + values) + gates, values, heads, keys // heads, values // heads, other=gates + values + bias
    )


def _weighted_keys(fields: Fields) -> RecurrentMixer:
    """RWKV-4 (arXiv 2305.13048): three states per channel, and a mix of each token with the one before it in both blocks.

    The receptance of the channel mix, a square matrix beside its MLP, is among the mixer's matrices.
    """
    hidden = fields.size("hidden_size")
    width = fields.size("attention_hidden_size", default=hidden)
    return RecurrentMixer("wkv", 3 * width, width, width, 3, 1, 2 * hidden, 2, ((hidden, hidden),), other=2 * width + 5 * hidden)


READERS: Mapping[str, Callable[[Fields], RecurrentMixer]] = {
    "kimi_linear": _kimi_delta,
    "bailing_hybrid": _full_rank_delta,
    **dict.fromkeys(("bamba", "granitemoehybrid", "falcon_h1", "nemotron_h", *MAMBA2), _mamba2),
    **dict.fromkeys(("jamba", *MAMBA), _mamba),
    "minimax": _lightning,
    **dict.fromkeys(("lfm2", "lfm2_moe", "lfm3"), _short_convolution),
    "recurrent_gemma": _linear_recurrent_unit,
    "xlstm": _matrix_lstm,
    "rwkv": _weighted_keys,
}
