"""Activations alive at the worst moment of a forward pass without gradients.

Layers run one after another and free what they made, so the peak is that of one layer or of the head, not of all. Elements
a token, with h = hidden, f = MLP width, q = heads x head size, k = key heads x head size:

    MLP         2h + 3f gated (gate and up, then their product), 2f plain
    attention   2h + 2q + 2k (queries, keys, values, output), 2q more where the rotation is written out in operators
    head        h + the vocabulary, for the positions whose logits are asked for

2h is the residual stream and its normed copy; layers that norm after adding (BERT) hold a third. Measured on one H200 with
PyTorch 2.11: prefill of Llama-3.1-8B takes 102,657 bytes a token beside the cache (3f + 2h in bf16: 102,400), Qwen2.5-32B
186,458 (186,368), a forward of BERT-large 22,536 (2f + 3h: 22,528).
"""

from __future__ import annotations

from dataclasses import dataclass

from whichgpu.workload.shapes import Dlrm, Mlp, Transformer


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """One forward pass on one GPU: tokens in it, and what its head gives out."""

    tokens: int
    context: int  # tokens each of them may attend to
    width: int  # bytes of an activation
    logits: int  # rows of logits
    logit_bytes: int  # a logit, with the copies sampling makes
    score_bytes: int = 0  # of an attention score, where the matrix of them is written out
    written_out: bool = False  # the rotation is separate operators
    kept: int = 0  # bytes alive throughout, such as the encoder's output
    tp: int = 1


def activation_peak_bytes(shape: Transformer, step: ForwardPass) -> int:
    """Bytes of activations at the peak of a step."""
    own = shape.hidden * (2 if _norms_first(shape) else 3)
    mlp = own + _mlp(shape, step.tp)
    attention = own + _attention(shape, step)
    layer = step.tokens * max(mlp, attention) * step.width
    scores = step.tokens * attention * step.width + _scores(shape, step)
    head = step.tokens * shape.hidden * step.width + step.logits * shape.vocab * step.logit_bytes
    return step.kept + max(layer, scores, head)


def mlp_peak_bytes(shape: Mlp, samples: int, width: int) -> int:
    """A plain perceptron: its input stays with the caller; a layer's output and its activated copy are alive together.

    >>> mlp_peak_bytes(Mlp("", (9000, 4000, 4000, 32)), 128, 4)
    8704000
    """
    first, *rest = shape.units
    return samples * width * (first + 2 * max(rest, default=0))


def dlrm_peak_bytes(shape: Dlrm, samples: int, width: int) -> int:
    """A recommendation model: the looked-up vectors and the widest pair of layers."""
    vectors = shape.embedding_dim * (len(shape.tables) + 1)
    return samples * width * (vectors + shape.interaction + 2 * max((*shape.bottom, *shape.top), default=0))


def _norms_first(shape: Transformer) -> bool:
    """Decoders and image encoders norm before each part; BERT and its kin after, with one more copy alive."""
    return shape.causal or shape.encoder_layers > 0 or shape.patches is not None


def _mlp(shape: Transformer, tp: int) -> int:
    """Elements a token of the widest MLP. Routed tokens are copied for each expert they visit; fused kernels reuse the way in."""
    copies = 3 if shape.gated else 2
    plain = -(-copies * shape.ffn // tp)
    if shape.experts is None:
        return plain
    experts = shape.experts
    one = max(2 * experts.ffn // tp, shape.hidden) + experts.ffn // tp
    mixture = experts.active * one + copies * experts.shared_ffn // tp
    return max(mixture, plain if experts.dense_layers or experts.every > 1 else 0)


def _attention(shape: Transformer, step: ForwardPass) -> int:
    """Elements a token of queries, keys, values and output."""
    if mla := shape.mla:
        query = mla.nope_dim + mla.rope_dim
        wide = shape.heads * (2 * query + 2 * mla.value_dim)
        return -(-wide // step.tp) + mla.q_rank + mla.kv_rank
    query = shape.heads * shape.head_dim
    keys = 2 * shape.kv_heads * shape.head_dim
    rotated = 2 * query if shape.rope and step.written_out else 0
    return -(-(2 * query + keys + rotated) // step.tp)


def _scores(shape: Transformer, step: ForwardPass) -> int:
    """The score matrix, where attention writes it out."""
    return step.tokens * step.context * -(-shape.heads // step.tp) * step.score_bytes
