"""Cards to buy: used prices, other cards beside the answer, a Mac, and why small cards and Radeons are not the answer."""

from __future__ import annotations

from datetime import date
from functools import cache

import pytest

from whichgpu.api.recommend.recommend import recommend
from whichgpu.catalog.currency import Exchanger
from whichgpu.catalog.store import Catalog
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.decide.own_offers import offers_to_buy
from whichgpu.decide.requirements import Requirements

DAY = date(2026, 11, 17)
BEFORE_USED_PRICES = date(2025, 6, 1)


@cache
def chat_at_home(catalog: Catalog, day: date = DAY) -> RecommendAnswer:
    return recommend("serve", "llama-3.1-70b", Requirements(buy=True, mode="me"), day, catalog, own=False)


@cache
def qlora_at_home(catalog: Catalog) -> RecommendAnswer:
    return recommend("finetune", "llama-3.1-8b", Requirements(buy=True, budget="1000usd"), DAY, catalog, own=False, qlora=True)


def test_a_70b_at_home_runs_on_two_used_24_gb_cards_one_48_gb_card_or_a_mac(catalog: Catalog) -> None:
    answer = chat_at_home(catalog)
    best = answer.answer
    assert (best.gpu, best.gpus, best.purchase_basis) == ("rtx-3090", 2, "used")
    assert best.purchase is not None
    assert 1400 <= float(best.purchase.amount) <= 1800
    one_card, mac = answer.other_purchases
    assert (one_card.gpus, one_card.gpu_memory) == (1, "48 GB")
    assert mac.gpu.startswith("apple-")
    for other in (one_card, mac):
        assert other.purchase is not None
        assert other.tpot is not None


def test_prices_observed_later_do_not_count(catalog: Catalog) -> None:
    bases = {one.purchase_basis for one in chat_at_home(catalog, BEFORE_USED_PRICES).candidates}
    assert bases == {"list"}


def test_qlora_under_a_thousand_dollars_names_a_used_3090_and_why_not_small_cards_and_radeons(catalog: Catalog) -> None:
    answer = qlora_at_home(catalog)
    assert answer.answer.gpu_memory in ("16 GB", "24 GB")
    assert [(one.gpu, one.purchase_basis) for one in answer.other_purchases] == [("rtx-3090", "used")]
    assert [one.id for one in answer.left_out] == ["recommend.too-small", "recommend.ranks-behind"]
    assert float(answer.answer.purchase.amount) <= 1000  # type: ignore[union-attr]


def test_a_mac_that_the_question_names_is_compared_under_its_own_engine(catalog: Catalog) -> None:
    query = Requirements(buy=True, mode="me", gpu="apple-m3-ultra,RTX 4090")
    answer = recommend("serve", "qwen2.5-32b", query, DAY, catalog, own=False)
    assert answer.answer.gpu == "rtx-4090"
    assert [one.gpu.startswith("apple-m3-ultra") for one in answer.other_purchases] == [True]
    assert answer.why_not == {}


def test_cards_said_to_be_too_small_are_smaller_than_every_card_listed(catalog: Catalog) -> None:
    query = Requirements(buy=True, min_memory="24GB")
    answer = recommend("finetune", "mistral-7b", query, DAY, catalog, own=False, lora_rank=16)
    assert "24 GB" in {one.gpu_memory for one in answer.candidates}
    assert "recommend.too-small" not in {one.id for one in answer.left_out}


def test_a_price_of_the_user_goes_before_an_observed_one(catalog: Catalog) -> None:
    query = Requirements(buy=True, mode="me", gpu="RTX 3090", price="RTX 3090=650usd")
    best = recommend("serve", "llama-3.1-70b", query, DAY, catalog, own=False).answer
    assert best.purchase_basis == "given"
    assert float(best.purchase.amount) == 1300  # type: ignore[union-attr]


def test_a_month_of_bought_cards_is_that_of_the_hours_they_work(catalog: Catalog) -> None:
    best = chat_at_home(catalog).answer
    assert float(best.cost_per_month.amount) == pytest.approx(float(best.cost_per_hour.amount) * 730 * 0.5, rel=1e-3)
    assert float(best.cost.amount) == pytest.approx(float(best.cost_per_month.amount), rel=0.01)
    assert any("2x" in str(one) and "together" in str(one) for one in chat_at_home(catalog).left_out)


def test_cards_sold_in_china_alone_are_offered_there_or_if_named(catalog: Catalog) -> None:
    exchanger = Exchanger(DAY, catalog.exchange)
    (_, abroad), (_, there) = (offers_to_buy(catalog, DAY, 0.15, {}, exchanger, in_china) for in_china in (False, True))
    assert "rtx-5090-d" not in abroad
    assert "rtx-5090-d" in there
    assert "rtx-5090" in abroad
