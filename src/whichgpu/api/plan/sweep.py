"""Plans along a line: the bill at other objectives or rates, each point a plan of its own, through the one seam of sweeps."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.plan.plan_file import from_mapping
from whichgpu.api.plan.request import ModelAsked, PlanRequest, to_mapping
from whichgpu.base.disk_cache import ResultCache, sweeps_folder
from whichgpu.base.errors import NoAnswer, UsageError
from whichgpu.base.messages import msg
from whichgpu.base.parallel.sweep import Progress, run_sweep
from whichgpu.base.units import parse_rate, parse_seconds
from whichgpu.catalog.schema import DATA_DIR
from whichgpu.catalog.store import Catalog
from whichgpu.decide.plan.plan_answer import CurvePoint, money
from whichgpu.estimate.lookup_cache import LookupCache

if TYPE_CHECKING:
    from whichgpu.api.plan.plan import Solved

FACTORS = (0.5, 0.75, 1.0, 1.5, 2.0)  # of an objective, along the curve
GOALS = {"tpot": "tpot_max", "ttft": "ttft_max", "latency": "latency_max"}
SECONDS, GAP = 10.0, 0.02  # of one point: a gap it reaches long before the time, so that every run tells the same


@dataclass(frozen=True, slots=True)
class Point:
    """One plan of a sweep: the request as a document, what is changed to which value, and whose data it is asked of."""

    document: str
    day: str
    name: str  # rate, tpot, ttft or latency
    value: float
    headroom: float
    catalog: str = ""  # nothing: the one that comes with the code, wherever that is
    known: str = ""
    overlay: str = ""
    own: bool = True


@dataclass(frozen=True, slots=True)
class Priced:
    """What a point came to; None where nothing can."""

    cost: float | None
    gap: float | None
    gpus: int | None


def sweep(
    request: PlanRequest, day: date, lookups: LookupCache, overlay: Path | None, headroom: float, name: str,
    values: Sequence[float],
    currency: str, progress: Callable[[Progress], None] | None = None, keep: bool = False,
) -> tuple[CurvePoint, ...]:  # fmt: skip
    """The bill at each value; in process, on `request.workers` processes, or on Ray."""
    document = json.dumps(to_mapping(_anywhere(request)), sort_keys=True)
    place = (
        "" if lookups.catalog.folder == DATA_DIR else str(lookups.catalog.folder.resolve()),
        str(lookups.catalog.known_by or ""),
    )
    points = [
        Point(document, day.isoformat(), name, value, headroom, *place, str(overlay.resolve()) if overlay else "", lookups.own)
        for value in values
    ]
    folder = sweeps_folder() if keep else None
    kept = ResultCache(folder, Priced, f"plan {_newest(lookups.catalog)}") if folder else None
    found = run_sweep(priced, points, jobs=request.workers, ray=request.ray, seed=request.seed, progress=progress, keep=kept)
    return tuple(
        CurvePoint(name, value, money(one.cost, currency) if one.cost is not None else None, one.gap, one.gpus)
        for value, one in zip(values, found, strict=True)
    )


def _anywhere(request: PlanRequest) -> PlanRequest:
    """With paths that mean the same in a process whose folder is another."""
    models = tuple(replace(one, trace=one.trace.resolve()) if one.trace else one for one in request.models)
    return replace(request, models=models)


def priced(point: Point, seed: int) -> Priced:  # noqa: ARG001 - all points draw alike, by the request's own seed
    """One plan, without simulation."""
    from whichgpu.api.plan.plan import solved

    request = from_mapping(json.loads(point.document))
    models = tuple(_with(one, point.name, point.value) for one in request.models)
    asked = replace(
        request, models=models, headroom=point.headroom, simulate=False, curve=False, tolerance=0.0, time_limit=SECONDS
    )  # fmt: skip
    lookups = _desk(point.catalog, point.known, point.own)
    try:
        told = solved(
            asked, date.fromisoformat(point.day), lookups, Path(point.overlay) if point.overlay else None, lambda *_: None, GAP
        )
    except NoAnswer:
        return Priced(None, None, None)
    return Priced(round(told.solution.bill, 6), round(told.solution.gap, 6), _gpus(told))


def _gpus(told: Solved) -> int:
    problem = told.formulation.problem
    totals = [
        sum(problem.pools[p].size * n for (at, p, _), n in told.solution.machines.items() if at == level)
        for level in range(problem.levels)
    ]
    return max(totals)


def _with(one: ModelAsked, name: str, value: float) -> ModelAsked:
    if name == "rate":
        return replace(one, fields={**one.fields, "rate": f"{value:.9g}/s"})
    if name == "latency":
        return replace(one, latency_max=value) if one.latency_max is not None else one
    field = GOALS[name]
    return replace(one, fields={**one.fields, field: f"{value * 1000:.9g}ms"})


def parse_sweep(text: str) -> tuple[str, tuple[float, ...]]:
    """`rate=1/s,2/s,5/s` or `tpot=25ms,50ms`."""
    name, _, rest = text.partition("=")
    name = name.strip().lower()
    if name not in ("rate", *GOALS) or not rest.strip():
        raise UsageError("bad-sweep", msg("error.bad-sweep", text=text[:80]), msg("hint.sweep"))
    read = parse_rate if name == "rate" else parse_seconds
    values = tuple(read(part) for part in rest.split(","))
    if min(values) <= 0:
        raise UsageError("bad-sweep", msg("error.bad-sweep", text=text[:80]), msg("hint.sweep"))
    return name, values


@lru_cache(maxsize=4)
def _desk(folder: str, known: str, own: bool) -> LookupCache:
    """One desk for all points of a process."""
    then = None if not known else int(known) if known.isdigit() else date.fromisoformat(known)
    return lookup_cache(Catalog(Path(folder) if folder else None, then), own=own)


def _newest(catalog: Catalog) -> str:
    """Names the data: when any of its files was last written."""
    try:
        return str(max(path.stat().st_mtime_ns for path in Path(catalog.folder).rglob("*.csv")))
    except (OSError, ValueError):
        return ""
