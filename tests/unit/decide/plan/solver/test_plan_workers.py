"""Prefill and decode workers in the solver's problem: the cheapest mix equals an enumeration of all fleets."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from whichgpu.decide.plan.solver.growth import max_growth, utilisation
from whichgpu.decide.plan.solver.linear_program import INFINITE, LinearProgram
from whichgpu.decide.plan.solver.problem import BOTH, DECODE, OWNED, PREFILL, Pool, PriceOption, Problem, Workers
from whichgpu.decide.plan.solver.solve import solve
from whichgpu.decide.plan.solver.with_workers import MIN_GAIN

ROLES = np.array([BOTH, PREFILL, DECODE, BOTH, PREFILL, DECODE])
LIMIT = 4  # GPUs of each of two kinds


def problem_of(seed: int, linked: bool = True) -> Problem:
    chance = np.random.default_rng(seed)
    rates = chance.uniform(1.0, 6.0, (6, 2))
    rates[ROLES == BOTH] *= 0.6
    rates[chance.integers(0, 6), chance.integers(0, 2)] = 0.0
    pools = tuple(
        Pool(name, name, 1, (PriceOption(name, float(price), limit=LIMIT, term=OWNED),))
        for name, price in zip("ab", chance.uniform(1.0, 3.0, 2), strict=True)
    )
    links = np.where(ROLES == BOTH, -1, 0 if linked else np.arange(6) // 3)
    return Problem(
        pools,
        tuple(f"column {j}" for j in range(6)),
        np.arange(6) // 3,
        np.ones(6, dtype=np.int64),
        rates,
        chance.uniform(1.0, 5.0, (1, 2)),
        np.ones(1),
        headroom=0.1,
        workers=Workers(ROLES, links),
    )


def serves(problem: Problem, counts: tuple[int, ...]) -> bool:
    """Whether a fleet serves all buckets, by a linear program of its own: a flow from each prefill to each decode worker."""
    program, busy = LinearProgram(), {j: list[tuple[int, float]]() for j in range(6)}
    workers = problem.workers
    assert workers is not None
    for b, demand in enumerate(problem.demand[0].tolist()):
        paths = [(j, j) for j in range(6) if workers.roles[j] == BOTH]
        paths += [
            (i, j)
            for i, j in product(range(6), range(6))
            if workers.roles[i] == PREFILL and workers.roles[j] == DECODE and workers.links[i] == workers.links[j]
        ]
        terms = []
        for i, j in paths:
            if problem.rates[i, b] > 0 and problem.rates[j, b] > 0:
                place = program.variable(0.0)
                terms.append((place, 1.0))
                for one in {i, j}:
                    busy[one].append((place, 1.0 / float(problem.rates[one, b])))
        program.row(terms, demand, demand)
    for j, terms in busy.items():
        program.row(terms, -INFINITE, problem.room * counts[j])
    return program.relax() is not None


def cheapest(problem: Problem) -> float:
    prices = [problem.pools[int(p)].options[0].price for p in problem.pool_of]
    fleets = [one for one in product(range(LIMIT + 1), repeat=6) if sum(one[:3]) <= LIMIT and sum(one[3:]) <= LIMIT]
    fleets.sort(key=lambda one: sum(n * price for n, price in zip(one, prices, strict=True)))
    return next((sum(n * price for n, price in zip(one, prices, strict=True)) for one in fleets if serves(problem, one)), np.inf)


@pytest.mark.parametrize(("seed", "linked"), [(0, True), (1, True), (3, False)])
def test_mixed_fleets_are_as_cheap_as_any_fleet(seed: int, linked: bool) -> None:
    problem = problem_of(seed, linked)
    solution, lowest = solve(problem, 5.0, 0.0), cheapest(problem)
    if solution is None:
        assert lowest == np.inf
        return
    assert lowest <= solution.cost + 1e-6
    assert solution.cost <= lowest / (1.0 - MIN_GAIN) + 1e-6  # Aggregated serving is preferred if it costs little more.
    assert solution.bound <= lowest + 1e-6
    assert serves(problem, tuple(solution.counts[0].tolist()))
    assert utilisation(problem, solution, 0).max() <= problem.room + 1e-6
    assert max_growth(problem, solution.counts[0], 0).factor >= 1.0 - 1e-6


def test_requests_that_only_workers_serve_are_served() -> None:
    problem = problem_of(0)
    rates = problem.rates.copy()
    rates[:] = np.where(ROLES[:, None] == BOTH, 0.0, 5.0)
    solution = solve(Problem(**{**{name: getattr(problem, name) for name in problem.__struct_fields__}, "rates": rates}), 5.0)
    assert solution is not None
    assert solution.counts[0][ROLES == BOTH].sum() == 0
