"""What a run costs, by hand: starts, checkpoints, interruptions, idle time, steps of billing, commitments, sustained use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from whichgpu.price.run import UNFINISHED_HOURS, OfferTerms, RunSettings, committed_years, run_cost, sustained

HABITS = RunSettings(startup=1800.0, checkpoint_every=3600.0, checkpoint_takes=360.0, interruptions=0.2)
QUARTERS = (1.0, 0.8, 0.6, 0.4)


def terms(**fields: Any) -> OfferTerms:
    """One offer: a dollar an hour, billed by the second, on demand at two dollars."""
    plain = {"price": 1.0, "machines": 1.0, "spot": False, "years": 0.0, "granularity": 1.0, "minimum": 1.0, "on_demand": 2.0,
             "host": 0.0, "disk": 0.0, "egress": 0.0, "step_of": -1}  # fmt: skip
    steps = fields.pop("steps", ())
    return OfferTerms(**{name: np.array([value]) for name, value in (plain | fields).items()}, steps=steps)


def run_costs(work: float, interruptible: bool = True, run_settings: RunSettings = HABITS, **fields: Any) -> dict[str, float]:
    cost = run_cost(np.array([work]), terms(**fields), run_settings, interruptible)
    names = ("hours", "billed", "reruns", "machine", "host", "disk", "egress", "break_even", "cost")
    return {name: float(getattr(cost, name)[0]) for name in names}


def test_work_is_done_with_its_checkpoints_after_a_start() -> None:
    assert run_costs(10.0)["hours"] == pytest.approx(11.5)  # a tenth for checkpoints, half an hour to start
    assert run_costs(10.0)["reruns"] == 0
    assert run_costs(10.0, interruptible=False)["hours"] == pytest.approx(10.5)  # a service keeps none


def test_any_spot_interruption_stops_all_machines() -> None:
    two = run_costs(10.0, spot=True, machines=2.0)  # 0.4 an hour, each loses half an interval and a start: an hour
    assert two["hours"] == pytest.approx(11.5 / 0.6)
    assert two["reruns"] == pytest.approx(0.4 * 11.5 / 0.6)
    assert two["machine"] == pytest.approx(2 * 11.5 / 0.6, rel=1e-4)
    service = run_costs(10.0, interruptible=False, spot=True, machines=2.0)  # loses the half hour of the start only
    assert service["hours"] == pytest.approx(10.5 / 0.8)


@pytest.mark.parametrize("machines", [5.0, 6.0])  # 1 an hour and more, each loses an hour
def test_run_interrupted_faster_than_it_progresses_has_infinite_time_and_finite_cost(machines: float) -> None:
    never = run_costs(10.0, spot=True, machines=machines)
    assert never["hours"] == np.inf
    assert never["machine"] == pytest.approx(machines * UNFINISHED_HOURS)
    assert never["reruns"] == pytest.approx(0.2 * machines * UNFINISHED_HOURS)
    nearly = run_costs(10.0, spot=True, machines=4.99)
    assert nearly["hours"] == pytest.approx(11.5 / 0.002)


def test_spot_service_startup_share_is_capped_at_nine_tenths() -> None:
    assert run_costs(10.0, interruptible=False, spot=True, machines=100.0)["hours"] == pytest.approx(105.0)


def test_idle_hours_are_paid_for() -> None:
    idle = run_costs(10.0, run_settings=RunSettings(startup=1800.0, checkpoint_every=3600.0, checkpoint_takes=360.0, idle=0.5))
    assert idle["hours"] == pytest.approx(23.0)
    assert idle["machine"] == pytest.approx(23.0)


def test_billing_has_increments_and_a_minimum() -> None:
    assert run_costs(10.0, granularity=3600.0)["billed"] == 12.0
    assert run_costs(10.0, granularity=3600.0)["machine"] == 12.0
    assert run_costs(0.0, granularity=60.0, minimum=7200.0)["billed"] == 2.0
    assert run_costs(0.0, granularity=60.0, minimum=60.0)["billed"] == pytest.approx(0.5)


def test_host_disk_and_egress_are_added() -> None:
    run_settings = RunSettings(startup=0.0, checkpoint_takes=0.0, disk_gb=50.0, egress_gb=20.0)
    costs = run_costs(365.0, run_settings=run_settings, price=3.0, machines=2.0, host=0.5, disk=0.1, egress=0.09)
    assert costs["machine"] == pytest.approx(3 * 2 * 365)
    assert costs["host"] == pytest.approx(0.5 * 2 * 365)
    assert costs["disk"] == pytest.approx(0.1 * 50 / 2)  # half a month of 730 hours
    assert costs["egress"] == pytest.approx(1.8)
    assert costs["cost"] == pytest.approx(2190 + 365 + 2.5 + 1.8)


def test_commitment_break_even_hours_on_demand() -> None:
    assert run_costs(10.0, years=3.0, price=0.5, on_demand=2.0)["break_even"] == pytest.approx(3 * 8760 / 4)
    assert np.isnan(run_costs(10.0)["break_even"])


NO_START = RunSettings(startup=0.0, checkpoint_takes=0.0)


@pytest.mark.parametrize(
    ("hours", "on_demand", "due"),
    [
        (1.0, 2.0, 8760.0),  # an hour costs the year
        (8760.0, 2.0, 8760.0),
        (8860.0, 2.0, 8760.0 + 200.0),  # the hundred hours beyond it on demand, at twice the price
        (8760.0 + 5000.0, 2.0, 2 * 8760.0),  # cheaper to be bound for another year
        (8860.0, float("nan"), 2 * 8760.0),  # not offered on demand
        (2 * 8760.0 + 10.0, 2.0, 2 * 8760.0 + 20.0),
    ],
)
def test_remainder_beyond_whole_terms_is_billed_at_the_cheaper_rate(hours: float, on_demand: float, due: float) -> None:
    costs = run_costs(hours, run_settings=NO_START, years=1.0, on_demand=on_demand, host=0.25)
    assert costs["machine"] == pytest.approx(due)
    assert costs["host"] == pytest.approx(0.25 * due)


def test_the_start_of_a_service_is_part_of_its_year_and_that_of_a_run_is_not() -> None:
    assert run_costs(8760.0, interruptible=False, years=1.0)["machine"] == pytest.approx(8760.0)
    run = run_costs(8760.0, run_settings=RunSettings(startup=3600.0, checkpoint_takes=0.0), years=1.0)
    assert run["machine"] == pytest.approx(8760.0 + 2.0)


@pytest.mark.parametrize(("hours", "share"), [(1e-12, 1.0), (100.0, 1.0), (365.0, 0.9), (730.0, 0.7), (5000.0, 0.7)])
def test_sustained_use_discount_applies_where_offered(hours: float, share: float) -> None:
    ladders = (QUARTERS, (1.0, 0.5))
    assert sustained(terms(steps=ladders, step_of=0), np.array([hours]))[0] == pytest.approx(share)
    assert sustained(terms(steps=ladders, step_of=-1), np.array([hours]))[0] == 1.0
    half = {1e-12: 1.0, 100.0: 1.0, 365.0: 1.0, 730.0: 0.75, 5000.0: 0.75}[hours]
    assert sustained(terms(steps=ladders, step_of=1), np.array([hours]))[0] == pytest.approx(half)


def test_a_run_of_half_a_month_pays_nine_tenths_of_it() -> None:
    assert run_costs(365.0, run_settings=NO_START, steps=(QUARTERS,), step_of=0)["machine"] == pytest.approx(0.9 * 365.0)
    assert run_costs(365.0, run_settings=NO_START, steps=(QUARTERS,), step_of=0, host=1.0)["host"] == pytest.approx(
        365.0
    )  # of the GPU alone


def test_some_of_the_offers_keep_their_own_terms() -> None:
    names = ("price", "machines", "spot", "years", "granularity", "minimum", "on_demand", "host", "disk", "egress", "step_of")
    columns: dict[str, Any] = {name: np.arange(3) + 10 * place for place, name in enumerate(names)}
    three = OfferTerms(**columns, steps=(QUARTERS,))
    two = three.at(np.array([2, 0]), np.array([7.0, 8.0]))
    assert two.machines.tolist() == [7.0, 8.0]
    assert two.steps == (QUARTERS,)
    for place, name in enumerate(names):
        assert name == "machines" or getattr(two, name).tolist() == [10 * place + 2, 10 * place]


def test_terms_bind_for_their_years() -> None:
    assert [committed_years(term) for term in ("on-demand", "spot", "reserved-1y", "committed-3y")] == [0.0, 0.0, 1.0, 3.0]


def test_default_run_settings() -> None:
    assert RunSettings() == RunSettings(startup=600.0, checkpoint_every=1800.0, checkpoint_takes=60.0, interruptions=0.1,
                              idle=0.0, disk_gb=0.0, egress_gb=0.0)  # fmt: skip
