"""Which changes of a refused question are tried, and in which order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from whichgpu.decide.plan import relaxation
from whichgpu.decide.plan.question import PlanQuestion, RequestedModel
from whichgpu.decide.plan.refusal import Refusal, budget_of, quota_of, rate_of
from whichgpu.decide.plan.relaxation import RelaxationTrials
from whichgpu.decide.plan.search import SolvedPlan


def trials(**filters: str) -> RelaxationTrials:
    question = PlanQuestion((RequestedModel("llama-3.1-8b", {}),), quotas={"L4": 2.0}, filters=filters)
    models: Any = [SimpleNamespace(name="llama-3.1-8b", traffic=SimpleNamespace(mean=10.0))]
    return RelaxationTrials(question, models, sources=None, numbers=iter(()))  # type: ignore[arg-type]


def test_each_limit_is_moved_a_little_before_any_is_moved_further() -> None:
    refused = Refusal((), {}, (quota_of("L4", 5), rate_of(0.5)))
    changes = [change for _, change, _ in relaxation._changes(refused, trials())]
    assert changes[:6] == [
        {"quota": {"L4": 5}}, {"rate": {"llama-3.1-8b": "4.97/s"}},
        {"quota": {"L4": 8}}, {"rate": {"llama-3.1-8b": "3.32/s"}},
        {"quota": {"L4": 13}}, {"rate": {"llama-3.1-8b": "1.99/s"}},
    ]  # fmt: skip


@pytest.mark.parametrize("holds", [True, False])
def test_a_budget_too_small_for_a_fleet_that_holds_is_the_cost_of_the_plan_without_a_budget(
    holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Planned(SolvedPlan, frozen=True):
        bill = 1234.5

    def planned(question: PlanQuestion, sources: object) -> SolvedPlan:
        assert "budget" not in question.filters
        inputs: Any = SimpleNamespace(constraints=SimpleNamespace(currency="USD"))
        trial: Any = SimpleNamespace(holds_as_estimated=holds)
        return Planned(question, inputs, supply=None, trial=trial)  # type: ignore[arg-type]

    monkeypatch.setattr(relaxation, "search_plan", planned)
    changes = [
        change for _, change, _ in relaxation._changes(Refusal((), {}, (budget_of(900.0, "USD"),)), trials(budget="1usd/h"))
    ]
    assert [one["budget"] for one in changes if "budget" in one] == ["900usd/h", *(["1240usd/h"] if holds else [])]
