"""Plausibility checks of a record: no rate above the chip's peak or bandwidth, no invalid time, no unknown GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, timedelta
from math import inf, isfinite

from whichgpu.base.dates import first_day, is_date
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_bandwidth, significant
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.calibration import Calibration, load_calibration
from whichgpu.measure.bench.case import PEAK_KINDS, operator_work
from whichgpu.measure.fit import FASTEST_FLOOR_SHARE, SLOWEST_RATIO, Example, example, shipped_seconds
from whichgpu.measure.record import MicroResult, Record, StepResult

ABOVE_PEAK = 1.05  # A rate may exceed the stated peak by this factor, since clocks may be higher than those of the datasheet.
# An operator slower than this many times its time at the chip's peak or bandwidth, and than the allowance for launching it, is
# not believed: awkward shapes reach a tenth of the peak, and a throttled chip a tenth of that (assumed).
SLOWEST_OPERATOR_RATIO = 100.0
LAUNCH_ALLOWANCE = 1e-3  # Seconds allowed for launching an operator (assumed).
EARLIEST_RECORD = date(2015, 1, 1)
MAX_SIZE = 1 << 48  # Largest dimension or number of bytes of a case (assumed).
MAX_CASES = 500  # Most cases in one record (assumed; a full measurement has about a hundred).
MAX_STEP_SECONDS = 3600.0  # Longest plausible step in seconds (assumed).
MEMORY_KINDS = ("copy", "read")
BOUNDS = {"temperature_celsius": (-60, 150), "sm_clock_hz": (0, 20 * 10**9), "power_watts": (0, 5000)}

Ask = Callable[[StepResult, Gpu, Catalog], Example]


def find_problems(
    record: Record, catalog: Catalog, today: date, ask: Ask = example, calibration: Calibration | None = None
) -> tuple[Message, ...]:
    """Return messages about implausible entries of a measurement record; `ask` estimates a step (replaced in tests)."""
    return tuple(_problems(record, catalog, today, ask, calibration or load_calibration()))


def peak_share(result_kind: str, dtype: str, rate: float, gpu: Gpu) -> float | None:
    """Return an operator's rate (FLOP/s or B/s) over the chip's peak or memory bandwidth; None if that is unknown."""
    nominal = gpu.memory_bandwidth if result_kind in MEMORY_KINDS else None
    if result_kind in PEAK_KINDS:
        nominal = gpu.peaks.get(dtype)
    return rate / nominal if nominal else None


def _problems(record: Record, catalog: Catalog, today: date, ask: Ask, calibration: Calibration) -> Iterator[Message]:
    gpu = catalog.gpu_by_id.get(record.where.gpu)
    if gpu is None:
        yield msg("record.unknown-gpu", gpu=record.where.gpu)
        return
    yield from _date(record, gpu, today)
    if not record.micro and not record.steps:
        yield msg("record.empty")
    if len(record.micro) + len(record.steps) > MAX_CASES:
        yield msg("record.too-many", most=MAX_CASES)
        return
    for micro in record.micro:
        yield from _times(micro)
        yield from _rate(micro, gpu)
    for place, step in enumerate(record.steps, start=1):
        yield from _times(step)
        try:
            case = ask(step, gpu, catalog)
            floor, expected = float(case.floors.sum()), shipped_seconds(case, calibration)
            if not 0 < expected < inf:
                raise ValueError(expected)
        except (WhichGpuError, ValueError, TypeError, KeyError, ArithmeticError):
            yield msg("record.request", case=step.id[:80])
            continue
        yield from _bounds(place, step, gpu, floor, expected)


def _date(record: Record, gpu: Gpu, today: date) -> Iterator[Message]:
    day = record.made[:10]
    day_measured = first_day(day) if is_date(day) and len(day) == 10 else None
    if day_measured is None or not EARLIEST_RECORD <= day_measured <= today + timedelta(days=1):
        yield msg("record.date", date=record.made[:40])
    elif gpu.launch_date and is_date(gpu.launch_date) and day_measured < first_day(gpu.launch_date) - timedelta(days=365):
        yield msg("record.before-launch", date=day, gpu=gpu.name, launch=gpu.launch_date)


def _times(result: MicroResult | StepResult) -> Iterator[Message]:
    numbers = (result.low, result.seconds, result.high)
    if not all(isfinite(number) and 0 < number <= MAX_STEP_SECONDS for number in numbers) or list(numbers) != sorted(numbers):
        yield msg("record.time", case=result.id[:80])
    if result.runs < 1:
        yield msg("record.time", case=result.id[:80])
    for name, (low, high) in BOUNDS.items():
        value = getattr(result.conditions, name)
        if value is not None and not low <= value <= high:
            yield msg("record.conditions", case=result.id[:80], what=name)


def _rate(micro: MicroResult, gpu: Gpu) -> Iterator[Message]:
    if not all(0 < size <= MAX_SIZE for size in micro.sizes.values()):
        yield msg("record.size", case=micro.id[:80])
        return
    if micro.seconds <= 0 or micro.kind not in (*MEMORY_KINDS, *PEAK_KINDS):
        return
    try:
        work = operator_work(micro.kind, micro.sizes)
    except KeyError:
        return
    if abs(micro.rate * micro.seconds / work - 1) > 0.01:
        yield msg("record.rate", case=micro.id[:80])
    share = peak_share(micro.kind, micro.dtype, work / micro.seconds, gpu)
    limit = 1.0 if micro.kind in MEMORY_KINDS else ABOVE_PEAK
    if share is not None and share > limit:
        rate = format_bandwidth(int(micro.rate)) if micro.kind in MEMORY_KINDS else f"{significant(micro.rate / 1e12)} TFLOP/s"
        yield msg("record.above", case=micro.id[:80], rate=rate, gpu=gpu.name)
    if share is not None and micro.seconds > max(LAUNCH_ALLOWANCE, SLOWEST_OPERATOR_RATIO * share * micro.seconds):
        max_ratio = f"{SLOWEST_OPERATOR_RATIO:g}"
        yield msg("record.slow-operator", case=micro.id[:80], ratio=significant(1 / share), gpu=gpu.name, most=max_ratio)


def _bounds(place: int, step: StepResult, gpu: Gpu, floor: float, expected: float) -> Iterator[Message]:
    """Yield messages if a step is faster than the roofline or slower than any plausible state of the GPU."""
    if 0 < step.seconds < FASTEST_FLOOR_SHARE * floor:
        yield msg("record.below-floor", case=step.id[:80], seconds=significant(step.seconds), least=significant(floor))
    if not step.seconds <= SLOWEST_RATIO * expected:
        values = {"seconds": significant(step.seconds), "expected": significant(expected), "gpu": gpu.name}
        ratio = significant(step.seconds / expected)
        yield msg("record.too-slow", place=place, case=step.id[:80], ratio=ratio, most=f"{SLOWEST_RATIO:g}", **values)
