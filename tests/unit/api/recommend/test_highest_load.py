"""A service with a budget or a power limit but no load: the highest request rate within it, and the fleet for that."""

from __future__ import annotations

from datetime import date
from typing import Any

from whichgpu.api.context import Context
from whichgpu.api.recommend.recommend_verb import recommend
from whichgpu.base.errors import NoAnswer
from whichgpu.catalog.store import Catalog
from whichgpu.decide.answer.recommend_answer import RecommendAnswer

LIMITS: Any = {"task": "serve", "model": "llama-3.2-1b", "gpu": "L4", "provider": "gcp", "seq_in": 500, "seq_out": 100}


def answered(catalog: Catalog, **fields: object) -> RecommendAnswer:
    return recommend(LIMITS | fields, Context(catalog, date(2026, 8, 1)))


def test_the_rate_is_the_highest_within_the_budget(catalog: Catalog) -> None:
    answer = answered(catalog, budget="1500usd/month")
    rate = answer.request["rate"]
    assert answer.sentence.id == "recommend.sentence-highest"
    assert 0.9 * rate * 180 <= float(str(answer.sentence.values["people"])) <= rate * 180  # 20 requests an hour each
    assert float(answer.answer.cost_per_month.amount) <= 1500
    assert (answer.answer.keeps_objective or 0.0) >= 0.9
    try:
        dearer = float(answered(catalog, budget="1500usd/month", rate=rate * 1.15).answer.keeps_objective or 0.0)
    except NoAnswer:
        dearer = 0.0
    assert dearer < 0.9  # 15% more either costs more than the budget or may miss its objective.


def test_one_user_who_says_so_gets_the_cheapest(catalog: Catalog) -> None:
    answer = answered(catalog, budget="1500usd/month", mode="me")
    assert answer.request["rate"] is None
