"""Time to choose a fleet's mix, and its proven distance from the cheapest, as offers, buckets and the fleet grow.

    python -m benchmarks.plan           # the goals
    python -m benchmarks.plan growth    # offers x buckets x fleet, three kinds of market, as a table

Markets are drawn from a seed: `alike` has GPUs of 40 kinds at many prices, `near` varies each offer's speed by 7%, `apart` that
of every offer at every bucket by 25%, so that few offers are dominated.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import numpy as np

from benchmarks.start import Result
from whichgpu.api.plan.plan_file import read_plan
from whichgpu.catalog.store import Catalog
from whichgpu.decide.plan.solver.problem import Floats, Pool, PriceOption, Problem, Solution
from whichgpu.decide.plan.solver.solve import solve
from whichgpu.estimate.lookup_cache import LookupCache

KINDS = 40
GAP = 0.03  # of three models
THREE_MODELS, THREE_MODELS_SECONDS = Path(__file__).parent / "three_models.toml", 20.0  # on two cores
DAY = date(2026, 10, 1)  # prices of this day
GOALS = ((200, 2000, 20.0, 0.01), (2000, 200, 20.0, 0.01), (5000, 400, 60.0, 0.03))  # offers, buckets, seconds on two cores, gap
SHARE = 0.8  # share of the goal's seconds that the solver may use
MARKETS = ("alike", "near", "apart")
FLEETS = (5.0, 50.0, 500.0)  # total cost as a multiple of a typical machine's price
SIZES = ((250, 50), (500, 100), (1000, 200), (2000, 200), (5000, 400))


def drawn(offers: int, buckets: int, fleet: float, market: str, seed: int = 0) -> Problem:
    """A random market and its traffic."""
    chance = np.random.default_rng([seed, offers, buckets])
    prompts, outputs = 2.0 ** chance.uniform(5, 14, buckets), 2.0 ** chance.uniform(3, 11, buckets)
    flops = 2.0 ** chance.uniform(0, 5, KINDS)
    band = flops**0.7 * 2.0 ** chance.uniform(-0.7, 0.7, KINDS)
    memory = 2.0 ** chance.uniform(0, 4, KINDS)
    price = (0.5 * flops + 0.4 * band + 0.1 * memory) * chance.uniform(0.8, 1.3, KINDS)
    base = np.stack([_speed(prompts, outputs, *kind) for kind in zip(flops, band, memory, strict=True)])
    kinds, sizes = chance.integers(0, KINDS, offers), chance.choice([1, 2, 4, 8], offers)
    noise = {
        "alike": np.ones((offers, 1)),
        "near": chance.uniform(0.93, 1.07, (offers, 1)),
        "apart": chance.uniform(0.8, 1.25, (offers, buckets)),
    }[market]
    rates = base[kinds] * sizes[:, None] * noise
    cost = price[kinds] * sizes * chance.uniform(0.7, 1.5, offers)
    mix = chance.dirichlet(np.full(buckets, 0.5))
    cheapest = float((mix / (rates / cost[:, None]).max(axis=0)).sum())
    demand = mix * fleet * float(np.median(price)) / cheapest
    pools = tuple(Pool(f"offer {j}", f"gpu {kinds[j]}", 1, (PriceOption(f"offer {j}", float(cost[j])),)) for j in range(offers))
    names = tuple(pool.name for pool in pools)
    ones = np.ones(offers, dtype=np.int64)
    return Problem(pools, names, np.arange(offers), ones, rates, demand[None, :], np.ones(1))


def _speed(prompts: Floats, outputs: Floats, flops: float, band: float, memory: float) -> Floats:
    """Requests per second of a fictional GPU: prefill is compute-bound, decode memory-bound, memory limits concurrency."""
    together = np.clip(memory * 60_000 / (prompts + outputs), 0.0, 256.0)
    seconds = prompts / (flops * 8000) + outputs * (
        0.02 / band / np.maximum(together, 1.0) + 2e-5 / band * (prompts + outputs) / 2000
    )
    speeds: Floats = np.where(together >= 1, 1.0 / seconds, 0.0)
    return speeds


def solved(problem: Problem, seconds: float) -> tuple[Solution, float]:
    """The plan for a problem and the seconds it took."""
    start = time.perf_counter()
    solution = solve(problem, seconds)
    assert solution is not None
    return solution, time.perf_counter() - start


def results() -> Iterator[Result]:
    """Each goal on the hardest market, at every fleet size; a gap beyond the goal counts as no answer."""
    for offers, buckets, seconds, gap in GOALS:
        for fleet in FLEETS:
            solution, took = solved(drawn(offers, buckets, fleet, "apart"), SHARE * seconds)
            name = f"plan, {offers:,} offers x {buckets} buckets, a bill of {fleet:g} machines: gap {solution.gap:.2%}"
            yield Result(name, took if solution.gap <= gap else float("inf"), took, seconds)
    solution, took = solved(three_models(), SHARE * THREE_MODELS_SECONDS)
    name = f"plan, three models on owned, reserved and spot GPUs with a job: gap {solution.gap:.2%}"
    yield Result(name, took if solution.gap <= GAP else float("inf"), took, THREE_MODELS_SECONDS)


def three_models() -> Problem:
    """The problem of three models, owned GPUs, reserved and spot machines and a job, at the first margins."""
    from whichgpu.decide.plan.inputs import PlanSources, problem_limits, read_inputs, silent, supply_of
    from whichgpu.decide.plan.refusal import Refusal
    from whichgpu.decide.plan.solver.build import build

    sources = PlanSources(LookupCache(Catalog()), DAY)
    question = read_plan(THREE_MODELS)
    inputs = read_inputs(question, sources, silent)
    supply = supply_of(question, inputs)
    assert not isinstance(supply, Refusal)
    return build(inputs.models, supply.pools, question.levels, problem_limits(question, inputs, supply.pools)).problem


def growth() -> None:
    """A table of all sizes, markets and fleets."""
    print("\t".join(("offers", "buckets", "market", "fleet", "groups", "program", "gap", "seconds")))
    for offers, buckets in SIZES:
        seconds = next(goal for max_offers, _, goal, _ in GOALS if offers <= max_offers)
        for market in MARKETS:
            for fleet in FLEETS:
                problem = drawn(offers, buckets, fleet, market)
                solution, took = solved(problem, SHARE * seconds)
                cells = (
                    offers,
                    buckets,
                    market,
                    f"{fleet:g}",
                    len(problem.columns),
                    solution.program_columns,
                    f"{solution.gap:.2%}",
                    f"{took:.1f}",
                )
                print("\t".join(map(str, cells)), flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["growth"]:
        growth()
    else:
        from benchmarks.start import table

        sys.exit(table(results()))
