"""The verb `fit`: whether a workload fits in a GPU's memory, and what takes the memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec
from msgspec.structs import replace

from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.workloads.concurrency import with_offline_batch
from whichgpu.api.workloads.remarks import counted, remarks
from whichgpu.base.display import Displayable
from whichgpu.base.figure import Basis, Figure
from whichgpu.base.messages import Message, msg
from whichgpu.catalog.find import find_gpus, gpus_named, join_names
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.select import GpuFilter
from whichgpu.catalog.store import Catalog
from whichgpu.estimate import fit as fitting
from whichgpu.estimate.fit import MemoryCurve, MemoryOf, Verdict
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.estimate.memory.parts import MemoryEstimate
from whichgpu.estimate.offline_note import concurrency_note
from whichgpu.estimate.remedies import FitProblem, Remedy, gpus_that_fit, remedies, smallest_first
from whichgpu.estimate.usable import usable_bytes
from whichgpu.workload.contradictions import check_adapters
from whichgpu.workload.decoding.offload import Offload
from whichgpu.workload.defaults import chooses_batch
from whichgpu.workload.denoisers import check_request_rate
from whichgpu.workload.engine_support import with_engine_of_gpus
from whichgpu.workload.shapes import Shape, TracedShape, Transformer
from whichgpu.workload.spelling import ParsedWorkload, echo, fill_defaults, from_object
from whichgpu.workload.training_defaults import training_options
from whichgpu.workload.workload import FIELDS, Workload

FEW_GPUS = 8  # Up to this number of GPUs, the memory on each is computed exactly.
ANY_GPU = GpuFilter()


class FitRow(msgspec.Struct, frozen=True):
    """Whether a workload fits a GPU, in bytes; a negative `headroom` is a shortfall, a `largest_` field of 0 means none fits."""

    gpu: str
    gpu_name: str
    fits: Verdict
    needed: int
    usable: int
    headroom: int
    checkpointing: str | None
    batch: int
    micro_batch: int | None
    largest_batch: int | None  # None if the model's Python factory sets the batch
    largest_context: int | None
    remedies: tuple[Remedy, ...]
    warnings: tuple[Message, ...]


class FitAnswer(Displayable, msgspec.Struct, frozen=True):
    """Memory a workload needs and which GPUs have enough; `smallest` is the catalog's smallest GPU that has.

    `needed` is the memory a GPU must have free: `memory_device`, or more for engines that reserve more than they need. If
    defaults depend on the GPU (training, offline batches), `request` and memory are those on the smallest GPU that it fits.
    """

    request: dict[str, Any]
    memory: Figure
    memory_device: Figure
    memory_parts: Mapping[str, Figure]
    needed: Figure
    gpus: tuple[FitRow, ...]
    smallest: str | None
    smallest_name: str | None
    warnings: tuple[Message, ...]
    basis: Basis
    sources: tuple[str, ...]
    emitted: Mapping[str, str] = msgspec.field(default_factory=dict)  # files that launch it, by name


class GpuNeed(msgspec.Struct, frozen=True):
    """Memory of a workload on one GPU by part, and whether it fits. Bytes."""

    gpu: str
    gpu_name: str
    fits: Verdict
    needed: Figure
    usable: int
    parts: Mapping[str, Figure]


class NeedsAnswer(msgspec.Struct, frozen=True):
    """Memory needs on each GPU named, without the largest sizes and remedies: fast enough to follow a slider on a web page."""

    request: dict[str, Any]
    gpus: tuple[GpuNeed, ...]


def needs(spelled: ParsedWorkload, names: Sequence[str], lookups: LookupCache | None = None) -> NeedsAnswer:
    """Return the memory a request needs on each GPU named."""
    lookups = lookups or lookup_cache()
    shape = lookups.shape_for(spelled.workload)
    check_adapters(spelled.workload, shape)
    check_request_rate(spelled.workload, shape)
    gpus = list({gpu.id: gpu for name in names for gpu in find_gpus(lookups.catalog, name)}.values())
    own = with_engine_of_gpus(spelled.workload, shape, gpus, lookups.catalog.engines)
    filled = fill_defaults(own, shape, spelled.user_fields)
    rows = []
    workload = filled
    for gpu in gpus:
        of = _remembered(shape, gpu)
        workload = fitting.with_training_defaults(filled, shape, gpu, spelled.user_fields, of)
        workload = with_offline_batch(workload, shape, gpu, spelled.user_fields, lookups)
        estimate = of(workload)
        need = fitting.required_memory(estimate, workload)
        answer = fitting.fit(need, workload, gpu)
        rows.append(GpuNeed(gpu.id, gpu.name, answer.fits, need, answer.usable, estimate.parts))
    return NeedsAnswer(echo(workload if len(gpus) == 1 else filled, spelled.user_fields), tuple(rows))


def fit_model(
    model: str | Mapping[str, Any],
    gpu: str | Sequence[str] = (),
    filter: GpuFilter = ANY_GPU,
    catalog: Catalog | None = None,
    **fields: Any,
) -> FitAnswer:
    """Return whether a model fits each GPU named, or every GPU; `fields` are those of a request, whose task is `serve`."""
    names = [gpu] if isinstance(gpu, str) else list(gpu)
    return fit_workload(from_object({"task": "serve", "model": model, **fields}), names, filter, catalog)


def fit_workload(
    spelled: ParsedWorkload,
    names: Sequence[str] = (),
    filter: GpuFilter = ANY_GPU,
    catalog: Catalog | None = None,
    helpful: bool = True,
    allowed: float | None = None,
) -> FitAnswer:
    """Return the memory verdicts of a parsed request, with remedies if `helpful`; its engine may use the share `allowed`."""
    lookups = lookup_cache(catalog)
    catalog = lookups.catalog
    names = join_names(names, lambda text: gpus_named(catalog, text))
    by_size = sorted(catalog.gpus, key=lambda gpu: (gpu.memory_bytes, gpu.launch_date))
    rows = list({gpu.id: gpu for name in names for gpu in find_gpus(catalog, name)}.values()) if names else by_size
    listed = [gpu for gpu in rows if filter.matches(gpu)]
    if names:
        with_names = replace(spelled, workload=replace(spelled.workload, gpu=", ".join(names)))
        spelled = counted(with_names, lookups.count(names[0]))
    shape = lookups.shape_for(spelled.workload)
    check_adapters(spelled.workload, shape)
    check_request_rate(spelled.workload, shape)
    if names:
        spelled = replace(spelled, workload=with_engine_of_gpus(spelled.workload, shape, listed, catalog.engines))
    filled = fill_defaults(spelled.workload, shape, spelled.user_fields)
    candidates = [gpu for gpu in catalog.gpus if filter.matches(gpu)]
    able = _able(filled, shape, candidates, spelled.user_fields, allowed)
    fit_rows = tuple(_rows(filled, shape, listed, able, spelled.user_fields, lookups, helpful, allowed))
    adapted = fitting.adapts_by_default(filled, shape, spelled.user_fields) or chooses_batch(filled, shape, spelled.user_fields)
    smallest = next(iter(able if names else _holding(fit_rows, listed, () if adapted else able)), None)
    only = listed[0] if len(listed) == 1 else None
    shown_on = only or (_reference(fit_rows, listed, smallest) if adapted else None)
    workload = filled
    if shown_on:
        memory_of = _remembered(shape, shown_on)
        workload = fitting.with_training_defaults(filled, shape, shown_on, spelled.user_fields, memory_of)
        workload = fitting.with_automatic_offload(workload, shape, shown_on, memory_of)
        workload = replace(workload, batch=next(row.batch for row in fit_rows if row.gpu == shown_on.id))
    shown_memory = estimate_memory(workload, shape, shown_on)
    need = fitting.required_memory(shown_memory, workload)
    noted = workload if only else filled  # With several GPUs, separate notes name those whose settings differ.
    return FitAnswer(
        request=echo(workload, spelled.user_fields | ({"gpu"} if names else set())),
        memory=shown_memory.allocated,
        memory_device=shown_memory.device,
        memory_parts=shown_memory.parts,
        needed=need,
        gpus=fit_rows,
        smallest=smallest.id if smallest else None,
        smallest_name=smallest.name if smallest else None,
        warnings=(
            *shown_memory.warnings,
            *_batches(fit_rows, noted, shape, only, spelled.user_fields),
            *remarks(noted, shape, spelled.user_fields),
            *_adapted_rows(fit_rows, noted),
        ),
        basis=shown_memory.device.basis,
        sources=shown_memory.device.sources,
    )


def _batches(
    rows: Sequence[FitRow], workload: Workload, shape: Shape, only: Gpu | None, user_fields: Collection[str]
) -> tuple[Message, ...]:
    """Return a note on the batch chosen for each GPU, if offline inference was requested without a batch."""
    if only or not chooses_batch(workload, shape, user_fields):
        return concurrency_note(workload, shape, only, user_fields)
    if len(rows) > FEW_GPUS:
        return (msg("note.batch-many"),)
    return (msg("note.batch-each", what=tuple(f"{row.gpu_name} {row.batch}" for row in rows)),)


def _holding(rows: Sequence[FitRow], gpus: Sequence[Gpu], preferred: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Return GPUs on which the request fits: preferred ones first, then those without warnings, smallest memory first."""
    sizes = {row.gpu: row.usable for row in rows if row.fits == "fits"}
    sound = smallest_first(gpus, {row.gpu: row.usable for row in rows if row.fits == "fits" and not row.warnings})
    return (*(gpu for gpu in preferred if gpu.id in sizes), *sound, *(gpu for gpu in gpus if gpu.id in sizes))


def _reference(rows: Sequence[FitRow], gpus: Sequence[Gpu], smallest_gpu: Gpu | None) -> Gpu | None:
    """Return the GPU whose memory need the answer shows first: the smallest that the request fits, else that of least need."""
    if not rows:
        return None
    order = {"fits": 0, "tight": 1, "no": 2}

    def rank(row: FitRow) -> tuple[bool, int, int]:
        return smallest_gpu is None or row.gpu != smallest_gpu.id, order[row.fits], row.needed if row.fits == "no" else row.usable

    first = min(rows, key=rank)
    return next(gpu for gpu in gpus if gpu.id == first.gpu)


def _adapted_rows(rows: Sequence[FitRow], workload: Workload) -> tuple[Message, ...]:
    """Return notes on GPUs that got a smaller micro-batch or activation checkpointing although the request itself has neither."""
    notes = []
    smaller = tuple(row.gpu_name for row in rows if row.micro_batch not in (None, workload.local_batch))
    if smaller:
        notes.append(msg("note.accumulated-some", n=len(smaller), most=len(rows), batch=workload.batch or 1))
    names = tuple(row.gpu_name for row in rows if row.checkpointing not in (None, workload.checkpointing))
    if len(names) > FEW_GPUS:
        notes.append(msg("note.checkpointing-many", n=len(names)))
    elif names:
        notes.append(msg("note.checkpointing-some", gpus=names))
    return tuple(notes)


def _remembered(shape: Shape, gpu: Gpu | None) -> MemoryOf:
    """Return a function that estimates the memory of a workload on a GPU and caches the results."""
    estimates: dict[tuple[Any, ...], MemoryEstimate] = {}
    fields = attrgetter(*(name for name in FIELDS if name != "model"))

    def of(workload: Workload) -> MemoryEstimate:
        key = fields(workload)
        if key not in estimates:
            estimates[key] = estimate_memory(workload, shape, gpu)
        return estimates[key]

    return of


def _able(
    filled: Workload, shape: Shape, gpus: Sequence[Gpu], user_fields: Collection[str], allowed: float | None
) -> tuple[Gpu, ...]:
    """Return GPUs on which the request fits, with checkpointing and the smallest micro-batch unless the user set these."""
    tried = [filled]
    if fitting.adapts_by_default(filled, shape, user_fields):
        tried.append(training_options(filled, shape, "batch" in user_fields)[-1])
    needs = [fitting.required_memory(estimate_memory(one, shape), one) for one in tried]
    return gpus_that_fit(min(needs, key=lambda need: need.high), filled, gpus, allowed)


def _rows(
    filled: Workload,
    shape: Shape,
    gpus: Sequence[Gpu],
    able: Sequence[Gpu],
    user_fields: Collection[str],
    lookups: LookupCache,
    helpful: bool,
    allowed: float | None,
) -> Iterator[FitRow]:
    """Yield a row per GPU; many GPUs share a curve of memory by batch size, shifted by each GPU's CUDA context and allocator."""
    common: dict[tuple[str, int, Offload | None], _Sizes] = {}
    many = len(gpus) > FEW_GPUS
    # A training step of a transformer takes 40 ms to replay, hundreds of which exact curves for all GPUs would need; and if
    # micro-batch and checkpointing are chosen per GPU, several curves are needed.
    exact = not ((isinstance(shape, Transformer) and filled.training) or fitting.adapts_by_default(filled, shape, user_fields))
    for gpu in gpus:
        of = _remembered(shape, gpu)
        workload = fitting.with_training_defaults(filled, shape, gpu, user_fields, of)
        workload = fitting.with_automatic_offload(workload, shape, gpu, of)
        key = workload.checkpointing, workload.accumulation, workload.offload
        if many and key not in common:
            common[key] = _Sizes(workload, shape, None, exact)
        sizes = common[key] if many else _Sizes(workload, shape, gpu)
        need = fitting.required_memory(of(workload), workload)
        usual = fitting.required_memory(sizes.memory(workload), workload)
        room = usable_bytes(gpu, workload, allowed) - (int(need.high - usual.high) if many else 0)
        largest = sizes.batch.largest(room)
        if chooses_batch(workload, shape, user_fields):
            workload = with_offline_batch(workload, shape, gpu, user_fields, lookups)
            need = fitting.required_memory(of(workload), workload)
        answer = fitting.fit(need, workload, gpu, allowed)
        problem = FitProblem(workload, shape, room, sizes.memory, sizes.batch, sizes.context)
        yield FitRow(
            gpu=gpu.id,
            gpu_name=gpu.name,
            fits=answer.fits,
            needed=int(need.value),
            usable=answer.usable,
            headroom=answer.headroom,
            checkpointing=workload.checkpointing if workload.training else None,
            batch=workload.batch or 1,
            micro_batch=workload.local_batch if workload.training else None,
            largest_batch=None if _fixed_batch(shape) else sizes.batch.to_user_units(largest),
            largest_context=sizes.context.to_user_units(sizes.context.largest(room)) if shape.is_language_model else None,
            remedies=remedies(problem, gpu, able) if helpful and answer.fits != "fits" else (),
            warnings=answer.warnings,
        )


class _Sizes:
    """Memory of a workload on one GPU as a function of batch size and of context length, with cached estimates."""

    def __init__(self, workload: Workload, shape: Shape, gpu: Gpu | None, exact: bool = True) -> None:
        self.memory = _remembered(shape, gpu)
        self.batch = MemoryCurve(workload, shape, "batch", self.memory, exact=exact)
        self.context = MemoryCurve(workload, shape, "context", self.memory, exact=exact)


def _fixed_batch(shape: Shape) -> bool:
    """Return whether the batch is fixed, because the user's own model factory supplies the inputs."""
    return isinstance(shape, TracedShape) and shape.table.startswith("python:")
