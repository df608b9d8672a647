"""Loads: rates, bursts, lengths, traces drawn out and repeated; what a run amounts to; formulas against simulation."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.serving_cases import DEFAULT_LIMITS, linear, real
from whichgpu.estimate.serving.curve import Objectives, saturation_rate, throughput_curve
from whichgpu.estimate.serving.load import Lengths, Load
from whichgpu.estimate.serving.load_screen import screen_load
from whichgpu.estimate.serving.summary import enough_requests, summarise
from whichgpu.workload.traces.reader import Trace

FIXED = Load(10.0, Lengths(100), Lengths(20), 20_000)
TRACE = Trace("t", array("d", [0.0, 1.0, 4.0]), array("q", [5, 6, 7]), array("q", [1, 2, 3]))


def times(load: Load) -> np.ndarray:
    return np.array([one[0] for one in load.arrivals()])


@pytest.mark.parametrize("burstiness", [0.0, 0.25, 1.0, 4.0])
def test_arrivals_have_the_requested_rate_and_burstiness(burstiness: float) -> None:
    gaps = np.diff(times(replace(FIXED, burstiness=burstiness)))
    assert gaps.mean() == pytest.approx(0.1, rel=0.05)
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(burstiness, rel=0.1, abs=1e-9)


def test_a_faster_load_is_the_same_load_pressed_together() -> None:
    assert times(FIXED.at(20.0)) == pytest.approx(times(FIXED) / 2)


def test_lengths_are_spread_around_their_mean() -> None:
    chance = np.random.default_rng(0)
    assert set(Lengths(100).draw(chance, 10)) == {100}
    spread = Lengths(1000, 0.8).draw(chance, 50_000)
    assert spread.mean() == pytest.approx(1000, rel=0.03)
    assert np.log(spread).std() == pytest.approx(0.8, rel=0.03)
    assert Lengths(1, 3.0).draw(chance, 1000).min() == 1
    weighted = Lengths.histogram((10, 50), (3, 1)).draw(chance, 10_000)
    assert (weighted == 10).mean() == pytest.approx(0.75, abs=0.02)


def test_trace_is_replayed_as_recorded_or_at_a_rate_and_repeats() -> None:
    own = Load(TRACE.rate or 0, Lengths(1), Lengths(1), 3, trace=TRACE)
    assert times(own) == pytest.approx([0, 1, 4])
    assert times(own.at(1.0)) == pytest.approx([0, 0.5, 2.0])
    twice = list(own.at(TRACE.rate or 0, 5).arrivals())
    assert [one[0] for one in twice] == pytest.approx([0, 1, 4, 6, 7])
    assert [one[1:3] for one in twice] == [(5, 1), (6, 2), (7, 3), (5, 1), (6, 2)]


def test_trace_of_one_instant_is_replayed_at_the_rate_too() -> None:
    together = Trace("t", array("d", [0.0, 0.0]), array("q", [5, 6]), array("q", [1, 2]))
    came = times(Load(2.0, Lengths(1), Lengths(1), 4000, trace=together))
    assert np.diff(came).mean() == pytest.approx(0.5, rel=0.05)


def test_trace_without_times_is_replayed_at_the_rate() -> None:
    bare = Trace("t", array("d"), array("q", [5, 6]), array("q", [1, 2]))
    load = list(Load(2.0, Lengths(1), Lengths(1), 4, trace=bare).arrivals())
    assert [one[1] for one in load] == [5, 6, 5, 6]
    assert (np.diff([one[0] for one in load]) > 0).all()


def test_summary_counts_requests_and_tokens() -> None:
    server = linear(replace(DEFAULT_LIMITS, max_sequences=4), fixed=1e-2)
    load = Load(5.0, Lengths(10), Lengths(10), 2000)
    summary = summarise(server.run(load.arrivals()), load, ttft_max=0.02, tpot_max=0.02)
    assert summary.requests == 1800  # the first tenth meets an empty server
    assert summary.answered_rate == pytest.approx(5.0, rel=0.05)
    assert summary.throughput == pytest.approx(50.0, rel=0.05)
    assert summary.ttft.at[0] <= summary.ttft.at[1] <= summary.ttft.at[2]
    assert summary.tpot.mean == pytest.approx(1e-2)
    assert summary.met is not None
    assert summary.goodput == pytest.approx(summary.met * summary.answered_rate)
    assert not summary.growing
    assert sum(one.share for one in summary.concurrency) <= 1.0 + 1e-9
    assert [one.batch for one in summary.concurrency] == sorted(one.batch for one in summary.concurrency)


def test_few_requests_give_no_high_percentile() -> None:
    assert not enough_requests(500, 99)
    assert enough_requests(500, 90)


def test_saturation_rate_keeps_all_slots_busy() -> None:
    """Ten steps of 10 ms an answer, four at once: forty a second."""
    server = linear(replace(DEFAULT_LIMITS, max_sequences=4), fixed=1e-2)
    load = Load(5.0, Lengths(10), Lengths(10), 2000)
    assert saturation_rate(server, load) == pytest.approx(40, rel=0.03)
    assert screen_load(server, load).saturation == pytest.approx(40, rel=0.1)
    over, under = (summarise(server.run(load.at(rate).arrivals()), load.at(rate)) for rate in (60.0, 30.0))
    assert over.growing
    assert over.answered_rate == pytest.approx(40, rel=0.05)
    assert not under.growing


@pytest.mark.parametrize("fields", [{}, {"engine": "sglang"}, {"engine": "tensorrt-llm"}])
def test_screening_formulas_are_near_the_simulation(fields: dict[str, Any]) -> None:
    server, _ = real("llama-3.1-8b", "a100-sxm-80gb", seq_in=800, seq_out=150, **fields)
    load = Load(1.0, Lengths(800), Lengths(150), 2000)
    limit = saturation_rate(server, load)
    assert screen_load(server, load).saturation == pytest.approx(limit, rel=0.3)
    half = load.at(limit / 2)
    summary = summarise(server.run(half.arrivals()), half)
    assert screen_load(server, half).tpot == pytest.approx(summary.tpot.mean, rel=0.3)


def test_the_curve_rises_and_objectives_hold_up_to_a_rate() -> None:
    server, _ = real("llama-3.1-8b", "h100-sxm", seq_in=500, seq_out=100)
    load = Load(1.0, Lengths(500), Lengths(100), 1000)
    goals = Objectives(tpot_max=0.02, percentile=95)
    curve = throughput_curve(server, load, goals)
    assert [point.rate for point in curve.points] == sorted(point.rate for point in curve.points)
    assert curve.points[-1].saturated
    assert not curve.points[0].saturated
    assert curve.allowed is not None
    assert 0 < curve.allowed < curve.saturation
    sustainable = load.at(0.95 * curve.allowed)
    summary = summarise(server.run(sustainable.arrivals()), sustainable, tpot_max=0.02)
    assert summary.met is not None
    assert summary.met >= 0.94
    assert throughput_curve(server, load, Objectives(tpot_max=1e-6)).allowed == pytest.approx(0, abs=0.1)


def test_objectives_never_hold_beyond_capacity() -> None:
    """A short drawn load above saturation has not queued up yet: it must not count as held."""
    server, _ = real("llama-3.1-8b", "rtx-5090", seq_in=1000, seq_out=300)
    curve = throughput_curve(server, Load(5.0, Lengths(1000), Lengths(300), 2000), Objectives(ttft_max=1.0, tpot_max=0.05))
    assert curve.allowed is not None
    assert 0.9 * curve.saturation < curve.allowed <= curve.saturation
