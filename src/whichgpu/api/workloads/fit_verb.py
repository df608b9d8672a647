"""The verb `fit`: the memory a model needs, and which GPUs have enough."""

from __future__ import annotations

from whichgpu.api.context import Context
from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.request.load import FitRequest
from whichgpu.api.request.read import read, workload
from whichgpu.api.workloads.fit import FitAnswer, fit_workload
from whichgpu.catalog.select import GpuFilter
from whichgpu.workload.contradictions import takes_adapters
from whichgpu.workload.spelling import ParsedWorkload
from whichgpu.workload.unused import ADAPTERS


def fit(request: FitRequest, context: Context) -> FitAnswer:
    """Return the memory a model needs, and which GPUs have enough."""
    names = read(FitRequest, request, context.spell, ("gpu",)).get("gpu", ())
    parsed = workload({"task": "serve", **request}, context.spell, without=("gpu",))
    if "task" not in request:
        if _is_finetuning(request, parsed, context):
            parsed = workload({"task": "finetune", **request}, context.spell, without=("gpu",))
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


def _is_finetuning(request: FitRequest, parsed: ParsedWorkload, context: Context) -> bool:
    """Whether a request without a task is about fine-tuning: it names adapters the model takes, and no engine to serve them."""
    if "engine" in request or not any(request.get(name) for name in ("lora", *ADAPTERS)):
        return False
    return takes_adapters(lookup_cache(context.catalog).shape_for(parsed.workload))
