"""Peak memory of activations in a forward pass without gradients.

Layers free what they allocate, so the peak is that of one layer or of the head. Elements per token, with h = hidden, f = MLP
width, q = heads x head size, k = KV heads x head size:

    MLP         2h + 3f gated (gate and up, then their product), 2f plain
    attention   2h + 2q + 2k (queries, keys, values, output), 2q more if RoPE runs as separate operators
    head        h + the vocabulary, for the positions whose logits are computed

2h is the residual stream and its normalised copy; post-norm layers (BERT) have a third. Measured on one H200 with
PyTorch 2.11: prefill of Llama-3.1-8B takes 102,657 bytes a token without the KV cache (3f + 2h in bf16: 102,400), Qwen2.5-32B
186,458 (186,368), a forward of BERT-large 22,536 (2f + 3h: 22,528).
"""

from __future__ import annotations

import msgspec

from whichgpu.workload.shapes import Dlrm, Mlp, Transformer


class ForwardPass(msgspec.Struct, frozen=True):
    """Sizes of one forward pass on one GPU that decide the memory of its activations."""

    tokens: int
    context: int  # tokens that each token may attend to
    width: int  # bytes of an activation
    logits: int  # rows of logits
    logit_bytes: int  # bytes of a logit, with the copies that sampling makes
    score_bytes: int = 0  # bytes of an attention score; 0 if fused kernels do not store them
    written_out: bool = False  # RoPE runs as separate operators
    persistent_bytes: int = 0  # bytes allocated throughout the pass, such as the encoder's output
    tp: int = 1


def activation_peak_bytes(shape: Transformer, step: ForwardPass) -> int:
    """Return the bytes of activations at the peak of a forward pass."""
    pre_norm = shape.causal or shape.encoder_layers > 0 or shape.patches is not None
    residual = shape.hidden * (2 if pre_norm else 3)
    mlp = residual + _mlp(shape, step.tp)
    attention = residual + _attention(shape, step)
    layer = step.tokens * max(mlp, attention) * step.width
    score_matrix = step.tokens * step.context * -(-shape.heads // step.tp) * step.score_bytes
    scores = step.tokens * attention * step.width + score_matrix
    head = step.tokens * shape.hidden * step.width + step.logits * shape.vocab * step.logit_bytes
    return step.persistent_bytes + max(layer, scores, head)


def mlp_peak_bytes(shape: Mlp, samples: int, width: int) -> int:
    """Return the activation bytes of a perceptron: its input, and the widest layer's output before and after the activation.

    >>> mlp_peak_bytes(Mlp("", (9000, 4000, 4000, 32)), 128, 4)
    8704000
    """
    first, *rest = shape.units
    return samples * width * (first + 2 * max(rest, default=0))


def dlrm_peak_bytes(shape: Dlrm, samples: int, width: int) -> int:
    """Return the activation bytes of a DLRM: the embedding vectors, their interaction and the widest pair of adjacent layers."""
    vectors = shape.embedding_dim * (len(shape.tables) + 1)
    return samples * width * (vectors + shape.interaction + 2 * max((*shape.bottom, *shape.top), default=0))


def _mlp(shape: Transformer, tp: int) -> int:
    """Return elements per token in the widest MLP. MoE copies tokens per active expert; fused kernels reuse the input buffer."""
    copies = 3 if shape.gated else 2
    dense = -(-copies * shape.ffn // tp)
    if shape.experts is None:
        return dense
    experts = shape.experts
    per_expert = max(2 * experts.ffn // tp, shape.hidden) + experts.ffn // tp
    moe = experts.active * per_expert + copies * experts.shared_ffn // tp
    return max(moe, dense if experts.dense_layers or experts.every > 1 else 0)


def _attention(shape: Transformer, step: ForwardPass) -> int:
    """Return the elements per token of queries, keys, values and attention output together."""
    if mla := shape.mla:
        query = mla.nope_dim + mla.rope_dim
        wide = shape.heads * (2 * query + 2 * mla.value_dim)
        return -(-wide // step.tp) + mla.q_rank + mla.kv_rank
    query = shape.heads * shape.head_dim
    keys = 2 * shape.kv_heads * shape.head_dim
    rotated = 2 * query if shape.rope and step.written_out else 0
    return -(-(2 * query + keys + rotated) // step.tp)
