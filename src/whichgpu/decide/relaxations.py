"""Where a question has no answer: the smallest changes that give one, each of them tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from whichgpu.base.errors import NoAnswer, WhichGpuError
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_seconds
from whichgpu.decide.candidates import Candidates
from whichgpu.decide.configurations.configuration import GroupResult
from whichgpu.decide.question import MACHINE, EvaluatedQuestion, Question
from whichgpu.decide.relax import MOVED, WAIVED, change_of_both, least_change, round_up, short_of
from whichgpu.decide.requirements import Requirements
from whichgpu.workload.spelling import Spelled
from whichgpu.workload.workload import Parallel, Workload

SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)  # GPUs tried where fewer do not hold it
NARROWER = ("fp32", "bf16", "fp16", "fp8", "int8", "int4")
FILTERS = ("needs", "provider", "region", "max_latency", "term", "min_memory", "instance", "gpu", "max_age")
OBJECTIVES = ("tpot_max", "ttft_max")
LATE = ("latency", "copies", "gpus-in-all", "budget")  # what a looser objective may mend
FARTHEST, NEAR = 1000.0, 1.03  # times an objective that is tried at most; how near the smallest that will do is sought
USUAL = {one.name: one.default for one in fields(Requirements)}


def refusal(seen: EvaluatedQuestion, told: Candidates, outcomes: Sequence[GroupResult], sought: Question) -> NoAnswer:
    """Which wish removed how many, and the least changes that would help."""
    counts = told.rejected.most_common()
    reasons = tuple(
        msg("rejected.counted", why=msg(f"rejected.{name}", n=count), n=f"{count:,}") for name, count in counts if count
    )
    found = _Way(sought, seen, told, list(outcomes)).all()
    message = msg("error.nothing-recommended", day=seen.found.constraints.day.isoformat())
    if reasons:
        message = msg("error.because", what=message, why=reasons)
    if _by_default(seen, told):
        most = seen.asked.workload.tpot_max or 0.0
        message = msg("error.default-objective", what=message, time=format_seconds(most))
    return NoAnswer("nothing-fits", message, msg("hint.relax", ways=tuple(found)) if found else msg("hint.relax-filters"))


def _by_default(seen: EvaluatedQuestion, told: Candidates) -> bool:
    """Whether an objective nobody gave had a part in it."""
    workload, given = seen.asked.workload, seen.asked.given
    assumed = workload.serving and workload.tpot_max is not None and not {"tpot_max", "ttft_max"} & given
    return assumed and any(told.rejected[name] for name in LATE)


class _Way:
    """Changes of one question."""

    def __init__(self, sought: Question, seen: EvaluatedQuestion, told: Candidates, outcomes: list[GroupResult]) -> None:
        self.sought, self.seen, self.told, self.outcomes = sought, seen, told, outcomes

    def all(self) -> list[Message]:
        """Limits moved one at a time, filters left out one at a time; where neither is enough, two changes together."""
        filters = list(self._filters())
        found = [*self._limits(), *(one for change, one in filters if change.answers())]
        if not found and (both := change_of_both(self.seen.found.constraints, self.seen.settle)) is not None:
            found.append(both)
        if found:
            return found
        others = list(self._others())
        found = [one for change, one in others if change.answers()]
        return found or list(self._pairs([*filters, *others])) or self._hungry()

    def _limits(self) -> Iterator[Message]:
        """What the limits would have to be."""
        constraints, workload = self.seen.found.constraints, self.seen.asked.workload
        for name in (*MOVED, *WAIVED):
            if name in self.told.missed and self.told.missed[name].any():
                change = least_change(name, constraints, workload.rate, self.seen.settle)
                if change is not None:
                    yield change
        if short_of(self.outcomes, "latency") is not None:
            yield from self._objectives(workload)

    def _objectives(self, workload: Workload) -> Iterator[Message]:
        """Each objective by itself, else both by the same share."""
        named = [name for name in OBJECTIVES if getattr(workload, name)]
        alone = [(one, share) for one in named if (share := self._share(workload, (one,))) is not None]
        if not alone and len(named) > 1 and (share := self._share(workload, tuple(named))) is not None:
            flags = tuple(_objective(one, getattr(workload, one) * share) for one in named)
            yield msg("relax.latency", share=f"{share - 1:.0%}", flags=flags)
        for one, share in alone:
            flag = _objective(one, getattr(workload, one) * share)
            yield msg("relax.latency", share=f"{share - 1:.0%}", flags=(flag,))

    def _share(self, workload: Workload, names: tuple[str, ...]) -> float | None:
        """The least factor, nearly, by which objectives must be looser; None where none would do."""

        def holds(factor: float) -> bool:
            looser: dict[str, Any] = {one: _rounded(getattr(workload, one) * factor) for one in names}
            spelled = Spelled(replace(self.sought.spelled.workload, **looser), self.sought.spelled.given | set(names))
            return replace(self.sought, spelled=spelled).answers()

        low, high = 1.0, 1.0 + max(short_of(self.outcomes, "latency") or 0.0, NEAR - 1.0)
        while not holds(high):
            low, high = high, high * 2.0
            if high > FARTHEST:
                return None
        while high / low > NEAR:
            middle = (low * high) ** 0.5
            low, high = (low, middle) if holds(middle) else (middle, high)
        return high

    def _filters(self) -> Iterator[tuple[Question, Message]]:
        """The question with a filter less."""
        query = self.sought.query
        for name in FILTERS:
            usual: Any = USUAL[name]
            if getattr(query, name):
                yield self._with(**{name: usual}), msg("relax.without", flag=f"--{name.replace('_', '-')}")
        if "engine" in self.sought.spelled.given and self.told.rejected["engine"]:
            yield self._working("engine", None), msg("relax.without", flag="--engine")
        if "parallel" in self.sought.spelled.given and self.told.rejected["layout"]:
            spelled = self.sought.spelled
            free = Spelled(replace(spelled.workload, parallel=Parallel()), spelled.given - {"parallel"})
            yield replace(self.sought, spelled=free), msg("relax.without-layout")

    def _others(self) -> Iterator[tuple[Question, Message]]:
        """With more GPUs or a narrower precision, where memory is what is wanting; with a number of GPUs that machines have."""
        query = self.sought.query
        if short_of(self.outcomes, "memory") is not None:
            yield from self._larger()
            yield from self._narrower()
        if query.gpus is not None:
            yield from self._fewer(query.gpus[0])
            yield from self._more(query.gpus[1])

    def _with(self, **changed: Any) -> Question:
        return replace(self.sought, query=replace(self.sought.query, **changed))

    def _working(self, name: str, value: Any) -> Question:
        spelled = self.sought.spelled
        given = spelled.given - {name} if value is None else spelled.given | {name}
        return replace(self.sought, spelled=Spelled(replace(spelled.workload, **{name: value}), given))

    def _fewer(self, low: float) -> Iterator[tuple[Question, Message]]:
        for least in reversed(SIZES):
            if least < low and (one := self._with(gpus=(least, least))).answers():
                yield one, msg("relax.gpus", value=f"{least:g}")
                return

    def _more(self, high: float) -> Iterator[tuple[Question, Message]]:
        for least in SIZES:
            if high < least <= MACHINE and (one := self._with(gpus=(least, least))).answers():
                yield one, msg("relax.gpus", value=f"{least:g}")
                return

    def _larger(self) -> Iterator[tuple[Question, Message]]:
        """The fewest GPUs that hold it, whatever they cost and however long they take."""
        low, high = self.sought.query.gpus or (1.0, 1.0 if self.sought.query.buy else MACHINE)
        for most in SIZES:
            one = self._with(gpus=(min(low, most), most))
            if most > high and _unbound(one).answers():
                yield one, msg("relax.gpus", value=f"{low:g}..{most:g}")
                return

    def _narrower(self) -> Iterator[tuple[Question, Message]]:
        if not self.sought.modelled or not self.sought.spelled.workload.generating:
            return
        now = self.seen.asked.workload.precision
        for precision in NARROWER[NARROWER.index(now) + 1 :] if now in NARROWER else ():
            one = self._working("precision", precision)
            if _unbound(one).answers():
                yield one, msg("relax.precision", value=precision)
                return

    def _pairs(self, changes: Sequence[tuple[Question, Message]]) -> Iterator[Message]:
        """A change that is not enough by itself, with the budget or the deadline it then takes."""
        for change, one in changes:
            try:
                seen = change.evaluated()
            except WhichGpuError:
                continue
            for name in ("budget", "deadline"):
                constraints = seen.found.constraints
                if getattr(constraints, name) is None:
                    continue
                other = least_change(name, constraints, seen.asked.workload.rate, seen.settle)
                if other is not None:
                    yield msg("relax.both", one=one, other=other)

    def _hungry(self) -> list[Message]:
        """How far the nearest group is from holding it, where nothing else can be said."""
        short = short_of(self.outcomes, "memory")
        return [] if short is None else [msg("relax.memory", share=f"{short:.0%}")]


def _unbound(one: Question) -> Question:
    """Without budget and deadline."""
    return replace(one, query=replace(one.query, budget=None, deadline=None))


def _objective(name: str, seconds: float) -> str:
    return f"--{name.removesuffix('_max')} {round_up(seconds * 1000)}ms"


def _rounded(seconds: float) -> float:
    """As it is told."""
    return float(round_up(seconds * 1000)) / 1000.0
