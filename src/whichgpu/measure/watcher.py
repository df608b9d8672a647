"""The watch loop: read the GPUs, add to the totals, diagnose, wait. The caller provides clock and probe."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Protocol

import msgspec
from msgspec.structs import replace

from whichgpu.base.money import Money
from whichgpu.measure.drivers.card import Card, Sample
from whichgpu.measure.drivers.probe import DriverUnavailable, Probe
from whichgpu.measure.host_load import HostLoad, LoadReader
from whichgpu.measure.idle import IdleRule, IdleState, advance_idle_rule
from whichgpu.measure.meter import Bill, UsageTotals, add_usage, all_idle, make_bill
from whichgpu.measure.report.diagnose import Bottleneck, find_bottlenecks

WINDOW = 30  # Number of latest readings that a diagnosis uses.
MAX_RETRY_SECONDS = 30.0  # Longest pause in seconds between attempts while the driver does not answer.
COUNTDOWN_TICK = 1.0  # Seconds between readings during a countdown.


class Clock(Protocol):
    """Interface of the clock that the watch loop reads and waits on."""

    def now(self) -> float:
        """Return monotonic seconds."""

    def date(self) -> datetime:
        """Return date and time with time zone."""

    def pause(self, seconds: float) -> bool:
        """Wait some seconds; return whether the user pressed Enter meanwhile, which cancels a countdown."""


class WatchSettings(msgspec.Struct, frozen=True):
    """Settings of a watch: interval and duration in seconds, price, idle rule, and whether to diagnose."""

    every: float = 2.0
    price: Money | None = None
    rule: IdleRule = IdleRule(None)
    lasting: float | None = None
    once: bool = False
    explain: bool = False


class WatchEvent(msgspec.Struct, frozen=True):
    """An event of a watch: idle, countdown, cancelled-busy, cancelled-user, run, lost, back, driver-gone, driver-back."""

    kind: str
    gpu: int | None = None


class WatchReading(msgspec.Struct, frozen=True):
    """One reading of all GPUs (the last known of a lost one), with bill so far, state of the idle rule, and events."""

    time: str
    gpus: tuple[Sample, ...]
    answering: bool
    bill: Bill
    idle_seconds: float
    countdown_seconds: float | None
    events: tuple[WatchEvent, ...]
    verdicts: tuple[Bottleneck, ...]


def watch_gpus(
    probe: Probe, cards: Sequence[Card], clock: Clock, settings: WatchSettings, load: LoadReader | None = None
) -> Iterator[WatchReading]:
    """Yield readings until the time is over or the idle rule fires; the caller prints them and runs the idle command."""
    started = last = clock.now()
    last_samples = tuple(card.now for card in cards)
    tally, idle = UsageTotals(), IdleState()
    history: deque[tuple[Sample, ...]] = deque(maxlen=WINDOW)
    loads: deque[HostLoad] = deque(maxlen=WINDOW)
    answering, cancelled, failures = True, False, 0
    while True:
        samples, events = _read(probe, last_samples, settings.explain, answering)
        answering = samples is not None
        last_samples = last_samples if samples is None else _merged(last_samples, samples)
        failures = 0 if answering else failures + 1
        now = clock.now()
        seconds, last = now - last, now
        fresh = answering and seconds <= 3 * settings.every + MAX_RETRY_SECONDS
        tally = add_usage(tally, seconds, last_samples, trusted=fresh)
        waits = all_idle(last_samples) if answering else None
        idle, idle_events = advance_idle_rule(idle, settings.rule, seconds, waits if fresh or waits is False else None, cancelled)
        events += [WatchEvent(kind) for kind in idle_events]
        verdicts = _explained(history, loads, last_samples, cards, load) if settings.explain and answering else ()
        time, bill = clock.date().isoformat(timespec="seconds"), make_bill(tally, settings.price)
        yield WatchReading(time, last_samples, answering, bill, idle.idle, idle.left, tuple(events), verdicts)
        if settings.once or idle.done or (settings.lasting is not None and now - started >= settings.lasting):
            return
        cancelled = clock.pause(_pause(settings, idle, failures, started, now))


def _pause(settings: WatchSettings, idle: IdleState, failures: int, started: float, now: float) -> float:
    """Return the seconds until the next reading: fewer in a countdown, more while the driver does not answer."""
    pause = min(settings.every, COUNTDOWN_TICK) if idle.left is not None else settings.every
    if failures > 1:
        pause = max(pause, min(MAX_RETRY_SECONDS, settings.every * 2 ** min(failures - 1, 10)))
    if settings.lasting is not None:
        pause = min(pause, max(0.0, started + settings.lasting - now))
    return pause


def _read(
    probe: Probe, last_samples: tuple[Sample, ...], traffic: bool, answering: bool
) -> tuple[tuple[Sample, ...] | None, list[WatchEvent]]:
    """Return a sample of each GPU (None if the driver does not answer) and the events since the last reading."""
    try:
        samples = probe.samples(traffic)
    except DriverUnavailable:
        samples = ()
    if not samples:
        return None, [WatchEvent("driver-gone")] if answering else []
    events = [] if answering else [WatchEvent("driver-back")]
    before = {sample.index for sample in last_samples if sample.lost}
    after = {sample.index for sample in samples if sample.lost}
    events += [WatchEvent("lost", index) for index in sorted(after - before)]
    events += [WatchEvent("back", index) for index in sorted(before - after)]
    return samples, events


def _merged(last_samples: tuple[Sample, ...], samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
    """Return the new samples; a lost GPU keeps its last known sample, marked as lost."""
    before = {sample.index: sample for sample in last_samples}
    return tuple(
        replace(before[sample.index], lost=True) if sample.lost and sample.index in before else sample for sample in samples
    )


def _explained(
    history: deque[tuple[Sample, ...]],
    loads: deque[HostLoad],
    samples: tuple[Sample, ...],
    cards: Sequence[Card],
    load: LoadReader | None,
) -> tuple[Bottleneck, ...]:
    history.append(samples)
    if load is not None and (read := load.read()) is not None:
        loads.append(read)
    bottlenecks: list[Bottleneck] = []
    for card in cards:
        own = [sample for tick in history for sample in tick if sample.index == card.index]
        bottlenecks += find_bottlenecks(own, list(loads), card)
    return tuple(bottlenecks)
