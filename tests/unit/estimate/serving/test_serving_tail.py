"""Formulas about a steady load: the drawn requests are like many, tails by formula are those of long simulations."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from msgspec.structs import replace

from tests.serving_cases import linear, real, small
from whichgpu.decide.configurations.replica_simulation import REQUESTS, TYPICAL
from whichgpu.estimate.serving.load import Lengths, Load
from whichgpu.estimate.serving.server import Server
from whichgpu.estimate.serving.service_times import ServiceTimes
from whichgpu.estimate.serving.simulator import simulate
from whichgpu.estimate.serving.summary import summarise
from whichgpu.estimate.serving.tpot_tail import scaled_waits, tpot_tail

WIDE = small(1 << 20, max_sequences=128)
DRAWN = Load(1.0, Lengths(100), Lengths(20), REQUESTS, seed=TYPICAL)


def test_sampled_requests_have_the_requested_mean_rate() -> None:
    for seed in range(5):
        for rate in (0.3, 7.0):
            assert replace(DRAWN, seed=seed).at(rate).times()[-1] == pytest.approx(REQUESTS / rate)


@pytest.mark.parametrize("window", [1, 2, 3, 5, 8, 12, 18, 27, 40])
def test_typical_draw_has_poisson_counts_in_every_window(window: int) -> None:
    """How many came in the window before each arrival: on average, and one in twenty times."""
    many = np.random.default_rng(1).poisson(window, 100_000)
    times = DRAWN.times()
    counts = (np.arange(REQUESTS) - np.searchsorted(times, times - window))[REQUESTS // 10 :]
    assert counts.mean() == pytest.approx(window, abs=0.25 * window**0.5)
    assert np.percentile(counts, 95) == pytest.approx(np.percentile(many, 95), abs=0.45 * window**0.5 + 0.5)


def slowed(copies: int = 1) -> Server:
    """A server whose steps grow with running sequences and prefilled tokens."""
    return linear(WIDE, copies, fixed=1e-2, token=2e-5, sequence=4e-4)


def simulated_tpot(server: Server, rate: float, prompt: int, output: int, requests: int = 6000) -> tuple[float, float]:
    """The mean and the 95th percentile of the time between tokens, simulated at length."""
    load = Load(rate, Lengths(prompt), Lengths(output), requests, seed=3)
    summary = summarise(server.run(load.arrivals()), load, percentiles=(95.0,))
    return summary.tpot.mean, summary.tpot.at[0]


@pytest.mark.parametrize("replicas", [2, 6])
def test_one_of_several_replicas_is_like_each_of_the_fleet(replicas: int) -> None:
    """Requests of one length go in turn to replicas that share a load, so that each sees more regular arrivals than alone."""
    prompt, output, server, fleet = 1000, 100, slowed(), slowed(replicas)
    pace = ServiceTimes.of(server, prompt, output)
    rate = 0.6 * pace.saturation
    load = Load(rate, Lengths(prompt), Lengths(output), REQUESTS, seed=TYPICAL)
    shared = replace(load, burstiness=1.0 / replicas)
    whole = replace(load, rate=rate * replicas, requests=3000)
    alone, one, all_of_them = (
        summarise(each.run(its.arrivals()), its, percentiles=(95.0,))
        for each, its in ((server, load), (server, shared), (fleet, whole))
    )
    assert one.tpot.at[0] == pytest.approx(all_of_them.tpot.at[0], rel=0.05)
    assert one.ttft.at[0] == pytest.approx(all_of_them.ttft.at[0], rel=0.15)
    assert alone.tpot.at[0] > 1.1 * all_of_them.tpot.at[0]
    assert tpot_tail(pace, rate, 95.0, replicas) == pytest.approx(all_of_them.tpot.at[0], rel=0.08)
    assert tpot_tail(pace, rate, 95.0) > 1.05 * tpot_tail(pace, rate, 95.0, replicas)


@pytest.mark.parametrize(("prompt", "output", "share"), [(200, 100, 0.3), (200, 100, 0.6), (50, 300, 0.75), (20, 400, 0.5)])
def test_a_tail_by_formula_is_that_of_a_long_simulation(prompt: int, output: int, share: float) -> None:
    server = slowed()
    pace = ServiceTimes.of(server, prompt, output)
    rate = share * pace.saturation
    _, tail = simulated_tpot(server, rate, prompt, output)
    assert tpot_tail(pace, rate, 95.0) == pytest.approx(tail, rel=0.04)


def test_tails_grow_with_rate_and_percentile_up_to_saturation() -> None:
    server = slowed()
    pace = ServiceTimes.of(server, 200, 100)
    shares = np.linspace(0.05, 0.95, 19)
    tails = [tpot_tail(pace, share * pace.saturation, 95.0) for share in shares]
    assert tails == sorted(tails)
    levels = [tpot_tail(pace, 0.5 * pace.saturation, level) for level in (50.0, 80.0, 90.0, 95.0, 99.0)]
    assert levels == sorted(levels)
    assert tpot_tail(pace, 3.0 * pace.saturation, 95.0) == inf
    assert tpot_tail(ServiceTimes.of(server, 200, 1), 1.0, 95.0) == 0.0  # nothing lies between the tokens of an answer of one


def test_replicas_and_data_parallel_ranks_share_a_rate() -> None:
    one, three = (ServiceTimes.of(slowed(copies), 200, 100) for copies in (1, 3))
    assert three.saturation == pytest.approx(3 * one.saturation)
    assert tpot_tail(three, 3.0, 95.0) == pytest.approx(tpot_tail(one, 1.0, 95.0))


@pytest.mark.parametrize(("prompt", "output"), [(1000, 100), (4000, 30), (100, 400)])
def test_saturation_formula_equals_a_flooded_server_s_throughput(prompt: int, output: int) -> None:
    """Prompts longer than a step takes, answers that fill the cache: within a fifth of what it does with all at once."""
    server = real("llama-3.1-8b", "l4", seq_in=prompt, seq_out=output)[0]
    flood = simulate([(0.0, prompt, output, ())] * 600, server.steps, server.batch_limits)
    ends = np.sort(flood.finished)
    answered = (450 - 150) / (ends[450] - ends[150])
    assert ServiceTimes.of(server, prompt, output).saturation == pytest.approx(answered, rel=0.2)


@pytest.mark.parametrize("factor", [0.8, 1.3])
@pytest.mark.parametrize(("prompt", "output", "share"), [(200, 100, 0.6), (50, 300, 0.5)])
def test_slower_steps_make_users_wait_as_long_as_a_simulation_of_them_says(
    prompt: int, output: int, share: float, factor: float
) -> None:
    server = slowed()
    pace = ServiceTimes.of(server, prompt, output)
    rate = share * pace.saturation
    usual, other = (simulated_tpot(one, rate, prompt, output)[1] for one in (server, server.scaled(factor)))
    _, each = scaled_waits(pace, rate, 95.0, (1.0, usual), factor, REQUESTS)
    assert each == pytest.approx(other, rel=0.05)
    assert abs(each / usual - 1.0) > abs(factor - 1.0)  # more running sequences slow each other, fewer do not


def test_overloaded_server_is_full_with_a_queue() -> None:
    pace = ServiceTimes.of(slowed(), 200, 100)
    rate = 0.9 * pace.saturation
    first, each = scaled_waits(pace, rate, 95.0, (0.1, 0.02), 2.0, 400)
    assert each >= pace.scaled(2.0).stay(pace.slots) / 100
    assert first == pytest.approx(0.2 + 0.95 * 400 * (2.0 / pace.saturation - 1.0 / rate), rel=1e-6)
    assert scaled_waits(pace, rate, 95.0, (0.1, 0.02), 1.0, 400) == pytest.approx((0.1, 0.02))


@pytest.mark.parametrize(("prompt", "output", "tokens"), [(2000, 100, 512), (2000, 100, 256), (500, 300, 512)])
def test_the_most_sequences_within_a_tpot_keep_it_under_a_flood_and_one_more_does_not(
    prompt: int, output: int, tokens: int
) -> None:
    server = slowed()
    limits = replace(server.batch_limits, max_batched_tokens=tokens)
    pace = ServiceTimes.of(replace(server, batch_limits=limits), prompt, output)
    limit = float(pace.full_tpot[7:9].mean())
    assert pace.most_within(limit) == 8
    assert pace.limited_to(8).slots == 8
    assert pace.most_within(0.0) == 0

    def flooded(sequences: int) -> float:
        one = replace(limits, max_sequences=sequences)
        outcome = simulate([(0.0, prompt, output, ())] * 200, server.steps, one)
        between = (outcome.finished - outcome.first) / (output - 1)
        return float(np.percentile(between[50:150], 50))

    assert flooded(8) <= 1.03 * limit
    assert flooded(10) > limit
