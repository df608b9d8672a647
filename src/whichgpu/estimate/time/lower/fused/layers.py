"""Transformer layers in engines with kernel fusion: prefill, decode and whole forward passes."""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from whichgpu.estimate.memory.kv import INDEX_SCALE_BYTES
from whichgpu.estimate.time.lower.eager.attention import AttentionSizes, mla_decode_op, narrow_mla_prefill
from whichgpu.estimate.time.lower.fused.kernels import FusedKernels
from whichgpu.estimate.time.lower.recurrent import SCAN_CALLS, mixer_ops
from whichgpu.estimate.time.lower.routing import routed_rows, touched_experts
from whichgpu.estimate.time.operators import Number, Op, gemm
from whichgpu.workload.layer_pattern import WHOLE_LAYER, LayerParts
from whichgpu.workload.shapes import Experts, LatentAttention, RecurrentMixer, SparseIndexer, Transformer

FUSED_MOE_KERNELS = 4  # kernels of a fused MoE layer without routing: two grouped GEMMs, activation, weighted sum


class InferencePass(msgspec.Struct, frozen=True):
    """Size of an inference pass: `batch` sequences of `queries` new tokens that attend to `keys` tokens."""

    batch: Number
    queries: Number
    keys: Number
    decoding: bool
    causal: bool = True
    cached: bool = True  # keys and values are written to the KV cache
    cache_width: float = 2.0
    source: Number | None = None  # encoder tokens that a decoder layer attends to

    @property
    def rows(self) -> Number:
        """Rows of the activations, one for each new token of all sequences."""
        return self.batch * self.queries


def fused_layer(
    kernels: FusedKernels,
    shape: Transformer,
    step: InferencePass,
    window: int = 0,
    mixture: bool = False,
    parts: LayerParts = WHOLE_LAYER,
) -> None:
    """Append the kernels of one layer with a sliding `window` (0: full attention); with `mixture` an MoE layer."""
    rows, hidden, separate_residual = step.rows, float(shape.hidden), kernels.traits.separate_residual
    kernels.norm(rows, hidden, 2.0 if separate_residual else 4.0)
    if parts.recurrent and shape.recurrent:
        _recurrent(kernels, shape, shape.recurrent, step)
    if parts.attention and shape.mla:
        _mla(kernels, shape, shape.mla, step)
    elif parts.attention:
        _attention(kernels, shape, step, window)
    if step.source is not None:
        kernels.norm(rows, hidden)
        _cross_attention(kernels, shape, step, step.source)
    if parts.mixes and parts.mlp:
        if not shape.parallel_block or shape.norms > 1:
            kernels.norm(rows, hidden, 3.0 if separate_residual else 4.0)
        for _ in range(shape.norms - 2):
            kernels.norm(rows, hidden, 2.0)
    if mixture and shape.experts:
        _moe_block(kernels, shape, shape.experts, rows)
    elif parts.mlp:
        _mlp(kernels, shape, rows, shape.ffn)
    if separate_residual:
        kernels.elementwise(3 * rows * hidden * kernels.width, rows * hidden * kernels.width)


def _recurrent(kernels: FusedKernels, shape: Transformer, mixer: RecurrentMixer, step: InferencePass) -> None:
    """Append a linear-attention or state-space mixer: projections, convolution, recurrence, gated norm, output projection."""
    kernels.linear(step.rows, shape.hidden, mixer.inward, "ssm")
    for rows, columns in mixer.inner:
        kernels.put(kernels.plain_gemm(step.rows, rows, columns))
    unit = kernels.stored.unit
    recurrence = kernels.traits.recurrence
    # CUDA graphs of prompts leave recurrences out: their kernels depend on the lengths of the sequences.
    calls = kernels.calls if step.decoding else kernels.traits.calls_per_kernel
    kernels.put(
        *mixer_ops(mixer, step.batch, step.rows, step.decoding, unit, kernels.width, calls, recurrence, SCAN_CALLS[recurrence])
    )
    kernels.linear(step.rows, mixer.outward, shape.hidden, "ssm")


def _index_tokens(kernels: FusedKernels, shape: Transformer, sparse: SparseIndexer, step: InferencePass) -> InferencePass:
    """Append the indexer of sparse attention, and return the pass with as many keys as it leaves.

    Every query is scored against the fp8 key of every token before it; the best `top_tokens` are attended to.
    """
    rows, queries = step.rows, shape.mla.q_rank if shape.mla and shape.mla.q_rank else shape.hidden
    kernels.linear(rows, queries, sparse.heads * sparse.dim, "latent_up")
    kernels.linear(rows, shape.hidden, sparse.dim + sparse.heads, "latent_down")
    scored = rows * step.keys * (1.0 if step.decoding or not step.causal else 0.5)
    keys = step.batch * step.keys * float(sparse.dim + INDEX_SCALE_BYTES)
    sizes = {"m": step.queries * sparse.heads, "n": step.keys, "k": float(sparse.dim), "batch": step.batch}
    flops = 2.0 * scored * sparse.heads * sparse.dim
    read = keys + rows * float(sparse.heads * sparse.dim)
    kernels.put(Op("gemm", kernels.stored.unit, flops, read, 4.0 * scored, sizes, calls=kernels.calls, role="forward"))
    kernels.elementwise(4.0 * scored, 4.0 * rows * np.minimum(step.keys, float(sparse.top_tokens)))
    return replace(step, keys=np.minimum(step.keys, float(sparse.top_tokens))) if step.decoding else step


def _attention(kernels: FusedKernels, shape: Transformer, step: InferencePass, window: int) -> None:
    queries, keys = float(shape.heads * shape.head_dim), float(shape.kv_heads * shape.head_dim)
    parts = (queries, keys, keys)
    kernels.linear(step.rows, shape.hidden, sum(parts), "attn_qkv", "attn_q", "attn_k", "attn_v", parts=parts)
    if shape.qk_norm and not kernels.traits.fused_qk_norm:
        kernels.norm(step.rows * (shape.heads + shape.kv_heads), float(shape.head_dim), 2.0)
    _positions(kernels, shape, step, queries, 2 * keys)
    cache_width = step.cache_width if step.cached else kernels.width
    kernels.attention(_self_attention_shape(shape, step, window), step.decoding, cache_width)
    kernels.linear(step.rows, queries, shape.hidden, "attn_output", after_attention=True)


def _positions(kernels: FusedKernels, shape: Transformer, step: InferencePass, queries: float, cached: float) -> None:
    """Append RoPE of queries and keys and the write to the KV cache, if the model and the pass have them."""
    if not shape.rope and not step.cached:
        return
    width = kernels.width
    read = step.rows * (queries + cached) * width
    write = step.rows * (queries * width + cached * (step.cache_width if step.cached else width))
    kernels.elementwise(read, write, count=float(kernels.traits.rotary_kernels if shape.rope else 1), role="rotary")


def _self_attention_shape(shape: Transformer, step: InferencePass, window: int = 0) -> AttentionSizes:
    heads, kv_heads, dim = float(shape.heads), float(shape.kv_heads), float(shape.head_dim)
    return AttentionSizes(step.batch, heads, kv_heads, step.queries, step.keys, dim, dim, step.causal, window)


def _cross_attention(kernels: FusedKernels, shape: Transformer, step: InferencePass, source: Number) -> None:
    """Append attention to the encoder's keys and values, which are computed only in prefill."""
    queries, keys = float(shape.heads * shape.head_dim), float(shape.kv_heads * shape.head_dim)
    kernels.linear(step.rows, shape.hidden, queries, "attn_q")
    if not step.decoding:
        kernels.linear(step.batch * source, shape.hidden, 2 * keys, "attn_k", "attn_v")
    over = replace(_self_attention_shape(shape, step), keys=source, causal=False)
    kernels.attention(over, step.decoding, step.cache_width)
    kernels.linear(step.rows, queries, shape.hidden, "attn_output", after_attention=True)


def _mla(kernels: FusedKernels, shape: Transformer, mla: LatentAttention, step: InferencePass) -> None:
    """Append MLA (DeepSeek, arXiv 2405.04434): decode attends to latents with absorbed matrices, prefill expands the latents."""
    rows, hidden, heads = step.rows, float(shape.hidden), float(shape.heads)
    whole, latent = heads * (mla.nope_dim + mla.rope_dim), float(mla.kv_rank + mla.rope_dim)
    kernels.linear(rows, hidden, float(mla.q_rank or whole) + latent, "latent_down")
    kernels.norm(rows, float(mla.q_rank + mla.kv_rank), 2.0)
    if mla.q_rank:
        kernels.linear(rows, float(mla.q_rank), whole, "latent_up")
    _positions(kernels, shape, step, whole, latent)
    if shape.sparse:
        step = _index_tokens(kernels, shape, shape.sparse, step)
    if step.decoding or kernels.absorbs_latents:
        rank, unit, width = float(mla.kv_rank), kernels.stored.unit, kernels.width
        kernels.put(gemm(rows, rank, mla.nope_dim, unit, width, batch=heads, calls=kernels.calls))
        if step.decoding:
            op = mla_decode_op(step.batch, heads, step.keys, latent, rank, unit, width, step.cache_width)
            kernels.put(replace(op, flops=op.flops * step.queries, calls=kernels.calls))
        else:
            over = AttentionSizes(step.batch, heads, 1.0, step.queries, step.keys, latent, rank, step.causal)
            kernels.attention(over, False, step.cache_width)
        kernels.put(gemm(rows, mla.value_dim, rank, unit, width, batch=heads, calls=kernels.calls))
    else:
        kernels.linear(step.batch * step.keys, float(mla.kv_rank), heads * (mla.nope_dim + mla.value_dim), "latent_up")
        dim = float(mla.nope_dim + mla.rope_dim)
        window = shape.sparse.top_tokens if shape.sparse else 0
        over = AttentionSizes(step.batch, heads, heads, step.queries, step.keys, dim, float(mla.value_dim), step.causal, window)
        op = over.op(kernels.stored.unit, kernels.width, role="mla" if kernels.paged else "").with_calls(kernels.calls)
        narrow = kernels.paged and step.cached and step.cache_width < kernels.width
        kernels.put(*(narrow_mla_prefill(op, kernels.width) if narrow else (op,)))
        kernels.add_calls(kernels.traits.mla_prefill_calls)
    kernels.linear(rows, heads * mla.value_dim, hidden, "attn_output", after_attention=True)


def _mlp(kernels: FusedKernels, shape: Transformer, rows: Number, ffn: float, kind: str = "") -> None:
    kernels.up_projection(rows, float(shape.hidden), ffn, shape.gated, f"ffn_gate{kind}", f"ffn_up{kind}")
    kernels.linear(rows, ffn, shape.hidden, f"ffn_down{kind}")


def _moe_block(kernels: FusedKernels, shape: Transformer, experts: Experts, rows: Number) -> None:
    kernels.put(kernels.plain_gemm(rows, float(shape.hidden), float(experts.count)))
    at_once, passes = kernels.split_rows(rows)  # Each micro-batch reads the weights of the experts that its tokens touch.
    routed, touched = routed_rows(experts, at_once), touched_experts(experts, at_once)
    first = len(kernels.ops)
    if kernels.traits.fused_experts and kernels.traits.weight_only_gemm != "gguf":
        kernels.put(_fused_moe(kernels, shape, experts, rows, routed, touched))
    else:
        _separate_moe(kernels, shape, experts, at_once, routed, touched)
        kernels.ops[first:] = [op.times(passes) for op in kernels.ops[first:]]
    if experts.shared_ffn:
        _mlp(kernels, shape, rows, experts.shared_ffn, "_shexp")


def _fused_moe(kernels: FusedKernels, shape: Transformer, experts: Experts, rows: Number, routed: Number, touched: Number) -> Op:
    """Return the routed experts as an engine's chain of fused kernels: routing, two grouped GEMMs, activation, weighted sum."""
    stored, hidden, ffn, ups = kernels.stored, float(shape.hidden), float(experts.ffn), 2.0 if shape.gated else 1.0
    roles = ("ffn_gate_exps", "ffn_up_exps")
    weight = touched * (stored.size(hidden, ups * ffn, *roles) + stored.size(ffn, hidden, "ffn_down_exps"))
    sizes = {"tokens": rows, "rows": routed, "touched": touched, "hidden": hidden, "ffn": ffn, "ups": ups, "weight": weight}
    unit, weights = stored.expert_format(*roles)
    moved = rows * hidden * kernels.width
    flops = 2.0 * routed * hidden * ffn * (ups + 1.0)
    launches = kernels.traits.routing_kernels + FUSED_MOE_KERNELS + 2.0 * stored.quantises_inputs
    if stored.weight_only:
        launches += kernels.traits.dequantised_expert_calls
    role = f"{weights}.{kernels.traits.moe_kernels}"
    return Op("moe", unit, flops, weight + moved, moved, sizes, calls=kernels.calls * launches, role=role)


def _separate_moe(
    kernels: FusedKernels, shape: Transformer, experts: Experts, rows: Number, routed: Number, touched: Number
) -> None:
    """Append the routed experts as separate kernels: a framework's grouped GEMMs with gathers around them, or llama.cpp's."""
    hidden, traits = float(shape.hidden), kernels.traits
    moved = routed * hidden * kernels.width
    ups = 2.0 if shape.gated else 1.0
    gguf = traits.weight_only_gemm == "gguf"
    separate_biases = gguf and experts.bias  # llama.cpp adds them in kernels of their own (add_id)
    kernels.elementwise(16.0 * rows * experts.count, 16.0 * rows * experts.count, count=float(traits.routing_kernels))
    if not traits.fused_experts:
        kernels.elementwise(moved, moved)  # Rows are gathered by expert.
    kernels.put(*kernels.expert_ops(routed, hidden, ups * experts.ffn, touched, rows, "ffn_gate_exps", "ffn_up_exps"))
    if separate_biases:
        kernels.elementwise(routed * ups * experts.ffn * kernels.width, routed * ups * experts.ffn * kernels.width)
    kernels.elementwise(routed * ups * experts.ffn * kernels.width, routed * experts.ffn * kernels.width, role="gated")
    kernels.put(*kernels.expert_ops(routed, float(experts.ffn), hidden, touched, rows, "ffn_down_exps"))
    if separate_biases:
        kernels.elementwise(moved, moved)
    if gguf:
        kernels.elementwise(moved, moved)  # product with router weights
    if traits.fused_experts:
        kernels.elementwise(moved, rows * hidden * kernels.width)  # weighted sum of each token's expert outputs
    else:
        kernels.elementwise(moved, moved)  # product with router weights
        kernels.move("elementwise", moved, moved, {"elements": routed * hidden}, role="scatter")  # atomic sum per token
