"""The meter's loop over hours that pass at once: bills, warnings, countdowns, lost GPUs and silent drivers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

import pytest

from tests.machines import GIB, JumpingClock, Played
from whichgpu.base.money import Money
from whichgpu.measure.drivers.card import Card, Sample
from whichgpu.measure.idle import IdleRule
from whichgpu.measure.watcher import WatchReading, WatchSettings, watch_gpus

PRICE = Money(Decimal(2), "USD")


def sample(load: int | None, index: int = 0, lost: bool = False) -> Sample:
    return Sample(
        index, utilisation_percent=load, memory_used_bytes=40 * GIB, memory_bytes=80 * GIB, power_watts=100.0, lost=lost
    )


def cards(count: int = 1) -> list[Card]:
    return [Card(index, "nvidia", "NVIDIA H200", sample(0, index)) for index in range(count)]


def readings(
    of: Callable[[int], Sequence[Sample] | None], settings: WatchSettings, count: int = 1, clock: JumpingClock | None = None
) -> list[WatchReading]:
    probe = Played(cards(count), of)
    return list(watch_gpus(probe, probe.cards(), clock or JumpingClock(), settings))


def kinds(readings: list[WatchReading]) -> list[str]:
    return [event.kind for reading in readings for event in reading.events]


def test_single_reading() -> None:
    samples = readings(lambda _: [sample(50)], WatchSettings(once=True))
    assert len(samples) == 1
    assert samples[0].gpus[0].utilisation_percent == 50
    assert samples[0].time == "2026-01-01T00:16:40+00:00"


def test_an_hour_at_two_dollars_of_which_half_idle() -> None:
    samples = readings(lambda tick: [sample(90 if tick <= 900 else 0)], WatchSettings(every=2, price=PRICE, lasting=3600))
    assert samples[-1].bill.money == Money(Decimal("2.0000"), "USD")
    assert samples[-1].bill.idle_money == Money(Decimal("1.0000"), "USD")
    assert samples[-1].idle_seconds == 1800
    assert samples[-1].bill.watt_hours == pytest.approx(100)


def test_a_warning_after_ten_idle_minutes() -> None:
    samples = readings(lambda _: [sample(0)], WatchSettings(every=2, rule=IdleRule(600), lasting=700))
    assert kinds(samples) == ["idle"]
    assert next(reading.idle_seconds for reading in samples if reading.events) == 600


def test_one_gpu_at_work_keeps_the_machine_from_being_idle() -> None:
    samples = readings(lambda _: [sample(0, 0), sample(70, 1)], WatchSettings(every=2, rule=IdleRule(60), lasting=600), count=2)
    assert kinds(samples) == []
    assert samples[-1].bill.idle_total_seconds == pytest.approx(300)


def test_the_countdown_ticks_each_second_and_ends_the_watch() -> None:
    clock = JumpingClock()
    samples = readings(lambda _: [sample(0)], WatchSettings(every=10, rule=IdleRule(60, 5, True)), clock=clock)
    assert kinds(samples) == ["idle", "countdown", "run"]
    assert clock.pauses == [10] * 6 + [1] * 5
    assert [reading.countdown_seconds for reading in samples][-6:] == [5, 4, 3, 2, 1, 0]


def test_enter_stops_a_countdown() -> None:
    samples = readings(
        lambda _: [sample(0)], WatchSettings(every=10, rule=IdleRule(60, 30, True), lasting=100), clock=JumpingClock(pressed=[8])
    )
    assert kinds(samples)[:3] == ["idle", "countdown", "cancelled-user"]
    assert "run" not in kinds(samples)


def test_work_stops_a_countdown() -> None:
    samples = readings(
        lambda tick: [sample(0 if tick < 10 else 60)],
        WatchSettings(every=10, rule=IdleRule(60, 30, True), lasting=200),
        clock=None,
    )
    assert kinds(samples) == ["idle", "countdown", "cancelled-busy"]


def test_unresponsive_driver_keeps_the_last_reading_and_is_polled_with_backoff() -> None:
    clock = JumpingClock()
    samples = readings(
        lambda tick: None if 3 <= tick < 12 else [sample(33)], WatchSettings(every=2, price=PRICE, lasting=400), clock=clock
    )
    assert kinds(samples) == ["driver-gone", "driver-back"]
    silent = [reading for reading in samples if not reading.answering]
    assert len(silent) == 9
    assert all(reading.gpus[0].utilisation_percent == 33 for reading in silent)
    assert max(clock.pauses) == 30
    assert samples[-1].bill.money == Money(Decimal("0.2222"), "USD")  # the rent runs on
    assert samples[-1].bill.utilisation_percent == pytest.approx(33)


def test_unresponsive_driver_never_triggers_the_command() -> None:
    settings = WatchSettings(every=2, rule=IdleRule(60, 10, True), lasting=7200)
    samples = readings(lambda tick: [sample(0)] if tick < 5 else None, settings)
    assert kinds(samples) == ["driver-gone"]


def test_lost_gpu_is_noted_once_with_its_last_reading() -> None:
    def of(tick: int) -> list[Sample]:
        return [sample(80, 0), Sample(1, lost=True) if 2 <= tick < 6 else sample(40, 1)]

    samples = readings(of, WatchSettings(every=1, lasting=10), count=2)
    assert [(event.kind, event.gpu) for reading in samples for event in reading.events] == [("lost", 1), ("back", 1)]
    lost = samples[3].gpus[1]
    assert (lost.lost, lost.utilisation_percent) == (True, 40)


def test_lost_gpu_is_not_idle_and_triggers_nothing() -> None:
    def of(tick: int) -> list[Sample]:
        return [sample(0, 0), Sample(1, lost=True)]

    samples = readings(of, WatchSettings(every=10, rule=IdleRule(60, 10, True), lasting=3600), count=2)
    assert "run" not in kinds(samples)
    assert "idle" not in kinds(samples)


def test_a_machine_that_slept_is_billed_but_was_not_idle() -> None:
    clock = JumpingClock()

    def of(tick: int) -> list[Sample]:
        if tick == 3:
            clock.seconds += 7200
        return [sample(0)]

    probe = Played(cards(), of)
    readings = list(
        watch_gpus(probe, probe.cards(), clock, WatchSettings(every=2, price=PRICE, rule=IdleRule(600), lasting=7300))
    )
    assert kinds(readings) == []
    bill = readings[-1].bill
    assert bill.money is not None
    assert bill.idle_money is not None
    assert bill.money.amount > 4
    assert bill.idle_money.amount < Decimal("0.1")


def test_explaining_needs_some_readings_and_then_gives_a_verdict() -> None:
    busy = Sample(0, utilisation_percent=99, memory_utilisation_percent=85, power_watts=500, power_limit_watts=700)
    samples = readings(lambda _: [busy], WatchSettings(every=1, lasting=5, explain=True))
    assert samples[1].verdicts == ()
    assert [verdict.id for verdict in samples[-1].verdicts] == ["memory"]


def test_the_end_is_not_overshot() -> None:
    clock = JumpingClock()
    readings(lambda _: [sample(50)], WatchSettings(every=60, lasting=90), clock=clock)
    assert clock.pauses == [60, 30]
