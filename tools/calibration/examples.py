"""Measured rows as examples for the fit: each with the uncorrected terms of its request on its GPU."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from calibration.fit_steps import Example
from whichgpu.base.errors import WhichGpuError
from whichgpu.catalog.architecture import architecture_of
from whichgpu.catalog.evidence import Measurement, StochasticDepth
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.confidence.axes import axes_of, generation
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.time.combine import host_mode
from whichgpu.estimate.time.curves.gpus import build_gpu_columns
from whichgpu.estimate.time.grid import (
    OVERHEAD_SHARE,
    correction_keys,
    generation_terms,
    request_latency,
    scheduled_sequences,
    uncorrected_terms,
)
from whichgpu.estimate.time.lower import lower, lower_prefill_at_depth
from whichgpu.estimate.time.lower.traced import lower_model
from whichgpu.estimate.time.lower.traced_model import TracedModel, traced_model
from whichgpu.estimate.time.operators import LoweredStep
from whichgpu.estimate.time.terms import DEVICE_TERMS, TERMS, TimeTerms
from whichgpu.workload.shapes import Shape, TracedShape, Transformer
from whichgpu.workload.spelling import fill_defaults, from_object
from whichgpu.workload.workload import Workload

PAGEABLE_COPY = 6e9  # bytes/s, assumed: copies to the GPU from host memory that is not pinned
NOT_SINGLE = ("id", "op")
# Operators of torchvision's stochastic depth: draw a number per sample, by which the layer's result is multiplied.
DRAW_OPERATORS = ("empty", "bernoulli_", "div_")
PER_SAMPLE_SHAPE = ((0, 1), (1, 0), (1, 0), (1, 0))


def examples(rows: Sequence[Measurement], catalog: Catalog) -> list[Example]:
    """Examples of the single-GPU rows; rows that the tool rejects are listed on stderr."""
    lookups = LookupCache(catalog)
    gpus = {gpu.id: gpu for gpu in catalog.gpus}
    results, failed = [], dict[str, int]()
    for row in rows:
        if row.request.get("gpus", 1) != 1 or architecture_of(gpus[row.gpu]).roofline:
            continue  # Accelerators that are no GPUs have a fit of their own (fit_rooflines).
        try:
            results.append(example(row, lookups, gpus[row.gpu]))
        except WhichGpuError as error:
            model = row.request.get("model")
            why = f"{row.source}: {error.kind} {model if isinstance(model, str) else row.family}"
            failed[why] = failed.get(why, 0) + 1
    for why, count in sorted(failed.items()):
        print(f"rejected: {why} x{count}", file=sys.stderr)
    return results


def example(row: Measurement, lookups: LookupCache, gpu: Gpu) -> Example:
    """Example of one measured step on one GPU."""
    shape = lookups.shape(row.request["model"])
    workload = fill_defaults(from_object({name: value for name, value in row.request.items() if name != "id"}).workload, shape)
    if row.cached_tokens or row.micro_batch_tokens:
        assert isinstance(shape, Transformer)
        lowered = lower_prefill_at_depth(workload, shape, row.cached_tokens, row.micro_batch_tokens)
        terms, kind = uncorrected_terms(lowered, build_gpu_columns([gpu])), str(workload.traits.step)
    else:
        terms, kind = step_terms(workload, shape, gpu, row.kind)
    unit, later = terms.unit, None
    if workload.training and (row.synchronises_after_forward or row.stochastic_depth):
        drawn = (
            replace_stochastic_depth(traced_model(workload, shape), row.stochastic_depth)
            if row.stochastic_depth and isinstance(shape, TracedShape)
            else None
        )
        lowered = lower_model(workload, drawn) if drawn else lower(workload, shape)
        terms, later = (
            forward_and_rest(lowered, gpu)
            if row.synchronises_after_forward
            else (uncorrected_terms(lowered, build_gpu_columns([gpu])), None)
        )
    setting, host = correction_keys(workload, kind, unit, [gpu])[0], host_mode(workload.engine, workload.year)
    latency = request_latency(workload) if kind == "prefill" else 0.0
    added = row.pageable_copy_bytes / PAGEABLE_COPY + latency
    return Example(
        seconds=max(row.seconds - added, row.seconds * 0.2),
        latency=latency,
        terms=terms.seconds[:, 0, 0],
        floors=terms.floors[:, 0, 0],
        setting=setting,
        host=host._replace(launches=host.launches and not row.throughput_only),
        groups=groups(row, gpu, shape, kind),
        axes=axes_of(workload, shape, gpu, kind, regime(terms)),
        row=row,
        later=None if later is None else (later.seconds[:, 0, 0], later.floors[:, 0, 0]),
    )


def replace_stochastic_depth(model: TracedModel, depth: StochasticDepth) -> TracedModel:
    """A torchvision network as other libraries run it: without stochastic depth, or with dropout instead."""
    dropped = DRAW_OPERATORS if depth == "dropout" else (*DRAW_OPERATORS, "mul")
    operators = [one for one in model.operators if one.name not in dropped or PER_SAMPLE_SHAPE not in (*one.inputs, *one.outputs)]
    return replace(model, operators=tuple(operators))


def forward_and_rest(lowered: LoweredStep, gpu: Gpu) -> tuple[TimeTerms, TimeTerms]:
    """Terms of the forward pass, including the fixed cost per step, and of the rest of a training step."""
    column = build_gpu_columns([gpu])
    forward, rest = (
        uncorrected_terms(replace(lowered, ops=tuple(op for op in lowered.ops if (op.phase == "forward") == first)), column)
        for first in (True, False)
    )
    rest.seconds[TERMS.index("step")] = 0.0
    return forward, rest


def step_terms(workload: Workload, shape: Shape, gpu: Gpu, kind: str) -> tuple[TimeTerms, str]:
    """Terms of the measured step, and its kind."""
    column = build_gpu_columns([gpu])
    batch = float(workload.local_batch)
    if kind in ("generate", "serve"):
        timed = replace(workload, task="batch") if kind == "generate" else workload
        read, token = generation_terms(timed, shape, column, batch)
        length = float(max(1, workload.seq_out or 1))
        prompts = batch if timed.task == "serve" else 1.0
        return token * length + read if kind == "generate" else token + read * (prompts / length), "generate"
    sequences = scheduled_sequences(workload, batch) if workload.task == "decode" else 0.0
    return uncorrected_terms(lower(workload, shape, batch), column, sequences), workload.traits.step


def regime(terms: TimeTerms) -> str:
    """What bounds a step before corrections: compute, bandwidth or overhead."""
    device, host = (float(part.sum()) for part in np.split(terms.seconds[:, 0, 0], [len(DEVICE_TERMS)]))
    flops, moved = float(terms.flop_seconds[0, 0]), float(terms.byte_seconds[0, 0])
    if host > device or max(flops, moved) < OVERHEAD_SHARE * max(device, host):
        return "overhead"
    return "compute" if flops >= moved else "bandwidth"


def model_of(row: Measurement) -> str:
    """Name of a row's model; of one given by its sizes, the family."""
    model: Any = row.request["model"]
    return model if isinstance(model, str) else row.family


def groups(row: Measurement, gpu: Gpu, shape: Shape, kind: str) -> dict[str, str]:
    """Groups of the row that a left-out fit may leave out: its source, GPU, generation, model and so on."""
    language = shape.is_language_model
    return {
        "source": row.source,
        "gpu": gpu.id,
        "generation": generation(gpu),
        "architecture": gpu.architecture,
        "model": model_of(row),
        "family": row.family,
        "kind": row.kind if row.kind in ("generate", "serve") else kind,
        "task": f"{kind}-{'language' if language else 'vision'}",
    }


def as_arrays(values: Sequence[float]) -> np.ndarray:
    """Numbers as an array of floats."""
    return np.asarray(values, dtype=float)
