"""What a run under load amounts to, counted by hand; queues by their formulas."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from msgspec.structs import replace

from tests.serving_cases import linear, small
from whichgpu.estimate.serving.load import Lengths, Load, longest_request, mean_lengths
from whichgpu.estimate.serving.load_screen import erlang_c, mean_wait, screen_load
from whichgpu.estimate.serving.service_times import max_running
from whichgpu.estimate.serving.simulator import SimulationOutcome
from whichgpu.estimate.serving.summary import batch_size_bands, enough_requests, summarise


def outcome(
    arrived: list[float], first: list[float], finished: list[float], outputs: list[int], **more: object
) -> SimulationOutcome:
    count = len(arrived)
    plain = SimulationOutcome(
        np.array(arrived), np.array(first), np.array(finished), np.full(count, 10), np.array(outputs), 0, 0, 0, 0, 0, 1.0, 0.5,
        np.array([0.0, 6.0, 2.0]), np.array([0, 3, 4]),
    )  # fmt: skip
    return replace(plain, **more)


# Four requests a second apart: first tokens after 1, 1, 2, 4 s; answers of 5, 3, 1 and 5 tokens take 2, 2, 0 and 1 s more.
FOUR = outcome([0.0, 1.0, 2.0, 3.0], [1.0, 2.0, 4.0, 7.0], [3.0, 4.0, 4.0, 8.0], [5, 3, 1, 5])


def test_latencies_by_hand() -> None:
    summary = summarise(FOUR, percentiles=(50.0, 100.0))
    assert summary.requests == 4
    assert summary.ttft.at == (1.5, 4.0)
    assert summary.ttft.mean == 2.0
    assert summary.tpot.at == (0.5, 1.0)  # 2/4, 2/2, 1/4; an answer of one token has nothing between tokens
    assert summary.tpot.mean == pytest.approx((0.5 + 1.0 + 0.25) / 3)
    assert summary.latency.at == (3.0, 5.0)
    assert summary.met is None
    assert summary.goodput is None
    assert not summary.growing
    assert summary.mean_batch == pytest.approx((1 * 6 + 2 * 2) / 8)


def test_rates_cover_the_whole_run_if_it_ends_long_after_the_last_arrival() -> None:
    summary = summarise(FOUR)  # 3 s of arrivals, 8 s in all
    assert summary.throughput == pytest.approx(14 / 8)
    assert summary.answered_rate == pytest.approx(4 / 8)


def test_rates_are_over_the_arrival_period() -> None:
    summary = summarise(outcome([0.0, 1.0, 2.0, 4.0], [0.5, 1.5, 2.5, 4.5], [1.0, 2.0, 3.0, 5.0], [2, 4, 6, 8]))
    assert summary.answered_rate == pytest.approx(3 / 4)
    assert summary.throughput == pytest.approx(12 / 4)
    edge = summarise(
        outcome([0.0, 1.0, 2.0], [0.5, 1.5, 2.0], [1.0, 2.0, 3.0], [2, 4, 8])
    )  # what ends with the last arrival counts
    assert edge.answered_rate == pytest.approx(2 / 2)


def test_refused_requests_are_no_part_of_it() -> None:
    summary = summarise(outcome([0.0, 1.0, 2.0, 4.0], [0.5, -1.0, 2.5, 4.5], [1.0, -1.0, 3.0, 5.0], [2, 4, 6, 8]))
    assert summary.requests == 3
    assert summary.throughput == pytest.approx(8 / 4)
    none = summarise(outcome([0.0], [-1.0], [-1.0], [3]), ttft_max=1.0)
    assert (none.requests, none.throughput, none.answered_rate, none.met, none.ttft.mean) == (0, 0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("limits", "share"),
    [({"ttft_max": 2.0}, 0.75), ({"ttft_max": 1.99}, 0.5), ({"tpot_max": 0.25}, 0.5), ({"latency_max": 3.0}, 0.75),
     ({"ttft_max": 1.0, "tpot_max": 0.5}, 0.25), ({"latency_max": 0.1}, 0.0)],
)  # fmt: skip
def test_objectives_are_met_together_or_not(limits: dict[str, float], share: float) -> None:
    summary = summarise(FOUR, **limits)  # type: ignore[arg-type]
    assert summary.met == share
    assert summary.goodput == pytest.approx(share * summary.answered_rate)


def test_the_first_tenth_of_a_drawn_load_is_left_out() -> None:
    count = 20
    late = [0.1] * count
    late[0] = late[1] = 9.0  # they met an empty server, say
    times = [float(place) for place in range(count)]
    run = outcome(
        times, [a + b for a, b in zip(times, late, strict=True)], [a + b for a, b in zip(times, late, strict=True)], [1] * count
    )
    load = Load(1.0, Lengths(10), Lengths(1), count)
    assert summarise(run, load).ttft.mean == pytest.approx(0.1)
    assert summarise(run, load).requests == 18
    assert summarise(run).ttft.mean == pytest.approx((18 + 1.8) / 20)


@pytest.mark.parametrize(("rise", "growing"), [(0.0, False), (0.02, False), (0.2, True)])
def test_a_queue_without_end_makes_the_late_wait_longer(rise: float, growing: bool) -> None:
    times = [float(place) for place in range(60)]
    first = [time + 1.0 + rise * time for time in times]
    assert summarise(outcome(times, first, [one + 4.0 for one in first], [5] * 60)).growing is growing
    few = summarise(outcome(times[:39], first[:39], [one + 4.0 for one in first[:39]], [5] * 39))
    assert not few.growing


@pytest.mark.parametrize(("late", "stay", "growing"), [(5.9, 1.0, False), (6.1, 1.0, True), (6.1, 8.0, True), (6.1, 9.0, False)])
def test_late_ones_wait_half_as_long_again_and_a_quarter_of_a_stay_more(late: float, stay: float, growing: bool) -> None:
    times = [float(place) for place in range(60)]
    first = [time + (4.0 if place < 40 else late) for place, time in enumerate(times)]
    assert summarise(outcome(times, first, [one + stay for one in first], [5] * 60)).growing is growing


def test_tpot_grows_with_batch() -> None:
    one, two = batch_size_bands(FOUR)
    assert (one.batch, one.tpot, one.share) == (1, 2.0, 0.75)
    assert (two.batch, two.tpot, two.share) == (2, 0.5, 0.25)
    assert batch_size_bands(replace(FOUR, batch_steps=np.zeros(3, dtype=int))) == ()
    steps, seconds = np.zeros(101, dtype=int), np.zeros(101)
    steps[[90, 99, 100]], seconds[[90, 99, 100]] = [1, 1, 2], [1.0, 2.0, 3.0]
    (band,) = batch_size_bands(replace(FOUR, batch_steps=steps, batch_seconds=seconds))  # one of twelve bands: 69 to 100
    assert (band.batch, band.tpot, band.share) == (97, 1.5, 1.0)


def test_ten_requests_must_lie_beyond_a_percentile() -> None:
    assert enough_requests(200, 95)
    assert not enough_requests(199, 95)


def test_erlang_by_hand() -> None:
    """Two servers with 1.5 in use: B = 1.125 / (1 + 1.5 + 1.125), C = 2 B / (2 - 1.5 (1 - B))."""
    blocked = 1.125 / 3.625
    assert erlang_c(2, 1.5) == pytest.approx(2 * blocked / (2 - 1.5 * (1 - blocked)))
    assert erlang_c(3, 3.0) == 1.0
    assert mean_wait(2, 0.75, 2.0) == pytest.approx(erlang_c(2, 1.5) * 2 / 0.5)
    assert mean_wait(2, 0.75, 2.0, 0.0, 1.0) == pytest.approx(erlang_c(2, 1.5) * 2 / 0.5 / 2)
    assert mean_wait(1, 0.5, 1.0, 1.0, 0.0) == pytest.approx(
        0.5
    )  # Pollaczek and Khinchine: with constant service times the wait is half as long
    assert mean_wait(2, 1.0, 2.0) == inf


def test_slots_hold_half_an_answer_each_or_all_of_it() -> None:
    assert max_running(small(1600), 100, 200) == 8
    assert max_running(small(1600, reserve_answers=True), 100, 200) == 5
    assert max_running(small(1600), 10, 20) == 16  # no more than there may be
    assert max_running(small(16), 100, 200) == 1


def test_formulas_by_hand_for_steps_of_one_length() -> None:
    """Steps always take 10 ms; 50 output tokens; prompts of 100 tokens take a step of their own."""
    load = Load(2.0, Lengths(100), Lengths(50), 10)
    screen = screen_load(linear(fixed=0.01), load)
    assert screen.slots == 16
    assert screen.saturation == pytest.approx(16 / 0.5)
    assert screen.utilisation == pytest.approx(2 / 32)
    assert screen.batch == pytest.approx(1.0)  # Little: 2 a second stay half a second
    assert screen.tpot == pytest.approx(0.01)
    apart = screen_load(linear(small(1 << 20, mixed_steps=False), fixed=0.01), load)
    assert apart.saturation == pytest.approx(16 / (0.5 + 16 * 0.01))
    busy = screen_load(linear(fixed=0.01), load.at(20.0))
    assert busy.batch == pytest.approx(10.0)
    assert busy.wait == pytest.approx(mean_wait(16, 20.0, 0.5))
    both = screen_load(linear(fixed=0.01, replicas=2, stages=3), load.at(20.0))
    assert both.saturation == pytest.approx(6 * 16 / 0.5)
    assert both.batch == pytest.approx(20 / 6 * 0.5)


def test_a_long_prompt_is_read_in_as_many_steps_as_it_takes() -> None:
    load = Load(1.0, Lengths(2048), Lengths(50), 10)
    apart = screen_load(linear(small(1 << 20, mixed_steps=False), fixed=0.01), load)
    assert apart.saturation == pytest.approx(16 / (0.5 + 16 * 0.04))  # 512 tokens a step


def test_means_and_the_longest_of_a_load() -> None:
    load = Load(1.0, Lengths(100, 0.5), Lengths.histogram((10, 30), (3, 1)), 10)
    assert mean_lengths(load) == (100, 15.0)
    assert longest_request(load) == int(100 * np.exp(1.5) + 30)


def test_lengths_are_whole_and_have_their_mean() -> None:
    chance = np.random.default_rng(1)
    drawn = Lengths(200.0, 0.8).draw(chance, 20000)
    assert drawn.mean() == pytest.approx(200.0, rel=0.03)
    assert np.std(np.log(drawn)) == pytest.approx(0.8, rel=0.03)
    picked = Lengths.histogram((10, 30), (3, 1)).draw(chance, 4000)
    assert set(picked.tolist()) == {10, 30}
    assert (picked == 10).mean() == pytest.approx(0.75, abs=0.03)
    assert Lengths(0.2).draw(chance, 3).tolist() == [1, 1, 1]
    assert Lengths(2.6).draw(chance, 2).tolist() == [3, 3]


def test_arrivals_beat_or_burst_at_their_rate() -> None:
    load = Load(4.0, Lengths(1), Lengths(1), 20000, burstiness=0.0)
    assert load.times()[:3].tolist() == [0.0, 0.25, 0.5]
    for burstiness in (0.5, 1.0, 4.0):
        gaps = np.diff(replace(load, burstiness=burstiness).times())
        assert gaps.mean() == pytest.approx(0.25, rel=0.05)
        assert gaps.var() / gaps.mean() ** 2 == pytest.approx(burstiness, rel=0.1)
    assert np.allclose(replace(load, burstiness=1.0).times(), 2 * replace(load, burstiness=1.0, rate=8.0).times())
    assert load.at(2.0, 7).requests == 7
    assert load.at(2.0).requests == 20000
