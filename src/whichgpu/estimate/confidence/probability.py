"""Probabilities from a 90% range: the true time over the estimate as a log-normal factor with a width of its own on each side.

The estimate is the median and the ends of the range are the 5th and the 95th percentile. On 10,305 measurements predicted without
their source, 78%, 82% and 92% lay below the factor's 75%, 80% and 90% quantile.
"""

from __future__ import annotations

from math import exp, inf, log
from statistics import NormalDist

import msgspec
import numpy as np

NORMAL = NormalDist()
Z95 = NORMAL.inv_cdf(0.95)
QUANTILES = 100  # Number of equally likely factors that stand for the distribution in expected values.


class FactorDistribution(msgspec.Struct, frozen=True):
    """Distribution of the factor between the true and the estimated time; `low` and `high` are the ends of its 90% range.

    >>> even = FactorDistribution(0.8, 1.5)
    >>> [round(even.probability_below(factor), 2) for factor in (0.8, 1.0, 1.25, 1.5)]
    [0.05, 0.5, 0.82, 0.95]
    >>> round(even.quantile(0.95), 3)
    1.5
    """

    low: float
    high: float

    def probability_below(self, factor: float) -> float:
        """Return the probability that the true time is at most `factor` times the estimated one."""
        if factor <= 0.0 or factor == inf:
            return 0.0 if factor <= 0.0 else 1.0
        end = log(self.high) if factor >= 1.0 else -log(self.low)
        if end <= 0.0:
            return 1.0 if factor >= 1.0 else 0.0
        return NORMAL.cdf(Z95 * log(factor) / end)

    def quantile(self, probability: float) -> float:
        """Return the factor that the true time stays below with this probability."""
        z = NORMAL.inv_cdf(probability)
        return exp(z / Z95 * (log(self.high) if z >= 0.0 else -log(self.low)))

    def factors(self) -> np.ndarray:
        """Return equally likely factors, in rising order; a mean over them is an expected value."""
        scores = _scores() / Z95
        return np.exp(np.where(scores >= 0.0, scores * log(self.high), -scores * log(self.low)))


def _scores() -> np.ndarray:
    return np.array([NORMAL.inv_cdf((place + 0.5) / QUANTILES) for place in range(QUANTILES)])
