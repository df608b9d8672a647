"""Lowering of a workload to the operators that one GPU runs: what the framework or engine launches in a step, pass or token."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.base.records import field_defaults
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.estimate.time.lower.eager.mlp import perceptron_step, recommendation_pass
from whichgpu.estimate.time.lower.eager.training import eager_pass, training_step
from whichgpu.estimate.time.lower.fused.inference import chunked_pass, fused_pass
from whichgpu.estimate.time.operators import LoweredStep, Number, Op
from whichgpu.workload.denoisers import (
    decoder_repeats,
    decoder_request,
    decoder_shape,
    denoiser_passes,
    encoder_request,
    pipeline_of,
)
from whichgpu.workload.shapes import Dlrm, Mlp, Pipeline, Shape, TracedShape, Transformer, WeightsOnly
from whichgpu.workload.workload import Parallel, Workload

# No operator depends on these fields (the batch is passed separately), so requests that differ only in them share one lowering.
IRRELEVANT_FIELDS = (
    "gpu gpus nodes batch micro_batch rate epochs steps tokens samples ttft_max tpot_max percentile host_speed method".split()
)
FIELD_DEFAULTS = {name: value for name, value in field_defaults(Workload).items() if name in IRRELEVANT_FIELDS}


def lower(workload: Workload, shape: Shape, batch: Number | None = None) -> LoweredStep:
    """Return the operators of one step on one GPU. `workload` has its defaults filled in; `batch` (per GPU) may be an array.

    For tasks that generate, the step is one decode step at the mean context: its time is nearly linear in the context, so an
    answer of n tokens takes n times as long.
    """
    samples = float(workload.local_batch) if batch is None else batch
    model = workload.model if isinstance(workload.model, str) else ""
    task = "train" if workload.training else workload.task
    bare = replace(workload, task=task, model=model, **FIELD_DEFAULTS)
    if isinstance(samples, float):
        return _cached(bare, shape, samples)
    if isinstance(shape, TracedShape) and workload.parallel.zero == 0:  # Without ZeRO, all replicas run the same operators.
        return _cached(replace(bare, parallel=Parallel()), shape, tuple(samples.tolist()))
    return _lowered(workload, shape, samples)


def lower_prefill_at_depth(workload: Workload, shape: Transformer, cached: float, micro_batch: float = 0.0) -> LoweredStep:
    """Return the operators of a prefill whose sequences have `cached` tokens in the KV cache already.

    llama.cpp runs it in micro-batches of `micro_batch` tokens if that is given.
    """
    length = float(workload.seq_in or shape.max_context)
    ops = fused_pass(workload, shape, float(workload.local_batch), length, None, cached=cached, micro_batch=micro_batch)
    return LoweredStep(tuple(ops))


@lru_cache(maxsize=512)
def _cached(workload: Workload, shape: Shape, batch: float | tuple[float, ...]) -> LoweredStep:
    return _lowered(workload, shape, np.array(batch) if isinstance(batch, tuple) else batch)


def _lowered(workload: Workload, shape: Shape, samples: Number) -> LoweredStep:
    if isinstance(shape, TracedShape):
        if pipeline := pipeline_of(workload, shape):
            return _lowered_pipeline(workload, shape, pipeline, samples)
        from whichgpu.estimate.time.lower.traced import lower_traced  # Deferred because it reads the operator tables.

        return lower_traced(workload, shape, samples)
    if isinstance(shape, Mlp):
        return LoweredStep(tuple(perceptron_step(workload, shape, samples)))
    if isinstance(shape, Dlrm):
        return LoweredStep(tuple(recommendation_pass(workload, shape, samples)))
    if isinstance(shape, WeightsOnly):
        raise UsageError("weights-only", msg("error.weights-only", model=shape.name), msg("hint.weights-only"))
    return LoweredStep(tuple(_transformer(workload, shape, samples)))


def _lowered_pipeline(workload: Workload, shape: TracedShape, pipeline: Pipeline, pictures: Number) -> LoweredStep:
    """Return the operators of whole pictures or videos: text encoders, all denoising steps, and the VAE's decoder.

    With classifier-free guidance, text encoders and denoiser process each picture twice: with its prompt and without it.
    """
    passes = pictures * denoiser_passes(workload)
    in_turn = denoiser_passes(workload) if pipeline.guides_in_turn else 1
    step = _lowered(replace(workload, task="forward"), shape, passes / in_turn)
    ops = [op.times(float(workload.denoising_steps or pipeline.steps) * in_turn) for op in step.ops]
    for encoder in pipeline.text_encoders:
        ops += _lowered(encoder_request(workload, encoder), encoder.shape, passes).ops
    decoding = _lowered(decoder_request(workload, pipeline), decoder_shape(shape, pipeline), pictures)
    repeats = decoder_repeats(workload, shape, pipeline)
    ops += [op.times(repeats) for op in decoding.ops]
    if workload.offload and workload.offload.parts:
        ops.append(_copy_of_parts(workload, shape, pipeline))
    return LoweredStep(tuple(ops), step.notes)


def _copy_of_parts(workload: Workload, shape: TracedShape, pipeline: Pipeline) -> Op:
    """Return the copies of all parts of a diffusion model from host memory over PCIe, one of each part for a batch."""
    from whichgpu.estimate.memory.pipeline import part_bytes  # Deferred because it reads the operator tables.

    size = float(sum(part_bytes(workload, shape, pipeline).values()))
    return Op("host_read", "fp32", 0.0, size, 0.0, {"elements": size / 4.0}, role="pcie")


def _transformer(workload: Workload, shape: Transformer, batch: Number) -> list[Op]:
    if workload.training:
        return training_step(workload, shape, batch)
    length = float(workload.seq_in or shape.max_context) / workload.parallel.cp
    context = None
    if shape.is_generative and workload.traits.decoding:
        context = length + (float(workload.seq_out or 0) / 2 if workload.generating else 0.0)
    if engine_record(workload.engine).operator_by_operator:
        return eager_pass(workload, shape, batch, length, context)
    cached = cached_prefix(workload, length) if context is None else 0.0
    return chunked_pass(workload, shape, batch, length - cached, context, cached)


def cached_prefix(workload: Workload, length: float) -> float:
    """Return the tokens of a prompt that the prefix cache holds; the last token is always computed."""
    return min(length * (workload.prefix_hit or 0.0), length - 1.0) if workload.traits.caching else 0.0
