"""Which built-in language models a GPU can run, in the highest precision that fits, and how fast for one user."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.figure import Figure
from whichgpu.catalog.architecture import has_rates
from whichgpu.catalog.find import find_gpu, find_gpus
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.model import Model
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.fit import fit, required_memory
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.workload.defaults import fill_defaults
from whichgpu.workload.engine_support import with_engine_of_gpus
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Workload

if TYPE_CHECKING:
    from whichgpu.estimate.time.time_estimate import TimeEstimate

# Precisions tried, the best first: as published under the usual engine, then the usual GGUF types under llama.cpp.
PRECISIONS = (None, "q8_0", "q4_k_m")


class FittingModel(msgspec.Struct, frozen=True):
    """A model that fits on a GPU: its precision, the bytes needed on each, its speed for one user, and what that is based on."""

    model: Model
    precision: str
    engine: str
    needed: int
    throughput: Figure | None
    tier: str | None
    calibrated: str | None  # day on which the model of times was fitted


def first_variant(catalog: Catalog, name: str) -> Gpu:
    """Return the GPU of a name; of a family sold with several sizes of memory, the variant that was launched first."""
    matches = find_gpus(catalog, name)
    if len({gpu.family for gpu in matches}) > 1:
        return find_gpu(catalog, name)  # An error that lists them.
    return min(matches, key=lambda gpu: (gpu.launch_date, gpu.id))


def fitting_models(gpu: Gpu, models: tuple[Model, ...], catalog: Catalog, gpus: int = 1) -> list[FittingModel]:
    """Return the text-generation models that fit on this number of a GPU with its memory's range, most parameters first."""
    lookups = lookup_cache(catalog)
    rows = [row for model in models if (row := _row(model, gpu, gpus, lookups)) is not None]
    return sorted(rows, key=lambda row: -row.model.parameters)


def _row(model: Model, gpu: Gpu, gpus: int, lookups: LookupCache) -> FittingModel | None:
    if model.kind != "transformer":
        return None
    shape = lookups.shape(model.id)
    if not isinstance(shape, Transformer) or not shape.is_generative:
        return None
    for precision in PRECISIONS:
        try:
            plain = Workload("serve", model.id, precision=precision, gpus=gpus)
            request = with_engine_of_gpus(plain, shape, [gpu], lookups.catalog.engines)
            workload = fill_defaults(replace(request, gpu=gpu.id), shape)
            need = required_memory(estimate_memory(workload, shape, gpu), workload)
            if fit(need, workload, gpu).fits != "fits":
                continue
            times = _times(workload, shape, gpu, lookups) if has_rates(gpu) else None
        except WhichGpuError:
            continue
        speed = (times.throughput, times.tier, times.calibrated) if times else (None, None, None)
        return FittingModel(model, workload.precision or "", workload.engine or "", int(need.value), *speed)
    return None


def _times(workload: Workload, shape: Transformer, gpu: Gpu, lookups: LookupCache) -> TimeEstimate:
    if workload.gpus > 1:
        from whichgpu.estimate.group.group_answer import group_time_of

        return group_time_of(workload, shape, gpu, calibration=lookups.calibration, with_scaling=False)[0]
    from whichgpu.estimate.time.time_estimate import estimate_time  # Only this question needs times.

    return estimate_time(workload, shape, gpu, lookups.calibration)
