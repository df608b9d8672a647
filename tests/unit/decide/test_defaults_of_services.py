"""Headroom of services, owned GPUs that come first, and prices last seen long ago that come last."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from whichgpu.api.recommend.recommend import recommend
from whichgpu.catalog.store import Catalog
from whichgpu.decide.candidates import OLD_DAYS
from whichgpu.decide.configurations.slow_steps import MIN_HEADROOM
from whichgpu.decide.requirements import Requirements

DAY = date(2026, 11, 17)


@pytest.mark.parametrize(("model", "rate"), [("llama-3.1-8b", 9.0), ("mixtral-8x7b", 5.0)])
def test_a_service_has_headroom_unless_risk_is_even(catalog: Catalog, model: str, rate: float) -> None:
    rows = recommend("serve", model, Requirements(gpu="H100 SXM,L40S"), DAY, catalog, own=False, rate=rate).candidates
    for one in rows:
        assert one.capacity is not None
        assert one.capacity.value >= rate * MIN_HEADROOM * 0.999


@pytest.mark.parametrize("fields", [{"qlora": True}, {"lora_rank": 16}])
def test_an_owned_card_that_does_the_job_comes_first(catalog: Catalog, fields: dict[str, Any]) -> None:
    query = Requirements(owned="RTX 3090", rank="balanced")
    best = recommend("finetune", "llama-3.1-8b", query, DAY, catalog, own=False, **fields).answer
    assert (best.gpu, best.term) == ("rtx-3090", "owned")


def test_outdated_prices_of_a_service_come_last_and_the_cheaper_one_is_named(catalog: Catalog) -> None:
    answer = recommend("serve", "llama-3.1-405b", Requirements(), DAY, catalog, own=False, rate=2.0, tpot_max=0.08)
    assert answer.answer.price_age_days <= OLD_DAYS
    assert answer.cheapest.price_age_days > OLD_DAYS
    assert any(one.id == "because.stale-cheaper" for one in answer.answer.because)
