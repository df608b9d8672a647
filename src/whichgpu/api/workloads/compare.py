"""The verb `compare`: GPUs and machines side by side, with one workload's speed on each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from whichgpu.api.context import Context
from whichgpu.api.request.load import CompareRequest
from whichgpu.api.request.read import read, workload
from whichgpu.base.display import Displayable
from whichgpu.base.errors import UsageError, WhichGpuError
from whichgpu.base.messages import Message, msg
from whichgpu.catalog.find import exact_instances, find_gpus, gpus_named, join_names
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Instance, Source
from whichgpu.catalog.store import Catalog
from whichgpu.workload.spelling import ParsedWorkload

if TYPE_CHECKING:
    from whichgpu.api.workloads.estimate import EstimateAnswer


NARROWER = ("fp8", "int4")  # Precisions to try if no GPU holds a model as it is published.


class Compared(msgspec.Struct, frozen=True):
    """One column of a comparison: a GPU, or a machine with the GPU it holds."""

    name: str
    gpu: Gpu
    instance: Instance | None = None


class ComparedSpeed(msgspec.Struct, frozen=True):
    """Estimate on one GPU or machine and its speed as a multiple of the first one's, or `problem` that says why there is none."""

    name: str
    estimate: EstimateAnswer | None
    relative: float | None
    problem: Message | None = None

    @property
    def is_held(self) -> bool:
        """Whether the workload fits in the memory."""
        return self.estimate is not None and self.estimate.fits != "no"


class Comparison(Displayable, msgspec.Struct, frozen=True):
    """GPUs and machines side by side; `speed` has the estimates of one workload on them, None if no workload was given.

    `narrowed_from` is the precision in which none of them holds the model, if a narrower one was taken.
    """

    compared: tuple[Compared, ...]
    sources: tuple[Source, ...]
    speed: tuple[ComparedSpeed, ...] | None = None
    narrowed_from: str | None = None


def compare(request: CompareRequest, context: Context) -> Comparison:
    """Return GPUs and machines side by side; with a task and a model also its speed on each, those first that hold it."""
    answer = compare_hardware(read(CompareRequest, request, context.spell, ("names",))["names"], context.catalog)
    fields = request.keys() - {"names"}
    if {"task", "model"} <= fields:
        speeds, narrowed_from = _speeds_held(answer.compared, workload(request, context.spell), context)
        columns = {column.name: column for column in answer.compared}
        return replace(answer, compared=tuple(columns[one.name] for one in speeds), speed=speeds, narrowed_from=narrowed_from)
    if fields:
        raise UsageError("usage", msg("error.compare-needs-both"), msg("hint.compare-needs-both"))
    return answer


def compare_workload(request: CompareRequest, context: Context, max_compared: int) -> Comparison:
    """Return GPUs and machines side by side for a workload, at most `max_compared`; a page compares no more."""
    names = read(CompareRequest, request, context.spell, ("names",))["names"]
    if (count := len(compare_hardware(names, context.catalog).compared)) > max_compared:
        message = msg("error.many-compared", n=count, most=max_compared)
        raise UsageError("many-compared", message, msg("hint.many-compared"))
    return compare(request, context)


def compare_hardware(names: Sequence[str], catalog: Catalog) -> Comparison:
    """Return GPUs and machines side by side; a family name selects all its variants."""
    columns: dict[str, Compared] = {}
    for name in join_names(names, cache(lambda text: gpus_named(catalog, text, loosely=False))):
        for column in _columns(catalog, name):
            columns.setdefault(column.name, column)
    cited = (source for column in columns.values() for source in (column.gpu.sources, (column.instance or column.gpu).sources))
    return Comparison(tuple(columns.values()), catalog.cited_sources(*cited))


def _columns(catalog: Catalog, name: str) -> list[Compared]:
    machines = () if gpus_named(catalog, name) else exact_instances(catalog.instances, name)
    if machines:
        return [Compared(row.instance, catalog.gpu_in(row), row) for row in machines]
    return [Compared(gpu.name, gpu) for gpu in find_gpus(catalog, name)]


def _speeds_held(
    columns: Sequence[Compared], request: ParsedWorkload, context: Context
) -> tuple[tuple[ComparedSpeed, ...], str | None]:
    """Return the speeds in the usual precision, or in the first narrower one that any GPU holds if none holds that one.

    The second value is the usual precision if a narrower one was taken. One that the user states is never replaced.
    """
    usual = _speeds(columns, request, context)
    if any(one.is_held for one in usual) or "precision" in request.user_fields or not request.workload.traits.decoding:
        return usual, None
    for precision in NARROWER:
        narrower = ParsedWorkload(replace(request.workload, precision=precision), request.user_fields | {"precision"})
        try:
            speeds = _speeds(columns, narrower, context)
        except UsageError:  # The model or the engine does not run in it.
            continue
        if any(one.is_held for one in speeds):
            return speeds, next(str(one.estimate.request["precision"]) for one in usual if one.estimate)
    return usual, None


def _speeds(columns: Sequence[Compared], request: ParsedWorkload, context: Context) -> tuple[ComparedSpeed, ...]:
    """Return the speed of a workload on each column, those first that hold it; raise an error only if it fails on every one."""
    from whichgpu.api.workloads.estimate import estimate_workload  # Imported here: facts alone need no estimates.

    lookups = context.lookups_for(own_measurements=True)
    speeds: list[ComparedSpeed] = []
    problems: list[WhichGpuError] = []
    for column in columns:
        hardware = column.instance.instance if column.instance else column.gpu.id
        try:
            estimate = estimate_workload(replace(request, workload=replace(request.workload, gpu=hardware)), lookups)
        except UsageError as problem:
            problems.append(problem)
            speeds.append(ComparedSpeed(column.name, None, None, problem.message))
            continue
        speeds.append(ComparedSpeed(column.name, estimate, None))
    if problems and len(problems) == len(columns):
        raise problems[0]
    speeds.sort(key=lambda speed: (speed.estimate is None, not speed.is_held))
    rates = [speed.estimate.throughput.value if speed.estimate and speed.estimate.throughput else None for speed in speeds]
    first_rate = next(filter(None, rates), 1.0)
    return tuple(replace(speed, relative=rate / first_rate if rate else None) for speed, rate in zip(speeds, rates, strict=True))
