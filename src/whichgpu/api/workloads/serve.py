"""Serving with a request rate or a trace, simulated on given GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.workloads.estimate import EstimateAnswer, estimate_workload
from whichgpu.api.workloads.load import LoadOptions, SimulationProgress, under_load, with_rate_and_lengths
from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.serving.serving_answer import ServingAnswer
from whichgpu.workload.shapes import Shape
from whichgpu.workload.spelling import ParsedWorkload, from_object
from whichgpu.workload.traces.reader import read_trace
from whichgpu.workload.workload import Workload


def serve(
    model: str | Mapping[str, Any], options: LoadOptions | None = None, catalog: Catalog | None = None, **fields: Any
) -> EstimateAnswer:
    """Return the estimate of serving under a load; `fields` are those of a request, with a `rate` unless a trace has one."""
    return serve_workload(from_object({"task": "serve", "model": model, **fields}), lookup_cache(catalog), options)


def serve_workload(
    spelled: ParsedWorkload,
    lookups: LookupCache | None = None,
    options: LoadOptions | None = None,
    progress: SimulationProgress | None = None,
) -> EstimateAnswer:
    """Return time, latency and memory of a parsed request, simulated under its request rate or trace."""
    options = options or LoadOptions()
    trace = read_trace(options.trace) if options.trace else None
    spelled = with_rate_and_lengths(spelled, trace, options)

    def loading(
        workload: Workload, shape: Shape, gpu: Gpu, catalog: Catalog, like: Figure
    ) -> tuple[ServingAnswer | None, tuple[Message, ...]]:
        return under_load(workload, shape, gpu, catalog, like, options, trace, progress)

    return estimate_workload(spelled, lookups, loading, options.limits.memory)
