"""Offline inference without a batch: the highest throughput that fits, the same in every command, and said in the answer."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import whichgpu
from tests.unit import shapes
from whichgpu.api.workloads.estimate import estimate
from whichgpu.api.workloads.stream import estimate_requests
from whichgpu.base.figure import Figure
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.memory.parts import MemoryEstimate
from whichgpu.estimate.offline import CONCURRENCY, MAX_CONCURRENCY, default_sequences, offline_batch
from whichgpu.workload.spelling import fill_defaults, from_object
from whichgpu.workload.workload import Workload

GPUS = Catalog().gpu_by_id
MIB = 2**20


def workload(**fields: Any) -> Workload:
    parsed = from_object({"task": "batch", "model": "llama-3.1-8b", "engine": "vllm", **fields})
    return fill_defaults(parsed.workload, shapes.LLAMA_3_8B, parsed.user_fields)


def linear(fixed: float, each: float) -> Any:
    """Memory of `fixed` bytes and `each` for every sequence of one replica."""

    def memory(one: Workload) -> MemoryEstimate:
        figure = Figure.exact(fixed + each * one.local_batch, "byte", "modelled")
        return MemoryEstimate(figure, figure, {"weights": figure}, ())

    return memory


@pytest.mark.parametrize(
    ("model", "gpu", "fields"),
    [
        ("llama-3.1-8b", "H100 SXM", {"precision": "bf16"}),
        ("llama-3.1-8b", "L4", {"precision": "fp8"}),
        ("llama-3.1-8b", "T4", {"precision": "int4"}),
        ("gpt-oss-20b", "A100 SXM 80GB", {}),
        ("mistral-7b", "L40S", {"seq_in": 512, "seq_out": 512, "precision": "bf16"}),
        ("resnet50", "L4", {}),
        ("bert-large", "A100 SXM 80GB", {}),
        ("gpt2", "H100 SXM", {"engine": "pytorch", "seq_in": 512, "seq_out": 128}),
        ("llama-3.1-8b", "H100 SXM", {"engine": "llama.cpp", "precision": "q4_k_m"}),
        ("llama-3.1-8b", "H100 SXM", {"engine": "tensorrt-llm", "precision": "fp8"}),
    ],
)
def test_estimate_fit_and_recommend_take_the_same_batch(model: str, gpu: str, fields: dict[str, Any]) -> None:
    answer = whichgpu.estimate("batch", model, gpu=gpu, **fields)
    fitted = whichgpu.fit(model, task="batch", gpu=gpu, **fields)
    best = whichgpu.recommend("batch", model, gpu=gpu, gpus=1, as_of="2026-11-15", **fields).answer
    assert answer.fits == "fits"
    assert answer.throughput is not None
    assert answer.request["batch"] == fitted.request["batch"] == fitted.gpus[0].batch == best.batch
    assert answer.throughput.value == pytest.approx(best.throughput.value, rel=1e-6)
    assert fitted.needed.value == pytest.approx(best.needed.value, rel=1e-6)


@pytest.mark.parametrize(
    ("model", "fields", "minimum"),
    [
        ("llama-3.1-8b", {}, 100),
        ("gpt2", {"engine": "pytorch", "seq_in": 512, "seq_out": 128}, 1000),
        ("llama-3.1-8b", {"engine": "llama.cpp"}, 32),
    ],
)
def test_no_other_batch_that_fits_is_faster(model: str, fields: dict[str, Any], minimum: int) -> None:
    answer = whichgpu.estimate("batch", model, gpu="H100 SXM", **fields)
    assert answer.throughput is not None
    batch = answer.request["batch"]
    assert batch >= minimum
    for other in (1, 32, batch // 2, batch - 8, batch + 16, 2 * batch):
        one = whichgpu.estimate("batch", model, gpu="H100 SXM", batch=other, **fields)
        assert one.throughput is not None
        assert one.fits != "fits" or one.throughput.value <= answer.throughput.value * 1.001


def test_chosen_batch_is_not_capped_when_requested() -> None:
    """TensorRT-LLM's KV cache takes nine tenths of the memory that the model leaves."""
    fields: dict[str, Any] = {"gpu": "H100 SXM", "engine": "tensorrt-llm", "seq_in": 1024, "seq_out": 1024}
    chosen = whichgpu.estimate("batch", "gpt-oss-20b", **fields).request["batch"]
    assert whichgpu.estimate("batch", "gpt-oss-20b", batch=chosen, **fields).request["batch"] == chosen
    assert whichgpu.estimate("batch", "gpt-oss-20b", batch=chosen + 64, **fields).request["batch"] < chosen + 64


def test_the_answer_says_the_batch_was_chosen() -> None:
    answer = whichgpu.estimate("batch", "llama-3.1-8b", gpu="L4")
    assert "batch" in answer.request["defaults"]
    (note,) = [one for one in answer.warnings if one.id.startswith("note.batch")]
    assert note.values["batch"] == answer.request["batch"]
    result = whichgpu.estimate("batch", "llama-3.1-8b", gpu="L4", batch=4)
    assert result.request["batch"] == 4
    assert not [one for one in result.warnings if one.id.startswith("note.batch")]
    best = whichgpu.recommend("batch", "llama-3.1-8b", gpu="L4", gpus=1, as_of="2026-11-15")
    assert [one.values["batch"] for one in best.assumptions if one.id.startswith("note.batch")] == [best.answer.batch]


def test_the_answer_names_the_setting_of_an_engine_that_runs_fewer_by_default() -> None:
    answer = whichgpu.estimate("batch", "llama-3.1-8b", gpu="H100 SXM", engine="llama.cpp")
    (note,) = [one for one in answer.warnings if one.id.startswith("note.batch")]
    assert (note.id, note.values["most"]) == ("note.batch-set", 4)
    assert note.values["setting"] == f"-np {answer.request['batch']}"
    best = whichgpu.recommend("batch", "llama-3.1-8b", gpu="H100 SXM", gpus=1, engine="llama.cpp", as_of="2026-11-15")
    assert "note.batch-set" in [one.id for one in best.assumptions]


@pytest.mark.parametrize("gpus", [2, 4])
def test_estimate_and_recommend_agree_over_several_gpus(gpus: int) -> None:
    best = whichgpu.recommend("batch", "llama-3.1-8b", gpu="L4", gpus=gpus, as_of="2026-11-15", precision="bf16").answer
    layout = {"tp": best.parallel.tp, "dp": best.parallel.dp}
    answer = whichgpu.estimate("batch", "llama-3.1-8b", gpu="L4", gpus=gpus, parallel=layout, precision="bf16")
    assert best.parallel.tp > 1
    assert (answer.request["batch"], answer.fits) == (best.batch, best.fits) == (best.batch, "fits")


def test_a_list_of_all_gpus_has_the_batch_of_each_alone() -> None:
    rows = {row.gpu: row for row in whichgpu.fit("resnet50", task="batch").gpus}
    for gpu in ("l4", "h100-sxm", "t4"):
        alone = whichgpu.estimate("batch", "resnet50", gpu=gpu)
        assert (rows[gpu].batch, rows[gpu].fits) == (alone.request["batch"], alone.fits)


@pytest.mark.long
@pytest.mark.parametrize(
    ("task", "fields"), [("finetune", {"qlora": True}), ("finetune", {"qlora": True, "batch": 8}), ("batch", {})]
)
@pytest.mark.parametrize("names", [(), ("L4", "H100 SXM")])
def test_the_need_in_the_headline_is_that_of_the_smallest_gpu_that_holds_it(
    task: str, fields: dict[str, Any], names: tuple[str, ...]
) -> None:
    """`smallest` is the smallest GPU without a warning."""
    answer = whichgpu.fit("llama-3.1-8b", gpu=names, task=task, **fields)
    rows = [row for row in answer.gpus if row.fits == "fits"]
    entry = next(row for row in rows if row.gpu == ("l4" if names else answer.smallest))
    assert int(answer.needed.value) == entry.needed <= entry.usable
    smaller = {row.gpu: [warning.id for warning in row.warnings] for row in rows if 1.05 * row.usable < entry.usable}
    assert smaller == {}
    assert (answer.request["batch"], answer.request["checkpointing"]) == (entry.batch, entry.checkpointing or "none")


def test_lines_of_requests_take_it_too() -> None:
    line = json.dumps({"id": 1, "task": "batch", "model": "llama-3.1-8b", "gpu": "L4"}).encode()
    (reply,) = estimate_requests([line])
    assert reply.answer is not None
    assert reply.answer.request["batch"] == whichgpu.estimate("batch", "llama-3.1-8b", gpu="L4").request["batch"]


def test_batch_is_1_and_does_not_fit_if_nothing_fits() -> None:
    answer = whichgpu.estimate("batch", "llama-3.1-70b", gpu="L4")
    assert (answer.request["batch"], answer.fits) == (1, "no")


def test_without_a_gpu_memory_is_of_one_sequence() -> None:
    answer = whichgpu.estimate("batch", "llama-3.1-8b")
    assert answer.request["batch"] == 1
    assert "note.batch-no-gpu" in [one.id for one in answer.warnings]


def test_replicas_each_take_their_share() -> None:
    one = whichgpu.estimate("batch", "llama-3.1-8b", gpu="L4").request["batch"]
    two = whichgpu.estimate("batch", "llama-3.1-8b", gpu="L4", gpus=2, parallel={"dp": 2}).request["batch"]
    assert two == 2 * one


def test_throughput_decides_and_memory_bounds_it() -> None:
    gpu, request = GPUS["l4"], workload()
    small, large = linear(0, MIB), linear(0, 600 * MIB)

    def choose(memory: Any, seconds: Any) -> int:
        return offline_batch(request, shapes.LLAMA_3_8B, gpu, memory, seconds)

    assert choose(linear(0, MIB / 1024), np.ones_like) == MAX_CONCURRENCY
    assert choose(small, np.ones_like) > 256  # vLLM's default on this GPU is no limit: the answer names the setting
    assert choose(large, np.ones_like) not in CONCURRENCY  # the largest that fits is tried in addition to the grid
    assert choose(large, None) == choose(large, np.ones_like)
    assert choose(small, lambda sizes: np.where(sizes > 48, 1000.0, 1.0)) == 48  # throughput falls beyond
    assert choose(linear(10**12, 1), np.ones_like) == 1


def test_each_engine_has_its_own_default() -> None:
    assert default_sequences(workload(), shapes.LLAMA_3_8B, GPUS["h100-sxm"]) == 1024
    assert default_sequences(workload(), shapes.LLAMA_3_8B, GPUS["l4"]) == 256
    assert default_sequences(workload(engine="llama.cpp"), shapes.LLAMA_3_8B, GPUS["h100-sxm"]) == 4
    assert default_sequences(workload(engine="pytorch"), shapes.LLAMA_3_8B, GPUS["h100-sxm"]) is None


@pytest.mark.parametrize(("gpu", "batch"), [("l4", 4096), ("h100-sxm", 100_000)])
def test_batch_beyond_the_kv_cache_is_reduced_with_a_note(gpu: str, batch: int) -> None:
    answer = estimate("batch", "llama-3.1-8b", gpu=gpu, batch=batch, own=False)
    assert answer.kv_tokens is not None
    assert answer.request["batch"] == answer.kv_tokens.value // (2048 + 256)
    assert answer.fits != "no"
    assert any(warning.id == "note.batch-capped" for warning in answer.warnings)


def test_a_batch_that_fits_or_weights_that_do_not_leave_the_batch_as_it_is() -> None:
    for model, batch in (("llama-3.1-8b", 4), ("llama-3.1-70b", 64)):
        answer = estimate("batch", model, gpu="l4", batch=batch, own=False)
        assert answer.request["batch"] == batch
        assert not any(warning.id == "note.batch-capped" for warning in answer.warnings)


def test_the_cache_of_a_checkpoint_is_stored_as_it_ships() -> None:
    stored = {
        (engine, precision): estimate("batch", "llama-3.1-8b", gpu="b200", engine=engine, precision=precision, own=False)
        for engine in ("vllm", "tensorrt-llm")
        for precision in ("bf16", "fp8", "nvfp4")
    }
    precisions = {key: answer.request["kv_precision"] for key, answer in stored.items()}
    assert precisions["tensorrt-llm", "fp8"] == precisions["tensorrt-llm", "nvfp4"] == "fp8"
    assert {precisions["vllm", name] for name in ("bf16", "fp8", "nvfp4")} == {precisions["tensorrt-llm", "bf16"]} == {"bf16"}
