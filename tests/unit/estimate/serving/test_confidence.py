"""The lower bound of a simulated share is below the true share in 95 of 100 runs, also if requests share queues."""

from __future__ import annotations

import numpy as np
import pytest

from whichgpu.estimate.serving.confidence import met_share, requests_to_show


def runs(share: float, length: int, requests: int = 3600, count: int = 400) -> list[np.ndarray]:
    """Outcomes of requests of which this share is met; about `length` neighbours meet or miss together."""
    chance = np.random.default_rng([7, length])
    outcomes = []
    for _ in range(count):
        new = chance.random(requests) < 1.0 / length
        new[0] = True
        drawn = chance.random(requests) < share
        outcomes.append(drawn[np.maximum.accumulate(np.where(new, np.arange(requests), 0))])
    return outcomes


@pytest.mark.parametrize("length", [1, 5])
@pytest.mark.parametrize("share", [0.9, 0.95])
def test_the_bound_covers_the_true_share(share: float, length: int) -> None:
    covered = np.mean([met_share([(good, 1.0)]).low <= share for good in runs(share, length)])
    assert covered >= 0.93  # of 400 runs; 95% within three standard deviations of the count


def test_correlated_requests_show_less_than_independent_ones() -> None:
    independent, correlated = (np.mean([met_share([(good, 1.0)]).low for good in runs(0.95, length)]) for length in (1, 40))
    assert correlated < independent - 0.01


def test_more_runs_show_more_and_groups_count_by_their_weight() -> None:
    first, second, *_ = runs(0.96, 5)
    assert met_share([(first, 0.5), (second, 0.5)]).low > min(met_share([(one, 1.0)]).low for one in (first, second))
    good, bad = np.ones(1000, dtype=bool), np.zeros(1000, dtype=bool)
    assert met_share([(good, 3.0), (bad, 1.0)]).value == pytest.approx(0.75)
    assert met_share([]).low == 0.0


def test_all_requests_met_show_a_percentile_only_if_there_are_enough() -> None:
    needed = requests_to_show(0.99)
    assert met_share([(np.ones(int(needed) + 1, dtype=bool), 1.0)]).low >= 0.99
    assert met_share([(np.ones(int(needed) - 1, dtype=bool), 1.0)]).low < 0.99
