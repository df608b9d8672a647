"""The error of a question without an answer: what removed its candidates, and the smallest changes that would give an answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from whichgpu.base.errors import NoAnswer, WhichGpuError
from whichgpu.base.messages import Message, msg
from whichgpu.base.records import field_defaults
from whichgpu.base.units import format_seconds
from whichgpu.decide.candidates import Candidates
from whichgpu.decide.configurations.cluster_span import MACHINE_GPUS
from whichgpu.decide.question import EvaluatedQuestion, Question
from whichgpu.decide.recommend import RankedCandidates, any_passes, rank_candidates
from whichgpu.decide.relax import (
    MONEY_AND_TIME,
    NUMERIC_LIMITS,
    WAIVABLE_LIMITS,
    Order,
    round_up,
    smallest_change,
    smallest_change_of_both,
    smallest_shortfall,
)
from whichgpu.decide.relaxed_request import relaxed_request
from whichgpu.decide.requirements import Requirements
from whichgpu.price.table import Ints
from whichgpu.workload.spelling import ParsedWorkload
from whichgpu.workload.workload import Parallel, Workload

GPU_COUNTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
PRECISIONS = ("fp32", "bf16", "fp16", "fp8", "int8", "int4")  # The widest precision comes first.
FILTERS = ("needs", "provider", "region", "max_latency", "term", "min_memory", "instance", "gpu", "max_age")
OBJECTIVES = ("tpot_max", "ttft_max")
LATENCY_REASONS = ("latency", "copies", "gpus-in-all", "budget")  # Rejections that a looser latency objective may avoid.
MAX_FACTOR, TOLERANCE = 1000.0, 1.03  # largest factor tried on an objective; the smallest is found to within 3%
DEFAULTS = field_defaults(Requirements)
Change = tuple[Question, Message]


def no_answer(question: Question, screened: EvaluatedQuestion, ranked: RankedCandidates) -> NoAnswer:
    """Return the error with how many candidates each constraint removed, and the smallest changes that would give an answer."""
    counts = ranked.candidates.rejected.most_common()
    reasons = tuple(
        msg("rejected.counted", why=msg(f"rejected.{name}", n=count), n=f"{count:,}") for name, count in counts if count
    )
    changes = Relaxations(question, screened, ranked).all()
    message = msg("error.nothing-recommended", day=question.day.isoformat())
    if reasons:
        message = msg("error.because", what=message, why=reasons)
    if _rejected_by_default_objective(screened, ranked.candidates):
        seconds = screened.request.workload.tpot_max or 0.0
        message = msg("error.default-objective", what=message, time=format_seconds(seconds))
    hint = msg("hint.relax", ways=tuple(changes)) if changes else msg("hint.relax-filters")
    relaxation = relaxed_request(question, changes, has_answer)
    return NoAnswer("nothing-fits", message, hint, rejected={name: n for name, n in counts if n}, relaxation=relaxation)


def _rejected_by_default_objective(screened: EvaluatedQuestion, candidates: Candidates) -> bool:
    workload, stated = screened.request.workload, screened.request.stated
    assumed = workload.serving and workload.tpot_max is not None and not set(OBJECTIVES) & stated
    return assumed and any(candidates.rejected[name] for name in LATENCY_REASONS)


def has_answer(question: Question) -> bool:
    """Return whether any candidate of the question passes every constraint."""
    try:
        screened = question.evaluated()
        return any_passes(screened, lambda candidates: candidates.order("cost", screened.selection.market))
    except WhichGpuError:
        return False


def _rank(screened: EvaluatedQuestion, order: Order) -> tuple[Candidates, Ints]:
    return rank_candidates(screened, order)[:2]


class Relaxations:
    """Finds changes of limits and filters with which a question without an answer would have one."""

    def __init__(self, question: Question, screened: EvaluatedQuestion, ranked: RankedCandidates) -> None:
        self.question, self.screened, self.candidates, self.results = question, screened, ranked.candidates, ranked.results
        self._rank = partial(_rank, screened)

    def all(self) -> list[Message]:
        """Return messages: limits moved and filters dropped, one at a time; if none suffices, two changes together."""
        filters = list(self._filters())
        changes = [*self._limits(), *_tried(filters)]
        both = smallest_change_of_both(self.screened.selection.constraints, self._rank) if not changes else None
        if both is not None:
            changes.append(both)
        if changes:
            return changes
        others = list(self._others())
        return _tried(others) or list(_pairs([*filters, *others])) or self._missing_memory()

    def _limits(self) -> Iterator[Message]:
        constraints, workload = self.screened.selection.constraints, self.screened.request.workload
        for name in (*NUMERIC_LIMITS, *WAIVABLE_LIMITS):
            if name in self.candidates.missed and self.candidates.missed[name].any():
                change = smallest_change(name, constraints, workload.rate, self._rank)
                if change is not None:
                    yield change
        if smallest_shortfall(self.results, "latency") is not None:
            yield from self._objectives(workload)

    def _objectives(self, workload: Workload) -> Iterator[Message]:
        """Yield a message for each objective that suffices if relaxed alone, else for both relaxed by one factor."""
        names = [name for name in OBJECTIVES if getattr(workload, name)]
        sets = [(name,) for name in names]
        factors = {one: factor for one in sets if (factor := self._factor(workload, one)) is not None}
        if not factors and len(names) > 1 and (factor := self._factor(workload, tuple(names))) is not None:
            yield _looser(workload, tuple(names), factor)
        for one, factor in factors.items():
            yield _looser(workload, one, factor)

    def _factor(self, workload: Workload, names: tuple[str, ...]) -> float | None:
        """Return the smallest factor, within the tolerance, by which these objectives must be relaxed; None if none suffices."""

        def holds(factor: float) -> bool:
            looser: dict[str, Any] = {name: float(_milliseconds(workload, name, factor)) / 1000.0 for name in names}
            spelled = ParsedWorkload(
                replace(self.question.spelled.workload, **looser), self.question.spelled.user_fields | set(names)
            )
            return has_answer(replace(self.question, spelled=spelled))

        low, high = 1.0, 1.0 + max(smallest_shortfall(self.results, "latency") or 0.0, TOLERANCE - 1.0)
        while not holds(high):
            low, high = high, high * 2.0
            if high > MAX_FACTOR:
                return None
        while high / low > TOLERANCE:
            middle = (low * high) ** 0.5
            low, high = (low, middle) if holds(middle) else (middle, high)
        return high

    def _filters(self) -> Iterator[Change]:
        """Yield the question with one of its filters dropped, for each filter, with a message that says so."""
        spelled, rejected = self.question.spelled, self.candidates.rejected
        for name in FILTERS:
            if getattr(self.question.query, name):
                yield self._with(**{name: DEFAULTS[name]}), msg("relax.without", flag=f"--{name.replace('_', '-')}")
        if "engine" in spelled.user_fields and rejected["engine"]:
            yield self._with_workload("engine", None), msg("relax.without", flag="--engine")
        if "parallel" in spelled.user_fields and rejected["layout"]:
            free = ParsedWorkload(replace(spelled.workload, parallel=Parallel()), spelled.user_fields - {"parallel"})
            yield replace(self.question, spelled=free), msg("relax.without-layout")

    def _others(self) -> Iterator[Change]:
        """Yield questions with more GPUs or a narrower precision if memory is short, or other GPU counts if one is required."""
        if smallest_shortfall(self.results, "memory") is not None:
            yield from self._more_gpus(self.question)
            yield from self._narrower_precision()
            if self.question.query.gpu and self.question.query.gpus:
                for changed, message in self._more_gpus(self._with(gpu=None)):
                    yield changed, msg("relax.both", one=msg("relax.without", flag="--gpu"), other=message)
        if self.question.query.gpus is not None:
            low, high = self.question.query.gpus
            yield from self._first_count(count for count in reversed(GPU_COUNTS) if count < low)
            yield from self._first_count(count for count in GPU_COUNTS if high < count <= MACHINE_GPUS)

    def _with(self, **changed: Any) -> Question:
        return replace(self.question, query=replace(self.question.query, **changed))

    def _with_workload(self, name: str, value: Any) -> Question:
        spelled = self.question.spelled
        stated = spelled.user_fields - {name} if value is None else spelled.user_fields | {name}
        return replace(self.question, spelled=ParsedWorkload(replace(spelled.workload, **{name: value}), stated))

    def _first_count(self, counts: Iterator[float]) -> Iterator[Change]:
        """Yield the question with the first of these numbers of GPUs that has an answer."""
        for count in counts:
            if has_answer(changed := self._with(gpus=(count, count))):
                yield changed, msg("relax.gpus", value=f"{count:g}")
                return

    def _more_gpus(self, question: Question) -> Iterator[Change]:
        """Yield a question with the fewest GPUs whose memory suffices, whatever the cost and time."""
        low, high = question.query.gpus or (1.0, 1.0 if question.query.buy else MACHINE_GPUS)
        for count in GPU_COUNTS:
            changed = replace(question, query=replace(question.query, gpus=(min(low, count), count)))
            if count > high and has_answer(_unlimited(changed)):
                yield changed, msg("relax.gpus", value=f"{low:g}..{count:g}")
                return

    def _narrower_precision(self) -> Iterator[Change]:
        """Yield the question with the widest precision whose memory suffices, whatever the cost and time."""
        if not self.question.modelled or not self.question.spelled.workload.generating:
            return
        now = self.screened.request.workload.precision
        for precision in PRECISIONS[PRECISIONS.index(now) + 1 :] if now in PRECISIONS else ():
            changed = self._with_workload("precision", precision)
            if has_answer(_unlimited(changed)):
                yield changed, msg("relax.precision", value=precision)
                return

    def _missing_memory(self) -> list[Message]:
        """Return a message with the share of memory the nearest group of GPUs lacks, used if nothing else can be proposed."""
        short = smallest_shortfall(self.results, "memory")
        return [] if short is None else [msg("relax.memory", share=f"{short:.0%}")]


def _tried(changes: Sequence[Change]) -> list[Message]:
    """Return the messages of those changes of the question that give an answer when tried."""
    return [message for changed, message in changes if has_answer(changed)]


def _pairs(changes: Sequence[Change]) -> Iterator[Message]:
    """Yield messages of changes that do not suffice alone, each with the budget or deadline it needs in addition."""
    for changed, message in changes:
        try:
            screened = changed.evaluated()
        except WhichGpuError:
            continue
        constraints = screened.selection.constraints
        for name in (name for name in MONEY_AND_TIME if getattr(constraints, name) is not None):
            other = smallest_change(name, constraints, screened.request.workload.rate, partial(_rank, screened))
            if other is not None:
                yield msg("relax.both", one=message, other=other)


def _unlimited(question: Question) -> Question:
    """Return the question without budget and deadline."""
    return replace(question, query=replace(question.query, budget=None, deadline=None))


def _looser(workload: Workload, names: tuple[str, ...], factor: float) -> Message:
    flags = tuple(f"--{name.removesuffix('_max')} {_milliseconds(workload, name, factor)}ms" for name in names)
    return msg("relax.latency", share=f"{factor - 1:.0%}", flags=flags)


def _milliseconds(workload: Workload, name: str, factor: float) -> str:
    """Return the latency objective `name` times `factor`, in milliseconds as text, rounded up."""
    return round_up(getattr(workload, name) * factor * 1000)
