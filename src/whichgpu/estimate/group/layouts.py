"""Legal layouts of a model on n GPUs of m nodes: parallel degrees that multiply to n and divide the dimensions they shard."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.workload import Parallel, Workload

ZERO_STAGES = (0, 1, 2, 3)
CHUNKS = (1, 2, 4)  # model chunks per stage of an interleaved pipeline
# ZeRO 2 and 3 reduce-scatter gradients at every micro-batch, too often for a pipeline; no library offers the combination.
MAX_ZERO_IN_PIPELINE = 1


def legal_layouts(workload: Workload, shape: Shape, gpus: int, nodes: int = 1) -> Iterator[Parallel]:
    """Yield all layouts of a workload, simplest first; tensor-parallel ranks stay within a node, where links are fast.

    >>> from whichgpu.workload.shapes import Mlp
    >>> net = Mlp("", (8, 4))
    >>> [layout.zero for layout in legal_layouts(Workload("train", "mlp:8x4"), net, 4)]
    [0, 1, 2, 3]
    """
    if not isinstance(shape, Transformer):
        stages = ZERO_STAGES if workload.training and gpus > 1 else (0,)
        yield from (Parallel(dp=gpus, zero=zero) for zero in stages)
        return
    per_node = max(1, gpus // nodes)
    for pp, tp, cp in product(_divisors(gpus), repeat=3):
        if gpus % (tp * pp * cp) or tp > per_node:
            continue
        if divides_evenly(workload, shape, tp, pp, cp):
            yield from _variants(workload, shape, tp, pp, cp, gpus // (tp * pp * cp))


def divides_evenly(workload: Workload, shape: Transformer, tp: int, pp: int, cp: int) -> bool:
    """Whether heads, widths, layers and tokens can be sharded by these parallel degrees."""
    sharded = shape.heads % tp == 0 and shape.ffn % tp == 0 and (shape.kv_heads % tp == 0 or tp % max(1, shape.kv_heads) == 0)
    staged = pp <= shape.layers and not (pp > 1 and shape.encoder_layers)
    context = cp == 1 or (workload.training and shape.causal and (workload.seq_in or 1) % cp == 0)
    return sharded and staged and context


def _variants(workload: Workload, shape: Transformer, tp: int, pp: int, cp: int, dp: int) -> Iterator[Parallel]:
    """Yield the layouts of these parallel degrees with every ZeRO stage, expert-parallel degree and interleaving."""
    zeros: tuple[int, ...] = (0,)
    if workload.training and dp > 1:
        zeros = tuple(zero for zero in ZERO_STAGES if pp == 1 or zero <= MAX_ZERO_IN_PIPELINE)
    chunks = tuple(v for v in CHUNKS if workload.training and pp > 1 and shape.layers % (pp * v) == 0) or (1,)
    for ep, zero, v in product(_expert_degrees(workload, shape, dp, tp), zeros, chunks):
        yield Parallel(dp=dp, tp=tp, pp=pp, ep=ep, cp=cp, sp=workload.training and tp > 1, zero=zero, chunks=v)


def _expert_degrees(workload: Workload, shape: Transformer, dp: int, tp: int) -> list[int]:
    """Return the legal expert-parallel degrees: over data-parallel ranks in training, all ranks of a stage in inference."""
    if not shape.experts:
        return [1]
    ranks = dp if workload.training else dp * tp
    return [degree for degree in _divisors(ranks) if shape.experts.count % degree == 0]


def _divisors(number: int) -> list[int]:
    return [degree for degree in range(1, number + 1) if number % degree == 0]
