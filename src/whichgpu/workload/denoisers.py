"""Diffusion models: a batch is of whole pictures or videos (text encoders, denoising steps, VAE), a forward pass is one step."""

from __future__ import annotations

from functools import lru_cache

from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.workload.precisions import TRAINED_PRECISIONS
from whichgpu.workload.shapes import Pipeline, Shape, TextEncoder, TracedShape
from whichgpu.workload.tables import TableOperator, load_table
from whichgpu.workload.workload import Workload

LINEAR = ("aten.addmm.default", "aten.mm.default")
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


@lru_cache(maxsize=64)
def adapted_layers(table: str, image: int) -> tuple[TableOperator, ...]:
    """Return the linear layers of a traced network, to which LoRA adds adapters: products of activations with a matrix."""
    operators = load_table(table, image or None).run(True, "bf16").operators
    return tuple(one for one in operators if one.phase != "backward" and one.name in LINEAR and _is_matrix(one))


def _is_matrix(operator: TableOperator) -> bool:
    """Whether the last input of an operator is a matrix that does not depend on the batch."""
    return len(operator.inputs[-1]) == 2 and not any(slope for _, slope in operator.inputs[-1])


def adapter_parameters(table: str, image: int, rank: int) -> int:
    """Return the parameters of LoRA adapters of a rank on all linear layers of a traced network (arXiv 2106.09685)."""
    sizes = ((one.count, one.inputs[-1]) for one in adapted_layers(table, image))
    return sum(count * rank * (inputs[0] + outputs[0]) for count, (inputs, outputs) in sizes)


def makes_videos(shape: Shape) -> bool:
    """Whether the model is a diffusion model of videos."""
    return isinstance(shape, TracedShape) and shape.pipeline is not None and shape.pipeline.frames > 0


def latent_frames_ratio(workload: Workload, shape: Shape) -> float:
    """Return the latent frames of a video divided by those for which the model's operators were recorded; 1 for pictures."""
    pipeline = shape.pipeline if isinstance(shape, TracedShape) else None
    if pipeline is None or not pipeline.frames or workload.frames in (None, pipeline.frames):
        return 1.0
    return pipeline.latent_frames(workload.frames or 1) / pipeline.latent_frames(pipeline.frames)


def decoder_shape(shape: TracedShape, pipeline: Pipeline) -> TracedShape:
    """Return the shape of the VAE's decoder: of the model's image size, or of the size of a tile if it decodes tiles."""
    image = shape.image if pipeline.decoder_passes == 1 else 0
    return TracedShape(pipeline.decoder, pipeline.decoder, image, pipeline=None if pipeline.decodes_in_parts else pipeline)


def decoder_repeats(workload: Workload, shape: TracedShape, pipeline: Pipeline) -> float:
    """Return how many times the decoder's recorded pass runs for one picture or video, tiles in proportion to its pixels."""
    frames = latent_frames_ratio(workload, shape) if pipeline.decodes_in_parts else 1.0
    if pipeline.decoder_passes == 1:
        return frames
    return pipeline.decoder_passes * frames * ((workload.image or shape.image) / shape.image) ** 2


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
    image = workload.image if pipeline.decoder_passes == 1 else None
    return replace(workload, task="forward", precision=precision, image=image)


def counts_steps(workload: Workload, shape: Shape) -> bool:
    """Whether throughput is counted in denoising steps: for a pass of a diffusion model, not for pictures or training."""
    return bool(denoiser(shape)) and not workload.training and pipeline_of(workload, shape) is None


def denoiser_note(workload: Workload, shape: Shape) -> tuple[Message, ...]:
    """Return a note on what an estimate of a diffusion model includes."""
    if not (kind := denoiser(shape)):
        return ()
    if pipeline := pipeline_of(workload, shape):
        steps, image = workload.denoising_steps or pipeline.steps, workload.image or 0
        guided = "-guided" if workload.guidance else ""
        if pipeline.frames:
            return (msg(f"note.videos{guided}", steps=steps, image=image, frames=workload.frames or pipeline.frames),)
        return (msg(f"note.pictures{guided}", steps=steps, image=image),)
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
