"""The mix: known optima, the bound over every column, limits, commitments over levels, jobs, stability."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from tests.plan_cases import TWO_TYPES, brute, market
from whichgpu.decide.plan.profiles import parse_profiles
from whichgpu.decide.plan.solver import solve as search
from whichgpu.decide.plan.solver.bound import column_costs, initial_prices, raise_bound
from whichgpu.decide.plan.solver.problem import CurrentFleet, Job, Pool, PriceOption, Quota
from whichgpu.decide.plan.solver.prune import undominated
from whichgpu.decide.plan.solver.solve import fewest_kinds, solve

PROFILES = parse_profiles("two types", TWO_TYPES)


@pytest.mark.parametrize(("slices", "cost"), [(1, 6.70), (4, 5.69), (8, 5.69), (None, 4.68)])
def test_the_published_example_has_its_optimum(slices: int | None, cost: float) -> None:
    solution = solve(PROFILES.problem(None, 0.0, slices), gap=0.0)
    assert solution is not None
    assert solution.cost == pytest.approx(cost, abs=1e-6)
    assert solution.bound == pytest.approx(cost, abs=1e-6)


@pytest.mark.parametrize(("name", "cost"), [("A10G", 12.12), ("A100-80GB", 7.34)])
def test_one_type_alone(name: str, cost: float) -> None:
    solution = solve(PROFILES.problem(None, 0.0, None, {other: 0.0 for other in PROFILES.prices if other != name}), gap=0.0)
    assert solution is not None
    assert solution.cost == pytest.approx(cost)


@pytest.mark.parametrize("seed", range(4))
def test_the_mix_is_the_cheapest_of_all_tried(seed: int) -> None:
    problem = market(3, 4, seed, rate=8.0)
    solution = solve(problem, gap=0.0)
    assert solution is not None
    assert solution.cost == pytest.approx(brute(problem, 9))


def test_bucket_shares_add_up_and_no_replica_is_overloaded() -> None:
    problem = replace(market(6, 12, 1, rate=40.0), headroom=0.2)
    solution = solve(problem)
    assert solution is not None
    assert solution.shares[0].sum(axis=0) == pytest.approx(np.ones(12))
    work = (problem.loads()[0] * solution.shares[0]).sum(axis=1)
    assert (work <= 0.8 * solution.counts[0] + 1e-6).all()


@pytest.mark.parametrize("seed", range(3))
def test_a_large_market_is_searched_in_parts_and_its_bound_holds_for_the_whole(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few columns go into the program, yet no plan of all of them is cheaper than the bound."""
    problem = market(24, 10, seed, rate=30.0)
    whole = solve(problem, gap=0.0)
    monkeypatch.setattr(search, "MAX_SMALL", 10)
    monkeypatch.setattr(search, "FIRST_COLUMNS", 3)
    monkeypatch.setattr(search, "MAX_COLUMNS", 6)
    part = solve(problem, gap=0.0)
    assert whole is not None
    assert part is not None
    assert part.program_columns < whole.program_columns
    assert 0 < part.bound <= whole.cost + 1e-6 <= part.cost + 2e-6


def test_prices_climb_above_the_relaxation() -> None:
    problem = market(40, 30, 5, rate=6.0)
    cost, loads = column_costs(problem), problem.loads()
    plain = float(initial_prices(problem, loads, cost).sum())
    best = solve(problem, gap=0.0)
    assert best is not None
    bound = raise_bound(problem, cost, loads, best.cost, 3.0)
    assert plain < bound.value <= best.cost + 1e-9
    used = best.counts[0] > 0
    assert (bound.with_column[used] <= best.cost + 1e-9).all()  # nothing the optimum uses is ever ruled out


def test_only_columns_dominated_by_cheaper_replicas_are_dropped() -> None:
    pools = tuple(
        Pool(name, name, 1, (PriceOption(name, price),)) for name, price in (("small", 1.0), ("big", 2.5), ("odd", 1.5))
    )
    rates = np.array([[1.0, 1.0], [2.0, 2.0], [0.5, 1.8]])
    problem = market(3, 2, pools=pools, columns=("small", "big", "odd"), rates=rates)
    assert undominated(problem).tolist() == [True, False, True]


def test_owned_machines_are_used_first_and_no_more_than_there_are() -> None:
    pools = (
        Pool("mine", "a", 1, (PriceOption("mine", 0.1, limit=2.0, term="owned"),)),
        Pool("rent", "b", 1, (PriceOption("rent", 2.0),)),
    )
    problem = market(2, 1, pools=pools, columns=("mine", "rent"), rates=np.array([[1.0], [1.0]]), demand=np.array([[5.0]]))
    solution = solve(problem)
    assert solution is not None
    assert solution.counts[0].tolist() == [2, 3]
    assert solution.cost == pytest.approx(6.2)


def test_quota_is_respected_and_too_small_a_quota_has_no_plan() -> None:
    problem = market(2, 1, rates=np.array([[2.0], [1.0]]), demand=np.array([[6.0]]))
    cheap = replace(
        problem,
        pools=(
            replace(problem.pools[0], options=(PriceOption("x", 1.0),)),
            replace(problem.pools[1], options=(PriceOption("y", 1.0),)),
        ),
    )
    solution = solve(replace(cheap, quotas=(Quota("x", frozenset([0]), 1.0),)))
    assert solution is not None
    assert solution.counts[0].tolist() == [1, 4]
    assert solve(replace(cheap, quotas=(Quota("all", frozenset([0, 1]), 2.0),))) is None


def test_commitments_cover_the_base_load_and_on_demand_the_peak() -> None:
    options = (PriceOption("hourly", 2.0), PriceOption("year", 1.2, committed=True, term="reserved-1y"))
    problem = market(
        1,
        1,
        pools=(Pool("p", "g", 1, options),),
        columns=("p",),
        pool_of=np.zeros(1, dtype=np.int64),
        uses=np.ones(1, dtype=np.int64),
        rates=np.ones((1, 1)),
        demand=np.array([[10.0], [4.0]]),
        hours=np.array([0.25, 0.75]),
    )
    solution = solve(problem)
    assert solution is not None
    assert solution.machines[1, 0, 1] == solution.machines[0, 0, 1] == 4
    assert solution.machines[0, 0, 0] == 6
    assert solution.cost == pytest.approx(4 * 1.2 + 6 * 2.0 * 0.25)


def test_no_more_spot_than_its_share() -> None:
    options = (PriceOption("plain", 2.0), PriceOption("spot", 0.5, term="spot"))
    problem = market(
        1,
        1,
        pools=(Pool("p", "g", 1, options),),
        columns=("p",),
        pool_of=np.zeros(1, dtype=np.int64),
        uses=np.ones(1, dtype=np.int64),
        rates=np.ones((1, 1)),
        demand=np.array([[10.0]]),
        spot_share=0.5,
    )
    solution = solve(problem)
    assert solution is not None
    assert solution.machines == {(0, 0, 0): 5, (0, 0, 1): 5}


def test_idle_gpus_do_not_count_in_the_spot_share() -> None:
    """A cheap machine that is not spot would otherwise be rented only to stand idle beside machines on spot."""
    pools = (
        Pool("fast", "g", 1, (PriceOption("plain", 4.0), PriceOption("spot", 1.0, term="spot"))),
        Pool("cheap", "h", 1, (PriceOption("cheap", 0.1),)),
    )
    rates = np.array([[1.0], [0.0]])
    problem = market(
        2, 1, pools=pools, columns=("fast", "cheap"), pool_of=np.arange(2), rates=rates, demand=np.array([[4.0]]), spot_share=0.5
    )
    solution = solve(problem)
    assert solution is not None
    assert solution.machines == {(0, 0, 0): 2, (0, 0, 1): 2}


def test_several_models_share_a_machine() -> None:
    """Two replicas of half a machine each share one."""
    pools = (Pool("p", "g", 2, (PriceOption("p", 4.0),)),)
    rates = np.array([[1.0, 0.0], [0.0, 1.0]])
    problem = market(
        2, 2, pools=pools, columns=("a", "b"), pool_of=np.zeros(2, dtype=np.int64), rates=rates, demand=np.array([[0.9, 0.9]])
    )
    solution = solve(problem)
    assert solution is not None
    assert solution.machines == {(0, 0, 0): 1}


def test_a_job_takes_the_cheapest_machine_that_meets_its_deadline() -> None:
    problem = market(2, 1, rates=np.array([[1.0], [1.0]]), demand=np.array([[1.0]]))
    pools = tuple(
        replace(pool, options=(PriceOption(pool.name, price),)) for pool, price in zip(problem.pools, (1.0, 3.0), strict=True)
    )
    hours = np.array([30.0, 8.0])
    solution = solve(replace(problem, pools=pools, jobs=(Job("tune", hours, hours, 24.0),), horizon=100.0))
    assert solution is not None
    assert solution.jobs == (((1, 1.0),),)
    assert solution.cost == pytest.approx(1.0 + 3.0 * 8.0 / 100.0)
    assert solve(replace(problem, pools=pools, jobs=(Job("tune", hours, hours, 4.0),))) is None


def test_a_job_waits_for_hours_in_which_enough_owned_machines_are_free() -> None:
    """Six of eight serve by day, two by night: a job of eight at once cannot run here, one of six only by night."""
    problem = market(2, 1, rates=np.array([[1.0], [1.0]]))
    pools = (
        Pool("mine", "g0", 1, (PriceOption("mine", 0.1, limit=8.0, term="owned"),)),
        replace(problem.pools[1], options=(PriceOption("rent", 9.0),)),
    )
    day = replace(problem, pools=pools, demand=np.array([[6.0], [2.0]]), hours=np.array([0.5, 0.5]), horizon=100.0)
    for gpus, where in ((8.0, 1), (6.0, 0)):
        job = Job("tune", np.array([gpus * 2.0, 2.0]), np.array([2.0, 2.0]), 24.0)
        solution = solve(replace(day, jobs=(job,)), gap=0.0)
        assert solution is not None
        assert solution.jobs == (((where, 1.0),),)
    night = Job("long", np.array([6.0 * 13.0, 13.0]), np.array([13.0, 13.0]), 24.0)  # longer than the nights until its deadline
    solution = solve(replace(day, jobs=(night,)), gap=0.0)
    assert solution is not None
    assert solution.jobs == (((1, 1.0),),)


def test_a_dear_change_keeps_the_fleet_there_is() -> None:
    problem = market(2, 1, rates=np.array([[1.0], [1.0]]), demand=np.array([[4.0]]))
    pools = tuple(
        replace(pool, options=(PriceOption(pool.name, price),)) for pool, price in zip(problem.pools, (1.0, 1.1), strict=True)
    )
    free = solve(replace(problem, pools=pools))
    solution = solve(replace(problem, pools=pools, current=CurrentFleet({"g1": 4.0}, 0.5)))
    assert free is not None
    assert solution is not None
    assert free.counts[0].tolist() == [4, 0]
    assert solution.counts[0].tolist() == [0, 4]
    assert solution.bill == pytest.approx(4.4)


def test_fewer_kinds_for_a_little_more() -> None:
    problem = market(2, 1, rates=np.array([[4.2], [1.0]]), demand=np.array([[8.9]]))
    pools = tuple(
        replace(pool, options=(PriceOption(pool.name, price),)) for pool, price in zip(problem.pools, (4.0, 1.02), strict=True)
    )
    mixed = replace(problem, pools=pools)
    best = solve(mixed, gap=0.0)
    assert best is not None
    assert best.counts[0].tolist() == [2, 1]
    assert fewest_kinds(mixed, best, 0.05).counts[0].tolist() == [0, 9]
    assert fewest_kinds(mixed, best, 0.0) is best
