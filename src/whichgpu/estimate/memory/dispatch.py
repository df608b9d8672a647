"""Peak memory of a request by the method that suits its model: formulas, operator tables, a trace, or the formula of 2015."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.base.lru import LruCache
from whichgpu.base.messages import msg
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.memory.parts import MemoryEstimate
from whichgpu.workload.denoisers import pipeline_of
from whichgpu.workload.hf.published import quantisation_warnings
from whichgpu.workload.precisions import PRECISION_BY_NAME, TRAINED_PRECISIONS, TRAINING_PRECISIONS
from whichgpu.workload.shapes import Dlrm, Shape, TracedShape, Transformer, WeightsOnly
from whichgpu.workload.workload import Workload

# Load, run length and links do not affect memory, so requests that differ only in these fields share a cached estimate.
IGNORED_FIELDS: dict[str, Any] = {
    "gpu": None, "rate": None, "epochs": None, "steps": None, "tokens": None, "samples": None, "ttft_max": None, "tpot_max": None,
    "percentile": 95, "host_speed": 1.0, "interconnect": None, "network": None, "network_gbps": None, "model": "",
}  # fmt: skip
_CACHE = LruCache[tuple[MemoryEstimate, Gpu | None]](4096)  # The GPU is stored because its id() is part of the key.


def estimate_memory(workload: Workload, shape: Shape, gpu: Gpu | None = None) -> MemoryEstimate:
    """Return the peak memory on the fullest GPU; `workload` has its defaults filled in."""
    if isinstance(shape, TracedShape) and ":" in shape.table:  # The result is not cached because the module's code may change.
        return _estimate(workload, shape, gpu)
    reduced = replace(workload, **IGNORED_FIELDS)
    return _CACHE.get((reduced, shape, id(gpu)), lambda: (_estimate(reduced, shape, gpu), gpu))[0]


def minimum_training_memory(workload: Workload, shape: Shape) -> float:
    """Return bytes that training needs at least, in a fifth of the time of `estimate_memory`; 0 if no bound is known."""
    if workload.method == "blog-2015" or not isinstance(shape, Transformer):
        return 0.0
    check_training(workload, shape)
    from whichgpu.estimate.memory.training.training_step import least_memory

    return least_memory(workload, shape)


def _estimate(workload: Workload, shape: Shape, gpu: Gpu | None) -> MemoryEstimate:
    if workload.method == "blog-2015":
        from whichgpu.estimate.memory.blog2015 import blog_2015

        return blog_2015(workload, shape, _own_estimate(workload, shape, gpu))
    own = _own_estimate(workload, shape, gpu)
    unknown = () if workload.training else quantisation_warnings(shape, workload.precision)
    return replace(own, warnings=(*own.warnings, *unknown)) if unknown else own


def _own_estimate(workload: Workload, shape: Shape, gpu: Gpu | None) -> MemoryEstimate:
    if workload.training:
        check_training(workload, shape)
    if isinstance(shape, TracedShape) and ":" in shape.table:
        from whichgpu.estimate.memory.module import module_memory

        return module_memory(workload, shape, gpu)
    if isinstance(shape, TracedShape) and (pipeline := pipeline_of(workload, shape)):
        from whichgpu.estimate.memory.pipeline import pipeline_memory

        return pipeline_memory(workload, shape, pipeline, gpu)
    if isinstance(shape, TracedShape):
        from whichgpu.estimate.memory.traced import traced_memory

        return traced_memory(workload, shape, gpu)
    if workload.training:
        from whichgpu.estimate.memory.training.training_step import training_memory

        return training_memory(workload, shape, gpu)
    from whichgpu.estimate.memory.inference import inference_memory

    return inference_memory(workload, shape, gpu)


def check_training(workload: Workload, shape: Shape) -> None:
    """Raise UsageError if the memory of a training step of this model or precision cannot be estimated."""
    if isinstance(shape, Dlrm) or (isinstance(shape, Transformer) and shape.sparse):
        raise UsageError("no-training", msg("error.no-training", name=shape.name), msg("hint.no-training"))
    if isinstance(shape, WeightsOnly):
        raise UsageError("weights-only", msg("error.weights-only", name=shape.name), msg("hint.weights-only"))
    # Transformer Engine and its like quantise the linear layers of transformers only.
    choices = TRAINING_PRECISIONS if isinstance(shape, Transformer) and not workload.qlora else TRAINED_PRECISIONS
    if workload.precision not in choices:
        id = "error.not-trained-network" if workload.precision in TRAINING_PRECISIONS else "error.not-trained"
        raise UsageError("bad-field", msg(id, precision=workload.precision or "–"), msg("hint.choices", choices=choices), choices)


def check_training_units(workload: Workload, gpu: Gpu) -> None:
    """Raise UsageError if GEMM operands are quantised in training to a format that the GPU cannot multiply."""
    record = PRECISION_BY_NAME[workload.precision or "bf16"]
    if record.quantises_training and record.operand_unit not in gpu.peaks:
        message = msg("error.no-training-units", gpu=gpu.name, precision=record.name, unit=record.operand_unit)
        raise UsageError("bad-field", message, msg("hint.choices", choices=TRAINED_PRECISIONS), TRAINED_PRECISIONS)
