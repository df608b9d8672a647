"""Plans as such: more to serve never costs less, more to choose from never costs more, the bound is a bound."""

from __future__ import annotations

from statistics import NormalDist
from types import SimpleNamespace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.examples import examples
from tests.plan_cases import market
from whichgpu.decide.plan.simulate import Latencies, summarise
from whichgpu.decide.plan.solver.bound import column_costs, initial_prices, raise_bound
from whichgpu.decide.plan.solver.build import without_pools
from whichgpu.decide.plan.solver.problem import Pool, PriceOption, Problem, Quota
from whichgpu.decide.plan.solver.program import Program
from whichgpu.decide.plan.solver.prune import dominated_pools
from whichgpu.decide.plan.solver.solve import solve
from whichgpu.decide.plan.traffic import load_levels
from whichgpu.estimate.serving.curve import Objectives

SEEDS = st.integers(0, 10_000)
EXACT = 1e-6


@settings(max_examples=examples(6))
@given(SEEDS, st.floats(1.0, 3.0))
def test_more_traffic_never_costs_less(seed: int, times: float) -> None:
    problem = market(4, 5, seed, rate=10.0)
    less, more = solve(problem, gap=0.0), solve(replace(problem, demand=problem.demand * times), gap=0.0)
    assert less is not None
    assert more is not None
    assert more.cost >= less.cost - EXACT


@settings(max_examples=examples(6))
@given(SEEDS)
def test_fewer_offers_never_cost_less_and_headroom_never_helps(seed: int) -> None:
    problem = market(4, 5, seed, rate=10.0)
    whole, part = solve(problem, gap=0.0), solve(without_pools(problem, frozenset([0])), gap=0.0)
    spare = solve(replace(problem, headroom=0.3), gap=0.0)
    assert whole is not None
    assert part is not None
    assert spare is not None
    assert part.cost >= whole.cost - EXACT
    assert spare.cost >= whole.cost - EXACT


@settings(max_examples=examples(6))
@given(SEEDS, st.integers(1, 6))
def test_slices_never_beat_the_free_split_and_more_of_them_never_cost_more(seed: int, slices: int) -> None:
    problem = market(3, 4, seed, rate=10.0)
    free, cut, finer = (solve(replace(problem, slices=count), gap=0.0) for count in (None, slices, 2 * slices))
    assert free is not None
    assert cut is not None
    assert finer is not None
    assert free.cost - EXACT <= finer.cost <= cut.cost + EXACT


@settings(max_examples=examples(6))
@given(SEEDS, st.floats(0.5, 40.0), st.floats(0.0, 0.4))
def test_the_bound_never_exceeds_the_optimum(seed: int, rate: float, headroom: float) -> None:
    problem = replace(market(8, 10, seed, rate=rate), headroom=headroom)
    best = solve(problem, gap=0.0)
    assert best is not None
    cost, loads = column_costs(problem), problem.loads()
    assert float(initial_prices(problem, loads, cost).sum()) <= best.cost + EXACT
    bound = raise_bound(problem, cost, loads, 1.2 * best.cost, 0.3)
    assert bound.value <= best.cost + EXACT
    assert (bound.with_column[best.counts[0] > 0] <= best.cost + EXACT).all()


@settings(max_examples=examples(15), deadline=None)
@given(SEEDS, st.floats(0.1, 0.9), st.sampled_from([None, 3]))
def test_accepted_plan_serves_the_whole_rate_of_every_bucket(seed: int, blank: float, slices: int | None) -> None:
    """Sizes and levels of no order, some of them without requests, some beyond some or all GPUs."""
    chance = np.random.default_rng(seed)
    offers, buckets, count = (int(chance.integers(1, limit)) for limit in (5, 6, 3))
    problem = market(offers, buckets, seed, rate=10.0, slices=slices)
    rates = np.where(chance.random((offers, buckets)) < blank, 0.0, problem.rates)
    demand = np.where(chance.random((count, buckets)) < 0.2, 0.0, problem.demand * chance.uniform(0.5, 2.0, (count, 1)))
    problem = replace(problem, rates=rates, demand=demand, hours=np.full(count, 1.0 / count))
    able = ((rates > 0).any(axis=0) | ~(demand > 0).any(axis=0)).all()
    solution = solve(problem, 5.0, 0.01)
    assert (solution is not None) == able
    if solution is not None:
        served = (solution.shares * demand[:, None, :]).sum(axis=1)
        assert np.allclose(served, demand, rtol=1e-6, atol=1e-9)
        busy = np.divide(demand[:, None, :] * solution.shares, rates, out=np.zeros_like(solution.shares), where=rates > 0).sum(
            axis=2
        )
        assert (busy <= solution.counts + 1e-6).all()


@settings(max_examples=examples(15), deadline=None)
@given(SEEDS)
def test_a_program_of_columns_that_serve_only_some_buckets_has_no_solution(seed: int) -> None:
    problem = market(3, 4, seed)
    rates = problem.rates.copy()
    rates[:2, 0] = 0.0
    problem = replace(problem, rates=rates)
    assert Program(problem, np.array([0, 1])).solve(5.0, 0.01) is None
    assert Program(problem, np.array([0, 1])).relaxed(5.0) is None
    assert Program(problem, np.array([0, 2])).solve(5.0, 0.01) is not None


@settings(max_examples=examples(15), deadline=None)
@given(SEEDS, st.floats(50.0, 99.0), st.integers(0, 2), st.floats(0.0, 1.0))
def test_objectives_hold_only_if_the_percentile_of_all_requests_met_all_of_them(
    seed: int, percentile: float, refused: int, beyond: float
) -> None:
    """Each objective may hold at the percentile by itself while fewer requests met both."""
    chance = np.random.default_rng(seed)
    limit = float(np.exp(NormalDist().inv_cdf(percentile / 100.0)) * (1.0 + beyond))
    objectives = Objectives(ttft_max=limit, tpot_max=limit, percentile=percentile)
    groups = []
    for weight in (0.7, 0.3):
        seconds = chance.lognormal(0.0, 1.0, (3, 200))
        seconds[:, :refused] = np.inf
        groups.append(Latencies(seconds[0], seconds[1], seconds[2], refused, weight))
    simulated = summarise(SimpleNamespace(name="chat", objectives=objectives), [groups])  # type: ignore[arg-type]
    assert simulated.met is not None
    assert simulated.requests == 400
    assert simulated.met <= 1.0 - refused / 200 + 1e-9
    if simulated.holds:
        assert refused == 0
        assert simulated.met >= percentile / 100.0 - 1e-9


@given(st.lists(st.floats(0.1, 100.0), min_size=1, max_size=48), st.integers(1, 6))
def test_levels_cover_every_hour(curve: list[float], limit: int) -> None:
    rates, shares, of = load_levels([np.array(curve)], limit)
    assert len(rates) <= limit
    assert abs(shares.sum() - 1.0) < 1e-9
    assert (rates[of, 0] >= np.array(curve) - 1e-9).all()


def tied(seed: int) -> Problem:
    """Machines of one, two and four GPUs of two kinds, on demand, on spot and committed; two models, two levels, a quota."""
    chance = np.random.default_rng(seed)
    speed = chance.uniform(0.5, 4.0, (2, 2, 2))  # kind, model, bucket
    pools: list[Pool] = []
    columns, pool_of, uses, rates = [], [], [], []
    for kind in range(2):
        for size in (1, 2, 4):
            price = size * float(chance.uniform(1.0, 4.0))
            options = [PriceOption("d", price)]
            options += [PriceOption("s", price * float(chance.uniform(0.3, 0.9)), term="spot")] if chance.random() < 0.5 else []
            options += (
                [PriceOption("c", price * float(chance.uniform(0.4, 0.9)), committed=True)] if chance.random() < 0.5 else []
            )
            for model in range(2):
                for tp in (one for one in (1, 2) if one <= size):
                    pool_of.append(len(pools))
                    uses.append(tp)
                    columns.append(f"{kind} {size} {model} {tp}")
                    mine = np.zeros(4)
                    mine[2 * model : 2 * model + 2] = speed[kind, model] * (1.0 if tp == 1 else 2.3)
                    rates.append(mine)
            pools.append(Pool(f"{kind} {size}", f"g{kind}", size, tuple(options)))
    return Problem(
        pools=tuple(pools),
        columns=tuple(columns),
        pool_of=np.array(pool_of),
        uses=np.array(uses),
        rates=np.array(rates),
        demand=np.stack([6.0 * chance.dirichlet(np.ones(4)), 2.0 * chance.dirichlet(np.ones(4))]),
        hours=np.array([0.4, 0.6]),
        quotas=(Quota("g0", frozenset([0, 1, 2]), 2.0),),
        spot_share=0.5,
    )


@settings(max_examples=examples(5), deadline=None)
@given(SEEDS)
def test_pools_left_out_as_beaten_are_missed_by_no_plan(seed: int) -> None:
    problem = tied(seed)
    left = dominated_pools(problem)
    remaining = np.flatnonzero(~left[problem.pool_of])
    whole = Program(problem, np.arange(len(problem.columns))).solve(30.0, 1e-6)
    part = Program(problem, remaining).solve(30.0, 1e-6)
    assert whole is not None
    assert part is not None
    assert part.cost <= whole.cost * (1 + 1e-5)


def test_some_pools_are_beaten_and_never_all_of_them() -> None:
    counts = [int(dominated_pools(tied(seed)).sum()) for seed in range(20)]
    assert sum(counts) > 0
    assert max(counts) < 6
    same = market(3, 2, rates=np.ones((3, 2)), pools=tuple(Pool(f"p{j}", f"g{j}", 1, (PriceOption("d", 2.0),)) for j in range(3)))
    assert dominated_pools(same).tolist() == [False, True, True]
