"""How tokens spread over the experts of an MoE layer: distinct experts touched, and rows that a rank's experts process.

An expert's popularity follows a power law between the least and the most popular one; `skew` is the ratio of the two, 1 if all
are equally popular. Tokens choose their experts independently of each other.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from whichgpu.estimate.time.operators import Number
from whichgpu.workload.shapes import Experts

# Served models are taken to route evenly: they are trained to balance their experts, and decode steps of Qwen3-30B-A3B measured
# on the H200 read as many experts as even routing touches. Skewed routing touches fewer experts and loads the busiest rank more.
SERVED_SKEW: Final = 1.0
POPULARITY_EXPONENT: Final = 1.2  # exponent of the density of popularities, as in aiconfigurator's kernel tables
QUANTILES: Final = 64  # points of the popularity distribution, over which sums over experts are approximated


def distinct_experts(tokens: Number, topk: float, experts: float, skew: float = SERVED_SKEW) -> Number:
    """Return the expected number of experts that at least one of `tokens` tokens chooses, each token choosing `topk`.

    >>> round(distinct_experts(4.0, 2, 8), 2), round(distinct_experts(4.0, 2, 8, skew=20.0), 2)
    (5.47, 4.44)
    """
    if skew <= 1.0:
        evenly: Number = experts * (1.0 - (1.0 - min(1.0, topk / experts)) ** tokens)
        return evenly
    missed = [(1.0 - chance) ** tokens for chance in choice_probabilities(topk, experts, skew)]
    return experts * (1.0 - sum(missed) / len(missed))


@lru_cache(maxsize=256)
def choice_probabilities(topk: float, experts: float, skew: float) -> tuple[float, ...]:
    """Return the probability that a token chooses an expert, at quantiles of popularity; their mean is topk/experts."""
    quantiles = (np.arange(QUANTILES) + 0.5) / QUANTILES
    slope = POPULARITY_EXPONENT - 1.0
    popularity = (1.0 - quantiles * (1.0 - skew**-slope)) ** (-1.0 / slope)
    chances = np.minimum(topk / experts * popularity / popularity.mean(), 1.0)
    room = (1.0 - chances).mean()  # A token chooses an expert at most once; what exceeds that is spread over the other experts.
    lost = topk / experts - chances.mean()
    return tuple((chances + (1.0 - chances) * (lost / room if room > 0 else 0.0)).tolist())


def touched_experts(experts: Experts, rows: Number) -> Number:
    """Return the expected distinct experts chosen on one rank if each attention data-parallel group has `rows` tokens.

    >>> round(touched_experts(Experts(8, 2, 1), 4.0), 2), round(touched_experts(Experts(8, 2, 1, ranks=4), 4.0), 2)
    (5.47, 1.37)
    """
    touched = distinct_experts(rows * experts.token_groups, experts.active, experts.count)
    return touched * (experts.per_rank / experts.count)


def routed_rows(experts: Experts, rows: Number) -> Number:
    """Return the rows that one rank's experts process under even routing, with `rows` tokens per attention data-parallel group.

    >>> routed_rows(Experts(8, 2, 1), 4.0), routed_rows(Experts(8, 2, 1, ranks=4), 4.0)
    (8.0, 2.0)
    """
    return rows * float(experts.active) * (experts.token_groups * experts.per_rank / experts.count)
