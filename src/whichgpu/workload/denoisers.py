"""Diffusion models, of which one denoising step is estimated rather than an image: notes and validation."""

from __future__ import annotations

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.workload.shapes import Shape, TracedShape
from whichgpu.workload.workload import Workload

TASKS_OF_STEPS = ("forward", "batch")  # tasks a denoiser supports


def denoiser(shape: Shape) -> str:
    """The kind of denoising network a model is (unet, transformer); empty where it is none."""
    return shape.denoiser if isinstance(shape, TracedShape) else ""


def counts_steps(workload: Workload, shape: Shape) -> bool:
    """Whether what a request gets done is counted in denoising steps: a denoiser that is run, not trained."""
    return bool(denoiser(shape)) and not workload.training


def denoiser_note(workload: Workload, shape: Shape) -> tuple[Message, ...]:
    """Note on what an estimate of a denoiser includes."""
    if not (kind := denoiser(shape)):
        return ()
    return (msg(f"note.denoiser-{kind}-train" if workload.training else f"note.denoiser-{kind}"),)


def check_not_denoiser(model: str, shape: Shape) -> None:
    """Raise for a denoiser: a request is a picture, and how many steps and passes it takes is not modelled."""
    kind, hint = denoiser(shape), msg("hint.denoiser-rate", model=model)
    if kind == "unet":
        raise UsageError("not-a-pipeline", msg("error.denoiser-unet-rate", model=model), hint, TASKS_OF_STEPS)
    if kind:
        raise UsageError("not-a-pipeline", msg("error.denoiser-transformer-rate", model=model), hint, TASKS_OF_STEPS)


def check_request_rate(workload: Workload, shape: Shape) -> None:
    """Raise where a rate of requests is given for a denoiser."""
    if workload.rate is not None:
        check_not_denoiser(shape.name, shape)
