"""Plans that serve their load after the loss of any one machine (N+1)."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.plan_cases import market
from whichgpu.decide.plan.solver import solve as search
from whichgpu.decide.plan.solver.growth import max_growth
from whichgpu.decide.plan.solver.problem import Pool, PriceOption, Problem
from whichgpu.decide.plan.solver.solve import solve
from whichgpu.decide.plan.solver.spare import intolerable_losses


def _tolerates(problem: Problem, counts: np.ndarray) -> bool:
    fewer = [counts - np.eye(len(counts), dtype=np.int64)[j] for j in np.flatnonzero(counts)]
    return all(max_growth(problem, one, 0, room=1.0).factor >= 1 - 1e-9 for one in fewer)


def _brute_force(problem: Problem, limit: int) -> float:
    """Return the cost of the cheapest numbers of machines that serve the load, and serve it without any one of them."""
    prices, best = np.array([pool.options[0].price for pool in problem.pools]), np.inf
    for numbers in product(range(limit + 1), repeat=len(prices)):
        counts = np.array(numbers, dtype=np.int64)
        cost = float(counts @ prices)
        if 0 < cost < best and max_growth(problem, counts, 0).factor >= 1 - 1e-9 and _tolerates(problem, counts):
            best = cost
    return float(best)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("headroom", [0.0, 0.3])
def test_the_cheapest_plan_with_a_spare_is_that_of_all_tried(seed: int, headroom: float) -> None:
    problem = market(3, 2, seed, rate=6.0, headroom=headroom)
    solution = solve(Problem(**{name: getattr(problem, name) for name in problem.__struct_fields__} | {"spare": True}), gap=0.0)
    assert solution is not None
    assert solution.cost == pytest.approx(_brute_force(problem, 7))
    assert solution.bound <= solution.cost + 1e-6
    assert not intolerable_losses(problem, solution)
    plain = solve(problem, gap=0.0)
    assert plain is not None
    assert plain.cost <= solution.cost + 1e-9


def test_a_larger_market_searched_in_parts_tolerates_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MAX_SMALL", 0)
    problem = market(30, 4, 3, rate=10.0, spare=True)
    solution = solve(problem)
    assert solution is not None
    assert not intolerable_losses(problem, solution)
    assert solution.bound <= solution.cost


def test_a_machine_of_several_replicas_takes_all_of_them_with_it() -> None:
    pool = Pool("eight", "g", 8, (PriceOption("eight", 8.0),))
    problem = market(
        1, 1, pools=(pool,), columns=("one",), pool_of=np.array([0]), uses=np.array([2]), rates=np.array([[1.0]]),
        demand=np.array([[4.0]]), spare=True,
    )  # fmt: skip
    assert problem.replicas_lost(0) == 4
    solution = solve(problem)
    assert solution is not None
    assert solution.cost == pytest.approx(16.0)


def test_owned_machines_that_are_too_few_for_a_loss_give_no_plan() -> None:
    pool = Pool("mine", "g", 1, (PriceOption("mine", 0.1, limit=3.0, term="owned"),))
    fields: dict[str, Any] = {
        "pools": (pool,),
        "columns": ("one",),
        "pool_of": np.array([0]),
        "uses": np.array([1]),
        "rates": np.array([[1.0]]),
    }
    assert solve(market(1, 1, demand=np.array([[2.0]]), spare=True, **fields)) is not None
    assert solve(market(1, 1, demand=np.array([[3.0]]), spare=True, **fields)) is None
