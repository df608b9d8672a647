"""Hourly cost of the cheapest fleet for several latency objectives or rates, each planned here, in a process pool or on Ray."""

from __future__ import annotations

import json
from datetime import date
from functools import lru_cache
from pathlib import Path

import msgspec
from msgspec.structs import replace

from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.plan.plan_file import from_document
from whichgpu.base.disk_cache import ResultCache, sweeps_folder
from whichgpu.base.errors import NoAnswer
from whichgpu.base.parallel.sweep import Progress, run_sweep
from whichgpu.catalog.schema import DATA_DIR
from whichgpu.catalog.store import Catalog
from whichgpu.decide.plan.comparisons import OBJECTIVES, curve_points, question_at
from whichgpu.decide.plan.inputs import (
    DEFAULT_HEADROOM,
    PlanInputs,
    PlanSources,
    StageProgress,
    read_inputs,
    silent,
    supply_of,
    with_models_of,
)
from whichgpu.decide.plan.plan_answer import CurvePoint, money
from whichgpu.decide.plan.question import PlanQuestion, to_document
from whichgpu.decide.plan.refusal import Refusal
from whichgpu.decide.plan.search import SolvedPlan, search_fleets
from whichgpu.decide.plan.supply import Supply
from whichgpu.estimate.lookup_cache import LookupCache

POINT_GAP = 0.02  # Relative optimality gap at which the solver stops for one plan of a sweep (set by judgement).


class SweepPoint(msgspec.Struct, frozen=True):
    """One plan of a sweep over values of a setting: the plan request as JSON, the value, and the catalog and prices to use."""

    document: str
    day: str
    name: str  # Setting that is varied: rate, tpot, ttft or latency.
    value: float
    headroom: float
    catalog: str = ""  # Folder of the catalog; empty for the bundled one.
    known_by: str = ""  # Day or year: rows entered later are not used; empty for all rows.
    overlay: str = ""
    own: bool = True


class PricedPoint(msgspec.Struct, frozen=True):
    """Hourly cost, optimality gap and GPUs of the plan for one value of the varied setting; all None if none is feasible."""

    cost: float | None = None
    gap: float | None = None
    gpus: int | None = None


def cost_curve(plan: SolvedPlan, sources: PlanSources, progress: StageProgress) -> tuple[CurvePoint, ...]:
    """Return the cheapest fleet's cost for each value of the varied setting; plans that the user requested are cached on disk."""
    name, values = curve_points(plan)
    if not values:
        return ()
    question, catalog = plan.question, sources.lookups.catalog
    document = json.dumps(to_document(_with_absolute_paths(question)), sort_keys=True)
    folder = "" if catalog.folder == DATA_DIR else str(catalog.folder.resolve())
    overlay = str(sources.overlay.resolve()) if sources.overlay else ""
    data = (folder, str(catalog.known_by or ""), overlay, sources.lookups.own)
    headroom = DEFAULT_HEADROOM if plan.trial.by_simulation else plan.trial.headroom
    points = [SweepPoint(document, sources.day.isoformat(), name, value, headroom, *data) for value in values]
    cache_folder = sweeps_folder() if question.sweep is not None else None
    cache = ResultCache(cache_folder, PricedPoint, f"plan {_newest(catalog)}") if cache_folder else None

    def report(done: Progress) -> None:
        progress("telling", done.done / max(1, done.total))

    priced = run_sweep(
        price_point, points, jobs=question.workers, ray=question.ray, seed=question.seed, progress=report, keep=cache
    )
    currency = plan.inputs.constraints.currency
    if plan.trial.by_simulation and plan.trial.holds and len(plan.inputs.models) == 1:
        priced = [_beside_plan(plan, name, value, one) for value, one in zip(values, priced, strict=True)]
    return tuple(
        CurvePoint(name, value, money(one.cost, currency) if one.cost is not None else None, one.gap, one.gpus)
        for value, one in zip(values, priced, strict=True)
    )


def _beside_plan(plan: SolvedPlan, name: str, value: float, point: PricedPoint) -> PricedPoint:
    """Return a point that costs no more than the plan if it requires less, and no less if it requires more.

    The plan's capacities are simulated and those of points are by formulas, so either may be the lower one by itself.
    """
    (model,) = plan.inputs.models
    own_value = model.traffic.mean if name == "rate" else getattr(model.objectives, OBJECTIVES[name])
    if own_value is None:
        return point
    solution, cost = plan.trial.solution, round(plan.bill, 6)
    mine = PricedPoint(cost, round(solution.gap, 6), solution.max_gpus(plan.trial.formulation.problem))
    easier = value <= own_value if name == "rate" else value >= own_value
    harder = value >= own_value if name == "rate" else value <= own_value
    if point.cost is None:
        return mine if easier else point
    return mine if (easier and point.cost > cost) or (harder and point.cost < cost) else point


def _with_absolute_paths(question: PlanQuestion) -> PlanQuestion:
    models = tuple(replace(one, trace=one.trace.resolve()) if one.trace else one for one in question.models)
    return replace(question, models=models)


def price_point(point: SweepPoint, seed: int) -> PricedPoint:  # noqa: ARG001 - All plans use the question's seed.
    """Return the hourly cost of the cheapest fleet for one value of the varied setting, solved but not simulated."""
    try:
        question, lookups, inputs, supply = _sources(replace(point, name="", value=0.0, headroom=0.0))
        if isinstance(supply, Refusal):
            return PricedPoint()
        question = question_at(question, point.name, point.value, point.headroom)
        plan = search_fleets(question, with_models_of(inputs, question, lookups), supply, gap=POINT_GAP)
    except NoAnswer:
        return PricedPoint()
    if isinstance(plan, Refusal):
        return PricedPoint()
    solution = plan.trial.solution
    return PricedPoint(round(plan.bill, 6), round(solution.gap, 6), solution.max_gpus(plan.trial.formulation.problem))


@lru_cache(maxsize=4)
def _sources(point: SweepPoint) -> tuple[PlanQuestion, LookupCache, PlanInputs, Supply | Refusal]:
    """Return the question, lookups, inputs and machines that all plans of a sweep in this process share."""
    question = from_document(json.loads(point.document))
    lookups = _lookups(point.catalog, point.known_by, point.own)
    sources = PlanSources(lookups, date.fromisoformat(point.day), Path(point.overlay) if point.overlay else None)
    inputs = read_inputs(question, sources, silent)
    return question, lookups, inputs, supply_of(question, inputs)


@lru_cache(maxsize=4)
def _lookups(folder: str, known_by: str, own: bool) -> LookupCache:
    """Return the cache of models and GPUs that all plans of a sweep in this process share; `own` uses own measurements."""
    as_known = None if not known_by else int(known_by) if known_by.isdigit() else date.fromisoformat(known_by)
    return lookup_cache(Catalog(Path(folder) if folder else None, as_known), own=own)


def _newest(catalog: Catalog) -> str:
    """Return the time of the last change to any file of the catalog, as the version of the data in cache keys."""
    try:
        return str(max(path.stat().st_mtime_ns for path in Path(catalog.folder).rglob("*.csv")))
    except (OSError, ValueError):
        return ""
