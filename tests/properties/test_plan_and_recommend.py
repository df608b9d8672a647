"""`plan` and `recommend` on the same single-model question: the same sellers, precisions and layouts, neither dearer."""

from __future__ import annotations

import random

import pytest

import whichgpu
from whichgpu.base.errors import NoAnswer
from whichgpu.decide.market import OLD_DAYS

MODELS = ("llama-3.1-8b", "qwen2.5-7b", "mistral-7b", "qwen2.5-32b", "llama-3.1-70b")
TOLERANCE = 1.05  # Either fleet may cost this multiple of the other.


def _question(seed: int, short: bool = False) -> dict[str, object]:
    """Return a random question; `short`: of 128 input tokens."""
    chance = random.Random(seed)
    return {
        "model": chance.choice(MODELS),
        "rate": f"{10 ** chance.uniform(-0.3, 1.7):.3g}/s",
        "seq_in": 128 if short else chance.choice([300, 500, 1000, 2000, 4000]),
        "seq_out": chance.choice([50, 150, 300, 600]),
        "ttft_max": chance.choice(["500ms", "1s", "2s", "5s"]),
        "tpot_max": chance.choice(["30ms", "50ms", "100ms"]),
        "risk": "even",
        "as_of": "2026-10-01",
    }


def _neither_is_dearer(seed: int, short: bool = False) -> None:
    question = _question(seed, short)
    model = str(question.pop("model"))
    try:
        answer = whichgpu.recommend("serve", model, **question)  # type: ignore[arg-type]
    except NoAnswer:
        pytest.skip("nothing meets the objectives, so there is no fleet to compare with")
    plan = whichgpu.plan(model, **question, curve=False)  # type: ignore[arg-type]
    fleets = (answer.answer, answer.cheapest, *answer.candidates)
    costs = [float(one.cost_per_hour.amount) for one in fleets if one.price_age_days <= OLD_DAYS]  # A plan uses no older prices.
    planned = float(plan.cost_per_hour.amount)
    assert planned <= TOLERANCE * min(costs), (model, question)
    if len(plan.groups) == 1:  # A fleet of several kinds of machines is one that only a plan can have.
        assert min(costs) <= TOLERANCE * planned, (model, question)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_neither_the_recommended_fleet_nor_the_plan_is_cheaper(seed: int) -> None:
    _neither_is_dearer(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 200))
def test_neither_is_cheaper_on_many_questions(seed: int) -> None:
    _neither_is_dearer(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_neither_is_cheaper_on_short_inputs(seed: int) -> None:
    _neither_is_dearer(seed, short=True)


def test_a_service_is_planned_on_the_sellers_and_precisions_that_are_recommended_for_it() -> None:
    question = {"rate": "9/s", "seq_in": 128, "seq_out": 300, "tpot_max": "50ms", "as_of": "2026-10-01", "curve": False}
    usual = whichgpu.plan("qwen2.5-7b", **question)  # type: ignore[arg-type]
    assert {row.provider for row in usual.groups}.isdisjoint({"vast", "runpod-community"})
    assert {row.precision for row in usual.groups} <= {"fp8", "int8"}
    lossless = whichgpu.plan("qwen2.5-7b", **question, quality="lossless")  # type: ignore[arg-type]
    assert {row.precision for row in lossless.groups} == {"bf16"}
    anywhere = whichgpu.plan("qwen2.5-7b", **question, sellers="any")  # type: ignore[arg-type]
    costs = [float(one.cost_per_hour.amount) for one in (anywhere, usual, lossless)]
    assert costs == sorted(costs)
    assert costs[0] < costs[1]
