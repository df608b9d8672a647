"""Probabilities that follow from 90% ranges, against the errors on measurements that the fit never saw."""

from __future__ import annotations

import numpy as np
import pytest

from whichgpu.estimate.confidence.probability import FactorDistribution
from whichgpu.estimate.time.left_out import left_out_table


def test_ends_of_the_range_are_its_percentiles() -> None:
    factor = FactorDistribution(0.7, 1.9)
    assert [factor.probability_below(end) for end in (0.7, 1.0, 1.9)] == pytest.approx([0.05, 0.5, 0.95])
    assert factor.probability_below(factor.quantile(0.83)) == pytest.approx(0.83)
    assert np.mean(factor.factors() <= 1.9) == pytest.approx(0.95, abs=0.011)


def test_a_time_without_a_range_is_certain() -> None:
    certain = FactorDistribution(1.0, 1.0)
    assert [certain.probability_below(factor) for factor in (0.99, 1.0, 1.01)] == [0.0, 1.0, 1.0]
    assert certain.quantile(0.9) == 1.0


@pytest.mark.parametrize("probability", [0.75, 0.8, 0.9])
def test_left_out_measurements_stay_below_the_quantiles_as_often_as_stated(probability: float) -> None:
    """Too seldom would make services late; much too often would make them dear."""
    table = left_out_table()
    errors, lows, highs = (table.column(f"source{end}") for end in ("", "_low", "_high"))
    finite = np.isfinite(errors) & np.isfinite(lows) & np.isfinite(highs)
    below = [
        -error <= np.log(FactorDistribution(float(np.exp(low)), float(np.exp(high))).quantile(probability))
        for error, low, high in zip(errors[finite][::7], lows[finite][::7], highs[finite][::7], strict=True)
    ]
    assert probability - 0.02 <= np.mean(below) <= probability + 0.08
