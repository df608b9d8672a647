"""The part of a model that one GPU holds under a parallel layout: its heads, layers, tokens and optimizer states.

Tensor parallelism cuts heads, MLP widths and the vocabulary (arXiv 1909.08053); expert parallelism cuts the experts; pipeline
parallelism cuts the layers; context parallelism cuts the sequence; ZeRO cuts optimizer states, gradients and weights over the
data-parallel group (arXiv 1910.02054).
"""

from __future__ import annotations

from math import gcd

from msgspec.structs import replace

from whichgpu.workload.shapes import RecurrentMixer, Transformer
from whichgpu.workload.workload import Parallel


def tensor_share(shape: Transformer, parallel: Parallel) -> Transformer:
    """Return the model's shape on one tensor- and expert-parallel rank; KV heads are replicated if there are fewer than ranks.

    Experts already distributed over tensor-parallel ranks as whole experts are sharded over the other ones only.
    """
    tp, ep = parallel.tp, parallel.ep
    if tp == 1 and ep == 1:
        return shape
    experts = shape.experts
    if experts:
        experts = replace(
            experts,
            count=_share(experts.count, ep),
            ffn=_share(experts.ffn, tp // experts.tensor_ranks),
            shared_ffn=_share(experts.shared_ffn, tp),
            active=max(1, experts.active),
        )
    return replace(
        shape,
        heads=_share(shape.heads, tp),
        kv_heads=_share(shape.kv_heads, tp),
        full_heads=replace(full, kv_heads=_share(full.kv_heads, tp)) if (full := shape.full_heads) else None,
        ffn=_share(shape.ffn, tp),
        vocab=_share(shape.vocab, tp),
        experts=experts,
        recurrent=_mixer_share(shape.recurrent, tp),
    )


def _mixer_share(mixer: RecurrentMixer | None, tp: int) -> RecurrentMixer | None:
    """Return the part of a recurrent mixer on one tensor-parallel rank, which has some of the heads or channels."""
    if mixer is None:
        return None
    inner = tuple((rows, _share(columns, tp)) for rows, columns in mixer.inner)
    names = ("inward", "outward", "heads", "conv_channels")
    return replace(mixer, inner=inner, **{name: _share(getattr(mixer, name), tp) for name in names})


def expert_ranks(parallel: Parallel) -> tuple[int, int]:
    """Return the tensor ranks and data-parallel groups over which an inference engine spreads whole experts (product: `ep`).

    Tensor ranks come first (vLLM, SGLang): they hold the same tokens, and the all-reduce after the layer adds up their experts'
    outputs, so only the groups exchange tokens.

    >>> expert_ranks(Parallel(tp=8, ep=8)), expert_ranks(Parallel(dp=4, tp=2, ep=8))
    ((8, 1), (2, 4))
    """
    tensor_ranks = gcd(parallel.tp, parallel.ep)
    return tensor_ranks, parallel.ep // tensor_ranks


def expert_shards(parallel: Parallel) -> int:
    """Return how many ranks of a pipeline stage hold different parts of the experts: whole experts, or slices if ep < tp.

    >>> expert_shards(Parallel(tp=8, ep=2)), expert_shards(Parallel(dp=4, tp=2, ep=8))
    (8, 8)
    """
    return parallel.tp * expert_ranks(parallel)[1]


def stage_layers(layers: int, stages: int, stage: int) -> range:
    """Return the layer indexes of one pipeline stage; if they do not divide evenly, the first stages have one more."""
    share, rest = divmod(layers, stages)
    start = stage * share + min(stage, rest)
    return range(start, start + share + (stage < rest))


def in_flight_micro_batches(parallel: Parallel, accumulation: int, stage: int) -> int:
    """Return how many micro-batches' activations a pipeline stage holds at once under the 1F1B schedule (arXiv 2104.04473)."""
    return max(1, min(parallel.pp - stage, accumulation))


def _share(whole: int, parts: int) -> int:
    return -(-whole // parts) if whole else 0
