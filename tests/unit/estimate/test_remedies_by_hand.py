"""What is offered where it does not fit, and when: each remedy alone, over a memory that is easily added up."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from whichgpu.base.figure import Figure
from whichgpu.base.units import GIB
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.fit import BLOCK, MemoryCurve, fit, required_memory, unsupported_dtype, verdict
from whichgpu.estimate.memory.parts import MemoryEstimate, build_estimate
from whichgpu.estimate.remedies import FitProblem, Remedy, gpus_that_fit, remedies, smallest_cures
from whichgpu.workload.shapes import Mlp, Shape, Transformer
from whichgpu.workload.tasks import Task
from whichgpu.workload.workload import Parallel, Workload

GPUS = Catalog().gpu_by_id
L4 = GPUS["l4"]
TINY = Transformer("tiny", "llama", 64, 4, 8, 2, 8, 256, 1000, True, "rms", "silu", False, True, 0, 4096)


def counted_memory(workload: Workload) -> MemoryEstimate:
    """A unit for each token of a sequence, and less with everything a remedy may change."""
    tokens = workload.local_batch // max(1, workload.accumulation if workload.training and not workload.micro_batch else 1)
    tokens = (workload.micro_batch or tokens) * ((workload.seq_in or 1) + (0 if workload.training else workload.seq_out or 0))
    weights = 1000 * {"fp32": 8, "bf16": 4, "int8": 2, "q8_0": 2, "int4": 1, "q4_k_m": 1}.get(workload.precision or "bf16", 4)
    weights //= workload.parallel.tp * (workload.parallel.dp if workload.parallel.zero == 3 else 1)
    states = 0 if not workload.training or workload.lora_rank else weights * (1 if workload.optimizer == "adamw-8bit" else 2)
    activations = tokens // (2 if workload.checkpointing == "full" or workload.kv_precision in ("fp8", "q8_0") else 1)
    return build_estimate(
        {"weights": weights // (2 if workload.qlora else 1), "optimizer": states, "activations": activations},
        (1.0, 1.0),
        (1.0, 1.0),
    )


def work(task: Task = "serve", **fields: Any) -> Workload:
    plain: dict[str, Any] = {"precision": "bf16", "batch": 4, "seq_in": 1000, "engine": "pytorch"}
    return Workload(task, "tiny", **(plain | fields))


def remedies_by_name(workload: Workload, usable: int, shape: Shape = TINY, able: Any = ()) -> dict[str, Remedy]:
    curves = (MemoryCurve(workload, shape, "batch", counted_memory), MemoryCurve(workload, shape, "context", counted_memory))
    results = remedies(FitProblem(workload, shape, usable, counted_memory, *curves), L4, able)
    return {f"{one.id} {one.change.get('precision', '')}".strip() if one.id == "quantise" else one.id: one for one in results}


def test_a_smaller_batch_is_the_largest_that_fits() -> None:
    remedy = remedies_by_name(work(), 6500)["smaller-batch"]  # 4000 of weights, 1000 a sequence
    assert (remedy.change, remedy.saves, remedy.fits) == ({"batch": 2}, 2000, "fits")
    assert remedies_by_name(work(), 100)["smaller-batch"].change == {"batch": 1}
    assert remedies_by_name(work(), 100)["smaller-batch"].fits == "no"
    assert remedies_by_name(work(batch=8, parallel=Parallel(dp=2)), 6500)["smaller-batch"].change == {"batch": 4}
    assert "smaller-batch" not in remedies_by_name(work(batch=1), 100)
    near = remedies_by_name(work(), 10**6)["smaller-batch"]
    assert near.change == {"batch": 3}  # smaller in any case


def test_training_keeps_its_batch_in_more_steps() -> None:
    remedy = remedies_by_name(work("train", batch=12, optimizer="sgd"), 17500)["smaller-batch"]
    assert remedy.change == {"micro_batch": 4, "accumulation": 3}  # five would fit, which does not divide twelve
    assert remedy.what.id == "remedy.smaller-micro-batch"
    assert remedies_by_name(work(), 6500)["smaller-batch"].what.id == "remedy.smaller-batch"


def test_a_context_is_cut_to_whole_pieces_and_not_too_short() -> None:
    remedy = remedies_by_name(work(batch=1, seq_in=3000), 5700)["shorter-context"]
    assert remedy.change == {"seq_in": 1664}  # 1696 tokens of 1700 in blocks of 16; of them 13 times 128
    assert remedies_by_name(work(batch=1, seq_in=3000, seq_out=200), 5700)["shorter-context"].change == {"seq_in": 1408}
    assert remedies_by_name(work(batch=1, seq_in=3000), 4512)["shorter-context"].change == {"seq_in": 512}
    assert "shorter-context" not in remedies_by_name(work(batch=1, seq_in=3000), 4500)
    assert "shorter-context" not in remedies_by_name(work(batch=1, seq_in=3000), 9000)
    assert "shorter-context" not in remedies_by_name(work(batch=1, seq_in=None), 4800)
    assert "shorter-context" not in remedies_by_name(work(batch=1, seq_in=3000), 5700, Mlp("", (8, 4)))


@pytest.mark.parametrize(
    ("workload", "ids"),
    [
        (work("train", optimizer="adamw"), {"checkpointing", "8-bit-optimizer", "more-gpus"}),
        (work("train", optimizer="adamw", checkpointing="full"), {"8-bit-optimizer", "more-gpus"}),
        (work("train", optimizer="sgd", precision="fp32"), {"checkpointing", "half-precision", "more-gpus"}),
        (work("train", optimizer="adam", lora_rank=8), {"checkpointing", "more-gpus"}),
        (work("finetune", optimizer="sgd"), {"checkpointing", "lora", "qlora", "more-gpus"}),
        (work("finetune", optimizer="sgd", lora_rank=8), {"checkpointing", "qlora", "more-gpus"}),
        (work("finetune", optimizer="sgd", lora_rank=8, qlora=True), {"checkpointing", "more-gpus"}),
        (work(), {"quantise int8", "quantise int4", "more-gpus"}),
        (work(precision="int8"), {"quantise int4", "more-gpus"}),
        (work(precision="int4"), {"more-gpus"}),
        (work(precision="fp32"), {"half-precision", "quantise int8", "quantise int4", "more-gpus"}),
        (work(engine="llama.cpp"), {"quantise q8_0", "quantise q4_k_m", "more-gpus"}),
        (work(kv_precision="bf16"), {"kv-cache", "quantise int8", "quantise int4", "more-gpus"}),
        (work(kv_precision="f16"), {"kv-cache", "quantise int8", "quantise int4", "more-gpus"}),
        (work(kv_precision="fp8"), {"quantise int8", "quantise int4", "more-gpus"}),
        (work("train", optimizer="sgd", kv_precision="bf16"), {"checkpointing", "more-gpus"}),
    ],
)
def test_only_applicable_remedies_are_offered(workload: Workload, ids: set[str]) -> None:
    assert set(remedies_by_name(workload, 100)) - {"smaller-batch", "shorter-context"} == ids


def test_fields_changed_by_each_remedy() -> None:
    tuned = remedies_by_name(work("finetune", optimizer="adamw", precision="fp32"), 100)
    assert tuned["lora"].change == {"lora_rank": 16}
    assert tuned["qlora"].change == {"lora_rank": 16, "qlora": True}
    assert tuned["checkpointing"].change == {"checkpointing": "full"}
    assert tuned["half-precision"].change == {"precision": "bf16"}
    assert remedies_by_name(work("finetune", optimizer="adamw", lora_rank=8), 100)["qlora"].change == {"qlora": True}
    assert remedies_by_name(work(kv_precision="f16"), 100)["kv-cache"].change == {"kv_precision": "q8_0"}
    assert remedies_by_name(work(kv_precision="fp16"), 100)["kv-cache"].change == {"kv_precision": "fp8"}
    assert "half-precision" not in remedies_by_name(
        work("train", precision="amp-fp16", optimizer="sgd"), 100
    )  # saves nothing here
    assert "quantise int8" not in remedies_by_name(work(), 100, Mlp("", (8, 4)))
    assert "lora" not in remedies_by_name(work("finetune", optimizer="sgd"), 100, Mlp("", (8, 4)))


def test_gpus_are_doubled_until_it_fits() -> None:
    remedy = remedies_by_name(work(), 5200)["more-gpus"]  # 4000 tokens stay, weights go from 4000 to 1000
    assert (remedy.change["gpus"], remedy.change["parallel"]["tp"], remedy.fits) == (4, 4, "fits")
    assert remedies_by_name(work(), 100)["more-gpus"].change["gpus"] == 8  # as many as heads divide
    trained = remedies_by_name(work("train", optimizer="sgd", batch=64), 5200)["more-gpus"].change
    assert trained["parallel"]["zero"] == 3
    assert trained["parallel"]["dp"] == trained["gpus"]
    assert "more-gpus" not in remedies_by_name(work(), 100, Mlp("", (8, 4)))


def test_remedies_with_bytes_saved_and_combined_fit() -> None:
    by_name = remedies_by_name(work(batch=1, precision="fp32", seq_in=1000), 2500)
    assert by_name["half-precision"].fits == "no"
    assert by_name["quantise int4"].fits == "fits"
    assert by_name["quantise int4"].together == "fits"
    assert by_name["quantise int8"].saves == 6000


def test_the_next_gpu_is_of_the_same_maker_and_trade_if_there_is_one() -> None:
    amd = next(gpu for gpu in GPUS.values() if gpu.vendor == "amd" and gpu.segment == "datacenter")
    lookups, centre = GPUS["rtx-4090"], GPUS["a100-sxm-80gb"]
    assert (L4.vendor, L4.segment) == (centre.vendor, centre.segment)
    for able, chosen in (((lookups, amd, centre), centre), ((amd, lookups), lookups), ((amd,), amd)):
        assert remedies_by_name(work(), 100, able=able)["next-gpu"].change == {"gpu": chosen.id}
    assert "next-gpu" not in remedies_by_name(work(), 100, able=(replace(amd, segment="soc"),))


def cures_by_name(workload: Workload, usable: int, able: Any = ()) -> list[tuple[str, ...]]:
    curves = (MemoryCurve(workload, TINY, "batch", counted_memory), MemoryCurve(workload, TINY, "context", counted_memory))
    problem = FitProblem(workload, TINY, usable, counted_memory, *curves)
    results = remedies(problem, L4, able)
    return [tuple(results[place].id for place in cure) for cure in smallest_cures(problem, results)]


def test_advice_is_the_smallest_change_that_suffices() -> None:
    full = work("finetune", batch=1, seq_in=600, precision="bf16", optimizer="adamw", checkpointing="none")  # 12600 in all
    assert cures_by_name(full, 4700) == [("lora",), ("qlora",), ("more-gpus",)]  # Each alone, whatever is listed before it.
    assert cures_by_name(full, 2400)[0] == ("checkpointing", "qlora")  # Both are needed; LoRA and the optimizer are not.
    lean = work(
        "finetune", batch=1, seq_in=4000, checkpointing="full", lora_rank=8, qlora=True
    )  # 2000 of weights and activations
    assert cures_by_name(lean, 3600) == [("shorter-context",), ("more-gpus",)]
    assert cures_by_name(lean, 2300) == [("shorter-context",)]  # Many GPUs for twice the memory are no advice.
    assert cures_by_name(lean, 2100, able=(GPUS["rtx-4090"],)) == [("next-gpu",)]


def figure(value: float, low: float, high: float) -> Figure:
    return Figure(value, low, high, "byte", "modelled")


def test_a_verdict_at_its_edges() -> None:
    need = figure(10, 9, 11)
    assert [verdict(need, size) for size in (8, 9, 10, 11, 12)] == ["no", "tight", "tight", "fits", "fits"]


def test_range_of_a_sum_with_independent_errors() -> None:
    parts = {"weights": figure(100, 97, 104), "context": figure(10, 6, 13)}
    estimate = MemoryEstimate(figure(0, 0, 0), figure(500, 500, 500), parts)
    result = required_memory(estimate, work(engine="vllm"))
    assert (result.value, result.low, result.high) == (110, 105, 115)
    assert required_memory(estimate, work(engine="llama.cpp")).value == 500
    assert required_memory(estimate, work("train", engine="vllm")).value == 500


def test_fit_has_headroom_and_the_unsupported_dtype() -> None:
    result = fit(figure(GIB, GIB, GIB), work(), L4)
    assert result.headroom == result.usable - GIB
    assert unsupported_dtype(GPUS["t4"], work()) == "bf16"
    assert unsupported_dtype(GPUS["t4"], work(precision="amp-bf16")) == "bf16"
    assert unsupported_dtype(GPUS["t4"], work(precision="fp16")) is None
    assert unsupported_dtype(GPUS["a100-sxm-80gb"], work(precision="fp8")) == "fp8"
    assert unsupported_dtype(L4, work(precision="fp8")) is None


def test_equal_gpus_come_newest_first_after_smaller_ones() -> None:
    def sized(name: str, share: float, day: str) -> Any:
        return replace(L4, id=name, memory_bytes=int(100 * GIB * share), launch_date=day)

    gpus = [sized("large", 1.04, "2020"), sized("old", 1.0, "2018"), sized("new", 1.03, "2022"), sized("small", 0.5, "2024")]
    need = figure(60 * GIB, 60 * GIB, 60 * GIB)
    assert [gpu.id for gpu in gpus_that_fit(need, work(), gpus)] == ["new", "old", "large"]


def test_curves_count_in_batches_of_all_gpus_and_in_blocks_of_tokens() -> None:
    trained = MemoryCurve(work("train", batch=64, accumulation=4, parallel=Parallel(dp=2)), TINY, "batch", counted_memory)
    assert trained.to_user_units(3) == 24
    assert trained.at(3).batch == 24
    served = MemoryCurve(work(batch=1, seq_out=40), TINY, "context", counted_memory)
    assert served.at(10).seq_in == 10 * BLOCK - 40
    assert served.at(1).seq_in == 1
    assert served.to_user_units(served.largest(10**9)) == 4096  # the model's own limit
    assert served.largest(4000 + 41) == 2  # the output and one prompt token, in two blocks
    assert served.largest(4000 + 40) == 0
    endless = MemoryCurve(work(batch=1), replace(TINY, max_context=0), "context", counted_memory)
    assert endless.to_user_units(endless.largest(10**12)) == 1 << 24
    assert MemoryCurve(work(), TINY, "batch", counted_memory).largest(10**12) == 1 << 20
    for usable in range(4000, 9000, 97):
        size = endless.largest(usable)
        assert size == max(0, (usable - 4000) // 16)
