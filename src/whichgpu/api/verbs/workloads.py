"""Verbs about workloads: memory, time, load, side by side, recommendations and fleets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from whichgpu.api.context import Context
from whichgpu.api.request.load import CompareRequest, EstimateRequest, FitRequest
from whichgpu.api.request.read import read, refusal, workload
from whichgpu.base.errors import UsageError
from whichgpu.base.kinds import InvalidValue
from whichgpu.base.messages import msg
from whichgpu.catalog.select import GpuFilter
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.workload.spelling import ParsedWorkload
from whichgpu.workload.tasks import RUN_TASKS

if TYPE_CHECKING:
    from whichgpu.api.facts.catalog import Comparison
    from whichgpu.api.request.recommend import RecommendRequest
    from whichgpu.api.workloads.estimate import EstimateAnswer
    from whichgpu.api.workloads.fit import FitAnswer
    from whichgpu.api.workloads.load import LoadOptions
    from whichgpu.decide.answer.recommend_answer import RecommendAnswer

LIMITS = ("max_batched_tokens", "max_sequences", "block_tokens", "memory_share")  # of an engine
ENGINE_SWITCHES = ("chunked_prefill", "mixed_steps", "prefix_caching")
TRAFFIC = ("trace", "count", "seed", "burstiness", "in_spread", "out_spread", "in_histogram", "out_histogram")
HISTOGRAMS = ("in_histogram", "out_histogram")
_PART = re.compile(r"\s*(\d{1,8})\s*:\s*(\d{1,12}(?:\.\d{1,12})?)\s*")


def fit(request: FitRequest, context: Context) -> FitAnswer:
    """What a model needs, and which GPUs have it."""
    from whichgpu.api.workloads.fit import fit_workload

    names = read(FitRequest, request, context.spell, ("gpu",)).get("gpu", ())
    asked = workload({"task": "serve", **request}, context.spell, without=("gpu",))
    if "task" not in request:
        asked = ParsedWorkload(asked.workload, asked.given - {"task"})
    filter, catalog = GpuFilter(as_of=context.as_of), context.catalog
    answer = fit_workload(asked, names, filter, catalog, helpful=bool(names) or context.wants_remedies)
    if not any(row.fits == "fits" or row.remedies for row in answer.gpus):
        answer = fit_workload(asked, names, filter, catalog)
    return answer


def compare(request: CompareRequest, context: Context) -> Comparison:
    """Facts, and with a task and a model speeds."""
    from whichgpu.api.facts import catalog as verbs
    from whichgpu.api.workloads.side_by_side import compare_speed

    answer = verbs.compare(read(CompareRequest, request, context.spell, ("names",))["names"], context.catalog)
    stated = request.keys() - {"names"}
    if {"task", "model"} <= stated:
        speeds = compare_speed(answer.compared, workload(request, context.spell), context.catalog)
        return replace(answer, speed=speeds)
    if stated:
        raise UsageError("usage", msg("error.compare-needs-both"), msg("hint.compare-needs-both"))
    return answer


def estimate(request: EstimateRequest, context: Context) -> EstimateAnswer:
    """Time, throughput and memory of one request; under its load where it has one."""
    from whichgpu.api.workloads.estimate import estimate_workload

    lookups = context.lookups_for(not request.get("no_own_measurements"))
    asked = workload(request, context.spell)
    load = {name: value for name, value in request.items() if name in (*TRAFFIC, *LIMITS, *ENGINE_SWITCHES, "plot")}
    chosen = _laid_out(asked, lookups, load, context) if request.get("best_layout") else asked
    return _loaded(chosen, lookups, load, context) if load or _rated(chosen) else estimate_workload(chosen, lookups)


def _laid_out(asked: ParsedWorkload, lookups: LookupCache, load: Mapping[str, Any], context: Context) -> ParsedWorkload:
    """In the best layout: for a load where there is one, for a single step otherwise."""
    from whichgpu.api.workloads.layouts import with_best_layout

    if asked.workload.serving and (_rated(asked) or "trace" in load):
        from whichgpu.api.workloads.serving_layouts import with_best_serving_layout

        return with_best_serving_layout(asked, lookups, load_of(load, context))
    return with_best_layout(asked, lookups)


def _rated(asked: ParsedWorkload) -> bool:
    return asked.workload.serving and asked.workload.rate is not None


def _loaded(asked: ParsedWorkload, lookups: LookupCache, load: Mapping[str, Any], context: Context) -> EstimateAnswer:
    """Under a load, simulated."""
    from whichgpu.api.workloads.serve import serve_workload

    if not asked.workload.serving:
        flags = tuple(context.spell(name) for name in load)
        raise UsageError("usage", msg("error.load-not-served", flags=flags), msg("hint.no-rate"))
    follow = context.progress
    return serve_workload(asked, lookups, load_of(load, context), follow and (lambda done: follow("simulating", done)))


def load_of(given: Mapping[str, Any], context: Context) -> LoadOptions:
    """The load that fields of a request spell."""
    from whichgpu.api.workloads.load import LoadOptions
    from whichgpu.estimate.serving.scheduler_limits import LimitOverrides

    values = read(EstimateRequest, given, context.spell, (*TRAFFIC, *LIMITS, *ENGINE_SWITCHES))
    for name in HISTOGRAMS:
        if name in values:
            values[name] = _histogram(name, values[name], context)
    limits = {name: values.pop(name) for name in (*LIMITS, *ENGINE_SWITCHES) if name in values}
    return LoadOptions(requests=values.pop("count", None), limits=LimitOverrides(**limits), **values)


def _histogram(name: str, text: str, context: Context) -> dict[float, float]:
    parts = [_PART.fullmatch(part) for part in text.split(",")]
    found = {float(part[1]): float(part[2]) for part in parts if part}
    if len(found) != len(parts) or min(found, default=0) < 1 or sum(found.values()) <= 0:
        raise refusal(context.spell(name), text, InvalidValue(msg("wants.histogram")))
    return found


def recommend(request: RecommendRequest, context: Context) -> RecommendAnswer:
    """Which GPU, on which offer, in which layout, at what cost, and why."""
    from whichgpu.api.recommend.recommend import recommend_spelled
    from whichgpu.api.request.recommend import RecommendRequest
    from whichgpu.decide.question import ANY_MODEL
    from whichgpu.decide.requirements import Requirements

    task, model = request.get("task"), request.get("model")
    if task not in RUN_TASKS:
        raise UsageError(
            "bad-field", msg("error.bad-field", name="TASK", value=task), msg("hint.choices", choices=RUN_TASKS), RUN_TASKS
        )
    if isinstance(model, str) and not model.strip():
        raise UsageError("bad-field", msg("error.bad-field", name="MODEL", value=repr(model)), msg("hint.empty-model"))
    names = [name for name in request if name in Requirements.__dataclass_fields__]
    query = Requirements(**read(RecommendRequest, request, context.spell, names))
    prices = read(RecommendRequest, request, context.spell, ("prices",)).get("prices")
    asked = workload({"model": ANY_MODEL.name, **request}, context.spell, without=("gpu", "gpus"))
    lookups = context.lookups_for(not request.get("no_own_measurements"))
    return recommend_spelled(asked, query, context.as_of, lookups, prices, model is not None)
