"""Diffusion models: estimates are of one denoising step, not of a whole image; the notes and validation that follow from this."""

from __future__ import annotations

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.workload.shapes import Shape, TracedShape
from whichgpu.workload.workload import Workload

TASKS_OF_STEPS = ("forward", "batch")  # Tasks that can be estimated for a denoiser.


def denoiser(shape: Shape) -> str:
    """Return the kind of a model's denoising network (unet, transformer); empty if the model is not a denoiser."""
    return shape.denoiser if isinstance(shape, TracedShape) else ""


def counts_steps(workload: Workload, shape: Shape) -> bool:
    """Whether throughput is counted in denoising steps: for a diffusion model in inference, not in training."""
    return bool(denoiser(shape)) and not workload.training


def denoiser_note(workload: Workload, shape: Shape) -> tuple[Message, ...]:
    """Return a note on what an estimate of a diffusion model's denoising network includes."""
    if not (kind := denoiser(shape)):
        return ()
    return (msg(f"note.denoiser-{kind}-train" if workload.training else f"note.denoiser-{kind}"),)


def check_not_denoiser(model: str, shape: Shape) -> None:
    """Raise if the model is a diffusion denoiser: a request would be an image, whose number of steps is not modelled."""
    kind, hint = denoiser(shape), msg("hint.denoiser-rate", model=model)
    if kind == "unet":
        raise UsageError("not-a-pipeline", msg("error.denoiser-unet-rate", model=model), hint, TASKS_OF_STEPS)
    if kind:
        raise UsageError("not-a-pipeline", msg("error.denoiser-transformer-rate", model=model), hint, TASKS_OF_STEPS)


def check_request_rate(workload: Workload, shape: Shape) -> None:
    """Raise if a request rate is given for a diffusion denoiser."""
    if workload.rate is not None:
        check_not_denoiser(shape.name, shape)
