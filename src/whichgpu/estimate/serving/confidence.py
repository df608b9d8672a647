"""How sure a simulation is of the share of requests that meet their objectives."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
BATCHES = (10, 20)  # Consecutive parts of a run whose means are compared; the larger variance counts.
STUDENT = 1.833  # 95% quantile of Student's t with nine degrees of freedom, one fewer than batches.


class MetShare(msgspec.Struct, frozen=True):
    """The share of requests that met their objectives, and its lower bound with 95% confidence."""

    value: float
    low: float


def met_share(groups: Sequence[tuple[Bools, float]]) -> MetShare:
    """Return the share met over groups of requests: whether each met its objectives, in order of arrival, and the group's weight.

    Requests that arrive together share queues, so the variance of the share is that of the means of consecutive batches, if it is
    larger than that of independent requests (batch means). The number of independent requests with that variance enters Wilson's
    one-sided bound with Student's quantile for one run; several runs are surer than that.

    >>> share = met_share([(np.ones(3600, dtype=bool), 1.0)])
    >>> round(share.value, 4), round(share.low, 4)
    (1.0, 0.9991)
    """
    groups = [(good, weight) for good, weight in groups if len(good)]
    total = sum(weight for _, weight in groups)
    if not total:
        return MetShare(0.0, 0.0)
    value = variance = spread = 0.0
    for good, weight in groups:
        share, part = float(good.mean()), weight / total
        value += part * share
        variance += part**2 * max(_variance_of_mean(good), share * (1.0 - share) / len(good))
        spread += part**2 / len(good)
    requests = min(value * (1.0 - value) / variance, 1.0 / spread) if variance > 0 else 1.0 / spread
    value = min(value, 1.0)
    return MetShare(value, _wilson(value, requests))


def requests_to_show(share: float) -> float:
    """Return how many independent requests, all of which meet their objectives, show with 95% confidence that this share does.

    >>> round(requests_to_show(0.99))
    333
    """
    return STUDENT**2 * share / max(1.0 - share, 1e-6)


def _variance_of_mean(good: Bools) -> float:
    """Return the variance of a run's mean, from the means of consecutive batches; 0 if there are too few requests."""
    variances = [0.0]
    for batches in BATCHES:
        if size := len(good) // batches:
            means = good[-size * batches :].reshape(batches, size).mean(axis=1)
            variances.append(float(means.var(ddof=1) / batches))
    return max(variances)


def _wilson(share: float, requests: float) -> float:
    """Return Wilson's lower bound of a share observed among independent requests (E. B. Wilson, 1927)."""
    excess = STUDENT**2 / requests
    centre = share + excess / 2.0
    half = STUDENT * np.sqrt(share * (1.0 - share) / requests + excess / (4.0 * requests))
    return float(max(0.0, (centre - half) / (1.0 + excess)))
