"""Which offers are considered: slices, stale prices, engines; mixes of terms; sources of tables; runs of an estimate."""

from __future__ import annotations

import csv
import os
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import whichgpu
from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.recommend.recommend import recommend
from whichgpu.api.workloads.estimate import estimate, estimate_workload
from whichgpu.base.errors import NoAnswer, UsageError
from whichgpu.catalog.store import Catalog
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.decide.configurations.groups import sliced
from whichgpu.decide.requirements import Requirements
from whichgpu.workload.models import find_model
from whichgpu.workload.spelling import from_object

ROOT = Path(whichgpu.__file__).parent
DAY, AWS_DAY = date(2026, 10, 1), date(2021, 5, 16)
CATALOG = Catalog()


def recommended(
    task: str = "train", model: str = "resnet50", day: date = DAY, fields: Any = None, **constraints: Any
) -> RecommendAnswer:
    return recommend(task, model, Requirements(**constraints), day, CATALOG, own=False, **(fields or {}))


def test_gpu_slice_has_its_share_of_memory_bandwidth_and_peaks() -> None:
    whole = CATALOG.gpu_by_id["l4"]
    part = sliced(whole, 0.25)
    assert part.memory_bytes == whole.memory_bytes // 4
    assert part.memory_bandwidth == whole.memory_bandwidth // 4
    assert part.peaks["fp16"] == whole.peaks["fp16"] // 4
    assert sliced(whole, 1.0) is whole


def test_fraction_of_a_gpu_serves_a_small_workload() -> None:
    answer = recommended("serve", fields={"rate": 10.0}, provider="aws", term="on-demand")
    assert answer.answer.gpus == 0.125
    assert answer.answer.instance == "g6f.large"
    assert "assumed.slice" in {one.id for one in answer.assumptions}
    whole = recommended("serve", fields={"rate": 10.0}, provider="aws", term="on-demand", gpus=(1.0, 8.0))
    assert whole.answer.gpus >= 1
    assert whole.answer.cost.amount > answer.answer.cost.amount
    assert all(one.gpus >= 1 for one in recommended(provider="aws", limit=50).candidates)


def test_slices_of_a_gpu_and_the_whole_have_batches_of_their_own_in_offline_inference() -> None:
    answer = recommended("batch", "qwen2.5-0.5b", provider="aws", term="on-demand", gpu="L4", gpus=(0.05, 8.0), limit=20)
    batches = {one.gpus: one.batch for one in answer.candidates}
    assert batches[0.25] < batches[0.5] < batches[1.0]


def test_stale_spot_prices_count_only_if_spot_is_requested() -> None:
    plain = recommended(day=AWS_DAY, provider="aws", limit=50)
    assert all(one.term != "spot" for one in plain.candidates)
    assert plain.rejected.reasons["old-price"] >= 3
    answer = recommended(day=AWS_DAY, provider="aws", term="spot", limit=50)
    assert answer.answer.price_age_days > 365
    with pytest.raises(NoAnswer):
        recommended(day=AWS_DAY, provider="aws", term="spot", max_age="365d")


def test_an_engine_that_cannot_run_there_is_left_out() -> None:
    with pytest.raises(NoAnswer) as none:
        recommended("serve", "llama-3.1-8b", gpu="K80", day=AWS_DAY, fields={"rate": 0.1})
    assert "engine" in str(none.value.message)
    old = recommended("serve", "llama-3.1-8b", gpu="V100-SXM-16GB", fields={"rate": 0.2})
    assert "recommend.engine-earlier" in {one.id for one in old.warnings}


def test_other_engines_are_listed_unless_one_is_requested() -> None:
    plain = recommended("serve", "llama-3.1-8b", gpu="H100 SXM", fields={"rate": 1.0})
    assert plain.engines
    assert {one.engine for one in plain.engines} <= {"sglang", "tensorrt-llm"}
    assert all(0.3 < one.speed < 3 for one in plain.engines)
    answer = recommended("serve", "llama-3.1-8b", gpu="H100 SXM", fields={"rate": 1.0, "engine": "vllm"})
    assert answer.engines == ()


def test_spot_answer_has_an_on_demand_fallback() -> None:
    answer = recommended(provider="aws,gcp", term="on-demand,spot")
    assert answer.answer.term == "spot"
    assert answer.fallback is not None
    assert answer.fallback.term == "on-demand"
    costs = [answer.answer.cost.amount, *(one.cost.amount for one in answer.shares)]
    assert costs == sorted(costs)
    assert answer.shares[-1].on_demand == 1.0
    assert recommended(provider="aws", term="on-demand").shares == ()


def test_best_cuda_candidate_is_listed_if_the_answer_has_none() -> None:
    answer = recommended(model="resnet50", buy=True, gpu="RX 7900 XTX,RTX 4060 Ti 16GB")
    gpus = {answer.answer.gpu} | ({answer.with_cuda.gpu} if answer.with_cuda else set())
    if "cuda" not in CATALOG.gpu_by_id[answer.answer.gpu].supports:
        assert answer.with_cuda is not None
        assert "cuda" in CATALOG.gpu_by_id[answer.with_cuda.gpu].supports
    assert gpus


@pytest.mark.parametrize(
    ("question", "fields", "constraints", "change"),
    [
        (("serve", "llama-3.1-405b"), {"precision": "bf16"}, {"gpus": (1.0, 1.0)}, {"gpus": (1.0, 8.0)}),
        (("train", "resnet50"), {}, {"needs": "nvlink", "gpu": "T4"}, {"gpu": "T4"}),
        (("train", "resnet50"), {}, {"gpus": (100_000.0, 100_000.0)}, {"gpus": (64.0, 64.0)}),
    ],
)
def test_relaxations_were_tried(question: tuple[str, str], fields: Any, constraints: Any, change: Any) -> None:
    with pytest.raises(NoAnswer) as none:
        recommended(*question, fields=fields, **constraints)
    hint = none.value.hint
    assert hint is not None
    relaxations: Any = hint.values["ways"]
    ids = {one.id for one in relaxations}
    assert ids & {"relax.gpus", "relax.without"}
    assert recommended(*question, fields=fields, **change).answer


def test_one_relaxation_too_many_requests() -> None:
    with pytest.raises(NoAnswer) as none:
        recommended("serve", "llama-3.1-8b", fields={"rate": 1e6}, provider="aws")
    assert none.value.hint is not None
    relaxations: Any = none.value.hint.values["ways"]
    assert "relax.copies" in {one.id for one in relaxations}


@pytest.mark.parametrize(
    "constraints",
    [
        {"idle": 1.0}, {"idle": -0.1}, {"limit": 0}, {"checkpoint_every": "0s"}, {"duration": "0h"}, {"gpus": (0.0, 0.0)},
        {"owned": "0xV100-SXM-16GB"}, {"buy": True, "owned": "V100-SXM-16GB"}, {"price": "foo", "buy": True},
        {"budget": "5xyz"}, {"power_price": "abc"}, {"max_latency": "5ms"}, {"rank": "best"},
    ],
)  # fmt: skip
def test_contradictory_constraints_are_refused(constraints: Any) -> None:
    with pytest.raises(UsageError):
        recommended(**constraints)


def test_images_are_not_counted_in_tokens() -> None:
    with pytest.raises(UsageError):
        recommended(fields={"tokens": 10**9})


def test_more_epochs_take_longer_and_cost_more() -> None:
    """On one GPU each: within 3% in cost, a faster pair of them would be as good an answer."""
    fields = ({"epochs": n, "lora_rank": 16} for n in (1.0, 3.0))
    once, thrice = (recommended("finetune", "llama-3.1-8b", fields=one, gpu="A100", gpus=(1.0, 1.0)) for one in fields)
    assert thrice.answer.run_time.value > 2 * once.answer.run_time.value
    assert thrice.answer.cost.amount > once.answer.cost.amount


def test_own_machines_are_not_billed_by_the_hour() -> None:
    answer = recommended(owned="1xV100-SXM-16GB", gpu="V100-SXM-16GB", rank="cost").answer
    assert answer.term == "owned"
    share = float(answer.cost.amount) / float(answer.cost_per_hour.amount)
    assert share == pytest.approx(answer.run_time.value / 3600.0, rel=0.01)


def rows(folder: str, name: str) -> list[dict[str, str]]:
    with (ROOT / folder / "data" / f"{name}.csv").open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize(
    ("folder", "name"),
    [("price", "billing"), ("price", "extras"), ("price", "habits"), ("decide", "frameworks"), ("decide", "lacks")],
)
def test_tables_name_documents_that_were_read(folder: str, name: str) -> None:
    read = {id: source.read for id, source in CATALOG.sources.items()}
    for row in rows(folder, name):
        sources = [one for one in row["sources"].split(";") if one]
        assert all(read.get(one) for one in sources), row
        assert row["recorded"]
        if row.get("basis") == "published":
            assert sources, row


def run(fields: dict[str, Any], day: date = DAY) -> Any:
    request = from_object({"task": "train", "model": "resnet50", "gpu": "v100-sxm-16gb", **fields})
    return estimate_workload(request, lookup_cache(CATALOG, own=False, as_of=day)).run


def test_estimate_has_the_run_and_its_cost_on_a_day() -> None:
    assert run({}) is None
    one, two = run({"epochs": 1.0}), run({"epochs": 2.0, "samples": 1_281_167})
    assert two.time.value == pytest.approx(2 * one.time.value)
    assert float(two.cost.amount) == pytest.approx(2 * float(one.cost.amount), rel=1e-3)
    assert one.time.low < one.time.value < one.time.high
    assert one.cost.low < one.cost.amount < one.cost.high
    past = run({"epochs": 1.0}, AWS_DAY)
    assert past.offer.observed_at <= "2021-05-16"
    assert past.offer != one.offer


def test_a_pipe_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    os.mkfifo(path)
    with pytest.raises(UsageError) as error:
        find_model(str(path), CATALOG)
    assert error.value.kind == "file-unreadable"


def test_a_service_without_a_model_does_not_rest_on_spot() -> None:
    answer = recommend("serve", None, Requirements(), DAY, CATALOG, own=False)
    assert answer.kind == "mix"
    assert all(one.term != "spot" for one in answer.candidates)
    assert answer.rejected.reasons["spot-service"] > 0
    asked_for = recommend("serve", None, Requirements(term="spot"), DAY, CATALOG, own=False)
    assert asked_for.answer.term == "spot"


def test_other_engines_are_listed_for_the_same_layout_and_batch() -> None:
    answer = recommended("finetune", "llama-3.1-8b")
    best = answer.answer
    layout = {name: getattr(best.parallel, name) for name in ("dp", "tp", "pp", "zero", "sp")}
    same = {
        "gpu": best.gpu, "gpus": best.gpus, "precision": best.precision, "batch": best.batch, "micro_batch": best.micro_batch,
        "accumulation": best.accumulation, "checkpointing": best.checkpointing, "parallel": layout,
    }  # fmt: skip
    plain = estimate("finetune", "llama-3.1-8b", CATALOG, own=False, **same)
    assert answer.engines
    assert plain.throughput is not None
    for line in answer.engines:
        other = estimate("finetune", "llama-3.1-8b", CATALOG, own=False, engine=line.engine, **same)
        assert other.throughput is not None
        assert line.speed == pytest.approx(other.throughput.value / plain.throughput.value, rel=0.02)


def test_whole_hours_are_noted_and_billed_at_both_ends() -> None:
    best = recommended(provider="cudo", term="on-demand", gpus=(1.0, 1.0), fields={"samples": 10_000, "epochs": 1}).answer
    assert "because.billed" in {one.id for one in best.because}
    assert best.run_time.high < 3600
    assert best.cost.low == best.cost.amount == best.cost.high == best.cost_per_hour.amount


def test_first_sentence_names_a_host_too_slow_for_its_gpus() -> None:
    starving = recommended(provider="runpod", gpu="RTX A5000", gpus=(1.0, 1.0))
    assert starving.sentence.id == "recommend.sentence-fed"
    fed = recommended(model="bert-large", provider="runpod", gpu="RTX A5000", gpus=(1.0, 1.0))
    assert fed.sentence.id == "recommend.sentence-run"


def test_stale_prices_do_not_win_unless_named() -> None:
    answer = recommended(limit=50)
    rows = (*answer.candidates, answer.cheapest, answer.fastest)
    assert all(one.price_age_days <= 400 for one in rows)
    everything = recommended(limit=50, max_age="7000d", rank="cost")
    oldest = max(everything.candidates, key=lambda one: one.price_age_days)
    assert oldest.price_age_days > 400
    assert recommended(provider=oldest.provider, gpu=oldest.gpu, limit=50).candidates
