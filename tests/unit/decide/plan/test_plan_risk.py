"""A plan's latencies have the range of the load, and its objectives a probability; --risk low leaves a margin for slow steps."""

from __future__ import annotations

from datetime import date
from functools import cache
from typing import Any

from whichgpu.api.plan.plan import plan
from whichgpu.decide.plan.plan_answer import CheckRow, PlanAnswer
from whichgpu.decide.plan.question import PlanQuestion, RequestedModel

DAY = date(2026, 8, 1)


@cache
def check(risk: str = "even") -> tuple[PlanAnswer, CheckRow]:
    fields = {"rate": "8/s", "ttft_max": "1s", "tpot_max": "60ms", "precision": "bf16"}
    model = RequestedModel("llama-3.1-8b", fields)
    filters: dict[str, Any] = {"gpu": "RTX 5090", "risk": risk}
    answer = plan(PlanQuestion((model,), filters=filters, curve=False), DAY, own_measurements=False)
    return answer, answer.simulation[0]


def test_latencies_rise_by_more_than_the_steps_near_saturation() -> None:
    answer, one = check()
    steps = answer.groups[0].capacity.relative_range  # capacity is proportional to the steps' speed
    slowdown = 1.0 / steps[0]
    assert one.ttft.high / one.ttft.value > 1.5 * slowdown
    assert one.tpot.low < one.tpot.value < one.tpot.high


def test_low_risk_costs_more_and_holds_with_slow_steps() -> None:
    (even, even_check), (low, low_check) = check(), check("low")
    assert even_check.keeps_objective is not None
    assert even_check.keeps_objective < 0.9
    assert low_check.keeps_objective is not None
    assert low_check.keeps_objective >= 0.9
    assert even.cost_per_hour.amount < low.cost_per_hour.amount
    assert {"assumed.plan-risk-even"} == {one.id for one in even.assumptions if "risk" in one.id}
    assert {"assumed.plan-risk-low"} == {one.id for one in low.assumptions if "risk" in one.id}
