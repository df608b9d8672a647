"""Transformer layers as engines with fused kernels run them in inference: prompts, single tokens, whole passes."""

from __future__ import annotations

from dataclasses import dataclass

from whichgpu.estimate.time.lower.eager.attention import Attention
from whichgpu.estimate.time.lower.fused.kernels import FusedKernels
from whichgpu.estimate.time.operators import Number, Op, gemm
from whichgpu.workload.shapes import Experts, LatentAttention, Transformer


@dataclass(frozen=True, slots=True)
class InferencePass:
    """Rows a pass works on: `batch` sequences of `queries` new tokens that look at `keys`."""

    batch: Number
    queries: Number
    keys: Number
    decoding: bool
    causal: bool = True
    cached: bool = True  # keys and values are kept
    cache_width: float = 2.0
    source: Number | None = None  # encoder tokens a decoder layer attends to

    @property
    def rows(self) -> Number:
        """Tokens in all."""
        return self.batch * self.queries


def fused_layer(kernels: FusedKernels, shape: Transformer, step: InferencePass, window: int = 0, mixture: bool = False) -> None:
    """One layer."""
    rows, hidden, apart = step.rows, float(shape.hidden), kernels.traits.separate_residual
    kernels.norm(rows, hidden, 2.0 if apart else 4.0)
    if shape.mla:
        _latent_attention(kernels, shape, shape.mla, step)
    else:
        _attention(kernels, shape, step, window)
    if step.source is not None:
        kernels.norm(rows, hidden)
        _cross_attention(kernels, shape, step, step.source)
    if not shape.parallel_block or shape.norms > 1:
        kernels.norm(rows, hidden, 3.0 if apart else 4.0)
    for _ in range(shape.norms - 2):
        kernels.norm(rows, hidden, 2.0)
    if mixture and shape.experts:
        _moe_block(kernels, shape, shape.experts, rows)
    else:
        _mlp(kernels, shape, rows, shape.ffn)
    if apart:
        kernels.pointwise(3 * rows * hidden * kernels.width, rows * hidden * kernels.width)


def _attention(kernels: FusedKernels, shape: Transformer, step: InferencePass, window: int) -> None:
    queries, keys = float(shape.heads * shape.head_dim), float(shape.kv_heads * shape.head_dim)
    kernels.linear(step.rows, shape.hidden, queries + 2 * keys, "attn_qkv", "attn_q", "attn_k", "attn_v", parts=3)
    if shape.qk_norm:
        kernels.norm(step.rows * (shape.heads + shape.kv_heads), float(shape.head_dim), 2.0)
    _positions(kernels, shape, step, queries, 2 * keys)
    kernels.attend(_self_attention_shape(shape, step, window), step.decoding, step.cache_width)
    kernels.linear(step.rows, queries, shape.hidden, "attn_output", attended=True)


def _positions(kernels: FusedKernels, shape: Transformer, step: InferencePass, queries: float, cached: float) -> None:
    """Rotary positions on queries and keys, keys and values into the cache; with neither, nothing is left to do."""
    if not shape.rope and not step.cached:
        return
    width = kernels.width
    read = step.rows * (queries + cached) * width
    write = step.rows * (queries * width + cached * (step.cache_width if step.cached else width))
    kernels.pointwise(read, write, count=float(kernels.traits.rotary_kernels if shape.rope else 1), role="rotary")


def _self_attention_shape(shape: Transformer, step: InferencePass, window: int = 0) -> Attention:
    heads, kv_heads, dim = float(shape.heads), float(shape.kv_heads), float(shape.head_dim)
    return Attention(step.batch, heads, kv_heads, step.queries, step.keys, dim, dim, step.causal, window)


def _cross_attention(kernels: FusedKernels, shape: Transformer, step: InferencePass, source: Number) -> None:
    """Queries against the encoder's keys and values, which are made once, with the prompt."""
    queries, keys = float(shape.heads * shape.head_dim), float(shape.kv_heads * shape.head_dim)
    kernels.linear(step.rows, shape.hidden, queries, "attn_q")
    if not step.decoding:
        kernels.linear(step.batch * source, shape.hidden, 2 * keys, "attn_k", "attn_v")
    heads, kv_heads, dim = float(shape.heads), float(shape.kv_heads), float(shape.head_dim)
    over = Attention(step.batch, heads, kv_heads, step.queries, source, dim, dim, False)
    kernels.attend(over, step.decoding, step.cache_width)
    kernels.linear(step.rows, queries, shape.hidden, "attn_output", attended=True)


def _latent_attention(kernels: FusedKernels, shape: Transformer, mla: LatentAttention, step: InferencePass) -> None:
    """DeepSeek's (arXiv 2405.04434): a token attends to the latents themselves, its matrices absorbed; a prompt expands them."""
    rows, hidden, heads = step.rows, float(shape.hidden), float(shape.heads)
    whole, kept = heads * (mla.nope_dim + mla.rope_dim), float(mla.kv_rank + mla.rope_dim)
    kernels.linear(rows, hidden, float(mla.q_rank or whole) + kept, "latent_down")
    kernels.norm(rows, float(mla.q_rank + mla.kv_rank), 2.0)
    if mla.q_rank:
        kernels.linear(rows, float(mla.q_rank), whole, "latent_up")
    _positions(kernels, shape, step, whole, kept)
    if step.decoding:
        rank, unit, width = float(mla.kv_rank), kernels.stored.unit, kernels.width
        kernels.put(gemm(rows, rank, mla.nope_dim, unit, width, batch=heads, calls=kernels.calls))
        over = Attention(step.batch, heads, 1.0, step.queries, step.keys, kept, rank, step.causal)
        op = over.op(unit, width, "decode_attention", step.cache_width, "split")
        once = step.batch * step.keys * kept * step.cache_width  # values are a part of the keys
        kernels.put(
            Op(op.kind, unit, op.flops, rows * heads * kept * width + once, op.write, op.sizes, calls=kernels.calls, role=op.role)
        )
        kernels.put(gemm(rows, mla.value_dim, rank, unit, width, batch=heads, calls=kernels.calls))
    else:
        kernels.linear(step.batch * step.keys, float(mla.kv_rank), heads * (mla.nope_dim + mla.value_dim), "latent_up")
        dim = float(mla.nope_dim + mla.rope_dim)
        over = Attention(step.batch, heads, heads, step.queries, step.keys, dim, float(mla.value_dim), step.causal)
        kernels.attend(over, step.decoding, step.cache_width)
    kernels.linear(rows, heads * mla.value_dim, hidden, "attn_output", attended=True)


def _mlp(kernels: FusedKernels, shape: Transformer, rows: Number, ffn: float, kind: str = "") -> None:
    ups = 2.0 if shape.gated else 1.0
    kernels.linear(rows, shape.hidden, ups * ffn, f"ffn_gate{kind}", f"ffn_up{kind}", parts=int(ups))
    if shape.gated or not kernels.traits.fused_activation:
        kernels.pointwise(rows * ups * ffn * kernels.width, rows * ffn * kernels.width, role="gated" if shape.gated else "")
    kernels.linear(rows, ffn, shape.hidden, f"ffn_down{kind}")


def distinct_experts(experts: Experts, rows: Number) -> Number:
    """Distinct experts of one rank that `rows` tokens of each group are routed to: a token misses an expert with chance 1 - k/E.

    >>> round(distinct_experts(Experts(8, 2, 1), 4.0), 2), round(distinct_experts(Experts(8, 2, 1, ranks=4), 4.0), 2)
    (5.47, 1.37)
    """
    missed: Number = (1.0 - min(1.0, experts.active / experts.count)) ** (rows * experts.token_groups)
    return experts.per_rank * (1.0 - missed)


def routed_rows(experts: Experts, rows: Number) -> Number:
    """Rows that the experts of one rank work on, with `rows` tokens in each group and even routing.

    >>> routed_rows(Experts(8, 2, 1), 4.0), routed_rows(Experts(8, 2, 1, ranks=4), 4.0)
    (8.0, 2.0)
    """
    return rows * float(experts.active) * (experts.token_groups * experts.per_rank / experts.count)


def _moe_block(kernels: FusedKernels, shape: Transformer, experts: Experts, rows: Number) -> None:
    hidden, traits = float(shape.hidden), kernels.traits
    kernels.plain(rows, hidden, float(experts.count))
    routed = routed_rows(experts, rows)
    visited = distinct_experts(experts, rows)
    moved = routed * hidden * kernels.width
    ups = 2.0 if shape.gated else 1.0
    kernels.pointwise(16.0 * rows * experts.count, 16.0 * rows * experts.count, count=float(traits.routing_kernels))
    if not traits.fused_experts:
        kernels.pointwise(moved, moved)  # rows gathered by expert
    _grouped(kernels, routed, hidden, ups * experts.ffn, visited, "ffn_gate_exps", "ffn_up_exps")
    kernels.pointwise(routed * ups * experts.ffn * kernels.width, routed * experts.ffn * kernels.width, role="gated")
    _grouped(kernels, routed, float(experts.ffn), hidden, visited, "ffn_down_exps")
    if traits.fused_experts:
        kernels.pointwise(moved, rows * hidden * kernels.width)  # weighted and summed
    else:
        kernels.pointwise(moved, moved)  # weighted
        kernels.move("pointwise", moved, moved, {"elements": routed * hidden}, role="scatter")  # added by atomics
    if experts.shared_ffn:
        _mlp(kernels, shape, rows, experts.shared_ffn, "_shexp")


def _grouped(kernels: FusedKernels, rows: Number, k: float, n: float, visited: Number, *roles: str) -> None:
    """A product for each expert visited, in one kernel."""
    stored = kernels.stored
    *quantised, product = kernels.products(rows, k, n, visited * stored.size(k, n, *roles))
    for op in quantised:
        kernels.put(op)
    sizes = {"m": rows, "n": n, "k": k, "batch": visited, "unpacked": float(stored.unpacked)}
    role = "fused" if kernels.traits.fused_experts else "framework"
    kernels.put(
        Op("grouped_gemm", product.unit, product.flops, product.read, product.write, sizes, calls=kernels.calls, role=role)
    )
