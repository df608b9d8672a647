"""The verb `fit`: the memory a model needs, and which GPUs have enough."""

from __future__ import annotations

from whichgpu.api.context import Context
from whichgpu.api.request.load import FitRequest
from whichgpu.api.request.read import read, workload
from whichgpu.api.workloads.fit import FitAnswer, fit_workload
from whichgpu.catalog.select import GpuFilter
from whichgpu.workload.spelling import ParsedWorkload
from whichgpu.workload.unused import ADAPTERS


def fit(request: FitRequest, context: Context) -> FitAnswer:
    """Return the memory a model needs, and which GPUs have enough."""
    names = read(FitRequest, request, context.spell, ("gpu",)).get("gpu", ())
    parsed = workload({"task": _default_task(request), **request}, context.spell, without=("gpu",))
    if "task" not in request:
        parsed = ParsedWorkload(parsed.workload, parsed.user_fields - {"task"})
    if "emit" in request:
        from whichgpu.api.launch.emit import check_target  # The launch targets are imported only if one is named.

        check_target(request, parsed.workload.task, context)
    filter, catalog = GpuFilter(as_of=context.as_of), context.catalog
    answer = fit_workload(parsed, names, filter, catalog, helpful=bool(names) or context.wants_remedies)
    if not any(row.fits == "fits" or row.remedies for row in answer.gpus):
        answer = fit_workload(parsed, names, filter, catalog)
    if "emit" not in request:
        return answer
    from whichgpu.api.launch.emit import with_launch_files

    return with_launch_files(answer, request, context)


def _default_task(request: FitRequest) -> str:
    """Return the task of a request that names none: fine-tuning with adapters, unless an engine is to serve them."""
    is_adapted = any(request.get(name) for name in ("lora", *ADAPTERS))
    return "finetune" if is_adapted and "engine" not in request else "serve"
