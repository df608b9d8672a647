"""The verb `fit`: the memory a model needs, and which GPUs have enough."""

from __future__ import annotations

from whichgpu.api.context import Context
from whichgpu.api.request.load import FitRequest
from whichgpu.api.request.read import read, workload
from whichgpu.api.workloads.fit import FitAnswer, fit_workload
from whichgpu.catalog.select import GpuFilter
from whichgpu.workload.spelling import ParsedWorkload


def fit(request: FitRequest, context: Context) -> FitAnswer:
    """Return the memory a model needs, and which GPUs have enough."""
    names = read(FitRequest, request, context.spell, ("gpu",)).get("gpu", ())
    parsed = workload({"task": "serve", **request}, context.spell, without=("gpu",))
    if "task" not in request:
        parsed = ParsedWorkload(parsed.workload, parsed.user_fields - {"task"})
    filter, catalog = GpuFilter(as_of=context.as_of), context.catalog
    answer = fit_workload(parsed, names, filter, catalog, helpful=bool(names) or context.wants_remedies)
    if not any(row.fits == "fits" or row.remedies for row in answer.gpus):
        answer = fit_workload(parsed, names, filter, catalog)
    if "emit" not in request:
        return answer
    from whichgpu.api.launch.emit import with_launch_files

    return with_launch_files(answer, request, context)
