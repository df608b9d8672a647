"""Precisions as candidates: what is tried on which GPU, and what each level of quality saves; more choice never costs more."""

from __future__ import annotations

from datetime import date

import pytest
from msgspec.structs import replace

from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.recommend.recommend import recommend, recommend_spelled
from whichgpu.base.errors import NoAnswer
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.decide.configurations.precision_choices import precisions_on
from whichgpu.decide.constraints import QUALITIES
from whichgpu.decide.question import Question
from whichgpu.decide.requirements import Requirements
from whichgpu.workload.spelling import from_object

DAY = date(2026, 11, 17)
LOOKUPS = lookup_cache(own=False)
SERVICE = {"task": "serve", "model": "llama-3.1-70b", "rate": "5/s", "seq_in": 1000, "seq_out": 300, "tpot_max": "50ms"}


def tried(gpu: str, day: date = DAY, quality: str = "near-lossless", **fields: object) -> dict[str, str]:
    question = Question(from_object({**SERVICE, **fields}), Requirements(), day, LOOKUPS, None, True)
    request = question._request()
    engine = next(one for one in LOOKUPS.catalog.engines if one.id == request.workload.engine)
    return precisions_on(request, LOOKUPS.catalog.gpu_by_id[gpu], engine, day, quality)  # type: ignore[arg-type]


def test_a_gpu_tries_the_precisions_it_has_units_for() -> None:
    assert list(tried("h100-sxm")) == ["bf16", "fp8", "int4"]
    assert list(tried("a100-sxm-80gb")) == ["bf16", "int8", "int4"]
    assert list(tried("b200")) == ["bf16", "fp8", "nvfp4"]
    assert list(tried("mi300x")) == ["bf16", "fp8", "int4"]
    assert list(tried("h100-sxm", engine="llama.cpp"))[1:] == ["q8_0", "q4_k_m"]


def test_a_stated_precision_a_narrow_checkpoint_and_an_early_day_leave_no_choice() -> None:
    assert list(tried("h100-sxm", precision="bf16")) == ["bf16"]
    assert list(tried("h100-sxm", model="gpt-oss-120b")) == ["mxfp4"]
    assert list(tried("a100-sxm-80gb", day=date(2022, 6, 1))) == ["bf16"]
    assert list(tried("h100-sxm", quality="lossless")) == ["bf16", "fp8"]


def answer(quality: str | None, **query: object) -> RecommendAnswer:
    spelled = from_object(SERVICE)
    return recommend_spelled(spelled, Requirements(quality=quality, **query), DAY, LOOKUPS)  # type: ignore[arg-type]


@pytest.mark.long
def test_each_level_of_quality_costs_no_more_than_the_one_before() -> None:
    costs = [float(answer(quality).cheapest.cost.amount) for quality in QUALITIES]
    assert costs == sorted(costs, reverse=True)
    default = answer(None)
    assert default.answer.precision == "fp8"
    steps = {step.quality: step for step in default.precisions}
    assert list(steps)[:2] == list(QUALITIES[:2])
    assert (steps["near-lossless"].saving or 0.0) > 0.2
    assert steps["near-lossless"].loss is not None
    assert steps["near-lossless"].allowed
    by_level = {step.quality: step for step in answer("lossless").precisions}
    assert not by_level["near-lossless"].allowed


def test_a_gpu_that_holds_the_model_in_four_bits_only_is_proposed_with_the_flag() -> None:
    spelled = from_object({**SERVICE, "rate": "0.1/s", "tpot_max": "100ms"})
    one_card = Requirements(gpu="L40S", gpus=(1.0, 1.0))
    assert recommend_spelled(spelled, replace(one_card, quality="any"), DAY, LOOKUPS).answer.precision == "int4"
    with pytest.raises(NoAnswer) as problem:
        recommend_spelled(spelled, one_card, DAY, LOOKUPS)
    assert (problem.value.rejected or {})["quality"]
    assert problem.value.relaxation is not None
    assert problem.value.relaxation["change"] == {"quality": "any"}


def test_training_and_pictures_keep_their_precision() -> None:
    assert recommend("finetune", "llama-3.1-8b", Requirements(gpu="H100"), DAY, lora_rank=16).precisions == ()
