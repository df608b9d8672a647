"""Which models fit which GPUs in 16, 8 and 4 bits for one user, and how fast: the tables of a GPU's and of a model's page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from whichgpu.base.errors import WhichGpuError
from whichgpu.base.figure import Figure
from whichgpu.catalog.architecture import has_rates
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.fit import Verdict, fit, required_memory
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.workload.defaults import fill_defaults
from whichgpu.workload.engine_support import with_engine_of_gpus
from whichgpu.workload.precisions import PRECISION_BY_NAME
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Workload

# Precisions by the bits of a weight: as published under the usual engine, then the usual GGUF types under llama.cpp.
PRECISION_OF_BITS: dict[int, str | None] = {16: None, 8: "q8_0", 4: "q4_k_m"}
CONTEXTS = (2048, 8192, 32768, 131072)  # Tokens of input and output together, for memory by context.
OUTPUT_TOKENS = 256  # Output tokens of the contexts; the rest is input.


class FitCell(msgspec.Struct, frozen=True):
    """Whether a model fits a GPU in some bits, and the bytes that it needs."""

    bits: int
    fits: Verdict
    needed: int


class FitLine(msgspec.Struct, frozen=True):
    """A model on a GPU: verdicts by bits, and the speed for one user in the widest precision that fits; None if none does."""

    model: str
    model_name: str
    gpu: str
    gpu_name: str
    cells: tuple[FitCell, ...]
    throughput: Figure | None


class ContextLine(msgspec.Struct, frozen=True):
    """Bytes that one sequence of a model needs by context length, in some bits; None beyond the model's longest context."""

    bits: int
    precision: str
    needed: tuple[int | None, ...]


def is_generative(model: str, lookups: LookupCache) -> bool:
    """Whether a built-in model generates text."""
    shape = lookups.shape(model)
    return isinstance(shape, Transformer) and shape.is_generative


def fit_line(model: str, gpu: Gpu, lookups: LookupCache) -> FitLine:
    """Return whether a text model fits a GPU in 16, 8 and 4 bits as far as it has them, and its speed for one user."""
    cells, best = [], None
    for bits, workload, need in _widths(model, gpu, lookups):
        fits = fit(need, workload, gpu).fits
        cells.append(FitCell(bits, fits, int(need.value)))
        best = best or (workload if fits != "no" else None)
    names = {one.id: one.name for one in lookups.catalog.models}
    speed = _throughput(best, gpu, lookups) if best is not None else None
    return FitLine(model, names.get(model, model), gpu.id, gpu.name, tuple(cells), speed)


def contexts_of(model: str, lookups: LookupCache) -> tuple[int, ...]:
    """Return the context lengths for which a model's memory is stated: the usual ones up to its longest, and that itself."""
    shape = lookups.shape(model)
    longest = shape.max_context if isinstance(shape, Transformer) else 0
    if not longest or longest >= CONTEXTS[-1]:
        return CONTEXTS
    return (*(tokens for tokens in CONTEXTS if tokens < longest), longest)


def context_lines(model: str, gpu: Gpu, lookups: LookupCache, contexts: Sequence[int] = CONTEXTS) -> tuple[ContextLine, ...]:
    """Return the memory of a text model for one user by bits and context length, on a GPU."""
    shape = lookups.shape(model)
    longest = shape.max_context if isinstance(shape, Transformer) else 0
    lines = []
    for bits, base, _ in _widths(model, gpu, lookups):
        try:
            needed = [
                _need(replace(base, batch=1, seq_in=tokens - OUTPUT_TOKENS, seq_out=OUTPUT_TOKENS), gpu, lookups)
                if not longest or tokens <= longest
                else None
                for tokens in contexts
            ]
        except WhichGpuError:
            continue
        lines.append(ContextLine(bits, base.precision or "", tuple(int(one.value) if one else None for one in needed)))
    return tuple(lines)


def _widths(model: str, gpu: Gpu, lookups: LookupCache) -> Iterator[tuple[int, Workload, Figure]]:
    """Yield the bits of a weight as published, then the fewer ones of GGUF, each with one user's workload and its bytes."""
    published = max(PRECISION_OF_BITS) + 1
    for bits, precision in PRECISION_OF_BITS.items():
        if precision is not None and bits >= published:  # More bits than the weights were published in.
            continue
        try:
            workload, need = _workload(model, precision, gpu, lookups)
        except WhichGpuError:  # The GPU's engines do not have the precision.
            continue
        if precision is None:
            bits = published = _nearest_bits(workload.precision)
        yield bits, workload, need


def _nearest_bits(precision: str | None) -> int:
    """Return the column of a precision: 16, 8 or 4, whichever is nearest to the bits of its weights."""
    width = 8 * PRECISION_BY_NAME[precision].traced_bytes if precision else max(PRECISION_OF_BITS)
    return min(PRECISION_OF_BITS, key=lambda bits: abs(bits - width))


def _workload(model: str, precision: str | None, gpu: Gpu, lookups: LookupCache) -> tuple[Workload, Figure]:
    """Return the workload of one user of a model on a GPU, and the bytes that it needs."""
    shape = lookups.shape(model)
    stated = with_engine_of_gpus(Workload("serve", model, precision=precision), shape, [gpu], lookups.catalog.engines)
    workload = fill_defaults(replace(stated, gpu=gpu.id), shape)
    return workload, _need(workload, gpu, lookups)


def _need(workload: Workload, gpu: Gpu, lookups: LookupCache) -> Figure:
    return required_memory(estimate_memory(workload, lookups.shape_for(workload), gpu), workload)


def _throughput(workload: Workload, gpu: Gpu, lookups: LookupCache) -> Figure | None:
    from whichgpu.estimate.time.time_estimate import estimate_time  # Only this needs times.

    if not has_rates(gpu):
        return None
    try:
        return estimate_time(workload, lookups.shape_for(workload), gpu, lookups.calibration).throughput
    except WhichGpuError:
        return None
