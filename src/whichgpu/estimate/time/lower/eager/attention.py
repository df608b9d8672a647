"""Attention as PyTorch runs it: in one fused kernel (SDPA), or written out with every score in memory."""

from __future__ import annotations

from dataclasses import dataclass

from whichgpu.estimate.time.lower.eager.functional import PHASES, dropout, scale
from whichgpu.estimate.time.lower.eager.kernels import STRIDED, KernelWriter, Tensor
from whichgpu.estimate.time.operators import Number, Op, gemm

# Products of the backward kernel for each of the forward one: it makes the scores again, then four gradients (arXiv 2307.08691).
BACKWARD_FLOPS_RATIO = 2.5
DEBERTA_DISTANCES = 512.0  # distances that DeBERTa tells apart: both ways, 256 buckets


@dataclass(frozen=True, slots=True)
class Attention:
    """Who attends to whom: `batch` sequences of `queries` rows over `keys` rows."""

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
        """Pairs of a query and a key it sees, of one head and sequence."""
        import numpy as np

        seen = np.minimum(self.keys, self.window) if self.window else self.keys
        if not self.causal:
            return self.queries * seen * 1.0
        ends = np.minimum(seen, self.queries)  # the first queries see fewer
        return self.queries * seen - ends * ends / 2.0

    @property
    def sizes(self) -> dict[str, Number]:
        """As the curves name them."""
        return {
            "batch": self.batch,
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "queries": self.queries,
            "keys": self.keys,
            "dim": self.dim,
            "causal": float(self.causal),
        }

    def op(self, unit: str, width: float, kind: str = "attention", kv_width: float | None = None, role: str = "") -> Op:
        """The fused kernel; the backward one reads the output and its gradient besides, and writes three gradients."""
        both = self.dim + self.value_dim
        flops = 2.0 * self.batch * self.heads * self.pairs * both
        cached = self.batch * self.kv_heads * self.keys * both * (width if kv_width is None else kv_width)
        asked = self.batch * self.heads * self.queries * self.dim * width
        given = self.batch * self.heads * self.queries * self.value_dim * width
        if kind == "attention_backward":
            return Op(kind, unit, BACKWARD_FLOPS_RATIO * flops, asked + cached + 2 * given, asked + cached, self.sizes, role=role)
        return Op(kind, unit, flops, asked + cached, given, self.sizes, role=role)


def flash_attention(
    write: KernelWriter, over: Attention, q: Tensor, k: Tensor, v: Tensor, share: float = 0.0, decoding: bool = False
) -> Tensor:
    """SDPA's kernel. With fewer heads of keys, their gradients come for every query head and are summed."""
    width = write.compute
    for part in (q, k, v):
        write.cast(part, width)
    unit = "fp32" if width >= 4 else write.numerics.unit  # the fused kernel knows no TF32
    if decoding:
        write.put(over.op(unit, width, "decode_attention", role="whole"))
        return q.like(over.heads * over.value_dim, width)
    role = "dropout" if share and write.training else ""
    write.put(over.op(unit, width, role=role))
    write.put(over.op(unit, width, "attention_backward", role=role), "backward")
    if over.kv_heads < over.heads:
        for dim in (over.dim, over.value_dim):
            summed = Tensor(over.batch * over.keys, over.kv_heads * dim, width)
            write.backward(summed, over.heads / over.kv_heads * width, width)
    return q.like(over.heads * over.value_dim, width)


def math_attention(write: KernelWriter, over: Attention, q: Tensor, k: Tensor, v: Tensor, share: float = 0.0) -> Tensor:
    """SDPA without a fused kernel: scores in fp32, in memory, checked for rows that see nothing.

    PyTorch comes to this where the bias of positions is trained, or where keys have fewer heads and elements are fp32.
    """
    half = write.compute < 4
    whole = tuple(Tensor(part.rows, over.heads * over.dim, part.width) for part in (q, k, v))
    for part in whole:
        wide = write.cast(part, 4)
        scale(write, wide)
        write.transpose(wide)
    scores = score_gemms(write, over, 4, "fp32" if half else write.numerics.unit)
    write.elementwise(scores, 8, 4, role=STRIDED)  # the mask, or the positions' bias, whose gradient is summed over sequences
    write.reduce(scores, "backward")
    softmax(write, scores)
    write.elementwise(scores, 4, 1)
    write.move("reduce", scores.elements, scores.rows, width=2, sizes=scores.sizes)
    write.elementwise(scores, 4, 4, role=STRIDED)
    dropout(write, scores, share)
    made = q.like(over.heads * over.value_dim, write.compute)
    if half:
        write.copy(scores.elements, 4, 2)
        write.cast(made.like(width=4), 2)
    write.transpose(made)
    write.transpose(made, "backward")
    return made


def eager_attention(write: KernelWriter, over: Attention, q: Tensor, k: Tensor, v: Tensor, share: float = 0.0) -> Tensor:
    """softmax(q k' + bias) v, operator by operator, with the scores in memory."""
    width = write.compute
    for part in (q, k, v):
        write.transpose(write.cast(part, width).like(over.heads * over.dim))
    scores = score_gemms(write, over, width)
    scale(write, scores)
    write.elementwise(scores, 2 * width, width, role=STRIDED)  # the mask or the positions' bias
    wide = write.cast(scores, 4)
    dropout(write, write.cast(softmax(write, wide), width), share)
    made = q.like(over.heads * over.value_dim, width)
    write.transpose(made)  # heads beside one another again
    write.transpose(made, "backward")
    return made


def disentangled_attention(write: KernelWriter, over: Attention, q: Tensor, k: Tensor, v: Tensor, share: float = 0.0) -> Tensor:
    """DeBERTa's (arXiv 2006.03654): scores of contents, of contents with positions, and of positions with contents."""
    width, unit, pairs = write.compute, write.numerics.unit, over.batch * over.heads
    for part in (q, k, v):
        write.transpose(write.cast(part, width))
        write.transpose(part, "backward")
    scores = score_gemms(write, over, width)
    for _ in range(2):
        write.put(gemm(over.queries, DEBERTA_DISTANCES, over.dim, unit, width, batch=pairs))
        write.put(gemm(over.queries, over.dim, DEBERTA_DISTANCES, unit, width, batch=pairs, role="dgrad"), "backward")
        write.put(gemm(over.dim, DEBERTA_DISTANCES, over.queries, unit, width, batch=pairs, role="wgrad"), "backward")
        write.elementwise(scores, width, width, role=STRIDED)  # each pair's distance looked up
        write.backward(Tensor(scores.rows, DEBERTA_DISTANCES, width), 0, width)
        write.backward(scores, 2 * width, width, role="scatter")
        scale(write, scores)
    for role in ("", STRIDED, ""):  # the three added
        write.elementwise(scores, 2 * width, width, role=role)
    for phase in PHASES:  # the mask, in a copy
        write.copy(scores.elements, width, width, phase)
        write.elementwise(scores, width, width, phase=phase, role=STRIDED)
    dropout(write, softmax(write, scores), share)
    made = q.like(over.heads * over.value_dim, width)
    write.transpose(made)
    write.transpose(made, "backward")
    return made


def fused_softmax_attention(write: KernelWriter, over: Attention, q: Tensor, share: float = 0.0) -> Tensor:
    """The same where scale, mask, softmax and dropout are one kernel; the shares it drops are kept as a byte each."""
    scores = score_gemms(write, over, write.compute)
    kept = scores.elements if share and write.training else 0.0
    size, sizes = scores.bytes, scores.sizes
    write.move("softmax", size, size + kept, width=scores.width, sizes=sizes, role="fused")
    write.move("softmax_backward", 2 * size + kept, size, width=scores.width, sizes=sizes, phase="backward", role="fused")
    return q.like(over.heads * over.value_dim, write.compute)


def score_gemms(write: KernelWriter, over: Attention, width: float, unit: str = "") -> Tensor:
    """The two batched products of attention with their gradients; gives the scores."""
    unit, pairs = unit or write.numerics.unit, over.batch * over.heads
    for inner, outer in ((over.dim, over.keys), (over.keys, over.value_dim)):
        write.put(gemm(over.queries, outer, inner, unit, width, batch=pairs))
        write.put(gemm(over.queries, inner, outer, unit, width, batch=pairs, role="dgrad"), "backward")
        write.put(gemm(inner, outer, over.queries, unit, width, batch=pairs, role="wgrad"), "backward")
    return Tensor(pairs * over.queries, over.keys, width)


def softmax(write: KernelWriter, x: Tensor) -> Tensor:
    """Softmax or log-softmax over the columns."""
    write.move("softmax", x.bytes, x.bytes, width=x.width, sizes=x.sizes)
    write.move("softmax_backward", 2 * x.bytes, x.bytes, width=x.width, sizes=x.sizes, phase="backward")
    return x
