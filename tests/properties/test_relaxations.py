"""If there is no answer, each suggested relaxation gives one, and a smaller change of that limit does not."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pytest

from whichgpu.api.recommend.recommend import recommend
from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import Message
from whichgpu.base.money import parse_money
from whichgpu.base.units import parse_rate, parse_seconds
from whichgpu.catalog.select import parse_span
from whichgpu.catalog.store import Catalog
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.decide.requirements import Requirements

DAY, CATALOG = date(2026, 10, 1), Catalog()
LESS = 0.97  # of a suggested limit: rounded up to three digits, it is at most this much too large


@dataclass(frozen=True)
class Question:
    task: str
    model: str | None
    fields: dict[str, Any] = field(default_factory=dict)
    constraints: dict[str, Any] = field(default_factory=dict)

    def ask(self, fields: Any = None, **constraints: Any) -> RecommendAnswer:
        query, workload_fields = Requirements(**(self.constraints | constraints)), self.fields | (fields or {})
        return recommend(self.task, self.model, query, DAY, CATALOG, own=False, **workload_fields)

    def relaxations(self) -> dict[str, Message]:
        with pytest.raises(NoAnswer) as none:
            self.ask()
        assert none.value.hint is not None
        hints: Any = none.value.hint.values.get("ways", ())
        return {one.id: one for one in hints}


TRAIN = Question("train", "llama-3.1-8b", {"tokens": 10**8}, {"provider": "aws,gcp"})
SERVE = Question("serve", "llama-3.1-8b", {"rate": 5.0})


def with_constraints(one: Question, fields: Any = None, **constraints: Any) -> Question:
    return Question(one.task, one.model, one.fields | (fields or {}), one.constraints | constraints)


QUICK = [
    with_constraints(SERVE, budget="5usd", provider="aws", region="us-east-1"),
    with_constraints(TRAIN, budget="0.5usd", gpu="H100 SXM,A100"),
    Question("batch", "llama-3.1-8b", {"engine": "tensorrt-llm"}, {"buy": True, "budget": "50usd"}),
]
SLOW = [
    with_constraints(SERVE, budget="0.1usd/h"),
    with_constraints(TRAIN, budget="0.5usd"),
    with_constraints(TRAIN, budget="0.5eur/h", deadline="3h", gpu="H100 SXM,A100"),
    Question("train", None, {}, {"budget": "0.05usd/h", "provider": "aws"}),
    Question("serve", "llama-3.1-8b", {"rate": 20.0, "engine": "vllm"}, {"buy": True, "budget": "1000usd"}),
]


@pytest.mark.parametrize("one", [*QUICK, *(pytest.param(one, marks=pytest.mark.long) for one in SLOW)], ids=str)
@pytest.mark.long
def test_the_smallest_budget_is_the_smallest(one: Question) -> None:
    value = str(one.relaxations()["relax.budget"].values["value"])
    answer = one.ask(budget=value).answer
    money, per = parse_money(value)
    paid = answer.purchase if one.constraints.get("buy") else answer.cost_per_hour if per == "hour" else answer.cost
    assert paid is not None
    assert float(paid.amount) <= float(money.amount) * (1 + 1e-6)
    less = f"{float(money.amount) * LESS:.6f}{money.currency}{'/h' if per else ''}"
    with pytest.raises(NoAnswer):
        one.ask(budget=less)


@pytest.mark.long
def test_the_smallest_deadline_is_the_smallest() -> None:
    one = with_constraints(TRAIN, deadline="2min", gpu="H100 SXM,A100")
    value = str(one.relaxations()["relax.deadline"].values["value"])
    assert one.ask(deadline=value).answer
    with pytest.raises(NoAnswer):
        one.ask(deadline=parse_seconds(value) * LESS)


@pytest.mark.long
def test_budget_and_deadline_together() -> None:
    one = with_constraints(TRAIN, deadline="10min", budget="1usd", gpu="H100 SXM,A100")
    both = one.relaxations()["relax.both"]
    first, second = both.values["one"], both.values["other"]
    assert isinstance(first, Message)
    assert isinstance(second, Message)
    changed = {"budget": str(first.values["value"]), "deadline": str(second.values["value"])}
    assert one.ask(**changed).answer
    for name in changed:  # neither is enough by itself
        with pytest.raises(NoAnswer):
            one.ask(**{name: changed[name]})


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "one"),
    [
        pytest.param(
            "tpot_max", with_constraints(SERVE, {"tpot_max": 0.003}, gpu="H100 SXM,L4", term="on-demand"), marks=pytest.mark.long
        ),
        ("ttft_max", with_constraints(SERVE, {"ttft_max": 0.002}, gpu="H100 SXM,L4", term="on-demand")),
    ],
)
def test_the_smallest_objective_is_nearly_the_smallest(name: str, one: Question) -> None:
    flags: Any = one.relaxations()["relax.latency"].values["flags"]
    value = parse_seconds(flags[0].split()[1])
    assert one.ask({name: value}).answer
    with pytest.raises(NoAnswer):
        one.ask({name: value * 0.94})


@pytest.mark.long
def test_the_highest_rate_of_one_recommendation() -> None:
    one = with_constraints(SERVE, {"rate": 40_000.0}, gpu="H100 SXM", term="on-demand")
    rate = parse_rate(str(one.relaxations()["relax.copies"].values["rate"]))
    assert one.ask({"rate": rate}).answer.copies <= 64
    with pytest.raises(NoAnswer):
        one.ask({"rate": rate * 1.15})


@pytest.mark.long
def test_both_gpus_and_budget_are_relaxed_if_neither_alone_suffices() -> None:
    # No single card on sale holds 141 GB of weights.
    one = Question("batch", "llama-3.1-70b", {"precision": "bf16"}, {"buy": True, "budget": "2000usd", "gpus": (1.0, 1.0)})
    pairs = [message for message in one.relaxations().values() if message.id == "relax.both"]
    assert pairs
    for pair in pairs:
        first, second = pair.values["one"], pair.values["other"]
        assert isinstance(first, Message)
        assert isinstance(second, Message)
        changed: dict[str, Any] = {"budget": str(second.values["value"])}
        fields = {}
        if first.id == "relax.gpus":
            changed["gpus"] = parse_span(str(first.values["value"]))
        else:
            fields["precision"] = str(first.values["value"])
        assert one.ask(fields, **changed).answer
        with pytest.raises(NoAnswer):
            one.ask(budget=changed["budget"])


def test_engine_that_supports_no_gpu_within_the_budget_is_reported() -> None:
    one = Question("serve", "llama-3.1-8b", {"engine": "vllm"}, {"buy": True, "budget": "150usd"})
    suggested = one.relaxations()
    assert one.ask(budget=str(suggested["relax.budget"].values["value"])).answer
    assert "relax.without" not in suggested  # no engine helps at that price


def test_a_budget_for_cards_counts_every_card() -> None:
    """Sixteen cards of one machine each are sixteen to pay."""
    one = Question("batch", "llama-3.1-8b", {}, {"buy": True, "budget": "1000usd", "gpus": (1.0, 16.0), "limit": 50})
    answer = one.ask()
    assert all(float(row.purchase.amount) <= 1000.0 for row in answer.candidates if row.purchase)
