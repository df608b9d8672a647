"""Transformer layers as the `transformers` library runs them, written block by block on a tape."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from whichgpu.estimate.memory.training.operators import ElementWidths, OperatorWriter, QuantisedWeights
from whichgpu.estimate.memory.training.recurrent import recurrent_mixer
from whichgpu.estimate.memory.training.tape import Tape, TapeBlock, TapeTensor
from whichgpu.workload.layer_pattern import WHOLE_LAYER, LayerParts
from whichgpu.workload.shapes import LatentAttention, Transformer

# Families with post-norm layers; all others are pre-norm.
POST_NORM = ("bert", "roberta", "deberta-v2", "deberta", "distilbert", "electra", "albert", "xlm-roberta", "opt-350m")
# Families with dropout inside the MLP.
WIDE_NORM = ("gemma", "qwen3_5", "qwen3_next")  # families that multiply by the weight of an RMS norm in fp32
INNER_DROPOUT = ("t5", "mt5", "umt5", "bart", "mbart")


class LayerRun(msgspec.Struct, frozen=True):
    """How a layer is run: tokens of the batch and of one sequence, attention kind, adapters, cross attention."""

    tokens: int
    sequence: int
    attention: str
    lora_rank: int = 0
    lora_targets: frozenset[str] = frozenset()
    parts: LayerParts = WHOLE_LAYER
    cross_tokens: int = 0  # encoder tokens a decoder layer attends to; 0: no cross attention
    cross_sequence: int = 0
    lora_dropout: float = 0.0
    quantised: QuantisedWeights | None = None
    joint_projections: bool = False
    expands_heads: bool = False


def layer_block(shape: Transformer, run: LayerRun, widths: ElementWidths) -> TapeBlock:
    """Return one layer of a transformer as a block of operators."""
    tape = Tape()
    write = OperatorWriter(
        tape, run.tokens, widths, run.lora_rank, 1, run.lora_targets, run.lora_dropout, quantised=run.quantised
    )
    entry = tape.value(run.tokens * shape.hidden, widths.stream)
    if run.parts.is_hybrid:
        exit = _hybrid(write, shape, entry, run)
    else:
        exit = (_post_norm if shape.model_type in POST_NORM else _pre_norm)(write, shape, entry, run)
    return TapeBlock(tuple(tape.nodes), entry, exit)


def _norm(write: OperatorWriter, shape: Transformer, x: TapeTensor) -> TapeTensor:
    return write.rms_norm(x, shape.model_type.startswith(WIDE_NORM)) if shape.norm == "rms" else write.layer_norm(x)


def _pre_norm(write: OperatorWriter, shape: Transformer, x: TapeTensor, run: LayerRun) -> TapeTensor:
    normed = _norm(write, shape, x)
    attended = write.dropout(_self_attention(write, shape, normed, run), shape.dropout)
    if shape.parallel_block:
        beside = _norm(write, shape, x) if shape.norms > 1 else normed  # GPT-NeoX normalises the MLP's input on its own.
        return write.add(write.add(_mlp(write, shape, beside), attended), x)
    if shape.norms > 2:  # Gemma 2 and 3 also normalise the outputs of attention and MLP.
        attended = _norm(write, shape, attended)
    x = write.add(x, attended)
    if run.cross_tokens:
        x = write.add(x, write.dropout(_cross_attention(write, shape, _norm(write, shape, x), run), shape.dropout))
    normed = _norm(write, shape, x)
    wide = write.dropout(_experts(write, shape, normed) if run.parts.experts else _mlp(write, shape, normed), shape.dropout)
    if shape.norms > 2:
        wide = _norm(write, shape, wide)
    return write.add(x, wide)


def _hybrid(write: OperatorWriter, shape: Transformer, x: TapeTensor, run: LayerRun) -> TapeTensor:
    """Write a layer of a hybrid model: attention, a recurrent mixer or both, then its MLP; or one of these alone."""
    if run.parts.mixes:
        normed = _norm(write, shape, x)
        if run.parts.recurrent and shape.recurrent:
            x = write.add(x, recurrent_mixer(write, shape.recurrent, normed, shape.hidden))
        if run.parts.attention:
            x = write.add(x, _self_attention(write, shape, normed, run))
    if run.parts.mlp:
        normed = _norm(write, shape, x)
        x = write.add(x, _experts(write, shape, normed) if run.parts.experts else _mlp(write, shape, normed))
    return x


def _post_norm(write: OperatorWriter, shape: Transformer, x: TapeTensor, run: LayerRun) -> TapeTensor:
    attended = write.dropout(_self_attention(write, shape, x, run), shape.dropout)
    x = write.layer_norm(write.add(attended, x))
    wide = write.dropout(_mlp(write, shape, x), shape.dropout)
    return write.layer_norm(write.add(wide, x))


def _self_attention(write: OperatorWriter, shape: Transformer, x: TapeTensor, run: LayerRun) -> TapeTensor:
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    if shape.mla:
        return _latent_attention(write, shape, shape.mla, x, run)
    if shape.model_type == "gpt2" and run.attention != "eager":  # One projection is split into views.
        return write.linear(_joined_attention(write, shape, write.linear(x, 3 * queries, bias=True)), shape.hidden, bias=True)
    if run.joint_projections:
        q, k, v = _joint_projections(write, shape, x)
    else:
        q, k, v = (write.linear(x, size, shape.qkv_bias, role) for role, size in (("q", queries), ("k", keys), ("v", keys)))
    if run.expands_heads and keys < queries:
        k, v = (write.tape.op((part,), write.tokens * queries, part.width) for part in (k, v))
    if shape.qk_norm:
        wide = shape.model_type.startswith(WIDE_NORM)
        q, k = write.rms_norm(q, wide), write.rms_norm(k, wide)
    if shape.rope:
        q, k = write.rotary(q), write.rotary(k)
    out = write.attention(q, k, v, shape.heads, queries, run.attention, run.sequence, shape.dropout)
    return write.linear(out, shape.hidden, shape.out_bias, "o")


def _joint_projections(write: OperatorWriter, shape: Transformer, x: TapeTensor) -> tuple[TapeTensor, TapeTensor, TapeTensor]:
    """Write queries, keys and values as one linear layer; it has an adapter if one of the three has."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    role = next((name for name in "qkv" if name in write.targets), "q")
    joined = write.linear(x, queries + 2 * keys, shape.qkv_bias, role)
    q, k = (write.tape.op((joined,), write.tokens * size, joined.width, passes=True) for size in (queries, keys))
    # Values stay a view of the joined tensor, which attention then saves whole, unless they are copied for each head.
    return q, k, joined if queries == keys else write.tape.op((joined,), write.tokens * keys, joined.width, passes=True)


def _joined_attention(write: OperatorWriter, shape: Transformer, joined: TapeTensor) -> TapeTensor:
    """Write attention on views of one fused QKV tensor, which is saved for backward as one tensor."""
    queries = shape.heads * shape.head_dim
    return write.tape.op(
        (joined,),
        write.tokens * queries,
        joined.width,
        (joined,),
        save_output=True,
        extra=4 * write.tokens * shape.heads,
        backward_temporary=4 * write.tokens * queries + joined.size,
        kernel=True,
    )


def _cross_attention(write: OperatorWriter, shape: Transformer, x: TapeTensor, run: LayerRun) -> TapeTensor:
    """Write cross attention: queries from the decoder, keys and values from the encoder's output, saved outside the layer."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    memory = replace(write, tokens=run.cross_tokens)
    encoded = write.tape.value(run.cross_tokens * shape.hidden, write.widths.compute)
    q = write.linear(x, queries, shape.qkv_bias)
    k, v = (memory.linear(encoded, keys, shape.qkv_bias) for _ in range(2))
    out = write.attention(q, k, v, shape.heads, queries, run.attention, run.cross_sequence, shape.dropout)
    return write.linear(out, shape.hidden, shape.out_bias)


def _latent_attention(
    write: OperatorWriter, shape: Transformer, mla: LatentAttention, x: TapeTensor, run: LayerRun
) -> TapeTensor:
    """Write MLA: low-rank queries and keys-values plus a rotary part, expanded to full heads (arXiv 2405.04434)."""
    whole = shape.heads * (mla.nope_dim + mla.rope_dim)
    q = write.linear(write.rms_norm(write.linear(x, mla.q_rank)), whole) if mla.q_rank else write.linear(x, whole)
    low = write.linear(x, mla.kv_rank + mla.rope_dim)
    narrow = write.tape.op((low,), write.tokens * mla.kv_rank, low.width, passes=True)
    both = write.linear(write.rms_norm(narrow), shape.heads * (mla.nope_dim + mla.value_dim))
    q = write.rotary(q)
    k = write.tape.op((both, low), write.tokens * whole, both.width)
    v = write.tape.op((both,), write.tokens * shape.heads * mla.value_dim, both.width)
    out = write.attention(q, k, v, shape.heads, shape.heads * mla.value_dim, run.attention, run.sequence)
    return write.linear(out, shape.hidden)


def _mlp(write: OperatorWriter, shape: Transformer, x: TapeTensor, ffn: int = 0) -> TapeTensor:
    ffn = ffn or shape.ffn
    if shape.gated:
        gate = _activation(write, shape, write.linear(x, ffn, shape.mlp_bias, "gate"))
        up = write.linear(x, ffn, shape.mlp_bias, "up")
        return write.linear(write.multiply(gate, up), shape.hidden, shape.mlp_bias, "down")
    inner = _activation(write, shape, write.linear(x, ffn, shape.mlp_bias, "up"))
    if shape.model_type in INNER_DROPOUT:
        inner = write.dropout(inner, shape.dropout)
    return write.linear(inner, shape.hidden, shape.mlp_bias, "down")


def _experts(write: OperatorWriter, shape: Transformer, x: TapeTensor) -> TapeTensor:
    """Write an MoE layer: each token runs through `active` experts; the routed rows are saved, whichever expert runs them."""
    experts = shape.experts
    assert experts is not None
    write.linear(x, experts.count)  # This is the router.
    routed = replace(write, tokens=write.tokens * experts.active, copies=experts.count)
    gathered = write.tape.op((x,), x.count * experts.active, x.width, kernel=True)
    out = _mlp(routed, shape, gathered, experts.ffn)
    out = write.tape.op((out,), write.tokens * shape.hidden, out.width, (out,), kernel=True)
    return write.add(out, _mlp(write, shape, x, experts.shared_ffn)) if experts.shared_ffn else out


def _activation(write: OperatorWriter, shape: Transformer, x: TapeTensor) -> TapeTensor:
    if shape.activation == "gelu_tanh":
        return write.gelu_tanh(x)
    return write.keeps_output(x) if shape.activation == "relu" else write.keeps_input(x)
