"""Running cases within a time: what each took, under which conditions, and why some were left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_memory
from whichgpu.measure.bench.case import Bench, BusyCallback, CannotRun, Conditions, OperatorCase, PreparedStep, StepCase, Timing

MEMORY_SHARE = 0.9  # of what is free: never more
MICRO_SHARE = 0.25  # of the time
FIRST_SHARE = 0.05  # of the time, that a case is taken to need before one of its kind has run

Now = Callable[[], float]
Reading = Callable[[], Conditions]
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Claim:
    """A step made ready, and what it is said to need."""

    plan: PreparedStep
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Taken:
    """A case that was run."""

    case: OperatorCase | StepCase
    timing: Timing
    conditions: Conditions


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A case that was not, and why."""

    id: str
    why: Message


class Runner:
    """Runs cases one after another until the time is used up."""

    def __init__(self, bench: Bench, seconds: float, now: Now, reading: Reading, progress: Progress = lambda _: None) -> None:
        self._bench, self._now, self._reading, self._progress = bench, now, reading, progress
        self._start, self._seconds = now(), seconds
        self.taken: list[Taken] = []
        self.left_out: list[LeftOut] = []
        self._took: dict[str, float] = {}  # by kind, what the last one took

    def micros(self, cases: Iterable[OperatorCase]) -> None:
        """Operators, in a part of the time."""
        for case in cases:
            self._one(case, case.kind, case.memory, MICRO_SHARE, partial(self._bench.micro, case))

    def steps(self, cases: Iterable[StepCase], claim: Callable[[StepCase], Claim]) -> None:
        """Steps, in what is left."""
        for case in cases:
            try:
                ready = claim(case)
            except CannotRun as problem:
                self.left_out.append(LeftOut(case.id, problem.why))
                continue
            kind = f"{ready.plan.workload.task}/{ready.plan.workload.engine}"
            self._one(case, kind, ready.memory_bytes, 1.0, partial(self._bench.step, ready.plan))

    def _one(
        self, case: OperatorCase | StepCase, kind: str, memory: int, share: float, run: Callable[[BusyCallback], Timing]
    ) -> None:
        """One case, unless the last of its kind took longer than the time that is left."""
        before, id = self._now(), case.id
        if before - self._start + self._took.get(kind, FIRST_SHARE * share * self._seconds) > share * self._seconds:
            self.left_out.append(LeftOut(id, msg("measure.no-time")))
            return
        free = self._bench.free_bytes()
        if memory > MEMORY_SHARE * free:
            why = msg("measure.no-memory", needed=format_memory(memory), free=format_memory(free))
            self.left_out.append(LeftOut(id, why))
            return
        self._progress(id)
        seen: list[Conditions] = []
        try:
            timing = run(lambda: seen.append(self._reading()))
        except CannotRun as problem:
            self.left_out.append(LeftOut(id, problem.why))
        except Exception as problem:  # one case that fails must not cost the others
            self.left_out.append(LeftOut(id, msg("measure.failed", why=f"{type(problem).__name__}: {str(problem)[:200]}")))
        else:
            self.taken.append(Taken(case, timing, seen[-1] if seen else Conditions()))
        self._took[kind] = self._now() - before
