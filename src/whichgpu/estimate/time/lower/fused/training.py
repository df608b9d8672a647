"""Training with kernel fusion: one kernel for each run of elementwise operators between GEMMs.

torch.compile (TorchInductor), XLA and NVIDIA's training stacks work this way. A fused run reads the outputs of GEMMs once, and
writes once what GEMMs and the backward pass need.
"""

from __future__ import annotations

from whichgpu.estimate.time.lower.eager.attention import AttentionSizes, flash_attention, fused_softmax_attention
from whichgpu.estimate.time.lower.eager.functional import PHASES, cast_weight, linear
from whichgpu.estimate.time.lower.eager.kernels import KernelWriter, MatrixSizes
from whichgpu.estimate.time.lower.eager.layers import FUSED_GATE_UP, FUSED_QKV, LayerPass, recurrent_mixer
from whichgpu.estimate.time.lower.eager.moe import grouped_gemm
from whichgpu.estimate.time.lower.routing import routed_rows, touched_experts
from whichgpu.estimate.time.operators import Number, gemm
from whichgpu.workload.shapes import Experts, LatentAttention, Transformer

ROUTING_KERNELS = 8  # number of small kernels that choose experts and count their tokens, each way (Megatron Core; assumed)
ALIGNED_ELEMENTS = 8  # rows of matrices are padded to a multiple of this many elements


def fused_training_layer(write: KernelWriter, shape: Transformer, run: LayerPass) -> None:
    """Append one layer, forward and backward; dropout is fused with neighbouring operators."""
    x = MatrixSizes(run.tokens / run.sequence_ranks, shape.hidden, write.stream)
    own = _norm(write, x, 1 if shape.model_type in FUSED_QKV or run.fused_projections else 3)
    normed = MatrixSizes(run.tokens, own.columns, own.width)  # All-gathered under sequence parallelism.
    if run.parts.recurrent and shape.recurrent:
        recurrent_mixer(write, shape, shape.recurrent, normed, run)
    if run.parts.attention:
        _attention(write, shape, normed, run)
    if run.source is not None:
        _norm(write, x, 1)
        _cross_attention(write, shape, normed, run, run.source)
    if run.parts.mixes and run.parts.mlp and (not shape.parallel_block or shape.norms > 1):
        separate = shape.gated and shape.model_type not in FUSED_GATE_UP and not run.fused_projections
        _norm(write, x, 2 if separate else 1)
    for _ in range(shape.norms - 2):
        _norm(write, x, 1)
    if run.mixture and shape.experts:
        _moe_block(write, shape, shape.experts, normed, run)
    elif run.parts.mlp:
        _mlp(write, shape, normed, run)


def _norm(write: KernelWriter, x: MatrixSizes, readers: int) -> MatrixSizes:
    """Append a residual sum and its norm; backward reads the gradients from the `readers` GEMMs that used the result."""
    normed = x.like(width=write.compute)
    both = x.bytes + normed.bytes
    write.move("norm", both, both, width=x.width, sizes=x.sizes, role="fused")
    gradients = readers * normed.bytes + 2 * x.bytes
    write.move("norm_backward", gradients, x.bytes, width=x.width, sizes=x.sizes, phase="backward", role="fused")
    return normed


def _moe_block(write: KernelWriter, shape: Transformer, experts: Experts, x: MatrixSizes, run: LayerPass) -> None:
    """Append router, permutation of rows by expert, two grouped GEMMs around an activation, and the weighted sum of rows."""
    linear(write, x, experts.count)
    routed = MatrixSizes(routed_rows(experts, x.rows), x.columns, write.compute)
    touched = touched_experts(experts, x.rows)
    for phase in PHASES:  # The permutation's gradient is a sum of rows like the sum after the experts, and the reverse.
        write.tiny_kernels(ROUTING_KERNELS, phase)
        write.move("embedding", routed.bytes, routed.bytes, width=routed.width, sizes=routed.sizes, phase=phase)
        write.move("embedding", routed.bytes, x.bytes, width=routed.width, sizes=routed.sizes, phase=phase)
    ups = 2 if shape.gated else 1
    inner = grouped_gemm(write, routed, ups * experts.ffn, touched, experts.count).like(experts.ffn)
    _activation(write, inner, ups)
    grouped_gemm(write, inner, shape.hidden, touched, experts.count)
    if experts.shared_ffn:
        _mlp(write, shape, x, run, experts.shared_ffn)


def _attention(write: KernelWriter, shape: Transformer, x: MatrixSizes, run: LayerPass) -> None:
    if shape.mla:
        _latent_attention(write, shape, shape.mla, x, run)
        return
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    if shape.model_type in FUSED_QKV or run.fused_projections:
        linear(write, x, queries + 2 * keys, shape.qkv_bias, "q")
    else:
        for role, size in (("q", queries), ("k", keys), ("v", keys)):
            linear(write, x, size, shape.qkv_bias, role)
    q, k = x.like(queries), x.like(keys)
    if shape.rope or shape.qk_norm:
        for part in (q, k):
            write.elementwise(part, part.width, part.width)
            write.backward(part, part.width * (2 if shape.qk_norm else 1), part.width)
    over = _self_attention_sizes(run, shape.heads, shape.kv_heads, shape.head_dim, shape.head_dim)
    _attention_kernel(write, shape, over, q, k, run)


def _self_attention_sizes(run: LayerPass, heads: float, kv_heads: float, dim: float, value_dim: float) -> AttentionSizes:
    # `transformers` passes a mask to compiled models, so SDPA skips no blocks; the flash-attn package does skip them.
    flash = run.attention == "flash"
    window = run.window if flash else 0
    return AttentionSizes(run.batch, heads, kv_heads, run.sequence, run.sequence, dim, value_dim, run.causal and flash, window)


def _latent_attention(write: KernelWriter, shape: Transformer, mla: LatentAttention, x: MatrixSizes, run: LayerPass) -> None:
    """Append MLA (DeepSeek, arXiv 2405.04434): low-rank queries and keys-values plus a rotary part, joined into full heads."""
    heads, dim = shape.heads, mla.nope_dim + mla.rope_dim
    q = linear(write, x, mla.q_rank or heads * dim, role="q")
    if mla.q_rank:
        q = linear(write, _norm(write, q, 1), heads * dim, role="q_up")
    low = linear(write, x, mla.kv_rank + mla.rope_dim, role="kv")
    linear(write, _norm(write, low.like(mla.kv_rank), 1), heads * (mla.nope_dim + mla.value_dim), role="kv_up")
    for part in (q, q):  # Rotary embedding and joining of the two parts, of queries and of keys.
        write.elementwise(part, part.width, part.width)
        write.backward(part, part.width, part.width)
    _attention_kernel(write, shape, _self_attention_sizes(run, heads, heads, dim, mla.value_dim), q, q, run)


def _cross_attention(write: KernelWriter, shape: Transformer, x: MatrixSizes, run: LayerPass, source: Number) -> None:
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    encoded = MatrixSizes(run.batch * source, shape.hidden, write.compute)
    linear(write, x, queries, shape.qkv_bias, "q")
    for role in ("k", "v"):
        linear(write, encoded, keys, shape.qkv_bias, role)
    over = AttentionSizes(run.batch, shape.heads, shape.kv_heads, run.sequence, source, shape.head_dim, shape.head_dim, False)
    q, k = x.like(queries), encoded.like(keys)
    _attention_kernel(write, shape, over, q, k, run)


def _attention_kernel(
    write: KernelWriter, shape: Transformer, over: AttentionSizes, q: MatrixSizes, k: MatrixSizes, run: LayerPass
) -> None:
    if run.attention == "eager":
        out = fused_softmax_attention(write, over, q, shape.dropout)
    else:
        out = flash_attention(write, over, q, k, k, shape.dropout)
    linear(write, out, shape.hidden, shape.out_bias, "o")


def _mlp(write: KernelWriter, shape: Transformer, x: MatrixSizes, run: LayerPass, ffn: float = 0) -> MatrixSizes:
    ffn, ups = ffn or shape.ffn, 2 if shape.gated else 1
    if run.fused_projections and shape.gated:
        linear(write, x, ups * ffn, shape.mlp_bias, "gate")
    else:
        for role in ("gate", "up")[2 - ups :]:
            linear(write, x, ffn, shape.mlp_bias, role)
    inner = x.like(ffn)
    _activation(write, inner, ups)
    return linear(write, inner, shape.hidden, shape.mlp_bias, "down")


def _activation(write: KernelWriter, inner: MatrixSizes, ups: int) -> None:
    """Append the activation, with the product of a gated MLP if it has two projections upwards (`ups`)."""
    write.elementwise(inner, ups * inner.width, inner.width)
    write.backward(inner, (1 + ups) * inner.width, ups * inner.width)


def _logits(write: KernelWriter, shape: Transformer, x: MatrixSizes) -> MatrixSizes:
    """Append the output head; if the vocabulary is misaligned its gradient GEMMs are padded, since they only read the logits."""
    unit, width, padded = write.numerics.unit, x.width, -(-shape.vocab // ALIGNED_ELEMENTS) * ALIGNED_ELEMENTS
    write.put(gemm(x.rows, shape.vocab, x.columns, unit, width))
    write.put(gemm(x.rows, x.columns, padded, unit, width, role="dgrad"), "backward")
    if not write.frozen:
        write.put(gemm(padded, x.columns, x.rows, unit, width, role="wgrad"), "backward")
    if write.mixed:
        cast_weight(write, x.columns * shape.vocab)
    logits = x.like(shape.vocab)
    if shape.head_bias and not write.frozen:
        write.reduce_columns(logits)
    return logits


def fused_loss(write: KernelWriter, shape: Transformer, rows: Number) -> None:
    """Append final norm, logits and cross-entropy loss, which reads the logits once for the loss and once for the gradient."""
    normed = _norm(write, MatrixSizes(rows, shape.hidden, write.stream), 1)
    if shape.lm_transform:
        normed = _norm(write, linear(write, normed, shape.hidden, shape.mlp_bias), 1)
    logits = _logits(write, shape, normed)
    size, sizes = logits.bytes, logits.sizes
    write.move("softmax", size, 8.0 * rows, width=logits.width, sizes=sizes, role="fused")
    write.move("softmax_backward", size, size, width=logits.width, sizes=sizes, phase="backward", role="fused")
