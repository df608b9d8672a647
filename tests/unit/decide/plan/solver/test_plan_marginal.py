"""The value of owned machines in a plan, and of the likely columns as a start of the whole program."""

from __future__ import annotations

import numpy as np
import pytest

from tests.plan_cases import market
from whichgpu.decide.plan.solver.marginal import added_replica, saving
from whichgpu.decide.plan.solver.problem import Pool, PriceOption, Problem
from whichgpu.decide.plan.solver.solve import solve
from whichgpu.decide.plan.solver.whole_program import likely_columns, solve_whole


def _owned(limit: float, demand: float, rented: bool = True) -> Problem:
    """Machines of two owned kinds at 0.1 and 0.4 an hour, and rented ones at 2, each of one request a second."""
    pools = (
        Pool("mine", "a", 1, (PriceOption("mine", 0.1, limit=limit, term="owned"),)),
        Pool("old", "c", 1, (PriceOption("old", 0.4, limit=4.0, term="owned"),)),
        Pool("rent", "b", 1, (PriceOption("rent", 2.0),)),
    )
    count = 3 if rented else 2
    rates = np.ones((count, 1))
    return market(
        count, 1, pools=pools[:count], columns=("mine", "old", "rent")[:count], rates=rates, demand=np.array([[demand]])
    )


def test_owned_machines_save_what_the_plan_would_cost_more_without_them() -> None:
    problem = _owned(2.0, 7.0)  # two of the first kind, four of the second, one rented
    solution = solve(problem)
    assert solution is not None
    assert saving(problem, solution, 0) == pytest.approx(2 * 2.0 - 2 * 0.1)
    assert saving(problem, solution, 1) == pytest.approx(4 * 2.0 - 4 * 0.4)


def test_without_machines_that_are_all_there_is_no_plan() -> None:
    problem = _owned(2.0, 5.0, rented=False)
    solution = solve(problem)
    assert solution is not None
    assert saving(problem, solution, 0) is None


def test_the_cost_of_one_replica_more_on_idle_machines() -> None:
    problem = _owned(6.0, 5.0)  # five of the first kind are enough
    solution = solve(problem)
    assert solution is not None
    assert solution.counts[0].tolist() == [5, 0, 0]
    added = added_replica(problem, solution, 1, 0)
    assert added is not None
    assert added.column == 1
    assert added.cost == pytest.approx(0.4 - 0.1)
    more = added_replica(problem, solution, 0, 0)
    assert more is not None
    assert more.cost == pytest.approx(0.1)
    full = _owned(5.0, 5.0)
    planned = solve(full)
    assert planned is not None
    assert added_replica(full, planned, 0, 0) is None


@pytest.mark.parametrize("seed", range(4))
def test_the_whole_program_started_from_the_likely_columns_has_the_optimum(seed: int) -> None:
    problem = market(12, 3, seed)
    everything = np.arange(12)
    likely = likely_columns(problem, everything, np.zeros(0, dtype=np.int64))
    assert 0 < len(likely) < 12
    result, expected = solve_whole(problem, everything, 10.0, 0.0), solve(problem, gap=0.0)
    assert result is not None
    assert expected is not None
    assert result[0].cost == pytest.approx(expected.cost)
    assert result[1] == pytest.approx(expected.cost)
