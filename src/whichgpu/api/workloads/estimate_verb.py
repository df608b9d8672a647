"""The verb `estimate`: time, throughput and memory of one request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from whichgpu.api.context import Context
from whichgpu.api.request.load import EstimateRequest
from whichgpu.api.request.read import read, workload
from whichgpu.base.errors import UsageError
from whichgpu.base.kinds import InvalidValue
from whichgpu.base.messages import msg
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.workload.field_errors import invalid_field
from whichgpu.workload.spelling import ParsedWorkload
from whichgpu.workload.tasks import TASK_OF_WORD

if TYPE_CHECKING:
    from whichgpu.api.workloads.estimate import EstimateAnswer
    from whichgpu.api.workloads.load import LoadOptions

LIMITS = ("max_batched_tokens", "max_sequences", "block_tokens", "memory_share")  # Fields that limit an engine's scheduler.
MEMORY_LIMITS = ("max_batched_tokens", "max_sequences", "memory_share")  # These also size the KV cache, without a load.
ENGINE_SWITCHES = ("chunked_prefill", "mixed_steps", "prefix_caching")
TRAFFIC = ("trace", "count", "seed", "burstiness", "in_spread", "out_spread", "in_histogram", "out_histogram")
HISTOGRAMS = ("in_histogram", "out_histogram")
_PART = re.compile(r"\s*(\d{1,8})\s*:\s*(\d{1,12}(?:\.\d{1,12})?)\s*")


def estimate(request: EstimateRequest, context: Context) -> EstimateAnswer:
    """Return time, throughput and memory of one request, under its load if it has one, and the files of its `emit`."""
    if (word := str(request.get("task")).lower()) in TASK_OF_WORD:
        request = {**request, "task": TASK_OF_WORD[word]}
    if "emit" in request:
        from whichgpu.api.launch.emit import check_target  # The launch targets are imported only if one is named.

        check_target(request, str(request.get("task")), context)
    answer = _estimate(request, context)
    if "emit" not in request:
        return answer
    from whichgpu.api.launch.emit import with_launch_files

    return with_launch_files(answer, request, context)


def _estimate(request: EstimateRequest, context: Context) -> EstimateAnswer:
    from whichgpu.api.workloads.estimate import estimate_workload

    lookups = context.lookups_for(not request.get("no_own_measurements"))
    parsed = workload(request, context.spell)
    load = {name: value for name, value in request.items() if name in (*TRAFFIC, *LIMITS, *ENGINE_SWITCHES, "plot")}
    chosen = _with_best_layout(parsed, lookups, load, context) if request.get("best_layout") else parsed
    if not _has_rate(chosen) and chosen.workload.traits.caching and load.keys() <= set(MEMORY_LIMITS):
        return estimate_workload(chosen, lookups, settings=load_options(load, context).limits.memory if load else None)
    if load or _has_rate(chosen):
        return _under_load(chosen, lookups, load, context)
    answer = estimate_workload(chosen, lookups)
    if not chosen.workload.training or chosen.workload.gpus < 2 or request.get("best_layout"):
        return answer
    from whichgpu.api.workloads.layout_suggestion import with_suggestion  # Only training on several GPUs needs this import.

    return with_suggestion(answer, chosen, lookups)


def _with_best_layout(parsed: ParsedWorkload, lookups: LookupCache, load: Mapping[str, Any], context: Context) -> ParsedWorkload:
    """Return the request in its best layout: for its load if it has one, else for a single step."""
    from whichgpu.api.workloads.layouts import with_best_layout

    if parsed.workload.serving and (_has_rate(parsed) or "trace" in load):
        from whichgpu.api.workloads.serving_layouts import with_best_serving_layout

        return with_best_serving_layout(parsed, lookups, load_options(load, context))
    return with_best_layout(parsed, lookups)


def _has_rate(parsed: ParsedWorkload) -> bool:
    return parsed.workload.serving and parsed.workload.rate is not None


def _under_load(parsed: ParsedWorkload, lookups: LookupCache, load: Mapping[str, Any], context: Context) -> EstimateAnswer:
    """Return the estimate of a request under a simulated load."""
    from whichgpu.api.workloads.serve import serve_workload

    if not parsed.workload.serving:
        flags = tuple(context.spell(name) for name in load)
        raise UsageError("usage", msg("error.load-not-served", flags=flags), msg("hint.no-rate"))
    follow = context.progress
    return serve_workload(parsed, lookups, load_options(load, context), follow and (lambda done: follow("simulating", done)))


def load_options(fields_given: Mapping[str, Any], context: Context) -> LoadOptions:
    """Return the trace, burstiness, length distributions and scheduler limits that the fields of a request give."""
    from whichgpu.api.workloads.load import LoadOptions
    from whichgpu.estimate.serving.scheduler_limits import LimitOverrides

    values = read(EstimateRequest, fields_given, context.spell, (*TRAFFIC, *LIMITS, *ENGINE_SWITCHES))
    for name in HISTOGRAMS:
        if name in values:
            values[name] = _histogram(name, values[name], context)
    limits = {name: values.pop(name) for name in (*LIMITS, *ENGINE_SWITCHES) if name in values}
    return LoadOptions(requests=values.pop("count", None), limits=LimitOverrides(**limits), **values)


def _histogram(name: str, text: str, context: Context) -> dict[float, float]:
    parts = [_PART.fullmatch(part) for part in text.split(",")]
    counts = {float(part[1]): float(part[2]) for part in parts if part}
    if len(counts) != len(parts) or min(counts, default=0) < 1 or sum(counts.values()) <= 0:
        raise invalid_field(context.spell(name), text, InvalidValue(msg("wants.histogram")))
    return counts
