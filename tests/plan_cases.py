"""Problems the tests of plans share: a published example, and small markets drawn from a seed."""

from __future__ import annotations

from typing import Any

import numpy as np

from whichgpu.decide.plan.solver.problem import Pool, PriceOption, Problem

# Mélange's published example: 30 requests a second in four sizes, two GPU types with a price and requests a second of each size.
TWO_TYPES: dict[str, Any] = {
    "rate": 30.0,
    "mix": [[0.2, 0.1], [0.5, 0.2]],
    "gpus": {
        "A10G": {"price": 1.01, "requests_per_second": [[2, 1], [5, 2]]},
        "A100-80GB": {"price": 3.67, "requests_per_second": [[20, 20], [40, 20]]},
    },
}


def market(offers: int, buckets: int, seed: int = 0, rate: float = 20.0, **more: Any) -> Problem:
    """Offers of one machine each with prices and speeds of no order."""
    chance = np.random.default_rng(seed)
    cost = chance.uniform(1.0, 5.0, offers)
    pools = tuple(Pool(f"p{j}", f"g{j}", 1, (PriceOption(f"p{j}", float(cost[j])),)) for j in range(offers))
    fields: dict[str, Any] = {
        "pools": pools,
        "columns": tuple(pool.name for pool in pools),
        "pool_of": np.arange(offers),
        "uses": np.ones(offers, dtype=np.int64),
        "rates": chance.uniform(0.5, 5.0, (offers, buckets)),
        "demand": rate * chance.dirichlet(np.ones(buckets))[None, :],
        "hours": np.ones(1),
    }
    return Problem(**(fields | more))


def brute(problem: Problem, limit: int) -> float:
    """The cheapest of all whole numbers of machines up to `most` of each, by trying them: one level, one way, no limits."""
    from itertools import product

    from whichgpu.decide.plan.solver.growth import max_growth

    prices = np.array([pool.options[0].price for pool in problem.pools])
    best = np.inf
    for counts in product(range(limit + 1), repeat=len(prices)):
        copies = np.array(counts, dtype=np.int64)
        cost = float(copies @ prices)
        if 0 < cost < best and max_growth(problem, copies, 0).factor >= 1 - 1e-9:
            best = cost
    return float(best)
