"""Money, idle time and the countdown: rules over seconds and samples, with no clock but the test's."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichgpu.base.errors import UsageError
from whichgpu.base.money import Money
from whichgpu.measure.drivers.card import Sample
from whichgpu.measure.idle import IdleEvent, IdleRule, IdleState, advance_idle_rule
from whichgpu.measure.meter import UsageTotals, add_usage, all_idle, is_idle, make_bill, parse_price

USD = Money(Decimal(2), "USD")
BUSY, IDLE = Sample(0, utilisation_percent=80, power_watts=300.0), Sample(0, utilisation_percent=0, power_watts=70.0)


@pytest.mark.parametrize(
    ("text", "amount"), [("2usd/h", "2"), ("0.35 USD/hour", "0.35"), ("1460usd/month", "2.0000"), ("0usd/h", "0")]
)
def test_prices_are_by_the_hour(text: str, amount: str) -> None:
    assert parse_price(text) == Money(Decimal(amount), "USD")


@pytest.mark.parametrize("text", ["2usd", "2", "usd/h", "-1usd/h", "2usd/day"])
def test_a_price_without_a_time_or_a_currency_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_price(text)


def test_cost_follows_the_clock_and_idle_cost_the_idle_gpus() -> None:
    tally = add_usage(UsageTotals(), 3600, [BUSY])
    tally = add_usage(tally, 1800, [IDLE])
    bill = make_bill(tally, USD)
    assert bill.money == Money(Decimal("3.0000"), "USD")
    assert bill.idle_money == Money(Decimal("1.0000"), "USD")
    assert bill.utilisation_percent == pytest.approx(80 * 3600 / 5400)
    assert bill.watt_hours == pytest.approx(300 + 35)


def test_of_several_gpus_each_wastes_its_share() -> None:
    bill = make_bill(add_usage(UsageTotals(), 3600, [BUSY, IDLE, IDLE, IDLE]), USD)
    assert bill.idle_money == Money(Decimal("1.5000"), "USD")


def test_without_a_price_there_is_no_money() -> None:
    bill = make_bill(add_usage(UsageTotals(), 60, [IDLE]), None)
    assert (bill.money, bill.idle_money, bill.idle_total_seconds) == (None, None, 60)


def test_implausible_reading_counts_for_cost_only() -> None:
    bill = make_bill(add_usage(UsageTotals(), 7200, [IDLE], trusted=False), USD)
    assert (bill.money, bill.idle_money) == (Money(Decimal("4.0000"), "USD"), Money(Decimal("0.0000"), "USD"))
    assert bill.utilisation_percent is None


def test_lost_gpu_does_not_count() -> None:
    lost = Sample(0, utilisation_percent=0, power_watts=500.0, memory_used_bytes=1 << 30, lost=True)
    bill = make_bill(add_usage(UsageTotals(), 3600, [lost]), USD)
    assert bill.idle_money == Money(Decimal("0.0000"), "USD")
    assert (bill.watt_hours, bill.peak_bytes, bill.utilisation_percent) == (None, None, None)


def test_the_peak_is_that_of_the_fullest_gpu() -> None:
    tally = add_usage(UsageTotals(), 1, [Sample(0, memory_used_bytes=5 << 30), Sample(1, memory_used_bytes=7 << 30)])
    tally = add_usage(tally, 1, [Sample(0, memory_used_bytes=1), Sample(1)])
    assert make_bill(tally, None).peak_bytes == 7 << 30


def test_backward_clock_costs_nothing() -> None:
    assert make_bill(add_usage(UsageTotals(), -5, [BUSY]), USD).money == Money(Decimal("0.0000"), "USD")


@pytest.mark.parametrize(
    ("sample", "waits"),
    [
        (Sample(0, utilisation_percent=0), True),
        (Sample(0, utilisation_percent=5), True),
        (Sample(0, utilisation_percent=6), False),
        (Sample(0, utilisation_percent=0, processes=3), True),  # a forgotten notebook holds its GPU and wastes it
        (Sample(0, processes=0), True),
        (Sample(0, processes=2), False),
        (Sample(0), None),
        (Sample(0, utilisation_percent=0, lost=True), None),
    ],
)
def test_when_a_gpu_waits(sample: Sample, waits: bool | None) -> None:
    assert is_idle(sample) is waits


def test_all_gpus_idle_only_if_each_is() -> None:
    unknown = Sample(0)
    assert all_idle([IDLE, IDLE]) is True
    assert all_idle([IDLE, BUSY]) is False
    assert all_idle([unknown, BUSY]) is False
    assert all_idle([unknown, IDLE]) is None
    assert all_idle([]) is None


# The idle rule


def play(
    rule: IdleRule, *ticks: tuple[float, bool | None] | tuple[float, bool | None, bool]
) -> tuple[IdleState, list[IdleEvent]]:
    watch = IdleState()
    events: list[IdleEvent] = []
    for tick in ticks:
        seconds, idle, cancelled = (*tick, False)[:3]
        watch, event = advance_idle_rule(watch, rule, seconds, idle, cancelled)
        events += event
    return watch, events


def test_warning_repeats_after_each_limit_period() -> None:
    rule = IdleRule(limit=600)
    assert play(rule, *[(60, True)] * 9)[1] == []
    assert play(rule, *[(60, True)] * 10)[1] == ["idle"]
    assert play(rule, *[(60, True)] * 30)[1] == ["idle"] * 3


def test_work_resets_the_idle_time() -> None:
    rule = IdleRule(limit=600)
    assert play(rule, (590, True), (2, False), (590, True))[1] == []


def test_failed_reading_neither_counts_nor_resets() -> None:
    rule = IdleRule(limit=600)
    watch, events = play(rule, (500, True), (3600, None), (90, True))
    assert events == []
    assert watch.idle == 590
    assert play(rule, (500, True), (3600, None), (100, True))[1] == ["idle"]


def test_without_a_command_nothing_is_ever_run() -> None:
    assert set(play(IdleRule(limit=1), *[(60, True)] * 100)[1]) == {"idle"}


def test_without_a_limit_no_message() -> None:
    assert play(IdleRule(limit=None, command=True), *[(3600, True)] * 10)[1] == []


def test_the_command_is_due_after_limit_and_countdown_and_once() -> None:
    rule = IdleRule(limit=600, countdown=60, command=True)
    ticks = [(60.0, True)] * 10 + [(1.0, True)] * 59
    watch, events = play(rule, *ticks)
    assert events == ["idle", "countdown"]
    assert watch.left == pytest.approx(1)
    watch, events = play(rule, *ticks, (1.0, True), (1.0, True), (3600.0, True))
    assert events == ["idle", "countdown", "run"]
    assert watch.done


def test_work_stops_a_countdown() -> None:
    rule = IdleRule(limit=10, countdown=60, command=True)
    watch, events = play(rule, (10, True), (30, True), (1, False), (9, True))
    assert events == ["idle", "countdown", "cancelled-busy"]
    assert (watch.left, watch.idle) == (None, 9)


def test_user_cancels_a_countdown_and_idle_time_resets() -> None:
    rule = IdleRule(limit=10, countdown=60, command=True)
    watch, events = play(rule, (10, True), (30, True), (1, True, True), (9, True))
    assert events == ["idle", "countdown", "cancelled-user"]
    assert watch.idle == 9
    assert play(rule, (5, True, True), (5, True))[1] == ["idle", "countdown"]  # Enter before a countdown does nothing


def test_countdown_pauses_while_the_driver_is_unresponsive() -> None:
    rule = IdleRule(limit=10, countdown=60, command=True)
    watch, events = play(rule, (10, True), (30, True), *[(3600.0, None)] * 5)
    assert watch.left == 30
    assert "run" not in events


moments = st.lists(st.tuples(st.floats(0, 4000), st.sampled_from([True, False, None]), st.booleans()), max_size=60)


@given(moments)
def test_command_runs_only_if_all_gpus_idled_through_limit_and_countdown(ticks: list[tuple[float, bool | None, bool]]) -> None:
    rule = IdleRule(limit=600, countdown=60, command=True)
    watch, waited, runs = IdleState(), 0.0, 0
    for seconds, idle, cancelled in ticks:
        counting = watch.left is not None
        watch, events = advance_idle_rule(watch, rule, seconds, idle, cancelled)
        waited = waited + seconds if idle else 0.0 if idle is False else waited
        if "run" in events:
            runs += 1
            assert counting
            assert idle is True
            assert not cancelled
            assert waited >= 659.999
    assert runs <= 1


@given(st.lists(st.tuples(st.floats(0, 1000), st.integers(0, 100)), max_size=30))
def test_idle_money_never_exceeds_money(ticks: list[tuple[float, int]]) -> None:
    tally = UsageTotals()
    for seconds, load in ticks:
        tally = add_usage(tally, seconds, [Sample(0, utilisation_percent=load), Sample(1, utilisation_percent=0)])
    bill = make_bill(tally, USD)
    assert bill.money is not None
    assert bill.idle_money is not None
    assert bill.idle_money.amount <= bill.money.amount
