"""Which prefill and decode workers on rented machines go into the program: those of places where they may save money."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whichgpu.decide.plan.solver.problem import Floats

MIN_GAIN = 0.02  # Serving by workers must cost this share less than by aggregated replicas, whole machines not counted.
MAX_PLACES = 2  # Workers of at most this many places are considered for a model.
PER_BUCKET = 2  # In each role, as many of the cheapest workers for each bucket of requests.


def place_gains(aggregated: Floats, prefill: Sequence[Floats], decode: Sequence[Floats], weights: Floats) -> Floats:
    """Return by what share serving costs less with the workers of each place, each bucket in the cheaper way.

    Costs are per request of each bucket [buckets], infinite if it cannot be served in time; `weights` are requests per second.
    A place that alone serves some bucket in time gains one more.

    >>> place_gains(np.array([4.0, 2.0]), [np.array([1.0, 1.0])], [np.array([1.0, 2.0])], np.array([1.0, 1.0])).tolist()
    [0.3333333333333333]
    """
    served, gains = np.isfinite(aggregated) & (weights > 0), []
    total = float((aggregated[served] * weights[served]).sum())
    for here in (first + second for first, second in zip(prefill, decode, strict=True)):
        both = served & np.isfinite(here)
        saved = float((np.maximum(0.0, aggregated[both] - here[both]) * weights[both]).sum())
        alone = bool(np.any(np.isfinite(here) & ~served & (weights > 0)))
        gains.append(float(alone) + (saved / total if total > 0 else 0.0))
    return np.array(gains)


def best_places(gains: Floats) -> list[int]:
    """Return the places whose workers gain enough, highest gain first."""
    return [int(at) for at in np.argsort(-gains, kind="stable")[:MAX_PLACES] if gains[at] >= MIN_GAIN]


def cheapest_for_some_bucket(costs: Floats) -> list[int]:
    """Return the workers [workers, buckets] that are among the cheapest for a bucket of requests that they serve."""
    ranked = np.argsort(costs, axis=0, kind="stable")[:PER_BUCKET]
    return sorted({int(at) for b, row in enumerate(ranked.T) for at in row if np.isfinite(costs[at, b])})
