"""What would fail only after long work is refused before it: names, amounts, jobs, a sweep's values, the beginning of traces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from whichgpu.api.plan.plan_file import owned_text
from whichgpu.api.plan.request import PlanRequest
from whichgpu.api.plan.sweep import parse_sweep
from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.base.money import parse_money
from whichgpu.base.parallel.ray_cluster import check_ray
from whichgpu.catalog.find import find_gpu, find_gpus
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.workload.denoisers import check_not_denoiser
from whichgpu.workload.spelling import from_texts
from whichgpu.workload.tasks import TASK_TRAITS
from whichgpu.workload.traces.reader import check_trace

WORK = tuple(task for task, traits in TASK_TRAITS.items() if traits.ends)  # tasks of jobs


def check_request(request: PlanRequest, lookups: LookupCache) -> None:
    """An error that names the part of the request it is in."""
    if request.ray is not None:
        check_ray(request.ray)
    if request.sweep is not None:
        parse_sweep(request.sweep)
    if request.profiles is not None:
        return
    for one in request.owned:
        find_gpu(lookups.catalog, one.gpu)
        if one.power_cost is not None:
            parse_money(one.power_cost)
    for name in request.quotas:
        find_gpus(lookups.catalog, name)
    for one in owned_text(request.current) if request.current is not None else ():
        find_gpu(lookups.catalog, one.gpu)
    if request.change_cost is not None:
        parse_money(request.change_cost)
    _models(request, lookups)
    _jobs(request, lookups)
    for path in dict.fromkeys(one.trace for one in request.models if one.trace is not None):
        check_trace(path)


def _models(request: PlanRequest, lookups: LookupCache) -> None:
    for one in request.models:
        with _within(f"[[model]] {one.called}" if request.file else ""):
            from_texts({"task": "serve", "model": one.spelled, "rate": "1/s", **one.fields})
            shape = lookups.shape(one.model)
            check_not_denoiser(one.called, shape)
            if not shape.is_generative:
                raise UsageError("not-generating", msg("error.plan-not-generating", model=one.called), msg("hint.plan"))


def _jobs(request: PlanRequest, lookups: LookupCache) -> None:
    for one in request.jobs:
        with _within(f"[[job]] {one.name}"):
            read = from_texts(dict(one.fields))
            if not read.workload.traits.ends:
                raise UsageError(
                    "bad-job", msg("error.plan-job-task", task=read.workload.task), msg("hint.choices", choices=WORK)
                )
            lookups.shape_for(read.workload)


@contextmanager
def _within(part: str) -> Iterator[None]:
    """Errors say the part of the file they are in."""
    try:
        yield
    except UsageError as problem:
        if not part:
            raise
        message = msg("error.in-file", path=part, what=problem.message)
        raise type(problem)(problem.kind, message, problem.hint, problem.choices) from problem
