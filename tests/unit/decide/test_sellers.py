"""Sellers and ties: what a service avoids by default, that old prices count more, and which of two near-equal candidates wins."""

from __future__ import annotations

from datetime import date

import numpy as np
from msgspec.structs import replace

from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.recommend.recommend import recommend_spelled
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.decide.answer.ties import settle_tie
from whichgpu.decide.market import AGE_WEIGHT, FRESH_DAYS, OLD_DAYS
from whichgpu.decide.question import Question
from whichgpu.decide.requirements import Requirements
from whichgpu.workload.spelling import from_object

DAY = date(2026, 11, 17)
LOOKUPS = lookup_cache(own=False)
SERVICE = from_object(
    {"task": "serve", "model": "llama-3.1-8b", "rate": "2/s", "seq_in": 1000, "seq_out": 300, "tpot_max": "50ms"}
)
MARKETPLACES = {one.id for one in LOOKUPS.catalog.providers if one.kind == "marketplace"}


def answer(**query: object) -> RecommendAnswer:
    return recommend_spelled(SERVICE, Requirements(**query), DAY, LOOKUPS)  # type: ignore[arg-type]


def test_a_service_is_put_on_server_cards_of_clouds_and_the_saving_of_others_is_named() -> None:
    default, free = answer(), answer(sellers="any")
    assert not MARKETPLACES & {one.provider for one in default.candidates}
    assert {LOOKUPS.catalog.gpu_by_id[one.gpu].segment for one in default.candidates} == {"datacenter"}
    assert float(free.answer.cost.amount) <= float(default.answer.cost.amount)
    assert default.any_seller is not None
    assert float(default.any_seller.cost.amount) < float(default.answer.cost.amount)
    assert free.any_seller is None


def test_named_sellers_and_gpus_are_considered() -> None:
    assert {one.provider for one in answer(provider="vast").candidates} == {"vast"}
    assert {one.gpu for one in answer(gpu="RTX 4090").candidates} == {"rtx-4090"}


def test_old_prices_of_a_service_count_more() -> None:
    screened = Question(SERVICE, Requirements(), DAY, LOOKUPS, None, True).evaluated()
    candidates, market = screened.join(screened.results), screened.selection.market
    age = market.age_days[candidates.offer]
    expected = 1.0 + AGE_WEIGHT * (age > FRESH_DAYS) + AGE_WEIGHT * (age > OLD_DAYS)
    assert np.allclose(candidates.age_factor, expected)
    order = candidates.order("cost", market)
    weighted = (candidates.run_cost.cost * candidates.age_factor)[order]
    outdated = candidates.outdated[order]
    assert (np.diff(outdated.astype(int)) >= 0).all()  # Prices per hour over half a year old come after all others.
    for part in (weighted[~outdated], weighted[outdated]):
        assert (np.diff(part) >= -1e-6 * part[:-1]).all()
    unsupported = replace(candidates, poorly_supported=np.arange(len(candidates.group)) % 3 == 0)
    order = unsupported.order("cost", market)  # Support decides before age.
    marks = 2 * unsupported.poorly_supported[order].astype(int) + unsupported.outdated[order]
    assert (np.diff(marks) >= 0).all()
    assert len(set(marks.tolist())) == 4


def test_a_tie_goes_to_the_roomier_candidate_and_never_beyond_three_percent() -> None:
    screened = Question(SERVICE, Requirements(), DAY, LOOKUPS, None, True).evaluated()
    candidates, market = screened.join(screened.results), screened.selection.market
    order = candidates.order("cost", market)
    tie = settle_tie(candidates, order, screened, "cost")
    assert sorted(tie.order.tolist()) == sorted(order.tolist())
    weighted = candidates.run_cost.cost * candidates.age_factor
    assert weighted[tie.order[0]] <= weighted[order[0]] * 1.03 * (1 + 1e-9)
    assert (tie.over is None) == (tie.order[0] == order[0])
    outdated = replace(candidates, outdated=np.arange(len(candidates.group)) != order[0])
    assert settle_tie(outdated, order, screened, "cost").over is None  # A tie never goes to an old price.
    assert settle_tie(candidates, order, screened, "time").over is None


def test_desktop_cards_without_cuda_come_after_all_others() -> None:
    spelled = from_object({"task": "finetune", "model": "llama-3.1-8b", "qlora": True})
    rows = recommend_spelled(spelled, Requirements(buy=True, budget="1000usd"), DAY, LOOKUPS).candidates
    vendors = [LOOKUPS.catalog.gpu_by_id[one.gpu].vendor for one in rows]
    assert vendors[0] == "nvidia"
    assert vendors == sorted(vendors, key=lambda vendor: vendor != "nvidia")


def test_a_70b_at_home_runs_in_four_bits_on_two_cards() -> None:
    spelled = from_object({"task": "serve", "model": "llama-3.1-70b"})
    answer = recommend_spelled(spelled, Requirements(buy=True), DAY, LOOKUPS)
    assert answer.answer.gpus == 2
    assert answer.answer.precision == "int4"
    assert "rtx-3090" in {one.gpu for one in answer.candidates}


def test_full_fine_tuning_of_a_70b_counts_master_weights() -> None:
    spelled = from_object({"task": "finetune", "model": "llama-3.1-70b"})
    rows = recommend_spelled(spelled, Requirements(gpus=(8.0, 8.0)), DAY, LOOKUPS).candidates
    assert min(LOOKUPS.catalog.gpu_by_id[one.gpu].memory_bytes for one in rows) > 100 * 2**30
