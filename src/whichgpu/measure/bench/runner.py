"""Run cases within a time limit; record their timings and conditions, and why some were skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_memory
from whichgpu.measure.bench.case import Bench, BusyCallback, CannotRun, Conditions, OperatorCase, PreparedStep, StepCase, Timing

MEMORY_SHARE = 0.9  # Largest share of the free memory that a case may use.
MICRO_SHARE = 0.25  # Share of the time limit for single operators.
FIRST_SHARE = 0.05  # Share of the time limit that a case is assumed to need before one of its kind has run.

Now = Callable[[], float]
Reading = Callable[[], Conditions]
Progress = Callable[[str], None]
Claim = tuple[PreparedStep, int]  # A prepared step, and the bytes of memory it is estimated to need.


class MeasuredCase(msgspec.Struct, frozen=True):
    """An operator or step that was measured, with its timing and the GPU's clocks, temperature and power meanwhile."""

    case: OperatorCase | StepCase
    timing: Timing
    conditions: Conditions


class LeftOut(msgspec.Struct, frozen=True):
    """An operator or step that was not measured: its id, and why."""

    id: str
    why: Message


class Runner:
    """Measures operators and steps one after another until `seconds` are over; results are in `taken` and `left_out`."""

    def __init__(self, bench: Bench, seconds: float, now: Now, reading: Reading, progress: Progress = lambda _: None) -> None:
        self._bench, self._now, self._reading, self._progress = bench, now, reading, progress
        self._start, self._seconds = now(), seconds
        self.taken: list[MeasuredCase] = []
        self.left_out: list[LeftOut] = []
        self._took: dict[str, float] = {}  # Seconds that the last case of each kind took.

    def micros(self, cases: Iterable[OperatorCase]) -> None:
        """Measure single operators, within the share MICRO_SHARE of the time limit."""
        for case in cases:
            self._one(case, case.kind, case.memory, MICRO_SHARE, partial(self._bench.micro, case))

    def steps(self, cases: Iterable[StepCase], claim: Callable[[StepCase], Claim]) -> None:
        """Measure steps until the time limit; `claim` prepares a step and estimates its memory in bytes."""
        for case in cases:
            try:
                plan, memory_bytes = claim(case)
            except CannotRun as problem:
                self.left_out.append(LeftOut(case.id, problem.why))
                continue
            kind = f"{plan.workload.task}/{plan.workload.engine}"
            self._one(case, kind, memory_bytes, 1.0, partial(self._bench.step, plan))

    def _one(
        self, case: OperatorCase | StepCase, kind: str, memory: int, share: float, run: Callable[[BusyCallback], Timing]
    ) -> None:
        """Measure one case, or skip it if it needs too many bytes (`memory`) or too long for its `share` of the time limit."""
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
        conditions: list[Conditions] = []
        try:
            timing = run(lambda: conditions.append(self._reading()))
        except CannotRun as problem:
            self.left_out.append(LeftOut(id, problem.why))
        except Exception as problem:  # A failing case must not stop the others.
            self.left_out.append(LeftOut(id, msg("measure.failed", why=f"{type(problem).__name__}: {str(problem)[:200]}")))
        else:
            self.taken.append(MeasuredCase(case, timing, conditions[-1] if conditions else Conditions()))
        self._took[kind] = self._now() - before
