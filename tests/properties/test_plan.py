"""Plans as such: more to serve never costs less, more to choose from never costs more, the bound is a bound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plan_cases import market
from whichgpu.decide.plan.bound import costs, first_prices, raise_bound
from whichgpu.decide.plan.build import without
from whichgpu.decide.plan.solve import solve
from whichgpu.decide.plan.traffic import levels

SEEDS = st.integers(0, 10_000)
EXACT = 1e-6


@settings(max_examples=10)
@given(SEEDS, st.floats(1.0, 3.0))
def test_more_traffic_never_costs_less(seed: int, times: float) -> None:
    problem = market(4, 5, seed, rate=10.0)
    less, more = solve(problem, gap=0.0), solve(replace(problem, demand=problem.demand * times), gap=0.0)
    assert less is not None
    assert more is not None
    assert more.cost >= less.cost - EXACT


@settings(max_examples=10)
@given(SEEDS)
def test_fewer_offers_never_cost_less_and_headroom_never_helps(seed: int) -> None:
    problem = market(4, 5, seed, rate=10.0)
    whole, part = solve(problem, gap=0.0), solve(without(problem, frozenset([0])), gap=0.0)
    spare = solve(replace(problem, headroom=0.3), gap=0.0)
    assert whole is not None
    assert part is not None
    assert spare is not None
    assert part.cost >= whole.cost - EXACT
    assert spare.cost >= whole.cost - EXACT


@settings(max_examples=10)
@given(SEEDS, st.integers(1, 6))
def test_slices_never_beat_the_free_split_and_more_of_them_never_cost_more(seed: int, slices: int) -> None:
    problem = market(3, 4, seed, rate=10.0)
    free, cut, finer = (solve(replace(problem, slices=count), gap=0.0) for count in (None, slices, 2 * slices))
    assert free is not None
    assert cut is not None
    assert finer is not None
    assert free.cost - EXACT <= finer.cost <= cut.cost + EXACT


@settings(max_examples=10)
@given(SEEDS, st.floats(0.5, 40.0), st.floats(0.0, 0.4))
def test_the_bound_never_exceeds_the_optimum(seed: int, rate: float, headroom: float) -> None:
    problem = replace(market(8, 10, seed, rate=rate), headroom=headroom)
    best = solve(problem, gap=0.0)
    assert best is not None
    cost, loads = costs(problem), problem.loads()
    assert float(first_prices(problem, loads, cost).sum()) <= best.cost + EXACT
    told = raise_bound(problem, cost, loads, 1.2 * best.cost, 0.3)
    assert told.value <= best.cost + EXACT
    assert (told.with_column[best.copies[0] > 0] <= best.cost + EXACT).all()


@given(st.lists(st.floats(0.1, 100.0), min_size=1, max_size=48), st.integers(1, 6))
def test_levels_cover_every_hour(curve: list[float], most: int) -> None:
    rates, shares, of = levels([np.array(curve)], most)
    assert len(rates) <= most
    assert abs(shares.sum() - 1.0) < 1e-9
    assert (rates[of, 0] >= np.array(curve) - 1e-9).all()
