"""Attention as PyTorch runs it: in one fused kernel (SDPA), or as separate operators with every score in memory."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from whichgpu.estimate.time.lower.eager.functional import PHASES, dropout, scale
from whichgpu.estimate.time.lower.eager.kernels import STRIDED, KernelWriter, MatrixSizes
from whichgpu.estimate.time.operators import Number, Op, gemm

# Ratio of backward to forward FLOPs: the kernel recomputes scores, then four gradients (FlashAttention-2, arXiv 2307.08691).
BACKWARD_FLOPS_RATIO = 2.5
MIN_16_BIT_WIDTH = 2.0  # bytes
DEBERTA_DISTANCES = 512.0  # number of relative distances in DeBERTa: 256 buckets each way


class AttentionSizes(msgspec.Struct, frozen=True):
    """Shape of an attention operator: `batch` sequences of `queries` rows over `keys` rows."""

    batch: Number
    heads: float
    kv_heads: float
    queries: Number
    keys: Number
    dim: float
    value_dim: float
    causal: bool
    window: int = 0

    @property
    def pairs(self) -> Number:
        """Query-key pairs per head and sequence that the mask leaves visible."""
        import numpy as np

        visible = np.minimum(self.keys, self.window) if self.window else self.keys
        if not self.causal:
            return self.queries * visible * 1.0
        ends = np.minimum(visible, self.queries)  # The first queries see fewer keys.
        return self.queries * visible - ends * ends / 2.0

    @property
    def keys_read(self) -> Number:
        """Keys per sequence that the kernel reads: with a sliding window those of the queries and of the window before them."""
        import numpy as np

        return np.minimum(self.keys, self.window + self.queries - 1.0) if self.window else self.keys

    @property
    def sizes(self) -> dict[str, Number]:
        """Dimensions by the names under which attention's timing model reads them (heads, keys, …), and any sliding window."""
        window: dict[str, Number] = {"window": float(self.window)} if self.window else {}
        return window | {
            "batch": self.batch,
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "queries": self.queries,
            "keys": self.keys_read,
            "dim": self.dim,
            "value_dim": self.value_dim,
            "causal": float(self.causal),
        }

    def op(self, unit: str, width: float, kind: str = "attention", kv_width: float | None = None, role: str = "") -> Op:
        """Return the fused attention kernel of variant `role`; backward also reads output and gradient, writes 3 gradients."""
        both = self.dim + self.value_dim
        flops = 2.0 * self.batch * self.heads * self.pairs * both
        cached = self.batch * self.kv_heads * self.keys_read * both * (width if kv_width is None else kv_width)
        query = self.batch * self.heads * self.queries * self.dim * width
        output = self.batch * self.heads * self.queries * self.value_dim * width
        if kind == "attention_backward":
            return Op(
                kind, unit, BACKWARD_FLOPS_RATIO * flops, query + cached + 2 * output, query + cached, self.sizes, role=role
            )
        return Op(kind, unit, flops, query + cached, output, self.sizes, role=role)


def mla_decode_op(
    batch: Number, heads: float, keys: Number, latent: float, rank: float, unit: str, width: float, cache_width: float
) -> Op:
    """Return MLA's decode kernel with absorbed matrices: all heads attend to the same latents, whose first `rank` are the values.

    A cache below 16 bits is multiplied as it is if the chip can; its latents are read once, as keys and as values.
    """
    over = AttentionSizes(batch, heads, 1.0, 1.0, keys, latent, rank, causal=True)
    op = over.op("fp8" if cache_width < MIN_16_BIT_WIDTH else unit, width, "decode_attention", cache_width, "mla")
    return replace(op, read=batch * heads * latent * width + batch * keys * latent * cache_width)


def narrow_mla_prefill(op: Op, width: float) -> tuple[Op, Op]:
    """Return MLA's prefill if the KV cache is below 16 bits: a kernel that quantises queries, keys and values, and attention."""
    elements = op.read / width
    quantise = Op("elementwise", op.unit, 0.0, op.read, elements, {"elements": elements}, calls=op.calls)
    return replace(op, read=elements, sizes={**op.sizes, "narrow_kv": 1.0}), quantise


def flash_attention(
    write: KernelWriter,
    over: AttentionSizes,
    q: MatrixSizes,
    k: MatrixSizes,
    v: MatrixSizes,
    share: float = 0.0,
    decoding: bool = False,
) -> MatrixSizes:
    """Append SDPA's fused kernel with dropout rate `share`; under GQA gradients of keys and values are summed over heads."""
    width = write.compute
    for part in (q, k, v):
        write.cast(part, width)
    unit = "fp32" if width >= 4 else write.numerics.unit  # The fused kernel does not use TF32.
    if decoding:
        write.put(over.op(unit, width, "decode_attention", role="whole"))
        return q.like(over.heads * over.value_dim, width)
    role = "dropout" if share and write.training else ""
    write.put(over.op(unit, width, role=role))
    write.put(over.op(unit, width, "attention_backward", role=role), "backward")
    if over.kv_heads < over.heads:
        for dim in (over.dim, over.value_dim):
            summed = MatrixSizes(over.batch * over.keys, over.kv_heads * dim, width)
            write.backward(summed, over.heads / over.kv_heads * width, width)
    return q.like(over.heads * over.value_dim, width)


def math_attention(
    write: KernelWriter, over: AttentionSizes, q: MatrixSizes, k: MatrixSizes, v: MatrixSizes, share: float = 0.0
) -> MatrixSizes:
    """Append SDPA's math backend with dropout rate `share`: fp32 scores in memory, checked for fully masked rows.

    PyTorch uses it if the position bias is trained, or under GQA in fp32.
    """
    half = write.compute < 4
    whole = tuple(MatrixSizes(part.rows, over.heads * over.dim, part.width) for part in (q, k, v))
    for part in whole:
        wide = write.cast(part, 4)
        scale(write, wide)
        write.transpose(wide)
    scores = score_gemms(write, over, 4, "fp32" if half else write.numerics.unit)
    write.elementwise(scores, 8, 4, role=STRIDED)  # mask or position bias, whose gradient is summed
    write.reduce(scores, "backward")
    softmax(write, scores)
    write.elementwise(scores, 4, 1)
    write.move("reduce", scores.elements, scores.rows, width=2, sizes=scores.sizes)
    write.elementwise(scores, 4, 4, role=STRIDED)
    dropout(write, scores, share)
    if half:
        write.copy(scores.elements, 4, 2)
        write.cast(q.like(over.heads * over.value_dim, 4), 2)
    return _merge_heads(write, over, q, write.compute)


def eager_attention(
    write: KernelWriter, over: AttentionSizes, q: MatrixSizes, k: MatrixSizes, v: MatrixSizes, share: float = 0.0
) -> MatrixSizes:
    """Append softmax(q k' + bias) v with dropout rate `share` as separate operators, with the scores in memory."""
    width = write.compute
    for part in (q, k, v):
        write.transpose(write.cast(part, width).like(over.heads * over.dim))
    scores = score_gemms(write, over, width)
    scale(write, scores)
    write.elementwise(scores, 2 * width, width, role=STRIDED)  # mask or position bias
    wide = write.cast(scores, 4)
    dropout(write, write.cast(softmax(write, wide), width), share)
    return _merge_heads(write, over, q, width)


def disentangled_attention(
    write: KernelWriter, over: AttentionSizes, q: MatrixSizes, k: MatrixSizes, v: MatrixSizes, share: float = 0.0
) -> MatrixSizes:
    """Append DeBERTa's attention (arXiv 2006.03654), the sum of content and position scores, with dropout rate `share`."""
    width = write.compute
    for part in (q, k, v):
        write.transpose(write.cast(part, width))
        write.transpose(part, "backward")
    scores = score_gemms(write, over, width)
    for _ in range(2):
        _batched_gemm(write, over, over.dim, DEBERTA_DISTANCES, width, write.numerics.unit)
        write.elementwise(scores, width, width, role=STRIDED)  # scores are gathered by relative distance
        write.backward(MatrixSizes(scores.rows, DEBERTA_DISTANCES, width), 0, width)
        write.backward(scores, 2 * width, width, role="scatter")
        scale(write, scores)
    for role in ("", STRIDED, ""):  # The three kinds of scores are added up.
        write.elementwise(scores, 2 * width, width, role=role)
    for phase in PHASES:  # The scores are copied with the mask applied.
        write.copy(scores.elements, width, width, phase)
        write.elementwise(scores, width, width, phase=phase, role=STRIDED)
    dropout(write, softmax(write, scores), share)
    return _merge_heads(write, over, q, width)


def fused_softmax_attention(write: KernelWriter, over: AttentionSizes, q: MatrixSizes, share: float = 0.0) -> MatrixSizes:
    """Append attention with scale, mask, softmax and dropout (rate `share`) in one kernel, which saves a mask byte per score."""
    scores = score_gemms(write, over, write.compute)
    mask = scores.elements if share and write.training else 0.0
    size, sizes = scores.bytes, scores.sizes
    write.move("softmax", size, size + mask, width=scores.width, sizes=sizes, role="fused")
    write.move("softmax_backward", 2 * size + mask, size, width=scores.width, sizes=sizes, phase="backward", role="fused")
    return q.like(over.heads * over.value_dim, write.compute)


def score_gemms(write: KernelWriter, over: AttentionSizes, width: float, unit: str = "") -> MatrixSizes:
    """Append the two batched GEMMs of attention and their gradients; return the sizes of the scores."""
    unit = unit or write.numerics.unit
    _batched_gemm(write, over, over.dim, over.keys, width, unit)
    _batched_gemm(write, over, over.keys, over.value_dim, width, unit)
    return MatrixSizes(over.batch * over.heads * over.queries, over.keys, width)


def _batched_gemm(write: KernelWriter, over: AttentionSizes, k: Number, n: Number, width: float, unit: str) -> None:
    """Append one [queries, k] @ [k, n] GEMM per head and sequence, and its gradients."""
    pairs = over.batch * over.heads
    write.put(gemm(over.queries, n, k, unit, width, batch=pairs))
    write.put(gemm(over.queries, k, n, unit, width, batch=pairs, role="dgrad"), "backward")
    write.put(gemm(k, n, over.queries, unit, width, batch=pairs, role="wgrad"), "backward")


def _merge_heads(write: KernelWriter, over: AttentionSizes, q: MatrixSizes, width: float) -> MatrixSizes:
    """Append the copies that merge the heads into rows again, forward and backward; return the sizes of attention's output."""
    merged = q.like(over.heads * over.value_dim, width)
    write.transpose(merged)
    write.transpose(merged, "backward")
    return merged


def softmax(write: KernelWriter, x: MatrixSizes) -> MatrixSizes:
    """Append softmax or log-softmax over the columns."""
    write.move("softmax", x.bytes, x.bytes, width=x.width, sizes=x.sizes)
    write.move("softmax_backward", 2 * x.bytes, x.bytes, width=x.width, sizes=x.sizes, phase="backward")
    return x
