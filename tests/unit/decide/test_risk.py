"""Recommendations under uncertainty: probabilities, expected costs, and what a preference for low risk changes."""

from __future__ import annotations

from datetime import date
from functools import cache
from shlex import split
from typing import Any

import pytest

from whichgpu.api.recommend.recommend import recommend
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.decide.answer.sentences import NEW_GPU_AXES
from whichgpu.decide.requirements import Requirements
from whichgpu.surface.candidate_cells import uncertainty_lines

DAY = date(2026, 8, 1)


@cache
def served(risk: Any = None, **limits: Any) -> RecommendAnswer:
    query = Requirements(**{"gpu": "RTX 5090,L40S", "risk": risk, **limits})
    fields: dict[str, Any] = {"rate": "7/s", "ttft": "1s", "tpot": "60ms", "precision": "bf16"}
    return recommend("serve", "llama-3.1-8b", query, DAY, own=False, **fields)


@cache
def tuned(**query: Any) -> RecommendAnswer:
    return recommend("finetune", "llama-3.1-8b", Requirements(rank="cost", **query), DAY, own=False, qlora=True)


def test_a_service_keeps_its_objectives_at_low_risk_by_default() -> None:
    low, even = served(), served("even")
    assert (low.risk, even.risk) == ("low", "even")
    assert low.answer.keeps_objective is not None
    assert even.answer.keeps_objective is not None
    assert low.answer.keeps_objective >= 0.9 > even.answer.keeps_objective
    assert even.answer.cost.amount < low.answer.cost.amount
    assert all(one.keeps_objective is not None for one in low.candidates)


def test_a_fleet_without_a_margin_for_slow_steps_is_named_with_its_odds() -> None:
    low, even = served(), served("even").answer
    (message,) = (one for one in low.left_out if one.id == "recommend.at-estimate")
    values = message.values
    assert (values["gpu"], values["gpus"], values["provider"]) == (even.gpu_name, f"{even.gpus}x", even.provider)
    assert values["percent"] == f"{100 * (even.keeps_objective or 0):.0f}"
    assert not any(one.id.startswith("recommend.near-miss") for one in low.left_out)
    assert not any(one.id == message.id for one in served("even").left_out)


def test_expected_cost_counts_the_replicas_that_slow_steps_need() -> None:
    for one in (*served("even").candidates, *served().candidates):
        assert one.expected_cost.amount >= one.cost.amount * 999 / 1000


def test_the_safest_is_named_where_it_is_not_the_cheapest() -> None:
    answer = served("even")
    assert answer.safest.keeps_limits == max(one.keeps_limits for one in answer.candidates)
    assert answer.safest.keeps_limits > answer.cheapest.keeps_limits
    assert "recommend.safest" in {line.id for line in uncertainty_lines(answer)}


def test_limits_that_only_hold_as_estimated_still_have_an_answer() -> None:
    even = served("even").answer
    answer = served(gpu=even.gpu, gpus=(even.gpus, even.gpus), budget=f"{float(even.cost_per_hour.amount) * 1.01}usd/h")
    assert answer.risk == "even"
    assert answer.answer.keeps_objective is not None
    assert answer.answer.keeps_objective < 0.9


def test_a_deadline_at_the_estimated_time_is_kept_with_even_odds() -> None:
    one = tuned(gpu="H100 SXM").answer
    odds = [tuned(gpu="H100 SXM", deadline=one.run_time.value * share).answer.keeps_objective for share in (1.001, 1.2, 3.0)]
    assert odds[0] == pytest.approx(0.5, abs=0.03)
    assert odds == sorted(odds, key=lambda each: each or 0.0)
    assert odds[-1] == 0.99


def test_low_risk_passes_over_a_run_that_may_miss_its_deadline() -> None:
    """At prices on demand: an old spot price leads or not by its age, whatever the risk."""
    cheapest = tuned(term="on-demand").answer
    deadline = cheapest.run_time.value * 1.001
    even, low = (tuned(term="on-demand", deadline=deadline, risk=risk).answer for risk in ("even", "low"))
    assert even.keeps_objective == pytest.approx(0.5, abs=0.03)
    assert low.keeps_objective is not None
    assert low.keeps_objective >= 0.9
    assert low.cost.amount > even.cost.amount


def test_a_budget_is_kept_with_the_probability_of_the_cost() -> None:
    cost = tuned().answer.cost.amount
    odds = [tuned(budget=f"{float(cost) * share}usd").answer.keeps_budget for share in (1.01, 4.0)]
    assert odds[0] is not None
    assert 0.4 < odds[0] < 0.7
    assert odds[1] == 0.99


def test_an_extrapolated_answer_names_a_measured_one() -> None:
    query = Requirements(rank="cost", gpu="RTX A6000,H100 SXM")
    answer = recommend("batch", "llama-3.1-8b", query, DAY, own=False, engine="sglang", precision="bf16")
    assert answer.answer.gpu == "rtx-a6000"
    assert answer.answer.new_on
    assert answer.measured is not None
    assert answer.measured.gpu == "h100-sxm"
    [line] = uncertainty_lines(answer)
    ratio = float(answer.measured.cost.amount) / float(answer.answer.cost.amount)  # The costs beside which it says how much more.
    assert (line.id, line.values["more"]) == ("recommend.measured", f"{ratio - 1:.0%}")
    assert any(one.id == "recommend.unmeasured" for one in answer.warnings)
    other = recommend("batch", "llama-3.1-8b", Requirements(rank="cost", gpu="A100 SXM 80GB"), DAY, own=False, precision="int8")
    assert {*other.answer.new_on}.isdisjoint(NEW_GPU_AXES)
    assert not any(one.id == "recommend.unmeasured" for one in other.warnings)  # The GPU was measured, in other precisions.
    assert served().measured is None  # Its own GPU was measured.


def test_the_measurement_that_narrows_the_range_most_is_a_command() -> None:
    """A service is measured at its server; a training step that `measure` can run by itself."""
    answer = served()
    assert answer.narrow is not None
    words = split(str(answer.narrow.values["command"]))
    assert words[:3] == ["whichgpu", "measure", "--endpoint"]
    claim = split(words[-1])
    assert claim[:3] == ["estimate", "serve", "llama-3.1-8b"]
    assert f"--gpu={answer.answer.gpu}" in claim
    trained = recommend("train", "resnet50", Requirements(gpu="T4"), DAY, own=False)
    assert trained.narrow is not None
    assert trained.narrow.values["command"] == trained.verify
    assert tuned(gpu="H100 SXM").narrow is None  # measure does not run adapters
