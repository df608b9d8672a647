"""Measure this machine's GPU, verify an estimate on it, and share and import measurement records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.measure.machine import no_gpu
from whichgpu.api.workloads.estimate import EstimateAnswer, estimate_workload
from whichgpu.base.display import Displayable
from whichgpu.base.errors import AmbiguousName, NoAnswer, WhichGpuError
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_memory
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.estimate.time.calibration import load_calibration
from whichgpu.measure import records
from whichgpu.measure.bench.case import Bench, CannotRun, Conditions, OperatorCase, PreparedStep, StepCase, Timing
from whichgpu.measure.bench.operator_cases import operator_cases
from whichgpu.measure.bench.runnable import why_not_runnable
from whichgpu.measure.bench.runner import Claim, LeftOut, MeasuredCase, Progress, Runner
from whichgpu.measure.bench.step_cases import step_cases
from whichgpu.measure.clock import SystemClock
from whichgpu.measure.drivers.probe import DriverUnavailable, Probe
from whichgpu.measure.drivers.vendors import open_probes
from whichgpu.measure.host import read_host
from whichgpu.measure.match import match_card, matched_gpu
from whichgpu.measure.physics import peak_share
from whichgpu.measure.record import MeasuredMachine, PredictedTime, Record, micro_result, stamp, step_result, with_digest
from whichgpu.measure.watcher import Clock
from whichgpu.workload.spelling import ParsedWorkload, fill_defaults, from_object

NOTHING = "error.no-gpu-to-measure"
MEMORY_SHARE = 0.95  # A step to verify may take at most this share of the free memory.


class OpenedBench(Bench, Protocol):
    """A benchmark runner that knows the name of its GPU."""

    @property
    def name(self) -> str:
        """Return the name of the GPU as the driver reports it."""


Opener = Callable[[], OpenedBench]


class MeasureAnswer(Displayable, msgspec.Struct, frozen=True):
    """A measurement record, the path of its file, and the benchmarks that were skipped with the reasons."""

    record: Record
    gpu_name: str
    path: str | None
    left_out: tuple[LeftOut, ...]


class VerifyAnswer(Displayable, msgspec.Struct, frozen=True):
    """An estimate, the time measured on this machine's GPU, and whether that is within the predicted range."""

    claim: EstimateAnswer
    measured: Timing
    inside: bool
    ratio: float  # measured time divided by predicted time
    conditions: Conditions


def measure(
    seconds: float = 180.0,
    catalog: Catalog | None = None,
    keep: bool = True,
    progress: Progress = lambda _: None,
    opener: Opener | None = None,
    clock: Clock | None = None,
) -> MeasureAnswer:
    """Measure this machine's GPU for `seconds`, fit its own calibration, and store the record if `keep`."""
    catalog, clock = catalog or Catalog(), clock or SystemClock()
    with _Machine(catalog, opener) as machine:
        gpu, lookups = machine.gpu, lookup_cache(catalog, own=False)
        runner = Runner(machine.bench, seconds, clock.now, machine.reading, progress)
        runner.micros(operator_cases(gpu, machine.bench.free_bytes(), len(machine.cards) > 1))
        runner.steps(step_cases(gpu), lambda step: _claim(step.request, lookups))
        record = _record(machine, runner, lookups, stamp(clock.date()))
    path = str(records.save_record(record)) if keep and (record.micro or record.steps) else None
    return MeasureAnswer(record, gpu.name, path, tuple(runner.left_out))


def verify(
    spelled: ParsedWorkload, catalog: Catalog | None = None, own: bool = True, opener: Opener | None = None
) -> VerifyAnswer:
    """Run the step that a request describes on this machine's GPU, and compare its time with the estimate."""
    catalog = catalog or Catalog()
    with _Machine(catalog, opener) as machine:
        lookups = lookup_cache(catalog, own=own)
        spelled = _on_this_gpu(spelled, machine.gpu, lookups)
        claim = estimate_workload(spelled, lookups)
        if claim.time is None:
            raise NoAnswer("no-time", msg("error.verify-no-time"), msg("hint.verify"))
        shape = lookups.shape_for(spelled.workload)
        plan = PreparedStep(fill_defaults(spelled.workload, shape), shape)
        free = machine.bench.free_bytes()
        why = why_not_runnable(plan.workload, shape)
        if why is None and claim.memory.value > MEMORY_SHARE * free:
            why = msg("measure.no-memory", needed=format_memory(int(claim.memory.value)), free=format_memory(free))
        if why is not None:
            raise NoAnswer("cannot-verify", msg("error.cannot-verify", why=why), msg("hint.verify"))
        conditions: list[Conditions] = []
        try:
            measured = machine.bench.step(plan, lambda: conditions.append(machine.reading()))
        except CannotRun as problem:
            raise NoAnswer("cannot-verify", msg("error.cannot-verify", why=problem.why), msg("hint.verify")) from problem
    inside = claim.time.low <= measured.seconds <= claim.time.high
    return VerifyAnswer(
        claim, measured, inside, measured.seconds / claim.time.value, conditions[-1] if conditions else Conditions()
    )


def share_record(path: Path) -> Record:
    """Write the newest record of this machine to a file, without identifying details, and return it."""
    return records.export_record(path)


def import_record(path: Path, catalog: Catalog | None = None, today: date | None = None) -> Record:
    """Check the measurement record of another user in a file, store it and return it."""
    return records.import_record(path, catalog or Catalog(), load_calibration(), today or date.today())


class _Machine:
    """The GPU of this machine: its driver, its row of the catalog, and the runner of benchmarks on it."""

    def __init__(self, catalog: Catalog, opener: Opener | None) -> None:
        self._probe, absences = open_probes()
        try:
            self.cards = self._probe.cards() if self._probe else ()
            if not self.cards:
                raise no_gpu(absences, NOTHING)
            self.bench = (opener or _torch_bench)()
            self.card = next((card for card in self.cards if card.name == self.bench.name), self.cards[0])
            match = match_card(self.card, catalog)
            catalog_gpu = matched_gpu(match, catalog)
            if catalog_gpu is None:
                why = match.why or msg("match.none", name=self.card.name)
                raise NoAnswer("unknown-gpu-here", msg("error.unknown-gpu-here", why=why), msg("hint.doctor"))
            self.gpu: Gpu = catalog_gpu
        except DriverUnavailable as problem:
            self.close()
            raise no_gpu(absences, NOTHING) from problem
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> _Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the driver."""
        if self._probe:
            self._probe.close()

    def reading(self) -> Conditions:
        """Return the present clocks, temperature and power of the GPU."""
        return reading(self._probe, self.card.index)


def reading(probe: Probe | None, index: int) -> Conditions:
    """Return clocks, temperature and power of one GPU; empty if the driver does not answer."""
    try:
        now = next(one for one in probe.samples() if one.index == index) if probe else None
    except (DriverUnavailable, StopIteration):
        now = None
    if now is None:
        return Conditions()
    return Conditions(now.sm_clock_hz, now.temperature_celsius, now.power_watts, now.throttle)


def _torch_bench() -> OpenedBench:
    from whichgpu.measure.bench.torch_bench import open_bench

    return open_bench()


def _claim(request: Mapping[str, Any], lookups: LookupCache) -> Claim:
    """Return a step ready to run, with the bytes of GPU memory it is estimated to need."""
    try:
        spelled = from_object(request)
        shape = lookups.shape_for(spelled.workload)
        answer = estimate_workload(spelled, lookups)
    except WhichGpuError as problem:
        raise CannotRun(problem.message) from problem
    return PreparedStep(fill_defaults(spelled.workload, shape), shape), int(answer.memory.high)


def _record(machine: _Machine, runner: Runner, lookups: LookupCache, day: str) -> Record:
    gpu = machine.gpu
    where = MeasuredMachine(gpu.id, len(machine.cards), machine.card.driver, read_host().cpu, machine.bench.about())
    operators = [_micro(timing, gpu) for timing in runner.taken if isinstance(timing.case, OperatorCase)]
    timed = [_step(timing, lookups) for timing in runner.taken if isinstance(timing.case, StepCase)]
    record = Record(day, where, tuple(operators), tuple(timed))
    if timed:
        record = replace(record, fitted=records.fit_record(record, lookups.catalog, load_calibration()))
    return with_digest(record)


def _micro(timing: MeasuredCase, gpu: Gpu) -> Any:
    assert isinstance(timing.case, OperatorCase)
    share = peak_share(timing.case.kind, timing.case.dtype, timing.case.rate(timing.timing.seconds), gpu)
    return micro_result(timing, timing.case, share)


def _step(timing: MeasuredCase, lookups: LookupCache) -> Any:
    assert isinstance(timing.case, StepCase)
    estimate = estimate_workload(from_object(timing.case.request), lookups).time
    predicted = PredictedTime(estimate.value, estimate.low, estimate.high, estimate.basis) if estimate else None
    return step_result(timing, timing.case, predicted)


def _on_this_gpu(spelled: ParsedWorkload, here: Gpu, lookups: LookupCache) -> ParsedWorkload:
    """Return the request on this machine's GPU if it names none or an ambiguous one; raise an error if it names another."""
    name = spelled.workload.gpu
    count = None
    try:
        device = lookups.device(name) if name else None
        gpu, count = (device.gpu, device.count) if device else (here, None)
    except AmbiguousName as several:
        if here.id not in several.choices and here.name not in several.choices:
            raise
        gpu = here
    if gpu.id != here.id:
        why = msg("verify.other-gpu", asked=gpu.name, here=here.name)
        raise NoAnswer("cannot-verify", msg("error.cannot-verify", why=why), msg("hint.verify"))
    workload = replace(spelled.workload, gpu=here.id, gpus=count or spelled.workload.gpus)
    return ParsedWorkload(workload, spelled.user_fields | {"gpu"})


def headline(answer: MeasureAnswer) -> Message:
    """Return a sentence on how far the measured steps of a record are from their predicted times."""
    judged = [step for step in answer.record.steps if step.inside is not None]
    inside = sum(bool(step.inside) for step in judged)
    count = len(answer.record.micro) + len(answer.record.steps)
    return msg("measure.headline", gpu=answer.gpu_name, n=count, steps=len(judged), inside=inside)
