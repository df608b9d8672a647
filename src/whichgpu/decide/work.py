"""The amount of work: tokens or samples of a run, or the hours of a service."""

from __future__ import annotations

import msgspec

from whichgpu.price.terms import MONTH_HOURS
from whichgpu.workload.denoisers import counts_steps, denoiser, makes_videos, pipeline_of
from whichgpu.workload.shapes import Shape
from whichgpu.workload.workload import Workload

# Default amounts of a run (assumed): tokens of training and of fine-tuning, images of ImageNet, answers, images classified,
# pictures made.
TRAIN_TOKENS, FINETUNE_TOKENS, IMAGES, ANSWERS, SAMPLES, PICTURES = 1e9, 1e8, 1_281_167.0, 10_000.0, 1e6, 1000.0
TUNED_PICTURES = 10_000.0  # Default pictures shown to a picture model in fine-tuning, such as 100 a hundred times (assumed).
SERVICE_RATE = 1.0  # Default requests per second (assumed).
# Default seconds between tokens: about 7 words a second, twice as fast as people read (Brysbaert 2019: 238 a minute).
SERVICE_TPOT = 0.1


class Work(msgspec.Struct, frozen=True):
    """`amount` in `unit` (tokens, samples, pictures or denoising-steps); `hours` for a service. `assumed` if not given."""

    amount: float | None
    unit: str
    hours: float | None
    assumed: bool
    per_epoch: float | None = None  # part of `amount` that is one epoch, if known


def work_of(workload: Workload, shape: Shape, duration: float | None) -> Work:
    """Return the amount of work of a run with defaults filled in; `duration` is the seconds a service runs."""
    generates, language = workload.generating and shape.is_generative, shape.is_language_model
    unit = "tokens" if generates or (workload.training and language) else "samples"
    if counts_steps(workload, shape):
        unit = "denoising-steps"
    pictures = pipeline_of(workload, shape) is not None
    if pictures:
        unit = "videos" if makes_videos(shape) else "pictures"
    if workload.serving:
        return Work(None, unit, (duration or MONTH_HOURS * 3600.0) / 3600.0, duration is None)
    length = 1.0  # Tokens, samples, pictures or denoising steps of one sample, as throughput counts them.
    if language and (workload.training or generates):
        length = float((workload.seq_in if workload.training else workload.seq_out) or 1)
    epoch, epochs = float(workload.samples) * length if workload.samples is not None else None, float(workload.epochs or 1.0)
    if workload.tokens is not None:
        return Work(float(workload.tokens), unit, None, False, epoch)
    if workload.steps is not None:
        return Work(float(workload.steps) * float(workload.batch or 1) * length, unit, None, False, epoch)
    if epoch is not None:
        return Work(epoch * epochs, unit, None, False, epoch if workload.training else None)
    if workload.traits.offline:
        return Work((PICTURES if pictures else ANSWERS if language else SAMPLES) * length, unit, None, True)
    images = TUNED_PICTURES if workload.traits.finetuning and denoiser(shape) else IMAGES
    epoch = (FINETUNE_TOKENS if workload.traits.finetuning else TRAIN_TOKENS) if language else images
    return Work(epoch * epochs, unit, None, True, None if language and not workload.epochs else epoch)


def running_sequences(rate: float, ttft: float, tpot: float, tokens: int, max_batch: int) -> int:
    """Return the mean running sequences of a replica at a request rate (Little's law), at most its largest batch.

    >>> [running_sequences(rate, 0.1, 0.02, 200, 128) for rate in (5.0, 0.1, 90.0)]
    [20, 1, 128]
    """
    return max(1, min(max_batch, round(rate * (ttft + tokens * tpot))))
