"""The verb `recommend`: which GPUs, on which offer, in which layout, at what cost, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from shlex import join
from typing import Any

from whichgpu.api.advice import sees
from whichgpu.api.desk import Desk
from whichgpu.api.shopping import Basket, Query, basket
from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_seconds
from whichgpu.catalog.find import find_gpus
from whichgpu.catalog.host import Source
from whichgpu.catalog.store import Catalog
from whichgpu.decide import explain
from whichgpu.decide.answer import Candidate, TermLine, group_at, shown, term_lines
from whichgpu.decide.candidates import Candidates, candidates, pareto
from whichgpu.decide.evaluate import ways
from whichgpu.decide.groups import groups_of
from whichgpu.decide.host import build_advice, host_advice
from whichgpu.decide.lacks import lacks
from whichgpu.decide.market import machine_of
from whichgpu.decide.mixed import AMOUNT, UNIT, indices, mixed
from whichgpu.decide.relax import relaxations
from whichgpu.decide.settle import settled
from whichgpu.decide.way import Asked, Outcome
from whichgpu.decide.wishes import RANKS, Rank
from whichgpu.decide.work import SERVICE_RATE, Work, work_of
from whichgpu.estimate.time.grid import speaks
from whichgpu.price.run import SPOT_SOURCE
from whichgpu.workload.shapes import Mlp, Transformer
from whichgpu.workload.spelling import Spelled, echo, fill_defaults, from_object, to_argv
from whichgpu.workload.workload import Workload

SHOWN = 8
ANY_MODEL = Mlp("reference mix", (1, 1))


@dataclass(frozen=True, slots=True)
class Rejected:
    """How many candidates each reason removed, in the order they are looked at, and what would let more through."""

    reasons: Mapping[str, int]
    relaxations: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Reproduce:
    """The question again, as a command line and as the path of a page; `as_of` is in both."""

    command: str
    url: str


@dataclass(frozen=True, slots=True)
class RecommendAnswer:
    """The answer, the next best, the cheapest and fastest, and the front between them."""

    request: dict[str, Any]
    as_of: str
    rank: Rank
    answer: Candidate
    sentence: Message
    runner_up: Candidate | None
    cheapest: Candidate
    fastest: Candidate
    candidates: tuple[Candidate, ...]
    pareto: tuple[Candidate, ...]
    considered: int
    rejected: Rejected
    why_not: Mapping[str, tuple[Message, ...]]
    host: tuple[Message, ...]
    lacks: tuple[Message, ...]
    assumptions: tuple[Message, ...]
    warnings: tuple[Message, ...]
    sources: tuple[Source, ...]
    verify: str
    reproduce: Reproduce
    terms: tuple[TermLine, ...]  # of the answer's machine
    curve: tuple[tuple[int, float, float], ...]  # batch, seconds between tokens, tokens a second of the answer's GPUs


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
    asked = _asked(spelled, desk, modelled)
    day = as_of or desk.catalog.as_known or date.today()
    found = basket(query, day, desk.catalog, overlay)
    serving = modelled and asked.workload.task == "serve"
    wishes, rank = found.wishes, "time" if query.buy and query.budget and not query.rank else found.wishes.order(serving)
    groups = groups_of(found.market, desk.catalog, _span(query, wishes.span), several=wishes.span[1] > 8)
    outcomes: list[Outcome]
    if modelled:
        outcomes, work = ways(asked, groups.groups), work_of(asked.workload, asked.shape, wishes.duration)
    else:
        outcomes = mixed(asked.workload.task, day, groups.groups, desk.catalog, asked.calibration)
        work = Work(AMOUNT, "samples", None, True)

    def join(known: list[Outcome]) -> tuple[Candidates, Any]:
        joined = candidates(asked.workload, work, wishes, found.market, groups, known)
        return joined, joined.order(rank, found.market)

    told, order, outcomes = settled(asked, groups, outcomes, join, wishes)
    if not len(order):
        raise _nothing(told, outcomes, found, asked.workload)
    return _Telling(asked, found, groups, outcomes, told, order, rank, work, desk, modelled).answer(
        query.why_not, query.limit or SHOWN
    )


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
    if workload.steps is not None:
        given = given | {"batch"}
    return Asked(fill_defaults(workload, shape), given, shape, desk.calibration, spelled.workload)


def _nothing(told: Candidates, outcomes: Sequence[Outcome], found: Basket, workload: Workload) -> NoAnswer:
    """The refusal: which wish removed how many, and the least change that would help."""
    reasons = tuple(
        msg("rejected.counted", why=msg(f"rejected.{name}"), n=count) for name, count in told.rejected.items() if count
    )
    ways_out = tuple(relaxations(told, outcomes, found.wishes, workload))
    message = msg("error.nothing-recommended", day=found.wishes.day.isoformat())
    if reasons:
        message = msg("error.because", what=message, why=reasons)
    hint = msg("hint.relax", ways=ways_out) if ways_out else msg("hint.relax-filters")
    return NoAnswer("nothing-fits", message, hint)


@dataclass(frozen=True, slots=True)
class _Telling:
    """All that is known, on its way to being an answer."""

    asked: Asked
    found: Basket
    groups: Any
    outcomes: Sequence[Outcome]
    told: Candidates
    order: Any
    rank: Rank
    work: Work
    desk: Desk
    modelled: bool

    def answer(self, asked_after: str | None, limit: int) -> RecommendAnswer:
        told, market = self.told, self.found.market
        places = self._distinct(self.order, limit)
        cheapest, fastest = (int(told.order(by, market)[0]) for by in RANKS[:2])
        front = pareto(told, self.order)
        rows = {place: self._row(place) for place in dict.fromkeys((*places, cheapest, fastest, *front))}
        best = rows[places[0]]
        second = rows[places[1]] if len(places) > 1 else None
        rows = {place: self._explained(one, second if one is best else best) for place, one in rows.items()}
        best = rows[places[0]]
        group, way = group_at(places[0], told, self.groups)
        machine = machine_of(
            market, int(told.offer[places[0]]), {(one.provider, one.instance): one for one in self.desk.catalog.instances}
        )
        serving = self.work.hours is not None
        advice = host_advice(self.asked.workload, group, way, machine, best.provider, sees(self.asked.shape), best.term)
        if best.provider == "buy":
            advice = build_advice(group.gpu, group.gpus)
        why = {}
        for gpu in find_gpus(self.desk.catalog, asked_after) if asked_after else ():
            at = explain.best_of(gpu.id, told, self.groups, self.order)
            row = rows.get(at) or self._row(at) if at is not None else None
            why[gpu.id] = explain.why_not(gpu.id, gpu.name, told, self.groups, self.outcomes, best, row, serving)
        speaking = self.modelled and isinstance(self.asked.shape, Transformer) and speaks(self.asked.shape)
        return RecommendAnswer(
            request=self._echo(), as_of=self.found.wishes.day.isoformat(), rank=self.rank, answer=best,
            sentence=self._sentence(best), runner_up=rows[places[1]] if len(places) > 1 else None, cheapest=rows[cheapest],
            fastest=rows[fastest], candidates=tuple(rows[place] for place in places),
            pareto=tuple(rows[place] for place in front), considered=told.considered,
            rejected=Rejected({name: count for name, count in told.rejected.items() if count}, ()), why_not=why, host=advice,
            lacks=lacks(group.gpu, self.asked.workload, speaking), assumptions=tuple(self._assumptions(best)),
            warnings=tuple(self._warnings(best, group)), sources=self._sources(rows.values()), verify=self._verify(best),
            reproduce=self._reproduce(), curve=way.curve, terms=term_lines(best, market),
        )  # fmt: skip

    def _distinct(self, order: Any, limit: int) -> list[int]:
        """The best of each GPU and count."""
        seen: dict[tuple[str, int], int] = {}
        for place in order.tolist():
            key = (self.groups.groups[int(self.told.group[place])].gpu.id, int(self.told.gpus[place]))
            seen.setdefault(key, place)
            if len(seen) >= limit:
                break
        return list(seen.values())

    def _row(self, place: int) -> Candidate:
        return shown(place, self.told, self.found.market, self.groups, self.asked, self.work, self.found.wishes.currency)

    def _explained(self, one: Candidate, other: Candidate | None) -> Candidate:
        return replace(one, because=explain.because(one, other, self.asked.workload, self.work.hours is not None))

    def _echo(self) -> dict[str, Any]:
        told = echo(self.asked.workload, self.asked.given)
        if not self.modelled:
            told |= {"model": None, "mix": list(indices(self.asked.workload.task, self.found.wishes.day))}
        return told | {"wishes": self.found.spelled}

    def _sentence(self, one: Candidate) -> Message:
        kind = "mix" if not self.modelled else "service" if self.work.hours is not None else "run"
        bought = one.provider == "buy"
        values: dict[str, Any] = {
            "gpus": one.gpus, "gpu": one.gpu_name, "machine": f"{one.provider} {_several(one)}",
            "term": msg(f"term.{one.term}"), "region": one.region or "-", "n": one.machines,
            "time": _long(one.run_time.value), "cost": _amount(one.cost.amount), "currency": one.cost.currency,
            "hour": _amount(one.cost_per_hour.amount), "month": _amount(one.cost_per_month.amount),
            "speed": f"{one.throughput.value:.3g}", "price": _amount(self.found.purchase.get(one.gpu, Decimal(0)) * one.gpus),
        }  # fmt: skip
        kind = f"{kind}-buy" if bought else kind
        return msg(f"recommend.sentence-{kind}", **values)

    def _assumptions(self, best: Candidate) -> list[Message]:
        workload, given, habits = self.asked.workload, self.asked.given, self.found.wishes.habits
        said = [msg(f"assumed.rank-{self.rank}")]
        if not self.modelled:
            said.append(msg("assumed.mix", names=indices(workload.task, self.found.wishes.day), unit=UNIT))
        if self.modelled and "precision" not in given:
            said.append(msg("assumed.precision", precision=best.precision))
        if self.modelled and "engine" not in given:
            said.append(msg("assumed.engine", engine=workload.engine or "pytorch"))
        if workload.seq_in and not {"seq_in", "seq_out"} & given and self.modelled:
            said.append(msg("assumed.sequence", seq_in=workload.seq_in, seq_out=workload.seq_out or 0))
        if workload.task == "serve" and "rate" not in given and workload.rate is not None and self.modelled:
            said.append(msg("assumed.rate", rate=f"{workload.rate:g}"))
        if self.work.assumed and self.modelled:
            amount = f"{self.work.amount:,.0f}" if self.work.amount else f"{self.work.hours:,.0f}"
            said.append(
                msg("assumed.work" if self.work.amount else "assumed.service", amount=amount, unit=msg(f"unit.{self.work.unit}"))
            )
        said.append(msg("assumed.startup", time=format_seconds(habits.startup)))
        if best.term == "spot":
            said.append(msg("assumed.spot", rate=f"{habits.interruptions:g}", every=format_seconds(habits.checkpoint_every)))
        if best.includes == "gpu":
            said.append(msg("assumed.host-beside"))
        if self.found.wishes.gpus is None:
            said.append(msg("assumed.gpus", most=int(self.found.wishes.span[1])))
        if workload.task == "serve" and self.modelled:
            said.append(msg("assumed.queueing", percentile=f"{workload.percentile:g}"))
        return said + list(self.found.assumptions)

    def _warnings(self, best: Candidate, group: Any) -> list[Message]:
        said = []
        if best.price_stale:
            said.append(msg("recommend.stale", day=best.price_observed_at, n=best.price_age_days))
        if best.fits == "tight":
            said.append(msg("recommend.tight", gpu=best.gpu_name))
        if best.tier in ("other", "none", "group-other"):
            said.append(msg("recommend.unmeasured", gpu=best.gpu_name))
        said += [msg("recommend.quirk", gpu=best.gpu_name, text=text) for text in group.gpu.quirks[:3]]
        return said

    def _sources(self, rows: Any) -> tuple[Source, ...]:
        rows = list(rows)
        spot = (SPOT_SOURCE,) if any(row.term == "spot" for row in rows) else ()
        gpus = tuple(source for row in rows[:1] for source in self.desk.catalog.gpu_by_id[row.gpu].sources)
        return self.desk.catalog.cited(tuple(row.source for row in rows), spot, gpus[:2], rows[0].time.sources)

    def _verify(self, best: Candidate) -> str:
        """The command that measures this very claim on that hardware."""
        if not self.modelled:
            return "whichgpu measure"
        return join(["whichgpu", "measure", "--verify", f"estimate {self._argv(best)}"])

    def _argv(self, best: Candidate) -> str:
        workload = self.asked.workload
        told = replace(
            self.asked.bare, gpu=best.gpu, gpus=best.gpus // best.copies, parallel=best.parallel, precision=best.precision,
            batch=best.batch, micro_batch=best.micro_batch, accumulation=best.accumulation, checkpointing=best.checkpointing,
            rate=None,
        )  # fmt: skip
        words = [word for word in to_argv(told) if not word.startswith(("--task", "--model"))]
        return join([workload.task, *([workload.model] if isinstance(workload.model, str) else []), *words])

    def _reproduce(self) -> Reproduce:
        from shlex import join
        from urllib.parse import urlencode

        bare = self.asked.bare
        words = [word for word in to_argv(bare) if not word.startswith(("--task", "--model"))]
        model = [bare.model] if self.modelled and isinstance(bare.model, str) else []
        wishes = [_flag(name, value) for name, value in self.found.spelled.items()]
        day = [f"--as-of={self.found.wishes.day.isoformat()}"]
        pairs = [word.removeprefix("--").partition("=")[::2] for word in (*words, *wishes, *day)]
        query = urlencode([("task", bare.task), *(("model", name) for name in model), *pairs])
        return Reproduce(join(["whichgpu", "recommend", bare.task, *model, *words, *wishes, *day]), f"/recommend?{query}")


def _several(one: Candidate) -> str:
    return one.instance if one.machines == 1 or one.copies > 1 else f"{one.machines}x {one.instance}"


def _flag(name: str, value: str) -> str:
    return "--buy" if name == "buy" else f"--{name.replace('_', '-')}={value}"


def _long(seconds: float) -> str:
    """A run's length for people.

    >>> _long(5400), _long(400000)
    ('1.5 h', '4.6 d')
    """
    if seconds < 3600:
        return format_seconds(seconds) if seconds < 120 else f"{seconds / 60:.3g} min"
    return f"{seconds / 3600:.3g} h" if seconds < 2 * 86400 else f"{seconds / 86400:.2g} d"


def _amount(value: Decimal) -> str:
    """Money for people: three digits, thousands grouped."""
    from whichgpu.base.units import significant

    return significant(float(value))
