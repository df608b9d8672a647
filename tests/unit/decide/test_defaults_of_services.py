"""Headroom of services, owned GPUs that come first, and prices last seen long ago that come last."""

from __future__ import annotations

from datetime import date
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from whichgpu.api.recommend.recommend import recommend
from whichgpu.catalog.store import Catalog
from whichgpu.decide.candidates import OUTDATED_LEAD, Candidates
from whichgpu.decide.configurations.slow_steps import MIN_HEADROOM
from whichgpu.decide.market import OLD_DAYS
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


def test_an_old_spot_price_of_a_run_leads_only_if_nothing_fresher_is_near() -> None:
    rows, none = np.arange(3), np.zeros(3, dtype=bool)
    values = {"outdated": np.array([True, True, False]), "poorly_supported": none, "risky": None, "outdated_lead": OUTDATED_LEAD}

    def order(fresh: float, **changed: Any) -> list[int]:
        one = cast("Candidates", SimpleNamespace(**{**values, **changed}))
        indices: list[int] = Candidates._fresher_first(one, rows, np.log([1.0, 1.1, fresh])).tolist()
        return indices

    assert order(1.24) == [2, 0, 1]
    assert order(1.26) == [0, 1, 2]
    assert order(1.24, outdated=none) == [0, 1, 2]
    assert order(1.24, poorly_supported=~none) == [0, 1, 2]
    assert order(1.24, risky=np.array([False, False, True])) == [0, 1, 2]
