"""The program of machine numbers: its plan serves the load, its bound is one, and both meet at the optimum."""

from __future__ import annotations

from time import monotonic

import numpy as np
import pytest
from msgspec.structs import replace

from tests.plan_cases import market
from whichgpu.decide.plan.solver.bound import column_costs, earnings, raise_bound
from whichgpu.decide.plan.solver.capacity_test import CapacityTest, Shortage
from whichgpu.decide.plan.solver.covering import cover
from whichgpu.decide.plan.solver.growth import max_growth
from whichgpu.decide.plan.solver.problem import LateService, Problem
from whichgpu.decide.plan.solver.program import Program

GAP = 0.001


def drawn(seed: int, late: bool) -> Problem:
    """Return a market of six offers; some serve only some buckets, and with `late` they serve faster if late."""
    chance = np.random.default_rng(seed)
    problem = replace(market(6, 8, seed, rate=float(chance.uniform(2.0, 12.0))), headroom=float(chance.choice([0.0, 0.2])))
    rates = np.where(chance.random((6, 8)) < 0.15, 0.0, problem.rates)
    rates[int(chance.integers(6))] = problem.rates[0]
    problem = replace(problem, rates=rates)
    if not late:
        return problem
    faster = rates * chance.uniform(1.0, 3.0, rates.shape)
    return replace(problem, late=LateService(faster, np.array([0, 0, 0, 0, 1, 1, 1, 1]), np.array([0.2, 0.05])))


@pytest.mark.parametrize("late", [False, True])
def test_plan_and_bound_meet_at_the_optimum(late: bool) -> None:
    improved = 0
    for seed in range(6):
        problem = drawn(seed, late)
        program = Program(problem, np.arange(6))
        best, relaxed = program.solve(10.0, 1e-6), program.relaxed(10.0)
        assert best is not None
        assert relaxed is not None
        cost = column_costs(problem, relaxed.fees)
        ceiling = 1.1 * best.cost
        bound = raise_bound(problem, cost, problem.loads(), ceiling, 1.0, relaxed.prices)
        covering = cover(problem, cost, np.ones(6, dtype=bool), bound, ceiling, CapacityTest(problem), GAP, monotonic() + 10.0)
        assert covering.bound <= best.cost * (1 + 1e-6)
        assert covering.counts is not None
        total = float(covering.counts @ cost.hourly[0])
        assert max_growth(problem, covering.counts, 0).factor >= 1 - 1e-6
        assert best.cost * (1 - 1e-6) <= total <= best.cost * (1 + GAP + 1e-6)
        assert covering.bound >= total * (1 - GAP - 1e-6)
        improved += covering.bound > bound.value * 1.005
    assert improved > 0  # Whole machines cost more than the bound without the program.


@pytest.mark.parametrize("late", [False, True])
def test_no_plan_that_serves_the_load_is_excluded_by_what_others_lack(late: bool) -> None:
    """Replicas that serve the load earn what is required at the prices at which others lack time."""
    compared = 0
    for seed in range(6):
        problem, chance = drawn(seed, late), np.random.default_rng(seed)
        test, fleets = CapacityTest(problem), [chance.integers(0, 4, 6) for _ in range(40)]
        serving = [one for one in fleets if test.serves(one)]
        for counts in fleets:
            outcome = test.outcome(counts, 1e-3)
            if not isinstance(outcome, Shortage):
                continue
            earned = np.cumsum(earnings(problem.loads()[0], outcome.prices, outcome.late_fees, problem.room, 5), axis=1)
            required = float(outcome.prices.sum()) - outcome.rebate
            for other in serving:
                total = sum(float(earned[j, n - 1]) for j, n in enumerate(other.tolist()) if n)
                assert total >= required * (1 - 1e-6)
                compared += 1
            mine = sum(float(earned[j, n - 1]) for j, n in enumerate(counts.tolist()) if n)
            assert mine < required or outcome.proven <= 1.0 + 1e-9
    assert compared > 50
