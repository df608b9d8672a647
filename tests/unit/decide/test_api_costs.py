"""Self-hosting against an API that bills tokens, at prices that the user gives."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from whichgpu.api.recommend.recommend import recommend
from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Message
from whichgpu.catalog.store import Catalog
from whichgpu.decide.requirements import Requirements

MONTH_SECONDS = 730 * 3600


def compared(catalog: Catalog, task: str, prices: str, **fields: Any) -> tuple[Message, float]:
    query = Requirements(gpu="L4", api_price=prices, term="on-demand")
    answer = recommend(task, "llama-3.2-1b", query, date(2026, 8, 1), catalog, own=False, seq_in=1000, seq_out=100, **fields)
    (message,) = (one for one in answer.left_out if one.id.startswith("recommend.api-"))
    return message, float(answer.answer.cost_per_month.amount if task == "serve" else answer.answer.cost.amount)


def test_a_service_breaks_even_where_the_tokens_of_a_month_cost_as_much(catalog: Catalog) -> None:
    message, own = compared(catalog, "serve", "0.1usd,0.2usd", rate=1.0)
    request = (1000 * 0.1 + 100 * 0.2) / 1e6
    values = message.values
    assert message.id == "recommend.api-service"
    assert float(str(values["cost"])) == pytest.approx(request * MONTH_SECONDS, rel=0.01)
    assert float(str(values["ratio"])) == pytest.approx(request * MONTH_SECONDS / own, rel=0.06)
    assert float(str(values["rate"])) == pytest.approx(own / (request * MONTH_SECONDS), rel=0.06)


def test_a_run_is_compared_with_all_its_tokens_and_one_price_is_that_of_both(catalog: Catalog) -> None:
    message, own = compared(catalog, "batch", "0.5", samples=10_000)
    assert message.id == "recommend.api-run"
    assert float(str(message.values["cost"])) == pytest.approx(10_000 * 1100 * 0.5 / 1e6, rel=0.01)
    assert float(str(message.values["ratio"])) == pytest.approx(5.5 / own, rel=0.06)


def test_one_user_learns_how_many_requests_a_month_buys(catalog: Catalog) -> None:
    message, own = compared(catalog, "serve", "0.1usd,0.2usd")
    requests = float(str(message.values["requests"]).replace(",", ""))
    assert requests == pytest.approx(own / (1000 * 0.1 + 100 * 0.2) * 1e6, rel=0.06)


def test_cached_inputs_have_a_price_of_their_own(catalog: Catalog) -> None:
    query = Requirements(gpu="L4", api_price="0.1usd,0.2usd,0.01usd", term="on-demand")
    fields: dict[str, Any] = {"seq_in": 1000, "seq_out": 100, "rate": 1.0, "prefix_hit": 0.5}
    answer = recommend("serve", "llama-3.2-1b", query, date(2026, 8, 1), catalog, own=False, **fields)
    service, cached = (one for one in answer.left_out if one.id.startswith("recommend.api-"))
    request = (500 * 0.1 + 500 * 0.01 + 100 * 0.2) / 1e6
    assert float(str(service.values["cost"])) == pytest.approx(request * MONTH_SECONDS, rel=0.01)
    assert (cached.id, cached.values["share"]) == ("recommend.api-cached", "50%")


def test_four_prices_are_refused(catalog: Catalog) -> None:
    with pytest.raises(UsageError):
        compared(catalog, "serve", "1,2,3,4")
