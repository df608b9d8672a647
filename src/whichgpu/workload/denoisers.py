"""Diffusion models: a batch is of whole pictures (text encoders, denoising steps, VAE), a forward pass is one denoising step."""

from __future__ import annotations

from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.workload.precisions import TRAINED_PRECISIONS
from whichgpu.workload.shapes import Pipeline, Shape, TextEncoder, TracedShape
from whichgpu.workload.workload import Workload

PICTURE_TASKS = ("batch", "images", "forward")  # Tasks that can be estimated or recommended for a diffusion model.


def denoiser(shape: Shape) -> str:
    """Return the kind of a model's denoising network (unet, transformer); empty if the model is not a denoiser."""
    return shape.denoiser if isinstance(shape, TracedShape) else ""


def pipeline_of(workload: Workload, shape: Shape) -> Pipeline | None:
    """Return the other parts of a diffusion model if the task makes whole pictures, else None."""
    return shape.pipeline if workload.generating and isinstance(shape, TracedShape) else None


def denoiser_passes(workload: Workload) -> int:
    """Return how many passes of the denoiser a step takes for one picture: two with classifier-free guidance."""
    return 2 if workload.guidance else 1


def encoder_request(workload: Workload, encoder: TextEncoder) -> Workload:
    """Return the request for one pass of a text encoder; encoders stay in 16 bits if the denoiser's weights are quantised."""
    precision = workload.precision if workload.precision in TRAINED_PRECISIONS else "bf16"
    attention = engine_record(workload.engine, workload.year).attention
    return replace(workload, task="forward", precision=precision, seq_in=encoder.tokens, attention=attention, image=None)


def decoder_request(workload: Workload, pipeline: Pipeline) -> Workload:
    """Return the request for one pass of the VAE's decoder, in fp32 if it overflows in the fp16 of the other parts."""
    precision = workload.precision if workload.precision in TRAINED_PRECISIONS else "bf16"
    if pipeline.decodes_in_fp32 and precision == "fp16":
        precision = "fp32-default"
    return replace(workload, task="forward", precision=precision)


def counts_steps(workload: Workload, shape: Shape) -> bool:
    """Whether throughput is counted in denoising steps: for a pass of a diffusion model, not for pictures or training."""
    return bool(denoiser(shape)) and not workload.training and pipeline_of(workload, shape) is None


def denoiser_note(workload: Workload, shape: Shape) -> tuple[Message, ...]:
    """Return a note on what an estimate of a diffusion model includes."""
    if not (kind := denoiser(shape)):
        return ()
    if pipeline := pipeline_of(workload, shape):
        steps, image = workload.denoising_steps or pipeline.steps, workload.image or 0
        id = "note.pictures-guided" if workload.guidance else "note.pictures"
        return (msg(id, steps=steps, image=image),)
    return (msg(f"note.denoiser-{kind}-train" if workload.training else f"note.denoiser-{kind}"),)


def check_not_denoiser(model: str, shape: Shape) -> None:
    """Raise if the model is a diffusion model: serving of pictures at a request rate is not modelled."""
    if denoiser(shape):
        hint = msg("hint.pictures-rate", model=model)
        raise UsageError("pictures-served", msg("error.pictures-rate", model=model), hint, PICTURE_TASKS)


def check_request_rate(workload: Workload, shape: Shape) -> None:
    """Raise if a request rate is given for a diffusion model."""
    if workload.rate is not None:
        check_not_denoiser(shape.name, shape)
