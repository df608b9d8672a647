"""A market too large for one program is searched in parts: the plan holds, and its bound is one for plans of every column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.plan_cases import market
from whichgpu.decide.plan.solver import solve as search
from whichgpu.decide.plan.solver.bound import Fees, column_costs, initial_prices, raise_bound
from whichgpu.decide.plan.solver.capacity_test import CapacityTest
from whichgpu.decide.plan.solver.greedy import greedy_applies, greedy_start
from whichgpu.decide.plan.solver.growth import max_growth
from whichgpu.decide.plan.solver.problem import CurrentFleet, Job, LateService, Pool, PriceOption, Problem, Quota, Solution
from whichgpu.decide.plan.solver.program import Program, ProgramSolution
from whichgpu.decide.plan.solver.solve import fewest_kinds, solve


def two_levels(offers: int = 8, **more: Any) -> Problem:
    """By day four times as much as by night; every machine by the hour, or for the whole time at 60%."""
    plain = market(offers, 4, 3, rate=12.0)
    pools = tuple(
        replace(pool, options=(pool.options[0], PriceOption(f"{pool.name} year", 0.6 * pool.options[0].price, committed=True)))
        for pool in plain.pools
    )
    demand = np.concatenate([plain.demand, plain.demand / 4])
    return replace(plain, pools=pools, demand=demand, hours=np.array([0.4, 0.6]), **more)


def spotted() -> Problem:
    """Spot at a third of the price, of which half may be used."""
    plain = market(8, 4, 4, rate=12.0)
    pools = tuple(
        replace(pool, options=(pool.options[0], PriceOption(f"{pool.name} spot", pool.options[0].price / 3, term="spot")))
        for pool in plain.pools
    )
    return replace(plain, pools=pools, spot_share=0.5)


def limited() -> Problem:
    """Of the two cheapest offers there are two each, and few GPUs of the first four in all."""
    plain = market(8, 4, 5, rate=12.0)
    cheapest = sorted(range(8), key=lambda p: plain.pools[p].options[0].price)[:2]
    pools = tuple(
        replace(pool, options=(replace(pool.options[0], limit=2.0),)) if p in cheapest else pool
        for p, pool in enumerate(plain.pools)
    )
    return replace(plain, pools=pools, quotas=(Quota("few", frozenset(range(4)), 3.0),))


def with_job() -> Problem:
    plain = market(8, 4, 6, rate=12.0)
    hours = np.array([50.0, 40.0, np.inf, 30.0, 30.0, 30.0, 30.0, 30.0])
    return replace(plain, jobs=(Job("tune", hours, hours, 100.0),), horizon=100.0)


PROBLEMS: dict[str, Problem] = {
    "headroom": replace(market(8, 4, 7, rate=12.0), headroom=0.25),
    "levels": two_levels(),
    "spot": spotted(),
    "limits": limited(),
    "job": with_job(),
    "stay": replace(market(8, 4, 8, rate=12.0), current=CurrentFleet({"g1": 3.0}, 0.2)),
}


@pytest.fixture(params=PROBLEMS)
def problem(request: pytest.FixtureRequest) -> Problem:
    return PROBLEMS[request.param]


def in_parts(monkeypatch: pytest.MonkeyPatch, whole: int) -> None:
    """As if the market were large: no program with all columns, and relaxations with a limited number of shares."""
    monkeypatch.setattr(search, "MAX_SMALL", 0)
    monkeypatch.setattr(search, "MAX_RELAXED", whole)
    monkeypatch.setattr(search, "FIRST_COLUMNS", 3)
    monkeypatch.setattr(search, "MAX_COLUMNS", 5)


def best_of_all(problem: Problem) -> ProgramSolution:
    solution = Program(problem, np.arange(len(problem.columns))).solve(5.0, 0.0)
    assert solution is not None
    return solution


def optimum(problem: Problem) -> float:
    return best_of_all(problem).cost


def gpu_pools(problem: Problem, solution: Solution) -> None:
    """Every bucket is served whole at every level, and no copy has more to do than it can."""
    loads = problem.loads()
    for level in range(problem.levels):
        demanded = problem.demand[level] > 0
        assert solution.shares[level].sum(axis=0)[demanded] == pytest.approx(np.ones(int(demanded.sum())))
        work = np.where(solution.shares[level] > 0, loads[level] * solution.shares[level], 0.0).sum(axis=1)
        assert (work <= problem.room * solution.counts[level] + 1e-6).all()
    for (_, p, w), count in solution.machines.items():
        assert count <= problem.pools[p].options[w].limit
    for quota in problem.quotas:
        assert sum(n * problem.pools[p].size for (_, p, _), n in solution.machines.items() if p in quota.pools) <= quota.limit


@pytest.mark.parametrize("whole", [0, 10**6], ids=["by-bucket", "whole-relaxation"])
@pytest.mark.sweep(3)
def test_decomposed_plan_is_feasible_and_within_its_bound(problem: Problem, whole: int, monkeypatch: pytest.MonkeyPatch) -> None:
    best = optimum(problem)
    in_parts(monkeypatch, whole)
    bounds: list[float] = []
    solution = solve(problem, 2.0, 0.0, bounds.append)
    assert solution is not None
    gpu_pools(problem, solution)
    assert 0 < solution.bound <= best * (1 + 1e-6)
    assert best * (1 - 1e-6) <= solution.cost <= 1.35 * best
    assert bounds == sorted(bounds)


def test_all_columns_are_tried_if_the_first_are_infeasible(monkeypatch: pytest.MonkeyPatch) -> None:
    """No column chosen first may be had often enough; the others make up for it."""
    plain = market(6, 2, 9, rate=10.0)
    pools = tuple(replace(pool, options=(replace(pool.options[0], limit=2.0),)) for pool in plain.pools)
    scarce = replace(plain, pools=pools)
    best = optimum(scarce)
    in_parts(monkeypatch, 0)
    monkeypatch.setattr(search, "FIRST_COLUMNS", 1)
    monkeypatch.setattr(search, "MAX_COLUMNS", 1)
    solution = solve(scarce, 1.0, 0.0)
    assert solution is not None
    gpu_pools(scarce, solution)
    assert solution.bound <= best * (1 + 1e-6) <= solution.cost * (1 + 1e-5)


@pytest.mark.parametrize("whole", [0, 10**6])
def test_unservable_load_has_no_decomposed_plan_either(whole: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = market(6, 2, 9, rate=10.0)
    in_parts(monkeypatch, whole)
    pools = tuple(replace(pool, options=(replace(pool.options[0], limit=0.0),)) for pool in plain.pools)
    assert solve(replace(plain, pools=pools), 0.5) is None


def test_independent_levels_are_solved_separately_and_all_must_be_feasible() -> None:
    plain = market(3, 2, 1, rate=6.0)
    both = replace(plain, demand=np.concatenate([plain.demand, plain.demand / 3]), hours=np.array([0.25, 0.75]))
    solution = solve(both, gap=0.0)
    assert solution is not None
    assert solution.cost == pytest.approx(optimum(both))
    assert {level for level, _, _ in solution.machines} == {0, 1}
    few = tuple(replace(pool, options=(replace(pool.options[0], limit=2.0),)) for pool in plain.pools)
    assert solve(replace(both, pools=few)) is not None
    assert solve(replace(both, pools=few, demand=both.demand * np.array([[10.0], [1.0]]))) is None  # the peak needs more


@pytest.mark.parametrize("name", PROBLEMS)
def test_at_any_prices_the_bound_is_below_the_optimum_and_below_that_with_each_column(name: str) -> None:
    problem = replace(PROBLEMS[name], jobs=(), current=None)
    plan = best_of_all(problem)
    best, used = plan.cost, plan.counts.any(axis=0)
    relaxed = Program(problem, np.arange(len(problem.columns))).relaxed(5.0)
    assert relaxed is not None
    loads = problem.loads()
    for fees in (Fees(), relaxed.fees):
        cost = column_costs(problem, fees)
        for prices in (None, relaxed.prices, 3.0 * initial_prices(problem, loads, cost)):
            bound = raise_bound(problem, cost, loads, 2 * best, 0.02, prices)
            assert bound.value <= best * (1 + 1e-6)
            assert (bound.with_column[used] <= best * (1 + 1e-6)).all()  # nothing the optimum uses is ever ruled out
            assert (bound.with_column >= bound.value - 1e-9).all()


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        ({}, True),
        ({"quotas": (Quota("q", frozenset([0]), 1.0),)}, False),
        ({"budget": 5.0}, False),
        ({"slices": 2}, False),
        ({"current": CurrentFleet({}, 1.0)}, False),
        ({"spot_share": 0.5}, True),  # no spot offers
        ({"uses": np.array([1, 1, 2])}, False),
        ({"demand": np.ones((2, 2)), "hours": np.array([0.5, 0.5])}, False),
        ({"pools": tuple(Pool(f"p{j}", "g", 1, (PriceOption("w", 1.0, limit=3.0),)) for j in range(3))}, False),
    ],
)
def test_greedy_applies_to_simple_problems_only(changes: dict[str, Any], fits: bool) -> None:
    assert greedy_applies(market(3, 2, **changes)) is fits
    assert not greedy_applies(spotted())


def test_a_plan_by_earnings_holds_and_one_of_many_machines_is_left_to_the_program() -> None:
    small, large = market(6, 3, 2, rate=8.0), market(6, 3, 2, rate=800.0)
    for problem, expected in ((small, True), (large, False)):
        loads, cost = problem.loads(), column_costs(problem)
        prices = initial_prices(problem, loads, cost)
        test, every = CapacityTest(problem), np.ones(6, dtype=bool)
        copies = greedy_start(problem, loads[0], prices[0], cost.hourly[0], every, test, float("inf"))
        assert (copies is not None) is expected
        if copies is not None:
            bill = float(copies @ cost.hourly[0])
            assert optimum(problem) * (1 - 1e-9) <= bill <= 1.3 * optimum(problem)


def test_cost_of_a_plan_by_earnings_is_a_plain_number_that_caches_can_write() -> None:
    problem = market(6, 3, 2, rate=8.0)
    one = search._Search(problem, np.ones(6, dtype=bool), 1.0, 0.01, lambda _: None, 0.0)
    assert one._adopt(np.full(6, 9), CapacityTest(problem))
    assert one.best is not None
    assert type(one.best[1].cost) is float


@pytest.mark.parametrize("late", [False, True])
def test_quick_test_of_capacity_equals_the_linear_program(late: bool) -> None:
    """Fleets drawn around what is needed: the mixture of assignments serves what the program of all shares serves."""
    outcomes = set()
    for seed in range(30):
        chance = np.random.default_rng(seed)
        problem = market(5, 6, seed, rate=10.0)
        if late:
            faster = problem.rates * chance.uniform(1.0, 3.0, problem.rates.shape)
            problem = replace(problem, late=LateService(faster, np.array([0, 0, 0, 1, 1, 1]), np.array([0.2, 0.05])))
        test = CapacityTest(problem)
        for _ in range(4):
            counts = chance.integers(0, 4, 5)
            counts[0] += 1
            growth = max_growth(problem, counts, 0).factor
            if abs(growth - 1.0) < 1e-3:
                continue
            shares = test.shares(counts)
            assert (shares is not None) == (growth > 1.0), (seed, counts, growth)
            outcomes.add(growth > 1.0)
            if shares is not None:
                total = shares.reshape(5, -1, 6).sum(axis=(0, 1))
                assert total[problem.demand[0] > 0] == pytest.approx(1.0)
                work = np.where(shares > 0, problem.loads()[0], 0.0) * shares
                assert (work.sum(axis=1) <= problem.room * counts + 1e-6).all()
    assert outcomes == {True, False}


def test_fewer_gpu_kinds_are_searched_if_two_and_extra_cost_is_allowed() -> None:
    problem = market(3, 2, 1, rate=6.0)
    solution = solve(problem, gap=0.0)
    assert solution is not None
    one = replace(solution, machines={(0, 0, 0): 3})
    same = replace(solution, machines={(0, 0, 0): 3, (1, 0, 0): 2})
    assert fewest_kinds(problem, one, 0.5) is one
    assert fewest_kinds(problem, same, 0.5) is same  # two levels, one kind
    several = replace(solution, machines={(0, p, 0): 1 for p in range(3)}, cost=optimum(problem))
    assert fewest_kinds(replace(problem, slices=2), several, 0.5) is several
    simple = fewest_kinds(problem, several, 1.0)
    assert len({(p, w) for _, p, w in simple.machines}) < 3
    assert simple.cost <= 2 * several.cost
