"""Traffic: buckets preserve every request and its work, levels plan for their busiest hour, traces give hourly rates."""

from __future__ import annotations

from array import array
from pathlib import Path

import numpy as np
import pytest

from whichgpu.base.errors import UsageError
from whichgpu.decide.plan.profiles import parse_profiles, read_profiles
from whichgpu.decide.plan.traffic import bucket_requests, load_levels, trace_traffic, traffic_of
from whichgpu.estimate.serving.load import Lengths
from whichgpu.workload.traces.reader import Trace


def test_buckets_keep_all_requests_and_their_tokens() -> None:
    chance = np.random.default_rng(0)
    prompts, outputs = chance.lognormal(6, 1.2, 5000).astype(int) + 1, chance.lognormal(5, 1, 5000).astype(int) + 1
    buckets = bucket_requests(prompts, outputs)
    assert sum(one.share for one in buckets) == pytest.approx(1.0)
    assert sum(one.share * one.prompt for one in buckets) == pytest.approx(prompts.mean())
    assert sum(one.share * one.output for one in buckets) == pytest.approx(outputs.mean())
    assert max(one.prompt_to for one in buckets) == prompts.max()
    assert 8 < len(buckets) <= 64


def test_one_length_is_one_bucket() -> None:
    (one,) = traffic_of(5.0, Lengths(1000.0), Lengths(300.0)).buckets
    assert (one.prompt, one.output, one.share, one.name) == (1000.0, 300.0, 1.0, "1000 in, 300 out")


def test_a_histogram_keeps_its_own_lengths_and_shares() -> None:
    lengths = Lengths.histogram((200, 9000, 16000, 70000), (80, 5, 15, 0))
    short, long = traffic_of(5.0, lengths, Lengths(200.0)).buckets
    assert (short.name, long.name) == ("200 in, 200 out", "9000-16000 in, 200 out")
    assert (short.share, long.share) == pytest.approx((0.8, 0.2), abs=1e-12)
    assert long.prompt == pytest.approx((9000 * 5 + 16000 * 15) / 20)


def test_a_histogram_with_drawn_answers_keeps_its_shares() -> None:
    buckets = traffic_of(5.0, Lengths.histogram((200, 16000), (99, 1)), Lengths(200.0, 0.8)).buckets
    long = [one for one in buckets if one.prompt_from == 16000]
    assert sum(one.share for one in buckets) == pytest.approx(1.0)
    assert sum(one.share for one in long) == pytest.approx(0.01)


@pytest.mark.parametrize("rare", [0.1, 0.01, 1e-6])
def test_rare_long_requests_have_their_own_bucket(rare: float) -> None:
    """A GPU must hold the longest request of a bucket: one long one would keep it from all the others."""
    lengths = Lengths.histogram((200, 125000), (100 - rare, rare))
    short, long = traffic_of(20.0, lengths, Lengths(100.0)).buckets
    assert (short.most_tokens, long.most_tokens) == (300, 125100)
    assert long.share == pytest.approx(rare / 100)


def test_rare_requests_join_a_neighbour_that_has_longer_ones() -> None:
    prompts = np.array([1000] * 999 + [100])
    (one,) = bucket_requests(prompts, np.full(1000, 50))
    assert (one.prompt_from, one.prompt_to, one.longest) == (100, 1000, 1050)
    assert one.share == pytest.approx(1.0)


def test_hours_scale_to_the_mean_rate() -> None:
    traffic = traffic_of(5.0, Lengths(10.0), Lengths(10.0), (1.0, 3.0))
    assert traffic.hourly == (2.5, 7.5)
    assert traffic.peak == 7.5


def test_a_short_trace_is_planned_for_its_busiest_part() -> None:
    times = np.concatenate([np.linspace(0, 1800, 600), np.linspace(1801, 3599, 1800)])
    trace = Trace("t", array("d", times), array("q", [100] * 2400), array("q", [50] * 2400))
    traffic = trace_traffic(trace, None)
    assert traffic.peak_of == "parts"
    assert traffic.mean == pytest.approx(2400 / trace.span)
    assert traffic.peak == pytest.approx(1.0, rel=0.02)


def paced(count: int, gap: float = 2.0) -> Trace:
    return Trace("t", array("d", [gap * at for at in range(count)]), array("q", [100] * count), array("q", [50] * count))


def test_a_rate_is_not_drawn_from_a_handful_of_requests() -> None:
    with pytest.raises(UsageError) as caught:
        trace_traffic(paced(9), None)
    assert (caught.value.kind, "9 requests" in str(caught.value)) == ("trace-too-few", True)
    assert list(trace_traffic(paced(9), 3.0).hourly) == pytest.approx([3.0])  # a given rate replaces the trace's


def test_short_trace_is_planned_for_its_mean_and_marked_short() -> None:
    """Their busiest twelfth would be busy by chance."""
    traffic = trace_traffic(paced(60), None)
    assert traffic.hourly == (traffic.mean,) == (paced(60).rate,)
    assert traffic.few == 60
    assert trace_traffic(paced(120), None).few is None


def test_long_trace_gives_hourly_rates() -> None:
    times = np.concatenate([np.linspace(0, 3599, 360), np.linspace(3600, 7199, 3600), np.linspace(7200, 10799, 720)])
    trace = Trace("t", array("d", times), array("q", [100] * 4680), array("q", [50] * 4680))
    traffic = trace_traffic(trace, None)
    assert traffic.peak_of == "hours"
    assert traffic.hourly[:2] == pytest.approx((0.1, 1.0), rel=0.02)


def test_lengths_alone_need_a_rate() -> None:
    trace = Trace("t", prompts=array("q", [5, 6]), outputs=array("q", [5, 6]))
    assert trace_traffic(trace, 2.0).hourly == (2.0,)
    with pytest.raises(UsageError):
        trace_traffic(trace, None)


def test_levels_plan_for_the_busiest_hour_of_each_and_hold_all_hours() -> None:
    curve = np.array([1, 1, 1, 9, 10, 9, 4, 4, 1, 1, 1, 1], dtype=float)
    rates, shares, of = load_levels([curve], 3)
    assert shares.sum() == pytest.approx(1.0)
    assert (rates[of, 0] >= curve).all()
    assert rates[:, 0].tolist() == [10.0, 4.0, 1.0]


def test_equal_hours_are_one_level() -> None:
    rates, shares, _ = load_levels([np.full(24, 3.0)], 4)
    assert rates.tolist() == [[3.0]]
    assert shares.tolist() == [1.0]


@pytest.mark.parametrize(
    "content",
    [
        {"gpus": {}},
        {"mix": [1], "gpus": {"a": {"price": 1}}},
        {"mix": [0], "gpus": {"a": {"price": 1, "requests_per_second": [1]}}},
        {"mix": [1], "gpus": {"a": {"price": 1, "requests_per_second": [1, 2]}}},
        {"mix": [1], "gpus": {"a": {"price": -1, "requests_per_second": [1]}}},
        {"mix": [float("nan")], "gpus": {"a": {"price": 1, "requests_per_second": [1]}}},
        {"mix": ["x"], "gpus": {"a": {"price": 1, "requests_per_second": [1]}}},
    ],
)
def test_bad_profiles_are_named(content: dict[str, object]) -> None:
    with pytest.raises(UsageError) as refused:
        parse_profiles("file", content)
    assert refused.value.kind == "bad-profiles"


def test_profiles_that_are_no_json_are_named(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text("[1, 2")
    for file in (path, tmp_path / "none.json"):
        with pytest.raises(UsageError):
            read_profiles(file)
