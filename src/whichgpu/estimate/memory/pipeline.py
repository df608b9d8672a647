"""Memory of a picture model: all its parts are loaded; the peak is that of its denoiser or of its VAE's decoder."""

from __future__ import annotations

from msgspec.structs import replace

from whichgpu.base.figure import Figure
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.memory.parts import MemoryEstimate, build_estimate
from whichgpu.estimate.memory.quantisation import weight_bytes
from whichgpu.estimate.memory.traced import traced_memory
from whichgpu.workload.denoisers import decoder_request, denoiser_passes, encoder_request
from whichgpu.workload.precisions import trace_of
from whichgpu.workload.shapes import Pipeline, TracedShape
from whichgpu.workload.workload import Parallel, Workload


def pipeline_memory(workload: Workload, shape: TracedShape, pipeline: Pipeline, gpu: Gpu | None) -> MemoryEstimate:
    """Return the peak memory of making pictures with all parts on the GPU: weights of all, and what the larger pass needs."""
    pictures = workload.local_batch
    one = replace(workload, task="forward", batch=pictures, micro_batch=None, parallel=Parallel(), gpus=1, nodes=1)
    denoiser = traced_memory(replace(one, batch=pictures * denoiser_passes(workload)), shape, gpu)
    decoding = decoder_request(one, pipeline)
    decoder = traced_memory(decoding, TracedShape(pipeline.decoder, pipeline.decoder, shape.image), gpu)
    loaded = {
        "weights": int(denoiser.parts["weights"].value),
        "text_encoders": sum(
            weight_bytes(encoder.shape, encoder_request(workload, encoder).precision) for encoder in pipeline.text_encoders
        ),
        "vae": pipeline.vae_parameters * (2 if trace_of(decoding.precision) == "bf16" else 4),
    }
    peak = max((denoiser, decoder), key=lambda phase: phase.device.value - phase.parts["weights"].value)
    parts = {name: int(figure.value) for name, figure in peak.parts.items()} | loaded
    allocated, device = (_spread(figure) for figure in (peak.allocated, peak.device))
    warnings = tuple(dict.fromkeys((*denoiser.warnings, *(one for one in decoder.warnings if one.id != "warning.image-scaled"))))
    return build_estimate(parts, allocated, device, sources=peak.device.sources, warnings=warnings)


def _spread(figure: Figure) -> tuple[float, float]:
    """Return a figure's 90% range as factors of its value."""
    return figure.low / figure.value, figure.high / figure.value
