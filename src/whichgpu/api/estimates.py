"""Verbs about one workload on one device group: memory and time, one at a time or a file of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from whichgpu.api.advice import advice
from whichgpu.api.desk import Desk
from whichgpu.api.requests import LONGEST_LINE, counted, remarks
from whichgpu.base.errors import UsageError, WhichGpuError
from whichgpu.base.figure import Basis, Figure
from whichgpu.base.messages import Message, msg
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog
from whichgpu.estimate import fit as fitting
from whichgpu.estimate.fit import Verdict
from whichgpu.estimate.memory.dispatch import memory
from whichgpu.workload.shapes import Shape, WeightsOnly
from whichgpu.workload.spelling import Spelled, echo, fill_defaults, from_object
from whichgpu.workload.workload import Workload

if TYPE_CHECKING:
    from whichgpu.estimate.time.answer import TimeEstimate


@dataclass(frozen=True, slots=True)
class EstimateAnswer:
    """Time, throughput and memory of a workload on one stated device group; without a GPU, memory alone.

    `tier` says how near the measurements behind the time are: this GPU, its kin, or others only.
    """

    request: dict[str, Any]
    time: Figure | None
    time_device: Figure | None
    time_host: Figure | None
    throughput: Figure | None
    ttft: Figure | None
    tpot: Figure | None
    bound: str | None
    memory: Figure
    memory_device: Figure
    memory_parts: Mapping[str, Figure]
    fits: Verdict | None
    usable: int | None
    headroom: int | None
    tier: str | None
    warnings: tuple[Message, ...]
    basis: Basis
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one line of requests, or why there is none."""

    line: int
    id: Any
    answer: EstimateAnswer | None = None
    error: WhichGpuError | None = None


def estimate(
    task: str, model: str | Mapping[str, Any], catalog: Catalog | None = None, own: bool = True, **fields: Any
) -> EstimateAnswer:
    """Time and memory of a task on a model; `fields` are those of a request. Without `own`, as if nothing was measured here."""
    return estimate_spelled(from_object({"task": task, "model": model, **fields}), Desk(catalog, own=own))


def estimate_spelled(spelled: Spelled, desk: Desk | None = None) -> EstimateAnswer:
    """`estimate` of a request already read."""
    desk = desk or Desk()
    name = spelled.workload.gpu
    device = desk.device(name) if name else None
    gpu = device.gpu if device else None
    if device:
        spelled = counted(spelled, device.count)
    shape = desk.shape(spelled.workload.model)
    workload = fill_defaults(spelled.workload, shape)
    found = memory(workload, shape, gpu)
    fits = fitting.fit(fitting.needed(found, workload), workload, gpu) if gpu else None
    timed, unable = _time(workload, shape, gpu, desk)
    warnings = (*found.warnings, *(fits.warnings if fits else ()), *unable, *(timed.warnings if timed else ()))
    beside = advice(workload, shape, gpu, timed.throughput if timed else None, desk.catalog, spelled.given)
    return EstimateAnswer(
        request=echo(workload, spelled.given),
        time=timed.time if timed else None,
        time_device=timed.time_device if timed else None,
        time_host=timed.time_host if timed else None,
        throughput=timed.throughput if timed else None,
        ttft=timed.ttft if timed else None,
        tpot=timed.tpot if timed else None,
        bound=timed.bound if timed else None,
        memory=found.allocated,
        memory_device=found.device,
        memory_parts=found.parts,
        fits=fits.fits if fits else None,
        usable=fits.usable if fits else None,
        headroom=fits.headroom if fits else None,
        tier=timed.tier if timed else None,
        warnings=(*warnings, *beside.warnings, *remarks(workload, shape)),
        basis=timed.time.basis if timed else found.device.basis,
        sources=tuple(dict.fromkeys((*(timed.time.sources if timed else ()), *found.device.sources, *beside.sources))),
    )


def _time(workload: Workload, shape: Shape, gpu: Gpu | None, desk: Desk) -> tuple[TimeEstimate | None, tuple[Message, ...]]:
    """The time, or why there is none."""
    if gpu is None:
        return None, ()
    if isinstance(shape, WeightsOnly):
        return None, (msg("warning.no-time-weights-only", name=shape.name),)
    if not gpu.peaks or not gpu.memory_bandwidth:
        return None, (msg("warning.no-time-rates", gpu=gpu.name),)
    if workload.gpus > 1:
        return None, (msg("warning.no-time-several", gpus=workload.gpus),)
    from whichgpu.estimate.time.answer import time_of

    return time_of(workload, shape, gpu, desk.calibration), ()


def estimate_requests(lines: Iterable[bytes], catalog: Catalog | None = None, own: bool = True) -> Iterator[Reply]:
    """One reply a request, in order, as they come; a bad line is a reply with its error. Blank lines are passed over."""
    desk = Desk(catalog, trusting=False, own=own)
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        id = None
        try:
            request = _request(line)
            id = request.get("id")
            yield Reply(number, id, answer=estimate_spelled(from_object(request), desk))
        except WhichGpuError as error:
            yield Reply(number, id, error=error)
        except Exception as problem:  # a fault of ours must not cost the lines after it
            message = msg("error.internal", what=f"{type(problem).__name__}: {problem}")
            yield Reply(number, id, error=WhichGpuError("internal", message, msg("hint.internal")))


def _request(line: bytes) -> dict[str, Any]:
    from whichgpu.workload.jsontext import read_object

    if len(line) > LONGEST_LINE:
        raise UsageError("line-too-long", msg("error.line-too-long", most=f"{LONGEST_LINE:,}"), msg("hint.request"))
    try:
        return read_object(line.decode("utf-8"))
    except ValueError as problem:
        raise UsageError("bad-json", msg("error.bad-json", why=str(problem)), msg("hint.request")) from problem
