"""Random small problems cost what an independent program of the same question costs, written out here in matrices for SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp  # type: ignore[import-untyped]

from whichgpu.decide.plan.solver import solve as search
from whichgpu.decide.plan.solver.problem import OWNED, LateService, Pool, PriceOption, Problem, Quota
from whichgpu.decide.plan.solver.solve import solve


def drawn(seed: int) -> Problem:
    """Return two models on a few pools: owned, spot, committed machines, quotas, levels, buckets that are served late only."""
    chance = np.random.default_rng([seed, 30])
    buckets, levels = int(chance.integers(2, 6)), int(chance.integers(1, 3))
    model_of = np.sort(chance.integers(0, 2, buckets))
    pools = []
    for p in range(int(chance.integers(2, 5))):
        size, price = int(chance.choice([1, 2, 4])), float(chance.uniform(0.5, 3.0))
        options = [PriceOption("on demand", size * price)]
        if chance.random() < 0.3:
            options.append(PriceOption("spot", 0.4 * size * price, term="spot"))
        if chance.random() < 0.3:
            options.append(PriceOption("year", 0.6 * size * price, committed=True))
        if chance.random() < 0.2:
            size, options = 1, [PriceOption(OWNED, 0.05 * price, limit=float(chance.integers(1, 5)), term=OWNED)]
        pools.append(Pool(f"p{p}", f"g{p % 3}", size, tuple(options)))
    places = [(p, m, use) for p, pool in enumerate(pools) for m in (0, 1) for use in (1, 2) if use <= max(pool.size, 2)]
    pool_of, models, uses = (np.array(one, dtype=np.int64) for one in zip(*places, strict=True))
    speed = chance.uniform(0.3, 3.0, (len(places), buckets)) * uses[:, None] * (models[:, None] == model_of[None, :])
    rates = np.where(chance.random(speed.shape) < 0.75, speed, 0.0)
    late = None
    if chance.random() < 0.6:
        late_rates = np.where(chance.random(speed.shape) < 0.8, speed * chance.uniform(1.01, 2.0, speed.shape), 0.0)
        late = LateService(np.where(late_rates > rates, late_rates, 0.0), model_of, chance.choice([0.01, 0.05, 0.2], 2))
    quotas = (Quota("few", frozenset([0, 1]), float(chance.integers(2, 20))),) if chance.random() < 0.3 else ()
    demand = chance.uniform(0.2, 6.0, (levels, buckets)) * (chance.random((levels, buckets)) < 0.9)
    hours = chance.dirichlet(np.ones(levels))
    return Problem(
        tuple(pools), tuple(map(str, places)), pool_of, uses, rates, demand, hours,
        headroom=float(chance.choice([0.0, 0.2])), quotas=quotas, spot_share=float(chance.choice([1.0, 0.5])), late=late,
    )  # fmt: skip


def independent_cost(problem: Problem) -> float | None:
    """Return the least cost per average hour by a program of its own; None if the requests cannot be served."""
    (levels, buckets), columns = map(int, problem.demand.shape), len(problem.columns)
    options = [(p, w) for p, pool in enumerate(problem.pools) for w in range(len(pool.options))]
    of = {key: problem.pools[key[0]].options[key[1]] for key in options}
    late = problem.late or LateService(np.zeros_like(problem.rates), np.zeros(buckets, dtype=np.int64), np.zeros(1))
    tables = [problem.rates, late.rates]
    machines, counts = len(options) * levels, columns * levels
    sides = machines + counts + len(tables) * levels * columns * buckets  # busy GPUs by level, pool, and on demand or spot
    size = sides + 2 * levels * len(problem.pools)
    cost, upper, rows, low, high = np.zeros(size), np.full(size, np.inf), [], [], []

    def share(kind: int, level: int, j: int, b: int) -> int:
        return machines + counts + ((kind * levels + level) * columns + j) * buckets + b

    def add(row: np.ndarray, lower: float, higher: float) -> None:
        rows.append(row)
        low.append(lower)
        high.append(higher)

    for level in range(levels):
        spot, available = np.zeros(size), dict[int, np.ndarray]()
        for k, key in enumerate(options):
            place, option, gpus = level * len(options) + k, of[key], problem.pools[key[0]].size
            cost[place] = option.price * problem.hours[level]
            upper[place] = option.limit
            side = sides + 2 * (level * len(problem.pools) + key[0]) + (option.term == "spot")
            if option.term != OWNED:
                available[side] = available.get(side, np.zeros(size))
                available[side][side], available[side][place] = 1.0, -float(gpus)
                spot[side] = (option.term == "spot") - problem.spot_share
            if option.committed and level:  # The same machines in every level.
                same = np.zeros(size)
                same[place], same[k] = 1.0, -1.0
                add(same, 0.0, 0.0)
        if any(option.term == "spot" for option in of.values()):
            add(spot, -np.inf, 0.0)
            for row in available.values():
                add(row, -np.inf, 0.0)
        for p in range(len(problem.pools)):
            first = sides + 2 * (level * len(problem.pools) + p)
            rented = [side for side in (first, first + 1) if side in available]
            for side in {first, first + 1} - set(rented):
                upper[side] = 0.0
            working = np.zeros(size)
            working[rented] = -1.0
            for j in np.flatnonzero(problem.pool_of == p).tolist():
                for kind, table in enumerate(tables):
                    for b in np.flatnonzero(table[j] > 0).tolist():
                        time = problem.demand[level, b] / table[j, b]
                        working[share(kind, level, j, b)] = problem.uses[j] * time / (1.0 - problem.headroom)
            if rented:
                add(working, 0.0, 0.0)
        for p, pool in enumerate(problem.pools):
            room = np.zeros(size)
            for k, key in enumerate(options):
                room[level * len(options) + k] = pool.size * (key[0] == p)
            room[machines + level * columns : machines + (level + 1) * columns] = -problem.uses * (problem.pool_of == p)
            add(room, 0.0, np.inf)
        for quota in problem.quotas:
            row = np.zeros(size)
            for k, (p, _) in enumerate(options):
                row[level * len(options) + k] = problem.pools[p].size * (p in quota.pools)
            add(row, -np.inf, quota.limit)
        for j in range(columns):
            busy = np.zeros(size)
            busy[machines + level * columns + j] = problem.headroom - 1.0
            for kind, table in enumerate(tables):
                for b in range(buckets):
                    at = share(kind, level, j, b)
                    upper[at] = 1.0 if table[j, b] > 0 else 0.0
                    busy[at] = problem.demand[level, b] / table[j, b] if table[j, b] > 0 else 0.0
            add(busy, -np.inf, 0.0)
        for b in np.flatnonzero(problem.demand[level] > 0).tolist():
            served = np.zeros(size)
            served[[share(kind, level, j, b) for kind in range(len(tables)) for j in range(columns)]] = 1.0
            add(served, 1.0, 1.0)
        for model in range(len(late.shares)):
            missed, total = np.zeros(size), 0.0
            for b in np.flatnonzero(late.model_of == model).tolist():
                total += problem.demand[level, b]
                missed[[share(1, level, j, b) for j in range(columns)]] = problem.demand[level, b]
            add(missed, -np.inf, total * late.shares[model])
    whole = np.zeros(size)
    whole[: machines + counts] = 1
    constraints = LinearConstraint(np.array(rows), low, high)
    solved = milp(cost, integrality=whole, bounds=Bounds(0.0, upper), constraints=constraints, options={"mip_rel_gap": 0.0})
    return float(solved.fun) if solved.success else None


def check(seed: int) -> None:
    problem = drawn(seed)
    expected, solution = independent_cost(problem), solve(problem, gap=0.0)
    assert (solution is None) == (expected is None)
    if solution is not None and expected is not None:
        assert solution.cost == pytest.approx(expected, rel=1e-6, abs=1e-6)
        assert solution.bound <= expected * (1 + 1e-6) + 1e-6
        assert solution.shares.sum(axis=1)[problem.demand > 0] == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(12))
def test_random_problem_costs_what_an_independent_program_says(seed: int) -> None:
    check(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12, 300))
def test_many_random_problems_cost_what_an_independent_program_says(seed: int) -> None:
    check(seed)


@pytest.mark.parametrize("seed", [1, 2, 5, 8])
@pytest.mark.parametrize("whole", [0, 10**6])
@pytest.mark.parametrize("joint", [0, 10**6])
@pytest.mark.sweep(3)
def test_random_problem_searched_in_parts_stays_within_its_bound(
    seed: int, whole: int, joint: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts are columns chosen by the relaxation or by bucket, and (`joint` 0) load levels that commitments tie together.

    With `whole` and `joint` 0 tied levels are one program, started from a plan of the likely columns.
    """
    for name, value in {
        "MAX_SMALL": 0, "MAX_RELAXED": whole, "FIRST_COLUMNS": 3, "MAX_COLUMNS": 5, "MAX_JOINT": joint, "MAX_WHOLE": whole
    }.items():  # fmt: skip
        monkeypatch.setattr(search, name, value)
    problem = drawn(seed)
    expected, solution = independent_cost(problem), solve(problem, gap=0.0)
    assert (solution is None) == (expected is None)
    if solution is not None and expected is not None:
        assert solution.bound - 1e-6 <= expected <= solution.cost * (1 + 1e-6)
