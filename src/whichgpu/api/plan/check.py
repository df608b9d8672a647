"""Checks of a plan request before the fleet is computed: names, amounts, jobs, values of a sweep, first lines of traces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.base.money import parse_money
from whichgpu.base.parallel.ray_cluster import check_ray
from whichgpu.catalog.find import count_in_name, find_gpu, find_gpus
from whichgpu.decide.plan.comparisons import parse_sweep
from whichgpu.decide.plan.question import PlanQuestion, parse_owned
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.workload.denoisers import check_not_denoiser
from whichgpu.workload.spelling import from_texts
from whichgpu.workload.tasks import TASK_TRAITS
from whichgpu.workload.traces.reader import check_trace

JOB_TASKS = tuple(task for task, traits in TASK_TRAITS.items() if traits.ends)


def check_question(question: PlanQuestion, lookups: LookupCache) -> None:
    """Raise an error that names the invalid part of a plan request (models, traffic, jobs, sweep); return None if it is valid."""
    if question.ray is not None:
        check_ray(question.ray)
    if question.sweep is not None:
        parse_sweep(question.sweep)
    if question.profiles is not None:
        return
    for one in question.owned:
        find_gpu(lookups.catalog, one.gpu)
        if count_in_name(lookups.catalog, one.gpu) not in (None, one.gpus):
            raise UsageError("bad-count", msg("error.two-counts", text=one.gpu, given=str(one.gpus)), msg("hint.bad-count"))
        if one.power_cost is not None:
            parse_money(one.power_cost)
    for name in question.quotas:
        find_gpus(lookups.catalog, name)
    for one in parse_owned(question.current) if question.current is not None else ():
        find_gpu(lookups.catalog, one.gpu)
    if question.change_cost is not None:
        parse_money(question.change_cost)
    _check_models(question, lookups)
    _check_jobs(question, lookups)
    for path in dict.fromkeys(one.trace for one in question.models if one.trace is not None):
        check_trace(path)
    if not question.models and not question.jobs:
        raise UsageError("no-model", msg("error.plan-no-model"), msg("hint.plan"))


def _check_models(question: PlanQuestion, lookups: LookupCache) -> None:
    for one in question.models:
        with _within(f"[[model]] {one.name}" if question.file else ""):
            from_texts({"task": "serve", "model": one.spelling, "rate": "1/s", **one.fields})
            shape = lookups.shape(one.model)
            check_not_denoiser(one.name, shape)
            if not shape.is_generative:
                raise UsageError("not-generating", msg("error.plan-not-generating", model=one.name), msg("hint.plan"))


def _check_jobs(question: PlanQuestion, lookups: LookupCache) -> None:
    for one in question.jobs:
        with _within(f"[[job]] {one.name}"):
            workload = from_texts(dict(one.fields)).workload
            if not workload.traits.ends:
                hint = msg("hint.choices", choices=JOB_TASKS)
                raise UsageError("bad-job", msg("error.plan-job-task", task=workload.task), hint)
            lookups.shape_for(workload)


@contextmanager
def _within(part: str) -> Iterator[None]:
    """Prefix errors raised inside with the part of the plan file they concern."""
    try:
        yield
    except UsageError as problem:
        if not part:
            raise
        message = msg("error.in-file", path=part, what=problem.message)
        raise type(problem)(problem.kind, message, problem.hint, problem.choices) from problem
