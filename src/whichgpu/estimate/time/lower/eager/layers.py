"""Transformer layers as the `transformers` library runs them in PyTorch eager, one operator after another."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from whichgpu.estimate.memory.training.layers import INNER_DROPOUT, POST_NORM, WIDE_NORM
from whichgpu.estimate.memory.training.recurrent import EAGER_GATES
from whichgpu.estimate.time.lower.eager.attention import (
    AttentionSizes,
    disentangled_attention,
    eager_attention,
    flash_attention,
    math_attention,
)
from whichgpu.estimate.time.lower.eager.functional import (
    activation,
    add,
    dropout,
    layer_norm,
    linear,
    multiply,
    rms_norm,
    rotary,
    scale,
)
from whichgpu.estimate.time.lower.eager.kernels import KernelWriter, MatrixSizes
from whichgpu.estimate.time.lower.eager.moe import moe_block
from whichgpu.estimate.time.lower.recurrent import mixer_gradient_ops, mixer_ops
from whichgpu.estimate.time.operators import Number
from whichgpu.workload.layer_pattern import WHOLE_LAYER, LayerParts
from whichgpu.workload.shapes import LatentAttention, RecurrentMixer, Transformer

# Model types that compute queries, keys and values in one GEMM.
FUSED_QKV = ("gpt2", "gpt_bigcode", "gpt_neox", "bloom", "falcon", "phi3", "mpt", "codegen", "dbrx", "modernbert")
FUSED_GATE_UP = ("phi3", "glm", "glm4", "modernbert")  # model types that compute gate and up in one GEMM
# Model types that run attention as separate torch operators, and those without a fused SDPA kernel.
ONLY_EAGER_ATTENTION = ("bloom", "gptj")
NO_FUSED_SDPA = ("t5", "mt5", "umt5", "falcon")
# Share of each head that RoPE covers, if not the whole head (from the published configs).
ROTARY_SHARE = {"gpt_neox": 0.25, "phi": 0.4, "gptj": 0.25, "stablelm": 0.25, "glm": 0.5, "glm4": 0.5}


class LayerPass(msgspec.Struct, frozen=True):
    """Size and options of a layer's pass: `batch` sequences of `sequence` new tokens, `context` more in the KV cache."""

    batch: Number
    sequence: Number
    attention: str = "sdpa"
    causal: bool = True
    window: int = 0
    mixture: bool = False
    context: Number = 0.0
    cached: bool = False  # keys and values are concatenated to a KV cache at every step
    decoding: bool = False  # one new token per sequence
    crossing: bool = False  # cross-attention to the encoder's tokens
    source: Number | None = None  # encoder tokens a decoder layer attends to
    sequence_ranks: float = 1.0  # ranks that share the residual stream and its norms under sequence parallelism
    fused_projections: bool = False  # queries, keys and values are one GEMM, and so are gate and up
    parts: LayerParts = WHOLE_LAYER

    @property
    def tokens(self) -> Number:
        """Rows of the residual stream, one per token."""
        return self.batch * self.sequence


def eager_layer(write: KernelWriter, shape: Transformer, run: LayerPass) -> MatrixSizes:
    """Append one layer and return the sizes of its output."""
    x = MatrixSizes(run.tokens, shape.hidden, write.stream)
    if run.parts.is_hybrid:
        return _hybrid(write, shape, x, run)
    return (_post_norm if shape.model_type in POST_NORM else _pre_norm)(write, shape, x, run)


def norm(write: KernelWriter, shape: Transformer, x: MatrixSizes) -> MatrixSizes:
    """Append the model's normalisation."""
    return rms_norm(write, x, shape.model_type.startswith(WIDE_NORM)) if shape.norm == "rms" else layer_norm(write, x)


def _pre_norm(write: KernelWriter, shape: Transformer, x: MatrixSizes, run: LayerPass) -> MatrixSizes:
    write.sum_gradients(x, 2)
    normed = norm(write, shape, x)
    attended = dropout(write, _self_attention(write, shape, normed, run), shape.dropout)
    if shape.parallel_block:
        if shape.norms > 1:
            write.sum_gradients(x, 2)
            normed = norm(write, shape, x)
        else:
            write.sum_gradients(normed, 2)
        wide = dropout(write, _mlp(write, shape, normed), shape.dropout)
        return add(write, x, add(write, wide, attended))
    if shape.norms > 2:  # Gemma 2 and 3 also normalise the output of each sublayer.
        attended = norm(write, shape, attended)
    x = add(write, x, attended)
    write.sum_gradients(x, 2)
    if run.source is not None:
        cross = _cross_attention(write, shape, norm(write, shape, x), run, run.source)
        x = add(write, x, dropout(write, cross, shape.dropout))
        write.sum_gradients(x, 2)
    normed = norm(write, shape, x)
    wide = moe_block(write, shape, normed, _mlp) if run.mixture else _mlp(write, shape, normed)
    wide = dropout(write, wide, shape.dropout)
    if shape.norms > 2:
        wide = norm(write, shape, wide)
    return add(write, x, wide)


def _hybrid(write: KernelWriter, shape: Transformer, x: MatrixSizes, run: LayerPass) -> MatrixSizes:
    """Append a layer of a hybrid model: attention, a recurrent mixer or both, then its MLP; or one of these alone."""
    if run.parts.mixes:
        write.sum_gradients(x, 2)
        normed = norm(write, shape, x)
        if run.parts.recurrent and run.parts.attention:
            write.sum_gradients(normed, 2)
        if run.parts.recurrent and shape.recurrent:
            x = add(write, x, recurrent_mixer(write, shape, shape.recurrent, normed, run, eager=True))
        if run.parts.attention:
            x = add(write, x, _self_attention(write, shape, normed, run))
    if run.parts.mlp:
        write.sum_gradients(x, 2)
        normed = norm(write, shape, x)
        x = add(write, x, moe_block(write, shape, normed, _mlp) if run.mixture else _mlp(write, shape, normed))
    return x


def recurrent_mixer(
    write: KernelWriter, shape: Transformer, mixer: RecurrentMixer, x: MatrixSizes, run: LayerPass, eager: bool = False
) -> MatrixSizes:
    """Append a linear-attention or state-space mixer between its projections, whose kernels are fused in every framework."""
    projected = linear(write, x, mixer.inward, role="mixer_in")
    for rows, columns in mixer.inner:
        linear(write, x.like(rows), columns, role="mixer_in")
    unit = write.numerics.half if write.compute < 4 else "fp32"
    forward = mixer_ops(mixer, run.batch, run.tokens, run.decoding, unit, write.compute)
    mixed = projected.like(mixer.outward)
    if eager and mixer.kind in EAGER_GATES:
        forward.pop()  # the gated norm in one kernel
        gate = activation(write, "silu", write.cast(mixed, 4))
        write.cast(multiply(write, rms_norm(write, mixed.per_head(mixer.value_dim)), gate.per_head(mixer.value_dim)), mixed.width)
        for part in (mixer.conv_channels, mixer.conv_channels):  # Channels are put before tokens and back, heads repeated.
            write.transpose(mixed.like(part))
            write.transpose(mixed.like(part), "backward")
    for op in forward:
        write.put(op)
    for op in mixer_gradient_ops(forward):
        write.put(op, "backward")
    return linear(write, mixed, shape.hidden, role="mixer_out")


def _post_norm(write: KernelWriter, shape: Transformer, x: MatrixSizes, run: LayerPass) -> MatrixSizes:
    write.sum_gradients(x, 2)
    attended = dropout(write, _self_attention(write, shape, x, run), shape.dropout)
    x = layer_norm(write, add(write, x, attended))
    if run.source is not None:
        write.sum_gradients(x, 2)
        cross = dropout(write, _cross_attention(write, shape, x, run, run.source), shape.dropout)
        x = layer_norm(write, add(write, x, cross))
    write.sum_gradients(x, 2)
    wide = dropout(write, _mlp(write, shape, x), shape.dropout)
    return layer_norm(write, add(write, x, wide))


def _self_attention(write: KernelWriter, shape: Transformer, x: MatrixSizes, run: LayerPass) -> MatrixSizes:
    if shape.mla:
        return _latent_attention(write, shape, shape.mla, x, run)
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    if shape.model_type in FUSED_QKV:
        joined = linear(write, x, queries + 2 * keys, shape.qkv_bias, "q")
        q, k, v = (joined.like(size) for size in (queries, keys, keys))
        write.concat(joined, "backward")  # The three gradients are concatenated.
    else:
        write.sum_gradients(x, 3)
        q = linear(write, x, queries, shape.qkv_bias, "q")
        k = linear(write, x, keys, shape.qkv_bias and shape.key_bias, "k")
        v = linear(write, x, keys, shape.qkv_bias, "v")
    if shape.qk_norm:
        wide = shape.model_type.startswith(WIDE_NORM)
        q, k = (rms_norm(write, part.per_head(shape.head_dim), wide) for part in (q, k))
        q, k = q.per_head(queries), k.per_head(keys)
    if shape.rope:
        share = ROTARY_SHARE.get(shape.model_type, 1.0)
        q, k = rotary(write, q, share), rotary(write, k, share)
    if run.cached:
        k, v = (_concat_kv_cache(write, part, run) for part in (k, v))
    keys_seen = run.sequence + run.context
    over = AttentionSizes(
        run.batch, shape.heads, shape.kv_heads, run.sequence, keys_seen, shape.head_dim, shape.head_dim, run.causal, run.window
    )
    out = _attention_kernels(write, shape, over, (q, k, v), run)
    return linear(write, out, shape.hidden, shape.out_bias, "o")


def _concat_kv_cache(write: KernelWriter, part: MatrixSizes, run: LayerPass) -> MatrixSizes:
    """Emit the concatenation of cached and new keys (or values) that `transformers` runs, and return the size of the result."""
    all_tokens = MatrixSizes(part.rows / run.sequence * (run.sequence + run.context), part.columns, part.width)
    write.concat(all_tokens)
    return all_tokens


def _attention_kernels(
    write: KernelWriter,
    shape: Transformer,
    over: AttentionSizes,
    parts: tuple[MatrixSizes, MatrixSizes, MatrixSizes],
    run: LayerPass,
) -> MatrixSizes:
    if shape.model_type in ("deberta", "deberta-v2"):
        return disentangled_attention(write, over, *parts, shape.dropout)
    if run.attention == "eager" or shape.model_type in ONLY_EAGER_ATTENTION:
        return eager_attention(write, over, *parts, shape.dropout)
    grouped = over.kv_heads < over.heads and write.compute >= 4
    if (shape.model_type in NO_FUSED_SDPA and not run.crossing) or grouped:
        return math_attention(write, over, *parts, shape.dropout)
    whisper = shape.model_type == "whisper"  # Whisper scales its queries and copies queries, keys and values head by head.
    if whisper:
        scale(write, parts[0])
        for part in parts:
            write.transpose(part)
            write.transpose(part, "backward")
    out = flash_attention(write, over, *parts, shape.dropout, run.decoding)
    if whisper or shape.model_type in ROTARY_SHARE:  # Fused queries are stored head by head, and so is the output.
        write.transpose(out)
    return out


def _cross_attention(write: KernelWriter, shape: Transformer, x: MatrixSizes, run: LayerPass, source: Number) -> MatrixSizes:
    """Append cross attention from the decoder's queries to the encoder's output."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    encoded = MatrixSizes(run.batch * source, shape.hidden, write.stream)
    write.sum_gradients(encoded, 3)
    q = linear(write, x, queries, shape.qkv_bias, "q")
    k = linear(write, encoded, keys, shape.qkv_bias and shape.key_bias, "k")
    v = linear(write, encoded, keys, shape.qkv_bias, "v")
    over = AttentionSizes(run.batch, shape.heads, shape.kv_heads, run.sequence, source, shape.head_dim, shape.head_dim, False)
    out = _attention_kernels(write, shape, over, (q, k, v), replace(run, crossing=True))
    return linear(write, out, shape.hidden, shape.out_bias, "o")


def _latent_attention(
    write: KernelWriter, shape: Transformer, mla: LatentAttention, x: MatrixSizes, run: LayerPass
) -> MatrixSizes:
    """Append MLA (DeepSeek, arXiv 2405.04434): low-rank queries and keys-values plus a rotary part, joined into full heads."""
    heads = shape.heads
    whole = heads * (mla.nope_dim + mla.rope_dim)
    write.sum_gradients(x, 2)
    q = linear(write, x, mla.q_rank or whole)
    if mla.q_rank:
        q = linear(write, rms_norm(write, q), whole)
    low = linear(write, x, mla.kv_rank + mla.rope_dim)
    both = linear(write, rms_norm(write, low.like(mla.kv_rank)), heads * (mla.nope_dim + mla.value_dim))
    rotary(write, q.like(heads * mla.rope_dim))
    rotary(write, low.like(mla.rope_dim))
    for part in (q, q.like(whole)):  # Queries and keys are concatenated from two parts.
        write.concat(part)
        write.concat(part, "backward")
        write.transpose(part, "backward")
    v = both.like(heads * mla.value_dim)
    write.concat(both, "backward")  # Keys and values come from one GEMM.
    dim = mla.nope_dim + mla.rope_dim
    over = AttentionSizes(
        run.batch, heads, heads, run.sequence, run.sequence + run.context, dim, mla.value_dim, run.causal, run.window
    )
    out = _attention_kernels(write, shape, over, (q, q.like(whole), v), run)
    return linear(write, out, shape.hidden, shape.out_bias, "o")


def _mlp(write: KernelWriter, shape: Transformer, x: MatrixSizes, ffn: float = 0) -> MatrixSizes:
    ffn = ffn or shape.ffn
    if shape.gated:
        if shape.model_type in FUSED_GATE_UP:
            joined = linear(write, x, 2 * ffn, shape.mlp_bias, "up")
            gate, up = joined.like(ffn), joined.like(ffn)
            write.concat(joined, "backward")
        else:
            write.sum_gradients(x, 2)
            gate, up = (linear(write, x, ffn, shape.mlp_bias, role) for role in ("gate", "up"))
        inner = multiply(write, activation(write, shape.activation, gate), up)
    else:
        name = "gelu_bloom" if shape.model_type == "bloom" else shape.activation
        inner = activation(write, name, linear(write, x, ffn, shape.mlp_bias, "up"))
    if shape.model_type in INNER_DROPOUT:
        inner = dropout(write, inner, shape.dropout)
    return linear(write, inner, shape.hidden, shape.mlp_bias, "down")
