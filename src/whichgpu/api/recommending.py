"""The verb `recommend`: which GPUs, on which offer, in which layout, at what cost, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from pathlib import Path
from typing import Any

from whichgpu.api.desk import Desk
from whichgpu.api.recommended import ANY_MODEL, RecommendAnswer, Rejected, Reproduce
from whichgpu.api.shopping import Basket, Query, basket
from whichgpu.api.telling import Telling
from whichgpu.api.wanted import listed
from whichgpu.base.errors import NoAnswer, UsageError, WhichGpuError
from whichgpu.base.messages import Message, msg
from whichgpu.catalog.find import find_gpus
from whichgpu.catalog.store import Catalog
from whichgpu.decide.candidates import Candidates, candidates
from whichgpu.decide.evaluate import ways
from whichgpu.decide.groups import Groups, groups_of
from whichgpu.decide.market import terms_of
from whichgpu.decide.rows import Rows, rows_of
from whichgpu.decide.settle import settled
from whichgpu.decide.way import Asked, Outcome
from whichgpu.decide.wishes import Rank
from whichgpu.decide.work import SERVICE_RATE, SERVICE_TPOT, Work, work_of
from whichgpu.estimate.time.grid import speaks
from whichgpu.price.table import Ints
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.spelling import Spelled, fill_defaults, from_object
from whichgpu.workload.workload import Workload

SHOWN = 8
MACHINE = 8.0  # GPUs of one machine; more are sought over several
SIZES = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)  # GPUs tried where fewer do not hold it
NARROWER = ("fp32", "bf16", "fp16", "fp8", "int8", "int4")
FILTERS = ("needs", "provider", "region", "max_latency", "term", "min_memory", "instance", "gpu", "max_age")
USUAL = {one.name: one.default for one in fields(Query)}
__all__ = ["ANY_MODEL", "RecommendAnswer", "Rejected", "Reproduce", "recommend", "recommend_spelled"]


def recommend(
    task: str,
    model: str | Mapping[str, Any] | None = None,
    query: Query = Query(),  # noqa: B008 - frozen
    as_of: date | None = None,
    catalog: Catalog | None = None,
    overlay: Path | None = None,
    own: bool = True,
    **fields: Any,
) -> RecommendAnswer:
    """The GPUs and offer to use for a task; `fields` are those of a request, `query` the filters, limits and order."""
    spelled = from_object({"task": task, "model": model or ANY_MODEL.name, **fields})
    return recommend_spelled(spelled, query, as_of, Desk(catalog, own=own), overlay, model is not None)


def recommend_spelled(
    spelled: Spelled, query: Query, as_of: date | None, desk: Desk, overlay: Path | None = None, modelled: bool = True
) -> RecommendAnswer:
    """`recommend` of a request already read; `modelled` where it names a model."""
    day = as_of or desk.catalog.as_known or date.today()
    sought = _Sought(spelled, query, day, desk, overlay, modelled)
    asked = sought.asked()
    found = sought.basket(asked)
    rank = _rank(query, found, modelled and asked.workload.task == "serve")
    groups, outcomes, work = sought.evaluated(asked, found)

    offered = terms_of(found.market)

    def join(known: list[Outcome]) -> tuple[Candidates, Any]:
        joined = candidates(asked.workload, work, found.wishes, found.market, groups, known, offered)
        return joined, joined.order(rank, found.market)

    limit = query.limit or SHOWN
    after = [one.id for name in listed(query.why_not or ()) for one in find_gpus(desk.catalog, name)]

    def shown(told: Candidates, order: Ints) -> Rows:
        return rows_of(told, order, groups, found.market, limit, after)

    told, order, outcomes = settled(asked, groups, outcomes, join, found.wishes, shown)
    if not len(order):
        raise _nothing(told, outcomes, found, asked.workload, sought)
    return Telling(asked, found, groups, outcomes, told, order, rank, work, desk, modelled).answer(after, limit)


@dataclass(frozen=True, slots=True)
class _Sought:
    """A question, and what becomes of it up to the candidates: asked anew where nothing came of it."""

    spelled: Spelled
    query: Query
    day: date
    desk: Desk
    overlay: Path | None
    modelled: bool

    def asked(self) -> Asked:
        return _asked(self.spelled, self.desk, self.modelled)

    def basket(self, asked: Asked) -> Basket:
        engines = self.desk.catalog.engines if self.modelled else ()
        engine = next((one for one in engines if one.id == asked.workload.engine), None)
        slices = self.modelled and not asked.workload.training
        return basket(self.query, self.day, self.desk.catalog, self.overlay, slices=slices, engine=engine)

    def evaluated(self, asked: Asked, found: Basket) -> tuple[Groups, list[Outcome], Work]:
        span = found.wishes.span
        groups = groups_of(found.market, self.desk.catalog, _span(self.query, span), several=span[1] > MACHINE)
        if self.modelled:
            return groups, ways(asked, groups.groups), work_of(asked.workload, asked.shape, found.wishes.duration)
        from whichgpu.decide.mix import AMOUNT
        from whichgpu.decide.mixed import mixed

        outcomes = mixed(asked.workload.task, self.day, groups.groups, self.desk.catalog, asked.calibration)
        return groups, outcomes, Work(AMOUNT, "samples", None, True)

    def answers(self) -> bool:
        """Whether there is an answer at all."""
        try:
            asked = self.asked()
            found = self.basket(asked)
            groups, outcomes, work = self.evaluated(asked, found)
        except WhichGpuError:
            return False
        return bool(candidates(asked.workload, work, found.wishes, found.market, groups, outcomes).kept.any())

    def ways_out(self, hungry: bool) -> list[Message]:
        """Changes that were tried and give an answer: a filter less, more GPUs, a narrower precision."""
        found = []
        for name in FILTERS:
            usual: Any = USUAL[name]
            if getattr(self.query, name) and replace(self, query=replace(self.query, **{name: usual})).answers():
                found.append(msg("relax.without", flag=f"--{name.replace('_', '-')}"))
        if hungry:
            found += self._larger() + self._narrower()
        if self.query.gpus is not None and self.query.gpus[0] > MACHINE and not found:
            found += self._fewer(self.query.gpus[0])
        return found

    def _fewer(self, low: float) -> list[Message]:
        for least in reversed(SIZES):
            if least < low and replace(self, query=replace(self.query, gpus=(least, least))).answers():
                return [msg("relax.gpus", value=f"{least:g}")]
        return []

    def _larger(self) -> list[Message]:
        low, high = self.query.gpus or (1.0, MACHINE)
        for most in SIZES:
            if most > high and replace(self, query=replace(self.query, gpus=(min(low, most), most))).answers():
                return [msg("relax.gpus", value=f"{low:g}..{most:g}")]
        return []

    def _narrower(self) -> list[Message]:
        if not self.modelled or self.spelled.workload.task not in ("serve", "batch"):
            return []
        now = self.asked().workload.precision
        for precision in NARROWER[NARROWER.index(now) + 1 :] if now in NARROWER else ():
            workload = replace(self.spelled.workload, precision=precision)
            if replace(self, spelled=Spelled(workload, self.spelled.given | {"precision"})).answers():
                return [msg("relax.precision", value=precision)]
        return []


def _rank(query: Query, found: Basket, serving: bool) -> Rank:
    return "time" if query.buy and query.budget and not query.rank else found.wishes.order(serving)


def _span(query: Query, span: tuple[float, float]) -> tuple[float, float]:
    """One card where cards are bought and nobody says how many."""
    return (1.0, 1.0) if query.buy and query.gpus is None else span


def _asked(spelled: Spelled, desk: Desk, modelled: bool) -> Asked:
    given = spelled.given
    workload = spelled.workload
    if not modelled:
        filled = replace(workload, precision=workload.precision, engine=None)
        return Asked(filled, given, ANY_MODEL, desk.calibration, workload)
    if workload.task == "serve" and workload.rate is None and workload.batch is None:
        workload = replace(workload, rate=SERVICE_RATE)
    shape = desk.shape(workload.model)
    if workload.task == "serve" and speaks(shape) and not {"tpot_max", "ttft_max", "batch"} & given:
        workload = replace(workload, tpot_max=SERVICE_TPOT)
    if workload.tokens is not None and not (isinstance(shape, Transformer) and shape.patches is None):
        raise UsageError("bad-field", msg("error.tokens-of-samples", model=shape.name), msg("hint.tokens-of-samples"))
    if workload.steps is not None:
        given = given | {"batch"}
    return Asked(fill_defaults(workload, shape), given, shape, desk.calibration, spelled.workload)


def _nothing(told: Candidates, outcomes: Sequence[Outcome], found: Basket, workload: Workload, sought: _Sought) -> NoAnswer:
    """The refusal: which wish removed how many, and the least change that would help."""
    from whichgpu.decide.relax import relaxations

    counts = told.rejected.most_common()
    reasons = tuple(msg("rejected.counted", why=msg(f"rejected.{name}"), n=f"{count:,}") for name, count in counts if count)
    ways_out = relaxations(told, outcomes, found.wishes, workload)
    hungry = any(one.id == "relax.memory" for one in ways_out)
    tried = sought.ways_out(hungry) if hungry or not ways_out else []
    ways_out = [one for one in ways_out if not (tried and one.id == "relax.memory")] + tried
    message = msg("error.nothing-recommended", day=found.wishes.day.isoformat())
    if reasons:
        message = msg("error.because", what=message, why=reasons)
    hint = msg("hint.relax", ways=tuple(ways_out)) if ways_out else msg("hint.relax-filters")
    return NoAnswer("nothing-fits", message, hint)
