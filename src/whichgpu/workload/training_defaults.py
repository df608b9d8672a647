"""Default batch, micro-batch, accumulation and checkpointing of training and fine-tuning, the same for every command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isqrt

import msgspec
from msgspec.structs import replace

from whichgpu.workload.shapes import Shape, TracedShape
from whichgpu.workload.workload import Workload

# Assumed, as in common recipes: sequences per step of a language model, and images or rows per GPU of other models.
TEXT_BATCH, IMAGE_BATCH, ROW_BATCH = 8, 32, 128
STAGE_PASSES = 4  # Micro-batches per pipeline stage (assumed), so that at most a fifth of a step is pipeline bubble.


class TrainingBatch(msgspec.Struct, frozen=True):
    """Samples per step on all GPUs, samples per forward-backward pass on one GPU, and passes per step."""

    batch: int
    micro_batch: int
    accumulation: int


def default_batch(shape: Shape, dp: int, accumulation: int | None = None, pp: int = 1) -> TrainingBatch:
    """Return the batch of a step on `dp` data-parallel ranks of `pp` pipeline stages; `accumulation` is the user's, if given.

    A language model takes one sequence at a time and accumulates gradients to a step of 8, rounded up to a multiple of the ranks;
    anything else takes its whole share at once. A pipeline accumulates over at least 4 micro-batches per stage.

    >>> from whichgpu.workload.shapes import Mlp
    >>> default_batch(Mlp("net", (8, 4)), dp=2)
    TrainingBatch(batch=256, micro_batch=128, accumulation=1)
    """
    if shape.is_generative:
        micro, passes = 1, -(-TEXT_BATCH // dp)
    else:
        text = TEXT_BATCH if shape.is_transformer else ROW_BATCH
        micro, passes = IMAGE_BATCH if isinstance(shape, TracedShape) or shape.reads_images else text, 1
    passes = accumulation or max(passes, pipeline_passes(pp))
    return TrainingBatch(micro * passes * dp, micro, passes)


def pipeline_passes(pp: int) -> int:
    """Return the fewest micro-batches per step that keep `pp` pipeline stages busy.

    >>> pipeline_passes(1), pipeline_passes(2)
    (1, 8)
    """
    return STAGE_PASSES * pp if pp > 1 else 1


def with_default_batch(workload: Workload, shape: Shape, accumulation_given: bool) -> Workload:
    """Fill in those of batch, micro-batch and accumulation that the user left out of a training request."""
    dp = workload.parallel.dp
    fixed_accumulation = workload.accumulation if accumulation_given or workload.accumulation != 1 else None
    if workload.batch is None and workload.micro_batch is None:
        chosen = default_batch(shape, dp, fixed_accumulation, workload.parallel.pp)
        micro = chosen.micro_batch if chosen.accumulation > 1 else None
        return replace(workload, batch=chosen.batch, micro_batch=micro, accumulation=chosen.accumulation)
    if workload.batch is None:
        passes = fixed_accumulation or pipeline_passes(workload.parallel.pp)
        return replace(workload, batch=(workload.micro_batch or 1) * dp * passes, accumulation=passes)
    if workload.micro_batch is not None and fixed_accumulation is None and workload.batch % (workload.micro_batch * dp) == 0:
        return replace(workload, accumulation=workload.batch // (workload.micro_batch * dp))
    return workload


def training_options(workload: Workload, shape: Shape, batch_given: bool) -> tuple[Workload, ...]:
    """Return workloads to try until a training request fits in memory, the preferred one first, the smallest last.

    Without checkpointing before with it, larger micro-batches before smaller ones. A transformer at its default batch keeps its
    micro-batch; a batch the user gave is kept, and its share on each rank may be accumulated in smaller micro-batches, in a
    pipeline in enough of them to keep its stages busy.
    """
    if batch_given:
        workload = replace(workload, micro_batch=None, accumulation=1)
    share, transformer = workload.local_batch, shape.is_transformer
    sizes = (share,) if transformer and not batch_given else micro_batches(share)[::-1]
    sizes = tuple(size for size in sizes if share // size >= pipeline_passes(workload.parallel.pp)) or sizes[-1:]
    kinds = ("none", "full") if transformer else (workload.checkpointing,)
    return tuple(_in_passes(replace(workload, checkpointing=kind), size, share // size) for kind in kinds for size in sizes)


def _in_passes(workload: Workload, micro_batch: int, passes: int) -> Workload:
    """Return the workload with each forward-backward pass split into smaller micro-batches whose gradients are accumulated."""
    if passes == 1:
        return workload
    return replace(workload, micro_batch=micro_batch, accumulation=workload.accumulation * passes)


def first_fitting(options: Sequence[Workload], verdict_of: Callable[[Workload], str]) -> Workload:
    """Return the first workload whose memory verdict is that it fits, else the first that is tight, else the last."""
    tight = None
    for one in options:
        verdict = verdict_of(one)
        if verdict == "fits":
            return one
        tight = tight or (one if verdict == "tight" else None)
    return tight or options[-1]


def micro_batches(share: int, max_count: int | None = None) -> tuple[int, ...]:
    """Return micro-batch sizes to try for a rank's samples: power-of-two divisors, and the largest divisor between powers of two.

    >>> micro_batches(12), micro_batches(1023, 256), micro_batches(8)
    ((1, 2, 3, 4, 6, 12), (1, 3, 11, 31, 33, 93), (1, 2, 4, 8))
    """
    small = [size for size in range(1, isqrt(share) + 1) if share % size == 0]
    divisors = sorted(size for size in {*small, *(share // size for size in small)} if size <= (max_count or share))
    largest = {size.bit_length(): size for size in divisors}
    return tuple(sorted({*largest.values(), *(size for size in divisors if not size & (size - 1))}))
