"""A limit on power removes candidates whose GPUs and machines draw more, and is relaxed like a budget."""

from __future__ import annotations

from datetime import date

import pytest

from whichgpu.api.recommend.recommend import recommend
from whichgpu.base.errors import NoAnswer
from whichgpu.catalog.store import Catalog
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.decide.requirements import Requirements

HOST_WATTS = 150.0


def finetuned(catalog: Catalog, power: float | str) -> RecommendAnswer:
    query = Requirements(max_power=power, gpu="RTX 4090,L4,H100")
    return recommend("finetune", "llama-3.1-8b", query, date(2026, 8, 1), catalog, own=False, qlora=True)


def test_every_candidate_draws_at_most_the_limit(catalog: Catalog) -> None:
    answer = finetuned(catalog, "0.6kW")
    assert {one.gpu for one in answer.candidates} == {"rtx-4090", "l4", "h100-nvl", "h100-pcie"}  # not H100 SXM: 700 W
    for one in answer.candidates:
        rated = catalog.gpu_by_id[one.gpu].tdp_watts
        assert rated is not None
        assert one.watts == rated * one.gpus + HOST_WATTS * one.machines
        assert one.watts <= 600
    assert "because.power" in {reason.id for reason in answer.answer.because}


def test_the_power_of_the_room_counts(catalog: Catalog) -> None:
    query = Requirements(max_power="0.6kW", pue=1.5, gpu="RTX 4090,L4,H100")
    answer = recommend("finetune", "llama-3.1-8b", query, date(2026, 8, 1), catalog, own=False, qlora=True)
    assert {one.gpu for one in answer.candidates} == {"l4"}  # 1.5 times 222 W; of an H100 NVL 825 W
    assert answer.answer.watts == 1.5 * (72 + HOST_WATTS)
    assert "because.power-room" in {reason.id for reason in answer.answer.because}


def test_a_power_too_low_for_any_candidate_is_relaxed_to_the_least_that_suffices(catalog: Catalog) -> None:
    with pytest.raises(NoAnswer) as caught:
        finetuned(catalog, 100.0)
    assert (caught.value.rejected or {})["power"] > 0
    assert caught.value.relaxation is not None
    assert caught.value.relaxation["change"] == {"max_power": "0.222kW"}  # An L4 of 72 W and its machine.
