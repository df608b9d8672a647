"""Batch, micro-batch, accumulation and checkpointing of training and fine-tuning where the user gave none: for every command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from whichgpu.workload.shapes import Shape, Traced
from whichgpu.workload.workload import Workload

# Assumed, as common recipes begin: sequences of a step, images or rows of each GPU.
TEXT_BATCH, IMAGE_BATCH, ROW_BATCH = 8, 32, 128
_ORDER = ("no", "tight", "fits")


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """Samples of a step over all GPUs, of one pass on one GPU, and passes in a step."""

    batch: int
    micro_batch: int
    accumulation: int


def default_batch(shape: Shape, dp: int, accumulation: int | None = None) -> TrainingBatch:
    """The batch of a step on `dp` data-parallel ranks; `accumulation` where the user gave it.

    A language model takes one sequence at a time and accumulates gradients to a step of 8, or of one a rank where there are more
    ranks; anything else takes its whole share at once, or halves it with accumulation where it does not fit.

    >>> from whichgpu.workload.shapes import Mlp
    >>> default_batch(Mlp("net", (8, 4)), dp=2)
    TrainingBatch(batch=256, micro_batch=128, accumulation=1)
    """
    if shape.is_generative:
        micro, passes = 1, accumulation or -(-TEXT_BATCH // dp)
    else:
        text = TEXT_BATCH if shape.is_transformer else ROW_BATCH
        micro = IMAGE_BATCH if isinstance(shape, Traced) or shape.reads_images else text
        passes = accumulation or 1
    return TrainingBatch(micro * passes * dp, micro, passes)


def with_default_batch(workload: Workload, shape: Shape, accumulation_given: bool) -> Workload:
    """A training request with every one of batch, micro-batch and accumulation that the user left out."""
    dp = workload.parallel.dp
    given = workload.accumulation if accumulation_given or workload.accumulation != 1 else None
    if workload.batch is None and workload.micro_batch is None:
        found = default_batch(shape, dp, given)
        micro = found.micro_batch if found.accumulation > 1 else None
        return replace(workload, batch=found.batch, micro_batch=micro, accumulation=found.accumulation)
    if workload.batch is None:
        return replace(workload, batch=(workload.micro_batch or 1) * dp * workload.accumulation)
    if workload.micro_batch is not None and given is None and workload.batch % (workload.micro_batch * dp) == 0:
        return replace(workload, accumulation=workload.batch // (workload.micro_batch * dp))
    return workload


def default_checkpointing(verdict_with: Callable[[str], str]) -> str:
    """`full` where that fits better than `none`; `verdict_with` says fits, tight or no of each.

    >>> default_checkpointing({"none": "fits"}.__getitem__), default_checkpointing({"none": "no", "full": "fits"}.__getitem__)
    ('none', 'full')
    """
    plain = verdict_with("none")
    if plain == "fits":
        return "none"
    return "full" if _ORDER.index(verdict_with("full")) > _ORDER.index(plain) else "none"


def default_micro_batch(usual: int, verdict_with: Callable[[int], str]) -> int:
    """The usual micro-batch, halved as often as it takes to fit; 1 where nothing fits.

    >>> default_micro_batch(32, lambda size: "fits" if size <= 8 else "no"), default_micro_batch(32, lambda size: "no")
    (8, 1)
    """
    tight = None
    for size in halvings(usual):
        found = verdict_with(size)
        if found == "fits":
            return size
        tight = tight or (size if found == "tight" else None)
    return tight or 1


def halvings(usual: int) -> tuple[int, ...]:
    """Micro-batches a share may be made of, largest first.

    >>> halvings(8)
    (8, 4, 2, 1)
    """
    return tuple(usual >> times for times in range(usual.bit_length()) if not usual % (1 << times))
