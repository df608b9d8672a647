"""Parts of a decision: replica capacity, cost of owning, messages, and that every reason has a message."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import whichgpu
from whichgpu.api.recommend.recommend import recommend
from whichgpu.api.workloads.estimate import estimate
from whichgpu.base.messages import english
from whichgpu.catalog.store import Catalog
from whichgpu.decide.configurations.capacity_bound import safe_rates
from whichgpu.decide.framework_support import runs_frameworks
from whichgpu.decide.requirements import Requirements
from whichgpu.decide.work import work_of
from whichgpu.price.billing import billing_on
from whichgpu.price.own import OwnershipCosts, compare_with_rent
from whichgpu.price.run import OfferTerms, RunSettings, run_cost
from whichgpu.surface.charts.front import front_chart
from whichgpu.workload.models import find_model
from whichgpu.workload.spelling import fill_defaults, from_object
from whichgpu.workload.workload import Workload

SOURCE = Path(whichgpu.__file__).parent
DAY = date(2026, 10, 1)
SERVICE = Workload("serve", "m", rate=1.0, seq_in=1000, seq_out=300)
BATCHES = np.array([1.0, 8.0, 64.0])
TOKENS, FIRST = np.array([0.02, 0.025, 0.05]), np.array([0.1, 0.1, 0.1])


def test_replica_capacity_is_below_its_full_batch_throughput() -> None:
    rate, _ = safe_rates(SERVICE, BATCHES, TOKENS, FIRST)
    full = BATCHES / (FIRST + 300 * TOKENS)
    assert (rate < full).all()
    assert (np.diff(rate) > 0).all()


@pytest.mark.parametrize(("field", "tight", "loose"), [("tpot_max", 0.03, 0.06), ("ttft_max", 0.11, 5.0)])
def test_looser_objectives_never_lower_capacity(field: str, tight: float, loose: float) -> None:
    constraints: list[dict[str, Any]] = [{field: tight}, {field: loose}]
    one, two = (safe_rates(replace(SERVICE, **constraint), BATCHES, TOKENS, FIRST)[0].max() for constraint in constraints)
    assert one <= two


def test_higher_percentile_lowers_capacity() -> None:
    calm, strict = (safe_rates(replace(SERVICE, percentile=p), BATCHES, TOKENS, FIRST)[0][1:] for p in (50, 99))
    assert (strict < calm).all()


def test_ttft_grows_with_replica_utilisation() -> None:
    _, ttft = safe_rates(SERVICE, BATCHES, TOKENS, FIRST)
    assert (ttft >= FIRST).all()
    assert (np.diff(ttft) > 0).all()


@pytest.mark.parametrize(
    ("request_", "amount", "unit"),
    [
        ({"task": "train", "model": "llama-3.1-8b", "tokens": 5000}, 5000, "tokens"),
        ({"task": "train", "model": "llama-3.1-8b", "steps": 10, "batch": 4, "seq_in": 100}, 4000, "tokens"),
        ({"task": "train", "model": "resnet50", "samples": 1000, "epochs": 3}, 3000, "samples"),
        ({"task": "batch", "model": "llama-3.1-8b", "samples": 10, "seq_out": 50}, 500, "tokens"),
        ({"task": "batch", "model": "bert-large", "samples": 10}, 10, "samples"),
    ],
)
def test_how_much_there_is_to_do(catalog: Catalog, request_: dict[str, Any], amount: float, unit: str) -> None:
    shape = find_model(request_["model"], catalog)
    work = work_of(fill_defaults(from_object(request_).workload, shape), shape, None)
    assert (work.amount, work.unit, work.assumed) == (amount, unit, False)


def test_fine_tuning_a_picture_model_is_no_pass_over_imagenet(catalog: Catalog) -> None:
    shape = find_model("stable-diffusion-xl", catalog)
    request_ = {"task": "finetune", "model": "stable-diffusion-xl", "lora_rank": 16}
    work = work_of(fill_defaults(from_object(request_).workload, shape), shape, None)
    assert (work.amount, work.unit, work.assumed) == (10_000, "samples", True)


def test_unknown_billing_is_by_the_hour() -> None:
    assert billing_on("nobody", DAY).granularity == 3600


def test_owning_pays_sooner_the_dearer_the_rent() -> None:
    own = OwnershipCosts(10_000.0, 400.0, 2_000.0)
    uses = [compare_with_rent(own, rent).break_even_use for rent in (0.5, 1.0, 2.0, 4.0)]
    present = [use for use in uses if use is not None]
    assert present == sorted(present, reverse=True)
    assert compare_with_rent(own, 0.001).break_even_use is None
    at = compare_with_rent(own, 2.0).break_even_use
    assert at is not None
    assert replace(own, use=at).hour == pytest.approx(2.0)


def test_framework_support_by_vendor_and_year(catalog: Catalog) -> None:
    nvidia, amd = catalog.gpu_by_id["gtx-titan-x"], catalog.gpu_by_id["mi300x"]
    assert runs_frameworks(nvidia, date(2015, 11, 19))
    assert not runs_frameworks(amd, date(2020, 1, 1))
    assert runs_frameworks(amd, DAY)


def test_every_reason_has_words() -> None:
    """Reasons are strings in the code; each of them has a message."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in (SOURCE / "decide").glob("*.py"))
    reasons = set(re.findall(r'(?:Infeasibility\(|yield |missed\[|missed: dict\[str, Bools\] = \{)"([a-z-]+)"', text))
    assert len(reasons) > 15
    assert [reason for reason in sorted(reasons) if f"rejected.{reason}" not in english()] == []


def test_because_names_bound_memory_and_price(catalog: Catalog) -> None:
    answer = recommend("serve", "llama-3.1-8b", Requirements(), DAY, catalog, own=False, rate=1.0, tpot_max=0.1, ttft_max=2.0)
    for one in answer.candidates:
        reasons = {message.id for message in one.because}
        assert {"because.speed-served", "because.memory-served", "because.tpot", "because.ttft", "because.price-term"} <= reasons
        assert reasons & {"because.rate", "because.rate-simulated", "because.rate-simulated-one"}
    assert {"because.against-service"} <= {message.id for message in answer.answer.because}


def test_every_deciding_default_is_in_the_assumptions(catalog: Catalog) -> None:
    answer = recommend("train", "llama-3.1-8b", Requirements(), DAY, catalog, own=False)
    assumptions = {message.id for message in answer.assumptions}
    assert {
        "assumed.precision",
        "assumed.engine",
        "assumed.sequence-train",
        "assumed.work",
        "assumed.startup",
        "assumed.gpus",
    } <= assumptions
    result = recommend(
        "train",
        "llama-3.1-8b",
        Requirements(gpus=(8.0, 8.0)),
        DAY,
        catalog,
        own=False,
        precision="bf16",
        tokens=10**9,
        engine="pytorch",
    )
    assert not {"assumed.precision", "assumed.engine", "assumed.work", "assumed.gpus"} & {one.id for one in result.assumptions}


def test_every_candidate_is_counted_once(catalog: Catalog) -> None:
    """What filters and memory remove, and what is left, are all there is."""
    answer = recommend("serve", "llama-3.1-70b", Requirements(provider="aws"), DAY, catalog, own=False, rate=1.0)
    before = sum(answer.rejected.reasons.get(name, 0) for name in ("unknown-gpu", "slice", "framework", "provider", "gpus"))
    assert 0 < before < answer.considered


def test_answer_equals_estimate(catalog: Catalog) -> None:
    requests: list[tuple[str, str, dict[str, Any]]] = [
        ("serve", "llama-3.1-8b", {"rate": 1.0}),
        ("train", "llama-3.1-8b", {}),
        ("train", "bert-large", {}),
    ]
    for task, model, fields in requests:
        best = recommend(task, model, Requirements(), DAY, catalog, own=False, **fields).answer
        claim = estimate(
            task, model, catalog, own=False, gpu=best.gpu, gpus=best.gpus // best.copies, precision=best.precision,
            batch=best.batch, micro_batch=best.micro_batch, accumulation=best.accumulation, checkpointing=best.checkpointing,
            parallel={name: getattr(best.parallel, name) for name in ("dp", "tp", "pp", "zero", "sp")},
        )  # fmt: skip
        assert claim.time is not None
        assert best.time.value == pytest.approx(claim.time.value, rel=0.05)
        assert claim.fits == best.fits


def test_the_picture_holds_the_front_the_terms_and_the_curve(catalog: Catalog) -> None:
    requirements = Requirements(provider="aws")
    answer = recommend("serve", "llama-3.1-8b", requirements, DAY, catalog, own=False, rate=1.0)
    front, terms, curve = front_chart(answer, english())["vconcat"]
    assert len(front["layer"][1]["data"]["values"]) >= len(answer.candidates)
    assert {point["term"] for point in terms["data"]["values"]} >= {"on demand"}
    assert len(curve["data"]["values"]) == len(answer.curve) > 1


def years_paid(hours: float, committed: float, price: float, plain: float) -> float:
    """Cost of a service of a number of hours on a committed offer, in hours at its price."""
    one = np.ones(1)
    terms = OfferTerms(
        price=price * one, machines=one, spot=np.zeros(1, dtype=bool), years=committed * one, granularity=one, minimum=one,
        on_demand=plain * one, host=0 * one, disk=0 * one, egress=0 * one, step_of=-np.ones(1, dtype=np.int64),
    )  # fmt: skip
    return float(run_cost(hours * one, terms, RunSettings(), interruptible=False).cost[0]) / price


def test_a_service_of_a_year_is_bound_for_one_year() -> None:
    """Its start does not make it two."""
    assert years_paid(8760.0, 1.0, 0.6, 1.0) == pytest.approx(8760.0)
    assert years_paid(3 * 8760.0, 3.0, 0.5, 1.0) == pytest.approx(3 * 8760.0)
    assert years_paid(6000.0, 1.0, 0.6, 1.0) == pytest.approx(8760.0)  # a commitment is paid whole


def test_remainder_of_a_commitment_is_on_demand_if_cheaper() -> None:
    assert years_paid(8760.0 + 730.0, 1.0, 0.6, 1.0) == pytest.approx(8760.0 + 730.0 / 0.6)
    assert years_paid(8760.0 + 8000.0, 1.0, 0.6, 1.0) == pytest.approx(2 * 8760.0)
    assert years_paid(8760.0 + 730.0, 1.0, 0.6, float("nan")) == pytest.approx(2 * 8760.0)
