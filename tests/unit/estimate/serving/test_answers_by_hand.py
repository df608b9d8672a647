"""From seconds to answers: ranges, throughput, what bounds; own measurements; a served load with steps of known length."""

from __future__ import annotations

from math import exp, log
from typing import Any

import pytest
from msgspec.structs import replace

from tests.serving_cases import linear, small
from whichgpu.base.errors import NoAnswer
from whichgpu.base.figure import Figure
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.confidence.spread import Confidence
from whichgpu.estimate.group.breakdown import TERMS as GROUP_TERMS
from whichgpu.estimate.group.group_answer import layout_words
from whichgpu.estimate.group.group_calibration import NO_CORRECTIONS as UNCORRECTED
from whichgpu.estimate.group.group_calibration import GroupSetting
from whichgpu.estimate.group.ranks import _ring_attention, _without_experts
from whichgpu.estimate.serving.curve import Objectives, rate_point, saturation_rate, throughput_curve
from whichgpu.estimate.serving.fleet.fleet_answer import share_within_objectives
from whichgpu.estimate.serving.fleet.fleet_outcome import FleetOutcome, Transfers
from whichgpu.estimate.serving.load import Lengths, Load
from whichgpu.estimate.serving.serving_answer import StepRange, _unloaded_latency, serving_answer
from whichgpu.estimate.time.calibration import correction_key, load_calibration
from whichgpu.estimate.time.operators import Op
from whichgpu.estimate.time.own_corrections import OwnCorrections, with_own_corrections
from whichgpu.estimate.time.terms import TERMS
from whichgpu.estimate.time.time_estimate import work_per_step
from whichgpu.workload.shapes import Mlp, Patches, Transformer
from whichgpu.workload.workload import Parallel, Workload

GPUS = Catalog().gpu_by_id
H100 = GPUS["h100-sxm"]
TINY = Transformer("tiny", "llama", 64, 4, 8, 2, 8, 256, 1000, True, "rms", "silu", False, True, 0, 4096)


def workload(task: Any, **fields: Any) -> Workload:
    plain: dict[str, Any] = {"batch": 6, "seq_in": 10}
    return Workload(task, "tiny", **(plain | fields))


def test_tokens_per_step() -> None:
    written, read = (6.0, "output tokens/s"), (60.0, "input tokens/s")
    for task, done in (("serve", written), ("batch", written), ("decode", written), ("prefill", read), ("train", read)):
        assert work_per_step(workload(task), TINY) == done
    assert work_per_step(workload("forward"), TINY) == (6.0, "samples/s")
    assert work_per_step(workload("train", seq_in=None), TINY) == (6.0, "input tokens/s")
    assert work_per_step(workload("train", batch=None), TINY) == (10.0, "input tokens/s")
    assert work_per_step(workload("serve"), replace(TINY, causal=False)) == (6.0, "samples/s")
    assert work_per_step(workload("train"), replace(TINY, patches=Patches(224, 16))) == (6.0, "samples/s")
    assert work_per_step(workload("train"), Mlp("", (8, 4))) == (6.0, "samples/s")


OWN = OwnCorrections(
    "h100-sxm", "my-record", "measured", ("pytorch/train",),
    {"all": {"gemm": 0.1}, "pytorch": {"gemm": 0.2, "gap": 0.5}, "pytorch/train": {"gemm": 0.4}}, {"train": 0.3, "any": 0.2},
)  # fmt: skip


def test_own_measurements_add_to_the_log_correction() -> None:
    assert OWN.log_multiplier("pytorch", "train", "gemm") == pytest.approx(0.7)
    assert OWN.log_multiplier("pytorch", "forward", "gemm") == pytest.approx(0.3)
    assert OWN.log_multiplier("vllm", "train", "gemm") == pytest.approx(0.1)
    assert OWN.log_factor_range("train") == (-0.3, 0.3)
    assert OWN.log_factor_range("forward") == (-0.2, 0.2)
    assert replace(OWN, spreads={}).log_factor_range("train") == (-log(1.04), log(1.04))
    assert replace(OWN, spreads={"train": 0.001}).log_factor_range("train") == (-log(1.04), log(1.04))
    plain = load_calibration()
    both = with_own_corrections(plain, {"h100-sxm": (OWN,)})
    assert with_own_corrections(plain, {}) is plain
    assert both.own_confidence("pytorch", "h100-sxm", "train") == Confidence("here", (), -0.3, 0.3)
    assert both.own_confidence("pytorch", "h100-sxm", "forward") is None
    assert both.own_confidence("pytorch", "t4", "train") is None
    imported = with_own_corrections(plain, {"h100-sxm": (replace(OWN, basis="calibrated"),)})
    assert imported.own_confidence("pytorch", "h100-sxm", "train") == Confidence("measured", (), -0.3, 0.3)
    assert both.sources_of("pytorch", "h100-sxm")[0] == "my-record"
    setting = correction_key(H100, "pytorch", 2026, "train", "half")
    ratio = both.factors([setting])[:, 0] / plain.factors([setting])[:, 0]
    assert ratio[TERMS.index("gemm")] == pytest.approx(exp(0.7))
    assert ratio[TERMS.index("gap")] == pytest.approx(exp(0.5))
    assert ratio[TERMS.index("conv")] == pytest.approx(1.0)


def test_corrections_of_groups_add_up() -> None:
    setting = GroupSetting("vllm", 2024, "decode", "nvswitch", "nvswitch-4")
    years = {"vllm/2020": {"latency": 1.0}, "vllm/2025": {"latency": 2.0}, "sglang/2024": {"latency": 9.0}}
    calibration = replace(
        UNCORRECTED, multipliers={"all": {"": {"latency": 0.5}}, "year": years, "fabric": {"nvswitch-4": {"volume": 0.25}}}
    )
    assert calibration.log_multiplier(setting, "latency") == 2.5  # the nearest year
    assert calibration.log_multiplier(replace(setting, year=2020), "latency") == 1.5
    assert calibration.log_multiplier(replace(setting, engine="pytorch"), "latency") == 0.5
    factors = calibration.factors([setting, replace(setting, fabric="x")])
    assert factors["volume"].ravel().tolist() == pytest.approx([exp(0.25), 1.0])
    assert set(factors) == set(GROUP_TERMS)
    assert replace(setting, engine="pytorch-threads").style == "threads"
    assert setting.style == "serving"
    assert layout_words(Parallel(dp=2, pp=3, sp=True)) == "dp=2,pp=3,sp"


def test_ring_attention_passes_keys_to_a_part_of_the_queries() -> None:
    op = Op("attention", "bf16", 100.0, 60.0, 20.0, {"keys": 8.0})
    operator = _ring_attention(op, workload("train", parallel=Parallel(cp=4)))
    assert (operator.flops, operator.read, operator.write, operator.sizes["keys"]) == (400.0, 150.0, 20.0, 32.0)
    assert _ring_attention(op, workload("train")) is op
    other = Op("gemm", "bf16")
    assert _ring_attention(other, workload("train", parallel=Parallel(cp=4))) is other
    spread = Parallel(tp=2, ep=2)
    assert _without_experts(workload("train", parallel=spread)).parallel.ep == 2
    assert _without_experts(workload("serve", parallel=spread)).parallel == Parallel(tp=2)


LIKE = Figure(1.0, 0.8, 1.5, "s", "calibrated", ("a",))


def test_figure_is_between_fast_and_slow_steps() -> None:
    figure = StepRange(LIKE).figure((5.0, 9.0, 3.0), "s")
    assert (figure.low, figure.value, figure.high, figure.sources) == (3.0, 5.0, 9.0, ("a", "serving-simulation"))
    assert StepRange(LIKE).factors == (0.8, 1.5)


SERVER = linear(fixed=0.01)
LOAD = Load(10.0, Lengths(100), Lengths(20), 200, burstiness=0.0)


def test_a_served_load_with_steps_of_ten_milliseconds() -> None:
    answer = serving_answer(SERVER, LOAD, Objectives(), LIKE, drawn=False)
    assert answer.ttft_no_load.value == pytest.approx(0.01)
    assert (answer.ttft_no_load.low, answer.ttft_no_load.high) == pytest.approx((0.008, 0.015))
    assert answer.tpot_no_load.value == pytest.approx(0.01)
    assert answer.tpot["p50"].value == pytest.approx(0.01, rel=0.01)
    assert answer.tpot["mean"].high == pytest.approx(0.015, rel=0.01)
    assert answer.answered_rate.value == pytest.approx(10.0, rel=0.05)
    assert answer.throughput.value == pytest.approx(200.0, rel=0.05)
    assert (answer.goodput, answer.met, answer.allowed_rate, answer.curve) == (None, None, None, ())
    assert not answer.saturated
    assert (answer.sustainable_rate.low, answer.sustainable_rate.high) == pytest.approx(
        (answer.sustainable_rate.value / 1.5, answer.sustainable_rate.value / 0.8)
    )
    assert (answer.load.mean_prompt, answer.load.mean_output, answer.load.requests) == (100, 20, 200)
    assert answer.cached_share == 0.0
    assert [one.id for one in answer.warnings] == ["serving.too-few"]  # 180 requests are too few for the 99th percentile


def test_objectives_are_listed_and_missed() -> None:
    answer = serving_answer(SERVER, LOAD, Objectives(tpot_max=0.005), LIKE, drawn=False)
    assert answer.met == 0.0
    assert answer.goodput is not None
    assert "serving.missed" in [one.id for one in answer.warnings]
    assert list(answer.ttft) == ["p50", "p90", "p95", "p99", "mean"]
    result = serving_answer(SERVER, LOAD, Objectives(tpot_max=0.02), LIKE, drawn=False)
    assert result.met == 1.0
    assert "serving.missed" not in [one.id for one in result.warnings]


def test_request_refused_by_all_replicas_has_no_result() -> None:
    with pytest.raises(NoAnswer):
        serving_answer(linear(small(64), fixed=0.01), LOAD, Objectives(), LIKE, drawn=False)


def test_a_server_alone() -> None:
    outcome = SERVER.run([(0.0, 100, 20, ()), (9.0, 200, 40, ())])
    first, between = _unloaded_latency(SERVER, outcome)
    assert (first, between) == pytest.approx((0.01, 0.01))


def test_saturation_rate_and_rate_within_objectives() -> None:
    """Sixteen at once, each for 19 steps of 10 ms after its first: at most 16 answers in 0.19 to 0.2 s."""
    saturation = saturation_rate(SERVER, LOAD)
    assert 16 / 0.21 < saturation < 16 / 0.18
    low, high = (rate_point(SERVER, LOAD, share * saturation, Objectives(tpot_max=0.02), saturation) for share in (0.5, 1.5))
    assert (low.saturated, high.saturated) == (False, True)
    assert low.met == 1.0
    assert low.rate == 0.5 * saturation
    never = throughput_curve(SERVER, LOAD, Objectives(tpot_max=0.005), saturation)
    assert never.allowed == 0.0
    assert never.saturation == saturation
    always = throughput_curve(SERVER, LOAD, Objectives(tpot_max=0.02, ttft_max=0.05), saturation)
    assert always.allowed is not None
    assert 0.6 * saturation < always.allowed <= saturation
    assert [one.rate for one in always.points] == sorted(one.rate for one in always.points)


def test_lost_requests_meet_no_objective() -> None:
    served = SERVER.run([(float(place), 100, 20, ()) for place in range(20)])
    served.finished[5] = -1.0
    outcome = FleetOutcome(served, (), Transfers(0, 0.0, 0.0, 0.0), 30.0, 1, 0, 0)
    assert share_within_objectives(outcome, Objectives(tpot_max=0.02), 0.0) == 19 / 20
    assert share_within_objectives(outcome, Objectives(tpot_max=0.02), 0.5) == 1.0
    assert share_within_objectives(outcome, Objectives(), 0.0) == 19 / 20
    assert share_within_objectives(outcome, Objectives(ttft_max=0.005), 0.0) == 0.0
    assert share_within_objectives(outcome, Objectives(latency_max=0.15), 0.0) == 0.0
    assert Objectives(latency_max=0.1).any
    assert not Objectives().any
