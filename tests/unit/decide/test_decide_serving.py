"""Who serves: formulas screen, simulation settles; a service's answer moves with its rate, objectives and offers as it should."""

from __future__ import annotations

from datetime import date
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whichgpu.api.recommend.recommend import recommend
from whichgpu.api.workloads.load import LoadOptions as Serving
from whichgpu.api.workloads.serve import serve
from whichgpu.base.errors import NoAnswer
from whichgpu.catalog.store import Catalog
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.decide.configurations.bisection import least_count
from whichgpu.decide.configurations.capacity_bound import rate_bounds, safe_rates, tpot_at_rate
from whichgpu.decide.configurations.configuration import Configuration
from whichgpu.decide.requirements import Requirements
from whichgpu.workload.workload import Parallel, Workload

DAY = date(2026, 10, 1)
CATALOG = Catalog()
PROVIDERS = "aws,lambda"


@cache
def served(rate: float = 2.0, tpot: float | None = 0.05, **constraints: Any) -> RecommendAnswer | None:
    fields: dict[str, Any] = {"rate": rate, "seq_in": 500, "seq_out": 200} | ({"tpot_max": tpot} if tpot else {})
    constraints = {"provider": PROVIDERS, "term": "on-demand", "gpus": (1.0, 4.0)} | constraints
    try:
        return recommend("serve", "llama-3.1-8b", Requirements(**constraints), DAY, CATALOG, own=False, **fields)
    except NoAnswer:
        return None


@given(
    st.floats(0.002, 0.2), st.floats(1.01, 3.0), st.floats(0.01, 3.0), st.sampled_from([None, 0.05, 0.2]),
    st.sampled_from([50.0, 95.0, 99.0]),
)  # fmt: skip
def test_rate_bound_is_never_below_the_safe_rate(
    step: float, growth: float, first: float, tpot: float | None, share: float
) -> None:
    work = Workload("serve", "m", rate=1.0, seq_in=500, seq_out=200, tpot_max=tpot, percentile=share)
    batches = np.array([1.0, 4.0, 16.0, 64.0])
    tokens = np.array([step * growth**power for power in range(4)])
    reading = np.full(4, first)
    sure, _ = safe_rates(work, batches, tokens, reading)
    assert (rate_bounds(work, batches, tokens, reading) >= sure).all()


def test_the_answer_was_simulated_and_keeps_its_objective() -> None:
    answer = served()
    assert answer is not None
    best = answer.answer
    assert best.simulated
    assert best.tpot is not None
    assert best.tpot.value <= 0.05
    assert best.capacity is not None
    assert best.capacity.value >= 2.0
    assert {"because.rate-simulated"} <= {one.id for one in best.because}


@pytest.mark.parametrize(
    ("model", "rate", "lengths", "tpot"),
    [("llama-3.1-8b", 6.0, (1000, 300), 0.05), ("llama-3.1-70b", 6.0, (1000, 300), 0.03), ("qwen2.5-7b", 4.0, (100, 600), None)],
)
@pytest.mark.sweep(3)
def test_answer_holds_in_a_longer_simulation(
    model: str, rate: float, lengths: tuple[int, int], tpot: float | None
) -> None:  # fmt: skip
    """Ten times the requests it was chosen by: enough of them keep the objective, and no queue grows without end."""
    fields: dict[str, Any] = dict(zip(("seq_in", "seq_out"), lengths, strict=True)) | ({"tpot_max": tpot} if tpot else {})
    best = recommend("serve", model, Requirements(), DAY, CATALOG, own=False, rate=rate, **fields).answer
    layout, copies = best.parallel, (best.copies or 1) * best.parallel.dp
    answer = serve(
        model, gpu=best.gpu, gpus=layout.tp * layout.pp, precision=best.precision, parallel=f"tp={layout.tp},pp={layout.pp}",
        options=Serving(requests=4000, curve=False), catalog=CATALOG, rate=rate / copies, percentile=95, **fields,
    ).serving  # fmt: skip
    assert answer is not None
    assert not answer.saturated
    assert rate / copies <= answer.sustainable_rate.value
    assert answer.met is None or answer.met >= 0.95


def test_the_same_question_gets_the_same_simulation() -> None:
    one, two = served(), served.__wrapped__()
    assert one == two


@pytest.mark.long
@settings(max_examples=5, deadline=None)
@given(st.sampled_from([0.5, 1.0, 2.0, 4.0, 8.0]), st.sampled_from([1.5, 3.0]))
def test_more_requests_are_never_cheaper(rate: float, times: float) -> None:
    less, more = served(rate), served(rate * times)
    if more is not None:
        assert less is not None
        assert more.answer.cost.amount >= less.answer.cost.amount


@pytest.mark.parametrize(("loose", "tight"), [(0.1, 0.05), (0.05, 0.03), (0.03, 0.015)])
@pytest.mark.sweep(3)
def test_a_tighter_objective_is_never_cheaper(loose: float, tight: float) -> None:
    one, other = served(tpot=loose), served(tpot=tight)
    if other is not None:
        assert one is not None
        assert other.answer.cost.amount >= one.answer.cost.amount


@pytest.mark.parametrize("more", ["aws,lambda,runpod", "aws,lambda,gcp,nebius", "aws,lambda,verda,hyperstack,runpod"])
@pytest.mark.parametrize("rate", [1.0, 3.0])
@pytest.mark.sweep(2)
def test_more_offers_never_worsen_a_service(more: str, rate: float) -> None:
    fewer, others = served(rate), served(rate, provider=more)
    assert fewer is not None
    assert others is not None
    assert others.cheapest.cost.amount <= fewer.cheapest.cost.amount


def test_fastest_of_a_service_answers_soonest() -> None:
    answer = served(rank="time")
    assert answer is not None
    soonest = answer.fastest
    assert soonest.tpot is not None
    assert all(one.tpot is None or soonest.tpot.value <= one.tpot.value * 1.05 for one in answer.candidates)
    costs = [one.cost.amount for one in answer.pareto]
    assert costs == sorted(costs)


def test_without_objectives_a_default_tpot_limit_applies() -> None:
    answer = served(tpot=None)
    assert answer is not None
    assert answer.answer.tpot is not None
    assert answer.answer.tpot.value <= 0.1
    assert "assumed.tpot" in {one.id for one in answer.assumptions}


@given(st.integers(1, 20), st.integers(0, 60), st.integers(1, 90))
def test_smallest_number_of_replicas_is_found(fewest: int, more: int, needed: int) -> None:
    total = least_count(fewest, fewest + more, lambda count: count >= needed)
    assert total == (None if needed > fewest + more else max(fewest, needed))


def _llama70(**constraints: Any) -> RecommendAnswer:
    fields: dict[str, Any] = {"rate": 5.0, "seq_in": 1000, "seq_out": 300, "tpot_max": 0.05}
    return recommend("serve", "llama-3.1-70b", Requirements(**constraints), DAY, CATALOG, own=False, **fields)


def test_every_row_shown_was_simulated_and_keeps_its_objective() -> None:
    answer = _llama70()
    rows = (*answer.candidates, answer.cheapest, answer.fastest, *answer.pareto)
    assert len(answer.candidates) == 8
    assert all(one.simulated for one in rows)
    assert all(one.tpot is not None and one.tpot.value <= 0.05 for one in rows)


def test_row_does_not_depend_on_its_gpu_being_requested() -> None:
    """No GPU requested by itself costs less than the answer, as pairs of H100 with a small KV cache once did."""
    answer = _llama70()
    for gpu in dict.fromkeys(one.gpu for one in answer.candidates[:4]):
        alone = _llama70(gpu=gpu).answer
        listed = next(one for one in answer.candidates if one.gpu == gpu)
        assert (alone.gpus, alone.cost.amount) == (listed.gpus, listed.cost.amount)
        assert answer.cheapest.cost.amount <= alone.cost.amount


def test_a_light_load_is_served_in_small_batches() -> None:
    curve = ((1, 0.01, 100.0), (8, 0.02, 400.0), (64, 0.05, 1280.0))
    configuration = Configuration(
        "bf16", Parallel(), 64, None, 1, "none", 0.05, 1280.0, "output tokens/s", 1, 2, "fits", "bandwidth", "generate",
        ttft=0.1, capacity=3.0, curve=curve,
    )  # fmt: skip
    work = Workload("serve", "m", rate=1.0, seq_in=500, seq_out=200)
    assert tpot_at_rate(work, configuration, 0.005) == 0.01
    assert tpot_at_rate(work, configuration, 0.5) == 0.02
    assert tpot_at_rate(work, configuration, 100.0) == 0.05


def test_sequences_are_limited_where_that_keeps_tpot_with_fewer_replicas() -> None:
    """One long prefill delays the tokens of all running sequences; the serve line and the reasons state the limit."""
    fields: dict[str, Any] = {
        "rate": 0.5,
        "seq_in": 30_000,
        "seq_out": 30,
        "ttft_max": 10.0,
        "tpot_max": 0.06,
        "precision": "fp8",
    }
    query = Requirements(gpu="B200", provider="lambda,verda")
    answer = recommend("serve", "llama-3.1-70b", query, DAY, CATALOG, own=False, **fields)
    best = answer.answer
    assert best.max_sequences is not None
    assert best.batch == best.max_sequences * best.parallel.dp
    assert best.gpus <= 8
    assert best.ttft is not None
    assert best.tpot is not None
    assert best.ttft.value <= 10.0
    assert best.tpot.value <= 0.06
    assert best.keeps_objective is not None
    assert best.keeps_objective >= 0.9
    assert {"because.limited-sequences", "because.limited-step"} & {one.id for one in best.because}
