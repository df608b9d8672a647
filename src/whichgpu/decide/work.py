"""How much is to be done: tokens or samples of a run, or a service kept up for a while."""

from __future__ import annotations

from dataclasses import dataclass

from whichgpu.price.terms import MONTH_HOURS
from whichgpu.workload.denoisers import counts_steps
from whichgpu.workload.shapes import Shape
from whichgpu.workload.workload import Workload

# What a run is taken to be where nobody says: a billion tokens of training, a tenth of that of fine-tuning, one pass over
# ImageNet's 1,281,167 images, ten thousand answers, a million images looked at.
TRAIN_TOKENS, FINETUNE_TOKENS, IMAGES, ANSWERS, LOOKS = 1e9, 1e8, 1_281_167.0, 10_000.0, 1e6
SERVICE_RATE = 1.0  # requests a second
# Seconds between tokens where no objective is named: some 7 words a second, twice as fast as people read (Brysbaert 2019: 238 a
# minute), so that nobody waits for the text.
SERVICE_TPOT = 0.1


@dataclass(frozen=True, slots=True)
class Work:
    """`amount` in `unit` (tokens, samples or denoising-steps); a service has `hours` instead. `assumed` where nobody said so."""

    amount: float | None
    unit: str
    hours: float | None
    assumed: bool
    per_epoch: float | None = None  # of the amount, where epochs are known


def work_of(workload: Workload, shape: Shape, duration: float | None) -> Work:
    """The work of a request with its defaults filled in."""
    if workload.serving:
        return Work(None, _unit(shape, workload), (duration or MONTH_HOURS * 3600.0) / 3600.0, duration is None)
    told = shape.is_language_model
    length = _length(workload, shape) if told else 1.0
    unit = _unit(shape, workload)
    epoch = float(workload.samples) * length if workload.samples is not None else None
    if workload.tokens is not None:
        return Work(float(workload.tokens), unit, None, False, epoch)
    if workload.steps is not None:
        return Work(float(workload.steps) * float(workload.batch or 1) * length, unit, None, False, epoch)
    if epoch is not None:
        return Work(epoch * float(workload.epochs or 1.0), unit, None, False, epoch)
    return _usual(workload, told, unit, length)


def _usual(workload: Workload, told: bool, unit: str, length: float) -> Work:
    times = float(workload.epochs or 1.0)
    if workload.traits.offline:
        return Work((ANSWERS if told else LOOKS) * length, unit, None, True)
    epoch = (TRAIN_TOKENS if not workload.traits.finetuning else FINETUNE_TOKENS) if told else IMAGES
    return Work(epoch * times, unit, None, True, None if told and not workload.epochs else epoch)


def _length(workload: Workload, shape: Shape) -> float:
    """Tokens one sample counts for, as its throughput counts them."""
    if workload.training:
        return float(workload.seq_in or 1)
    return float(workload.seq_out or 1) if workload.generating and shape.is_generative else 1.0


def _unit(shape: Shape, workload: Workload) -> str:
    if counts_steps(workload, shape):
        return "denoising-steps"
    written = workload.generating and shape.is_generative
    return "tokens" if written or (workload.training and shape.is_language_model) else "samples"


def running_sequences(rate: float, first: float, each: float, tokens: int, most: int) -> int:
    """Sequences a copy has at work on average under a rate (Little's law), no more than it takes at once.

    >>> [running_sequences(rate, 0.1, 0.02, 200, 128) for rate in (5.0, 0.1, 90.0)]
    [20, 1, 128]
    """
    return max(1, min(most, round(rate * (first + tokens * each))))
