"""Tails of steady loads where they can be worked out: steps of one length, rates at their ends."""

from __future__ import annotations

from math import e, inf

import numpy as np
import pytest
from scipy.stats import poisson  # type: ignore[import-untyped]

from tests.serving_cases import small
from whichgpu.estimate.serving.service_times import MeanLengths, ServiceTimes, max_running
from whichgpu.estimate.serving.tpot_tail import tpot_tail


def paced(steps: list[float], reads: list[float], prompt: float = 100.0, output: float = 51.0, ranks: int = 1) -> ServiceTimes:
    """A rank with as many slots as there are step times: fifty tokens come after the first."""
    limits = small(1 << 20, max_sequences=len(steps))
    places = np.arange(1.0, len(steps) + 1)
    return ServiceTimes(MeanLengths(prompt, output), limits, ranks, places, np.array(steps), np.array(reads))


def test_without_interference_every_token_takes_one_step() -> None:
    pace = paced([0.02] * 8, [0.0] * 8)
    for rate in (0.01, 1.0, 4.0, 7.9):
        for percentile in (50.0, 95.0, 99.9):
            assert tpot_tail(pace, rate, percentile) == pytest.approx(0.02)


def test_queue_never_empties_from_the_saturation_rate() -> None:
    """Eight slots, a second each: eight a second."""
    pace = paced([0.02] * 8, [0.0] * 8)
    assert tpot_tail(pace, 7.999, 95.0) < inf
    assert tpot_tail(pace, 8.0, 95.0) == inf
    assert tpot_tail(pace, 9.0, 95.0) == inf
    assert tpot_tail(paced([0.02] * 8, [0.0] * 8, ranks=3), 23.9, 95.0) < inf
    assert tpot_tail(paced([0.02] * 8, [0.0] * 8, ranks=3), 24.0, 95.0) == inf
    slower = paced([0.02] * 8, [0.05] * 8)  # prompts take a twentieth of a second each: at five a second a quarter of the time
    assert tpot_tail(slower, 8 / (1 + 8 * 0.05) * 0.999, 95.0) < inf
    assert tpot_tail(slower, 8 / (1 + 8 * 0.05) * 1.001, 95.0) == inf


def test_single_token_outputs_have_no_tpot() -> None:
    assert tpot_tail(paced([0.02] * 8, [0.0] * 8, output=1.0), 1.0, 95.0) == 0.0
    assert tpot_tail(paced([0.02] * 8, [0.0] * 8, output=0.5), 1.0, 95.0) == 0.0


def test_alone_a_request_takes_the_steps_of_one() -> None:
    """So rare that requests hardly overlap: half of them see neither a larger batch nor another prompt."""
    pace = paced([0.01, 0.02, 0.03, 0.04], [0.5] * 4)
    assert tpot_tail(pace, 1e-9, 50.0) == pytest.approx(0.01)
    assert tpot_tail(paced([0.01, 0.02, 0.03, 0.04], [0.0] * 4), 1e-9, 99.0) == pytest.approx(0.01)


def test_no_request_is_slower_than_in_a_full_batch() -> None:
    """Prompts that take no time: between the steps of one and of all."""
    pace = paced([0.01, 0.02, 0.03, 0.04], [0.0] * 4)
    tails = [tpot_tail(pace, rate, 95.0) for rate in np.linspace(0.05, 1.9, 30)]
    assert tails == sorted(tails)
    assert tails[0] < 0.02
    assert tails[-1] == pytest.approx(0.04)
    assert tpot_tail(pace, 2.0, 95.0) == inf  # four slots of two seconds each


def test_prompts_cost_more_the_longer_they_take() -> None:
    tails = [tpot_tail(paced([0.02] * 8, [read] * 8), 3.0, 95.0) for read in (0.0, 0.001, 0.01, 0.05)]
    assert tails == sorted(tails)
    # on average the time they take is shared by all tokens written meanwhile
    median = tpot_tail(paced([0.02] * 8, [0.01] * 8), 3.0, 50.0)
    assert median == pytest.approx(0.02 / (1 - 3 * 0.01), rel=0.02)


@pytest.mark.parametrize(("rate", "read"), [(10.0, 0.002), (20.0, 0.002), (20.0, 0.005), (40.0, 0.001)])
@pytest.mark.parametrize("percentile", [80.0, 95.0, 99.0])
def test_arrivals_during_a_request_are_poisson(rate: float, read: float, percentile: float) -> None:
    """Steps of one length and room for all: a request waits for as many prompts as come while it writes its fifty tokens."""
    pace = paced([0.02] * 128, [read] * 128)
    stay = 50 * 0.02 / (1 - rate * read) + read + 0.02  # and while its own is read
    expected = poisson.ppf(percentile / 100, rate * stay)
    quantile = (tpot_tail(pace, rate, percentile) - 0.02) * 50 / read
    assert quantile == pytest.approx(expected, abs=0.02 * expected + 1.0 + rate * (read + 0.02))


@pytest.mark.parametrize("rate", [4.0, 10.0])
def test_concurrency_is_poisson_below_the_slot_limit(rate: float) -> None:
    """Steps that grow by a little for each: of a stay as long as the number takes to settle 86% of its swing is felt."""
    pace = paced([0.02 * (1 + 1e-5 * number) for number in range(1, 129)], [0.0] * 128)
    for percentile in (80.0, 95.0):
        swing = poisson.ppf(percentile / 100, rate) - rate
        quantile = (tpot_tail(pace, rate, percentile) / 0.02 - 1) / 1e-5
        assert quantile == pytest.approx(rate + 1 + (2 / e) ** 0.5 * swing, rel=0.02)


def test_slots_at_their_ends() -> None:
    limits = small(1000)
    assert max_running(limits, 100, 50) == 8  # 125 tokens each, half-way through their answers
    assert max_running(small(999), 100, 50) == 7
    assert max_running(small(1 << 20), 100, 50) == 16
    assert max_running(small(10), 100, 50) == 1
    assert MeanLengths(100.0, 50.0).context == 125.0
