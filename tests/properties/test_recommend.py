"""Changing one constraint moves the answer in the expected direction; no dominated candidate wins; a date reproduces."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from whichgpu.api.recommend.recommend import recommend
from whichgpu.base.errors import NoAnswer
from whichgpu.catalog.store import Catalog
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.decide.answer.ties import TIE
from whichgpu.decide.market import AGE_WEIGHT, FRESH_DAYS, OLD_DAYS
from whichgpu.decide.requirements import Requirements
from whichgpu.price.asof import prices_on_day
from whichgpu.price.run import OfferTerms, RunSettings, run_cost
from whichgpu.price.table import price_table, rows_on_day

DAY = date(2026, 10, 1)
CATALOG = Catalog()
RUN: tuple[str, str, dict[str, Any]] = ("train", "resnet50", {"batch": 64, "epochs": 10.0, "samples": 1_281_167})


@cache
def recommended(**constraints: Any) -> RecommendAnswer | None:
    task, model, fields = RUN
    try:
        return recommend(task, model, Requirements(**constraints), DAY, CATALOG, own=False, **fields)
    except NoAnswer:
        return None


@settings(max_examples=examples(5))
@given(st.sampled_from(["cost", "time", "balanced", "value"]), st.integers(5, 60), st.integers(5, 200))
@pytest.mark.long
def test_more_budget_is_never_slower(rank: Any, smaller: int, more: int) -> None:
    small, large = recommended(rank=rank, budget=f"{smaller}usd"), recommended(rank=rank, budget=f"{smaller + more}usd")
    if small is not None:
        assert large is not None
        assert large.answer.run_time.value <= small.answer.run_time.value * (1 + 1e-9)


@settings(max_examples=examples(5))
@given(st.sampled_from(["cost", "balanced"]), st.integers(1, 30), st.integers(1, 100))
def test_tighter_deadline_is_never_cheaper(rank: Any, shorter: int, more: int) -> None:
    tight, loose = recommended(rank=rank, deadline=f"{shorter}h"), recommended(rank=rank, deadline=f"{shorter + more}h")
    if tight is not None:
        assert loose is not None
        assert tight.answer.cost.amount >= loose.answer.cost.amount


@pytest.mark.parametrize("rank", ["cost", "time", "balanced"])
def test_dominated_candidate_never_wins(rank: Any) -> None:
    answer = recommended(rank=rank, limit=200)
    assert answer is not None
    best = answer.answer
    for one in (*answer.candidates, *answer.pareto):
        cheaper, faster = one.cost.amount < best.cost.amount, one.run_time.value < best.run_time.value * (1 - 1e-9)
        assert not (cheaper and faster), (rank, one.gpu, best.gpu)


@cache
def served(prices: Path | None) -> RecommendAnswer:
    query = Requirements(gpu="RTX 2000 Ada,L4,V100 SXM 16GB,A100 SXM 80GB", gpus=(1.0, 8.0))
    return recommend("serve", "llama-3.1-8b", query, DAY, CATALOG, own=False, overlay=prices)


@settings(max_examples=examples(2), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["[[owned]]\ncost", "[[contract]]\nprovider = 'aws'\ninstance = 'ours'\naccept = true\nprice"]),
    st.sampled_from(["V100 SXM 16GB", "L4", "A100 SXM 80GB"]),
    st.sampled_from([1, 8]),
    st.sampled_from([0.08, 0.2, 0.9, 4.0]),
)
@example("[[owned]]\ncost", "V100 SXM 16GB", 8, 0.1125)
def test_one_more_machine_never_makes_the_pick_dearer(tmp_path: Path, offer: str, gpu: str, gpus: int, per_gpu: float) -> None:
    """Costs are compared as the ranking does: an old price counts more, and within 3% the measured or roomier one wins."""
    prices = tmp_path / f"prices-{abs(hash((offer, gpu, gpus, per_gpu)))}.toml"
    prices.write_text(f"{offer} = '{per_gpu * gpus:g} usd/h'\ngpu = '{gpu}'\ngpus = {gpus}\n", encoding="utf-8")

    def compared(answer: RecommendAnswer) -> float:
        age = 0 if answer.answer.term == "owned" else answer.answer.price_age_days
        return float(answer.answer.cost.amount) * (1 + AGE_WEIGHT * ((age > FRESH_DAYS) + (age > OLD_DAYS)))

    assert compared(served(prices)) <= compared(served(None)) * TIE


def test_front_is_a_front() -> None:
    answer = recommended(rank="cost")
    assert answer is not None
    costs = [one.cost.amount for one in answer.pareto]
    times = [one.run_time.value for one in answer.pareto]
    assert costs == sorted(costs)
    assert times == sorted(times, reverse=True)
    assert answer.pareto[0].cost.amount == answer.cheapest.cost.amount
    assert answer.pareto[-1].run_time.value == pytest.approx(answer.fastest.run_time.value)


@pytest.mark.parametrize("providers", ["aws", "aws,gcp", "aws,gcp,lambda", "aws,gcp,lambda,runpod,vast"])
def test_more_offers_never_worsen_the_answer(providers: str) -> None:
    fewer = recommended(rank="cost", provider="aws")
    more = recommended(rank="cost", provider=providers)
    assert fewer is not None
    assert more is not None
    assert more.answer.cost.amount <= fewer.answer.cost.amount


@pytest.mark.parametrize("day", [date(2019, 9, 8), date(2021, 5, 16), date(2024, 4, 8), DAY])
def test_columns_equal_objects(day: date) -> None:
    """Prices of a day by arrays equal those of each offer by itself."""
    table = price_table(CATALOG)
    rows = rows_on_day(table, day)
    names = ("provider", "instance", "region", "gpu", "term", "payment", "price", "source")
    columns = sorted(tuple(table.word(name, row) for name in names) for row in rows.tolist())
    runs = [run for row in CATALOG.prices() for run in row.observations()]
    objects = sorted(
        tuple(str(getattr(one.observation, name) or "") for name in names) for one in prices_on_day(runs, day)
    )  # fmt: skip
    assert columns == objects


def test_the_same_day_gives_the_same_answer() -> None:
    task, model, fields = RUN
    one, two = (recommend(task, model, Requirements(), date(2024, 4, 8), Catalog(), own=False, **fields) for _ in range(2))
    assert one.candidates == two.candidates
    assert all(each.price_observed_at <= "2024-04-08" for each in one.candidates)


def terms(price: float, spot: bool = False, years: float = 0.0, granularity: float = 1.0) -> OfferTerms:
    one = np.ones(1)
    return OfferTerms(
        price * one, one, np.array([spot]), years * one, granularity * one, one, price * 2 * one, 0 * one, 0 * one, 0 * one,
        (), -np.ones(1, dtype=np.int64),
    )  # fmt: skip


@given(st.floats(0.01, 5000), st.floats(0, 500), st.booleans(), st.sampled_from([1.0, 60.0, 3600.0]))
def test_cost_never_falls_as_hours_rise(hours: float, more: float, spot: bool, granularity: float) -> None:
    offer = terms(2.0, spot=spot, granularity=granularity)
    short, long = (run_cost(np.array([work]), offer, RunSettings(), True) for work in (hours, hours + more))
    assert long.cost[0] >= short.cost[0] - 1e-9
    assert short.hours[0] >= hours


@given(st.floats(0.1, 1000), st.floats(0.0, 0.5), st.floats(0.0, 0.5))
def test_more_interruptions_never_help(hours: float, rate: float, more: float) -> None:
    calm, wild = (
        run_cost(np.array([hours]), terms(1.0, True), RunSettings(interruptions=each), True) for each in (rate, rate + more)
    )
    assert wild.hours[0] >= calm.hours[0]
    assert wild.cost[0] >= calm.cost[0]


def test_interruptions_by_hand() -> None:
    """100 h, a checkpoint of a minute twice an hour, 10 min to start, 0.1 interruptions an hour that lose 15 + 10 min each."""
    cost = run_cost(np.array([100.0]), terms(1.0, True), RunSettings(), True)
    busy = 100 * (1 + 60 / 1800) + 1 / 6
    assert cost.hours[0] == pytest.approx(busy / (1 - 0.1 * (0.25 + 1 / 6)))


def test_a_commitment_is_paid_whole() -> None:
    cost = run_cost(np.array([100.0]), terms(1.0, years=1.0), RunSettings(), False)
    assert cost.machine[0] == 8760
    assert cost.break_even[0] == 4380
    assert Decimal(str(cost.host[0])) == 0
