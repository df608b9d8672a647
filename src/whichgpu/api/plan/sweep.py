"""Hourly cost of the cheapest fleet for several latency objectives or rates, each planned here, in a process pool or on Ray."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache
from pathlib import Path

from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.plan.plan_file import from_document
from whichgpu.base.disk_cache import ResultCache, sweeps_folder
from whichgpu.base.errors import NoAnswer
from whichgpu.base.parallel.sweep import Progress, run_sweep
from whichgpu.catalog.schema import DATA_DIR
from whichgpu.catalog.store import Catalog
from whichgpu.decide.plan.comparisons import curve_points, question_at
from whichgpu.decide.plan.inputs import PlanSources, StageProgress
from whichgpu.decide.plan.plan_answer import CurvePoint, money
from whichgpu.decide.plan.question import PlanQuestion, to_document
from whichgpu.decide.plan.refusal import Refusal
from whichgpu.decide.plan.search import SolvedPlan, search_plan
from whichgpu.estimate.lookup_cache import LookupCache

POINT_GAP = 0.02  # Relative gap at which the solver stops at one point (set by judgement).


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One plan of a sweep: the question as a document, the value changed in it, and the data it is answered from."""

    document: str
    day: str
    name: str  # what is varied: rate, tpot, ttft or latency
    value: float
    headroom: float
    catalog: str = ""  # folder of the catalog; empty for the bundled one
    known: str = ""
    overlay: str = ""
    own: bool = True


@dataclass(frozen=True, slots=True)
class PricedPoint:
    """Cost per hour, gap and GPUs of a point; None if there is no plan."""

    cost: float | None = None
    gap: float | None = None
    gpus: int | None = None


def cost_curve(plan: SolvedPlan, sources: PlanSources, progress: StageProgress) -> tuple[CurvePoint, ...]:
    """Return the cost at each point of the curve; points of a requested sweep are cached on disk."""
    name, values = curve_points(plan)
    if not values:
        return ()
    question, catalog = plan.question, sources.lookups.catalog
    document = json.dumps(to_document(_with_absolute_paths(question)), sort_keys=True)
    folder = "" if catalog.folder == DATA_DIR else str(catalog.folder.resolve())
    overlay = str(sources.overlay.resolve()) if sources.overlay else ""
    data = (folder, str(catalog.known_by or ""), overlay, sources.lookups.own)
    points = [SweepPoint(document, sources.day.isoformat(), name, value, plan.trial.headroom, *data) for value in values]
    cache_folder = sweeps_folder() if question.sweep is not None else None
    cache = ResultCache(cache_folder, PricedPoint, f"plan {_newest(catalog)}") if cache_folder else None

    def report(done: Progress) -> None:
        progress("telling", done.done / max(1, done.total))

    priced = run_sweep(
        price_point, points, jobs=question.workers, ray=question.ray, seed=question.seed, progress=report, keep=cache
    )
    currency = plan.inputs.constraints.currency
    return tuple(
        CurvePoint(name, value, money(one.cost, currency) if one.cost is not None else None, one.gap, one.gpus)
        for value, one in zip(values, priced, strict=True)
    )


def _with_absolute_paths(question: PlanQuestion) -> PlanQuestion:
    models = tuple(replace(one, trace=one.trace.resolve()) if one.trace else one for one in question.models)
    return replace(question, models=models)


def price_point(point: SweepPoint, seed: int) -> PricedPoint:  # noqa: ARG001 - All points draw alike, by the question's seed.
    """Return the cost of the plan at one point, without simulation."""
    question = question_at(from_document(json.loads(point.document)), point.name, point.value, point.headroom)
    lookups = _lookups(point.catalog, point.known, point.own)
    sources = PlanSources(lookups, date.fromisoformat(point.day), Path(point.overlay) if point.overlay else None)
    try:
        plan = search_plan(question, sources, gap=POINT_GAP)
    except NoAnswer:
        return PricedPoint()
    if isinstance(plan, Refusal):
        return PricedPoint()
    solution = plan.trial.solution
    return PricedPoint(round(solution.bill, 6), round(solution.gap, 6), solution.max_gpus(plan.trial.formulation.problem))


@lru_cache(maxsize=4)
def _lookups(folder: str, known_by: str, own: bool) -> LookupCache:
    """Return one cache of lookups for all points that a process computes."""
    as_known = None if not known_by else int(known_by) if known_by.isdigit() else date.fromisoformat(known_by)
    return lookup_cache(Catalog(Path(folder) if folder else None, as_known), own=own)


def _newest(catalog: Catalog) -> str:
    """Return when any of the catalog's files was last written, as a key of the data's version."""
    try:
        return str(max(path.stat().st_mtime_ns for path in Path(catalog.folder).rglob("*.csv")))
    except (OSError, ValueError):
        return ""
