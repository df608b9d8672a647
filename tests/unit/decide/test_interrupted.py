"""What policies cost: the mean bill by hand and by simulation, machines added where objectives fail, and sweeps that agree."""

from __future__ import annotations

from decimal import Decimal
from importlib.util import find_spec

import pytest
from msgspec.structs import replace

from tests.serving_cases import DEFAULT_LIMITS, linear
from whichgpu.base.errors import UsageError
from whichgpu.base.messages import english
from whichgpu.base.parallel.sweep import run_sweep
from whichgpu.decide.interrupted import (
    PolicyCase,
    Rates,
    cost_of_policies,
    faster,
    fleet_under,
    machines_per_spot_replica,
    simulate_policy,
)
from whichgpu.estimate.serving.curve import Objectives
from whichgpu.estimate.serving.fleet.event_loop import simulate_fleet
from whichgpu.estimate.serving.fleet.pools import Fleet, Interruptions, ReplicaPool
from whichgpu.estimate.serving.load import Lengths, Load

GOALS = Objectives(0.2, 0.01, 90)
LOAD = Load(40.0, Lengths(50, 0.4), Lengths(50, 0.4), 2000)
OFTEN = Interruptions(rate=120.0, notice=0.0, warm_up=15.0, outage=7.5)  # each machine every half minute
PRICES = {"a": Rates(Decimal("4"), Decimal("1"))}


def fleet(copies: int) -> Fleet:
    return Fleet((ReplicaPool("a", linear(replace(DEFAULT_LIMITS, max_sequences=4)), copies),))


def test_mean_machines_per_spot_replica_match_a_long_simulation() -> None:
    lives = Interruptions(rate=360.0, notice=0.5, warm_up=2.0, outage=5.0)
    own = replace(fleet_under("spot-with-fallback", fleet(4), lives), seed=1)
    outcome = simulate_fleet(own, Load(5.0, Lengths(5), Lengths(5), 20_000).arrivals())
    spot, on_demand = machines_per_spot_replica(own.interruptions)
    use = outcome.pools[0]
    assert outcome.interruptions > 500
    assert use.spot_seconds / (4 * outcome.seconds) == pytest.approx(spot, rel=0.03)
    assert use.on_demand_seconds / (4 * outcome.seconds) == pytest.approx(on_demand, rel=0.03)


def test_shares_of_time_stay_when_machines_live_faster() -> None:
    lives = Interruptions(rate=0.1, notice=0.0, warm_up=600.0, outage=3600.0)
    assert machines_per_spot_replica(faster(lives, 7.0)) == pytest.approx(machines_per_spot_replica(lives))


def test_every_policy_has_its_bill_and_the_cheapest_that_holds_comes_first() -> None:
    answer = cost_of_policies(fleet(3), LOAD, GOALS, PRICES, OFTEN)
    by = {one.policy: one for one in answer.policies}
    assert set(by) == {"on-demand", "spot-with-fallback", "mixed", "spot"}
    assert by["on-demand"].cost.amount == 4 * 3
    assert (by["on-demand"].interruptions, by["on-demand"].more, by["on-demand"].spot_share) == (0, 0, 0.0)
    spot, on_demand = machines_per_spot_replica(OFTEN)
    whole = by["spot-with-fallback"]
    assert float(whole.cost.amount) == pytest.approx((3 + whole.more) * (spot * 1 + on_demand * 4), abs=1e-3)
    assert by["spot"].cost.amount < by["spot"].copies["a"] * 1
    assert by["spot"].met < by["on-demand"].met or by["spot"].more
    assert all(one.met >= 0.9 for one in answer.policies if one.kept)
    amounts = [one.cost.amount for one in answer.policies if one.kept]
    assert amounts == sorted(amounts)
    assert "Cheapest" in english().render(answer.sentence)


def test_missing_prices_or_spot_are_reported() -> None:
    with pytest.raises(UsageError, match="no price for a"):
        cost_of_policies(fleet(1), LOAD, GOALS, {})
    with pytest.raises(UsageError, match="unknown policy"):
        cost_of_policies(fleet(1), LOAD, GOALS, PRICES, policies=["often"])  # type: ignore[list-item]
    answer = cost_of_policies(fleet(3), LOAD, GOALS, {"a": Rates(Decimal("4"))}, OFTEN)
    assert [one.policy for one in answer.policies] == ["on-demand"]
    assert "not offered on spot" in english().render(answer.warnings[0])


def test_fleet_too_small_under_any_policy_is_reported() -> None:
    answer = cost_of_policies(fleet(1), LOAD.at(4000.0), GOALS, PRICES, OFTEN, ["on-demand"])
    assert not answer.policies[0].kept
    assert answer.policies[0].more == 6
    assert "too small" in english().render(answer.warnings[0])


CASES = [PolicyCase(policy, fleet(copies), LOAD, GOALS, OFTEN) for policy in ("spot", "mixed") for copies in (3, 4)]


def test_one_sweep_in_process_and_on_two_processes_gives_one_table() -> None:
    assert run_sweep(simulate_policy, CASES, seed=5, jobs=2) == run_sweep(simulate_policy, CASES, seed=5)


@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed (pip install 'whichgpu[plan-ray]')")
@pytest.mark.filterwarnings("ignore")
def test_one_sweep_on_a_local_ray_gives_the_same_table() -> None:
    assert run_sweep(simulate_policy, CASES, seed=5, ray="local") == run_sweep(simulate_policy, CASES, seed=5)
