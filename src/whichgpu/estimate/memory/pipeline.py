"""Memory of a picture or video model: its parts, and the peak of its text encoders, its denoiser or its VAE's decoder."""

from __future__ import annotations

from msgspec.structs import replace

from whichgpu.base.figure import Figure
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.memory.parts import MemoryEstimate, build_estimate
from whichgpu.estimate.memory.quantisation import weight_bytes
from whichgpu.estimate.memory.traced import traced_memory
from whichgpu.workload.denoisers import decoder_request, decoder_shape, denoiser_passes, encoder_request
from whichgpu.workload.precisions import PRECISION_BY_NAME, TRAINED_PRECISIONS, trace_of
from whichgpu.workload.shapes import Pipeline, TracedShape
from whichgpu.workload.tables import table_parameters
from whichgpu.workload.workload import Parallel, Workload

WIDESCREEN = 16 / 9  # width of a video divided by its height


def pipeline_memory(workload: Workload, shape: TracedShape, pipeline: Pipeline, gpu: Gpu | None) -> MemoryEstimate:
    """Return the peak memory of making pictures or videos.

    All parts are on the GPU, with what the larger pass needs; if parts are offloaded, only the one that runs is.
    """
    pictures = workload.local_batch
    one = replace(workload, task="forward", batch=pictures, micro_batch=None, parallel=Parallel(), gpus=1, nodes=1)
    passes = 1 if pipeline.guides_in_turn else denoiser_passes(workload)
    denoiser = traced_memory(replace(one, batch=pictures * passes), shape, gpu)
    decoder = traced_memory(decoder_request(one, pipeline), decoder_shape(shape, pipeline), gpu)
    loaded = part_bytes(workload, shape, pipeline) | {"weights": int(denoiser.parts["weights"].value) * pipeline.denoisers}
    runs = {"weights": _beside_weights(denoiser), "vae": _beside_weights(decoder)}
    runs["vae"]["activations"] = runs["vae"].get("activations", 0) + _video_bytes(workload, shape, pipeline)
    if workload.offload and workload.offload.parts:
        loaded["weights"] //= pipeline.denoisers  # Each is copied for its steps.
        runs["text_encoders"] = {"context": runs["weights"]["context"]}  # Activations of one prompt are small.
        phase = max(runs, key=lambda name: sum(runs[name].values()) + loaded[name])
        parts = runs[phase] | {phase: loaded[phase]}
    else:
        phase = max(runs, key=lambda name: sum(runs[name].values()))
        parts = runs[phase] | loaded
    peak = decoder if phase == "vae" else denoiser
    allocated, device = (_spread(figure) for figure in (peak.allocated, peak.device))
    warnings = tuple(dict.fromkeys((*denoiser.warnings, *(one for one in decoder.warnings if one.id != "warning.image-scaled"))))
    return build_estimate(parts, allocated, device, sources=peak.device.sources, warnings=warnings)


def part_bytes(workload: Workload, shape: TracedShape, pipeline: Pipeline) -> dict[str, int]:
    """Return the bytes of the weights of a diffusion model's parts: denoisers, text encoders and VAE."""
    precision = workload.precision or "fp32"
    traced = 2 if trace_of(precision) == "bf16" else 4
    width = traced if precision in TRAINED_PRECISIONS else PRECISION_BY_NAME[precision].traced_bytes
    vae = 2 if trace_of(decoder_request(workload, pipeline).precision) == "bf16" else 4
    return {
        "weights": round(table_parameters(shape.table) * width) * pipeline.denoisers,
        "text_encoders": sum(
            weight_bytes(encoder.shape, encoder_request(workload, encoder).precision) for encoder in pipeline.text_encoders
        ),
        "vae": pipeline.vae_parameters * vae,
    }


def _beside_weights(run: MemoryEstimate) -> dict[str, int]:
    """Return the bytes of the parts of one part's pass, without its weights."""
    return {name: int(figure.value) for name, figure in run.parts.items() if name != "weights"}


def _video_bytes(workload: Workload, shape: TracedShape, pipeline: Pipeline) -> int:
    """Return the bytes of a batch of decoded videos in 16 bits, as tiles and joined; 0 if the decoder makes them in one pass."""
    if pipeline.decoder_passes == 1:
        return 0
    height = workload.image or shape.image
    return round(2 * 2 * 3 * WIDESCREEN * height**2 * (workload.frames or pipeline.frames)) * workload.local_batch


def _spread(figure: Figure) -> tuple[float, float]:
    """Return a figure's 90% range as factors of its value."""
    return figure.low / figure.value, figure.high / figure.value
