"""Candidates that an answer names beside the pick: cheaper ones with the reason against them, near misses, and what is owned."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from functools import cache

import pytest
from msgspec.structs import replace

from whichgpu.api.recommend.recommend import recommend
from whichgpu.base.figure import Figure
from whichgpu.catalog.store import Catalog
from whichgpu.decide.answer.explain import cheaper_reason, faster_reason
from whichgpu.decide.answer.near_miss import near_misses
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.decide.candidate import Candidate, Cost
from whichgpu.decide.requirements import Requirements
from whichgpu.surface.candidate_cells import candidate_summary, front_lines

DAY = date(2026, 11, 17)


@cache
def served(catalog: Catalog) -> RecommendAnswer:
    query = Requirements(gpu="A10G,L4,A100", provider="aws", duration="8760h")
    return recommend("serve", "llama-3.1-8b", query, DAY, catalog, own=False, rate=2.0, tpot_max=0.05)


def at_cost(one: Candidate, amount: str) -> Candidate:
    money = Decimal(amount)
    return replace(one, cost=Cost(money, money, money, "USD"), cost_per_month=replace(one.cost_per_month, amount=money))


def test_the_headline_names_model_rate_and_precision(catalog: Catalog) -> None:
    answer = served(catalog)
    assert f"in {answer.answer.precision} for llama-3.1-8b at 2 requests/s: " in str(answer.sentence)


def test_every_named_candidate_has_its_seller_and_the_day_of_its_price(catalog: Catalog) -> None:
    answer = served(catalog)
    for one in answer.candidates:
        text = str(candidate_summary(one, answer.kind))
        assert f"from {one.provider}, price of {one.price_observed_at}" in text
    cheaper = [one for one in answer.candidates if one.cost.amount < answer.answer.cost.amount]
    text_of_others = " ".join(map(str, (*answer.answer.because, *front_lines(answer))))
    for one in cheaper[:1]:
        assert f"{one.gpus}x {one.gpu_name} from {one.provider}" in text_of_others


@pytest.mark.parametrize(
    ("fields", "tie", "reason"),
    [
        ({}, "roomier", "because.tie-roomier"),
        ({"price_age_days": 300}, "", "because.stale-cheaper"),
        ({"keeps_objective": 0.5}, "", "because.risky-cheaper"),
        ({"fits": "tight", "term": "reserved-1y", "price_age_days": 300}, "", "because.tight-cheaper"),
        ({}, "", None),
    ],
)
def test_a_cheaper_candidate_is_named_with_the_reason_against_it(
    catalog: Catalog, fields: dict[str, object], tie: str, reason: str | None
) -> None:
    fresh = replace(served(catalog).answer, price_age_days=10, keeps_objective=0.95, fits="fits", term="on-demand")
    best, cheaper = at_cost(fresh, "100"), at_cost(replace(fresh, **fields), "90")
    message = cheaper_reason(best, cheaper, tie)
    assert (message.id if message else None) == reason
    assert message is None or "10% less" in str(message)
    assert cheaper_reason(cheaper, best, tie) is None


def test_a_much_faster_candidate_for_little_more_is_named(catalog: Catalog) -> None:
    best = at_cost(replace(served(catalog).answer, price_age_days=10, keeps_objective=0.95), "100")
    assert best.tpot is not None
    fast = replace(at_cost(best, "104"), tpot=Figure.exact(best.tpot.value / 2.4, "s", "modelled"), gpus=3)
    faster = faster_reason(best, [fast], None)
    assert str(faster) == f"3x {best.gpu_name} is 2.4 times as fast for 4% more"
    two = [replace(at_cost(best, cost), capacity=Figure.exact(9.0, "requests/s", "modelled"), gpus=4) for cost in ("109", "112")]
    roomy = replace(best, capacity=Figure.exact(3.0, "requests/s", "modelled"))
    assert str(faster_reason(roomy, two, 2.0)) == f"4x {best.gpu_name} has 3 times the capacity for 9% more"
    assert faster_reason(roomy, [*two[1:], fast], 2.0) is None  # One is too dear, the other has the same capacity.
    assert faster_reason(best, [replace(fast, price_age_days=300), replace(fast, keeps_objective=0.3)], None) is None
    assert faster_reason(fast, [best], None) is None


def test_a_fleet_that_falls_just_short_of_the_rate_is_named_with_its_cost(catalog: Catalog) -> None:
    best = at_cost(served(catalog).answer, "1000")
    two = replace(at_cost(best, "1200"), copies=2, gpus=16, capacity=Figure.exact(3.8, "requests/s", "modelled"))
    (near,) = near_misses(best, [best, two], 2.0)
    assert near.id == "recommend.near-miss"
    assert "would hold 1.9 of the 2 requests/s for 600 USD a month" in str(near)
    assert f"8x {best.gpu_name}" in str(near)
    (margin,) = near_misses(best, [two], 1.8)
    assert margin.id == "recommend.near-miss-margin"
    assert not list(near_misses(best, [two], 2.5))  # 76% of the rate is not near.
    assert not list(near_misses(best, [at_cost(two, "1900")], 2.0))  # It saves too little.
    assert not list(near_misses(best, [two], None))


def test_a_card_of_the_user_comes_first_in_4_bits_with_a_note_on_quality(catalog: Catalog) -> None:
    query = Requirements(owned="2xRTX-3090", provider="aws", mode="me")
    answer = recommend("serve", "llama-3.1-70b", query, DAY, catalog, own=False)
    assert (answer.answer.gpu, answer.answer.precision, answer.answer.term) == ("rtx-3090", "int4", "owned")
    assert "recommend.owned-quality" in {one.id for one in answer.warnings}
    assert all(one.precision != "int4" for one in answer.candidates[1:])
    assert answer.context is not None
    assert answer.context >= 2304
    assert "RedHatAI/Meta-Llama-3.1-70B-Instruct-quantized.w4a16 --tensor-parallel-size=2" in (answer.serve or "")
    assert "\n" not in (answer.serve or "")
