"""One set of training defaults for fit, estimate and recommend: micro-batch 1 with accumulation, checkpointing where needed."""

from __future__ import annotations

from typing import Any

import pytest

import whichgpu
from tests.unit import shapes
from whichgpu.catalog.store import Catalog
from whichgpu.workload.models import find_model
from whichgpu.workload.spelling import fill_defaults, from_object
from whichgpu.workload.training_defaults import default_batch
from whichgpu.workload.workload import Workload

GIB = 2**30


def filled(**fields: Any) -> Workload:
    spelled = from_object({"task": "finetune", "model": "llama-3.1-8b", **fields})
    return fill_defaults(spelled.workload, shapes.LLAMA_3_8B, spelled.user_fields)


def batches(**fields: Any) -> tuple[int | None, int, int]:
    workload = filled(**fields)
    return workload.batch, workload.local_batch, workload.accumulation


@pytest.mark.parametrize(
    ("model", "task", "fields", "gpu"),
    [
        ("llama-3.1-8b", "finetune", {"qlora": True}, "A100 SXM 80GB"),
        ("llama-3.1-8b", "finetune", {"qlora": True}, "L4"),
        ("llama-3.1-8b", "finetune", {"lora_rank": 16}, "RTX 4090"),
        ("mistral-7b", "finetune", {"lora_rank": 8}, "H100 SXM"),
        ("llama-3.2-3b", "finetune", {}, "A100 SXM 80GB"),
        ("llama-3.2-1b", "train", {"precision": "bf16"}, "L4"),
        ("gpt2", "train", {}, "RTX 4090"),
        ("bert-large", "finetune", {}, "L4"),
        ("vit-base-patch16-224", "train", {}, "L4"),
        ("resnet50", "train", {}, "L4"),
        ("efficientnet_b7", "train", {}, "L4"),
        ("mlp:9000x4000x32", "train", {}, "L4"),
    ],
)
@pytest.mark.sweep(3)
def test_fit_estimate_and_recommend_agree_on_defaults(model: str, task: str, fields: dict[str, Any], gpu: str) -> None:
    fitted = whichgpu.fit(model, task=task, gpu=gpu, **fields)
    estimated = whichgpu.estimate(task, model, gpu=gpu, **fields)
    best = whichgpu.recommend(task, model, gpu=gpu, gpus=1, as_of="2026-11-15", **fields).answer
    assert estimated.memory_device.value == fitted.needed.value == pytest.approx(best.memory_device.value, rel=1e-3)
    names = ("batch", "accumulation", "checkpointing")
    assert [fitted.request[name] for name in names] == [estimated.request[name] for name in names]
    assert [getattr(best, name) for name in names] == [fitted.request[name] for name in names]


def test_qlora_of_an_8b_model_fits_a_24_gb_card_by_default() -> None:
    answer = whichgpu.fit("llama-3.1-8b", task="finetune", qlora=True, gpu="L4")
    assert answer.gpus[0].fits == "fits"
    assert answer.needed.value < 16 * GIB
    request = answer.request
    assert (request["batch"], request["micro_batch"], request["accumulation"], request["checkpointing"]) == (8, 1, 8, "full")
    assert {"batch", "micro_batch", "accumulation", "checkpointing"} <= set(request["defaults"])
    assert "note.checkpointing-default" in [one.id for one in answer.warnings]


def test_checkpointing_is_enabled_only_if_needed() -> None:
    answer = whichgpu.fit("llama-3.1-8b", task="finetune", qlora=True, gpu=["L4", "A100 SXM 80GB"])
    assert [(row.gpu, row.fits, row.checkpointing) for row in answer.gpus] == [
        ("l4", "fits", "full"), ("a100-sxm-80gb", "fits", "none"),
    ]  # fmt: skip
    (note,) = [one for one in answer.warnings if one.id == "note.checkpointing-some"]
    assert note.values["gpus"] == ("L4",)
    assert whichgpu.fit("llama-3.1-8b", gpu="L4").gpus[0].checkpointing is None


def test_explicit_values_win() -> None:
    assert batches() == (8, 1, 8)
    assert batches(batch=8) == (8, 8, 1)
    assert batches(micro_batch=2) == (2, 2, 1)
    assert batches(accumulation=4) == (4, 1, 4)
    assert batches(accumulation=1) == (1, 1, 1)
    assert batches(batch=8, micro_batch=2, accumulation=4) == (8, 2, 4)
    assert batches(batch=8, micro_batch=2) == (8, 2, 4)  # accumulation follows from both
    assert batches(gpus=4, parallel={"dp": 4}) == (8, 1, 2)
    assert batches(gpus=16, parallel={"dp": 16}) == (16, 1, 1)
    plain = whichgpu.estimate("finetune", "llama-3.1-8b", qlora=True, gpu="L4", checkpointing="none")
    assert (plain.request["checkpointing"], plain.fits) == ("none", "tight")
    scratch = whichgpu.estimate("train", "llama-3.2-1b", gpu="L4", batch=8)
    names = ("batch", "micro_batch", "accumulation", "checkpointing")
    assert ([scratch.request[name] for name in names], scratch.fits) == ([8, 1, 8, "full"], "no")
    images = whichgpu.estimate("train", "resnet50", gpu="L4", batch=4096)
    assert ([images.request[name] for name in names], images.fits) == ([4096, None, 1, "none"], "no")
    staged = whichgpu.estimate(
        "train", "llama-3.1-70b", gpu="64x H100 SXM", tp=8, pp=4, dp=2, nodes=8, precision="bf16", batch=128
    )
    assert staged.request["accumulation"] >= 4 * 4  # four micro-batches for each stage of the pipeline
    assert staged.fits == "fits"


@pytest.mark.parametrize(
    ("model", "fields", "gpu", "passes"),
    [
        ("llama-3.1-8b", {"qlora": True, "batch": 8}, "L4", (2, 4, "full")),
        ("llama-3.1-8b", {"qlora": True, "batch": 6}, "L4", (3, 2, "full")),
        ("llama-3.1-8b", {"qlora": True, "batch": 64}, "H100 SXM", (4, 16, "none")),
        ("llama-3.1-8b", {"lora_rank": 16, "batch": 2, "seq_in": 512}, "A100 SXM 80GB", (2, 1, "none")),
        ("bert-large", {"batch": 64}, "L4", None),
        ("efficientnet_b7", {"batch": 64}, "L4", (8, 8, "none")),
    ],
)
@pytest.mark.sweep(3)
def test_requested_fine_tuning_batch_is_accumulated_if_it_does_not_fit(
    model: str, fields: dict[str, Any], gpu: str, passes: tuple[int, int, str] | None
) -> None:
    fitted = whichgpu.fit(model, task="finetune", gpu=gpu, **fields)
    estimated = whichgpu.estimate("finetune", model, gpu=gpu, **fields)
    best = whichgpu.recommend("finetune", model, gpu=gpu, gpus=1, as_of="2026-11-15", **fields).answer
    assert fitted.gpus[0].fits == estimated.fits == best.fits == "fits"
    assert fitted.needed.value == estimated.memory_device.value == pytest.approx(best.memory_device.value, rel=1e-3)
    request = estimated.request
    steps = (request["micro_batch"] or request["batch"], request["accumulation"], request["checkpointing"])
    assert request["batch"] == best.batch == fitted.request["batch"] == fields["batch"]
    assert (best.micro_batch, best.accumulation, best.checkpointing) == steps
    assert passes in (None, steps)
    noted = {one.id for one in estimated.warnings} & {"note.accumulated-default", "note.checkpointing-default"}
    assert noted == {
        *(["note.accumulated-default"] if steps[1] > 1 else []),
        *(["note.checkpointing-default"] if steps[2] == "full" else []),
    }


def test_a_gpu_that_is_too_small_is_shown_with_the_smallest_need() -> None:
    answer = whichgpu.fit("llama-3.1-8b", task="finetune", qlora=True, gpu="RTX 4060")
    full = whichgpu.fit("llama-3.1-8b", task="finetune", qlora=True, gpu="RTX 4060", checkpointing="full")
    assert (answer.gpus[0].fits, answer.gpus[0].checkpointing) == ("no", "full")
    assert answer.gpus[0].needed == full.gpus[0].needed < 11 * GIB
    long = whichgpu.fit("llama-3.1-8b", task="finetune", lora_rank=16, seq_in=8192, gpu="L4")
    (split,) = [one for one in long.gpus[0].remedies if one.id == "more-gpus"]
    assert split.fits == "tight"
    assert split.what.values["gpus"] == 4


def test_a_step_is_a_multiple_of_the_ranks_and_fills_a_pipeline() -> None:
    assert batches(gpus=3, parallel={"dp": 3}) == (9, 1, 3)
    assert batches(gpus=4, parallel={"pp": 4}) == (16, 1, 16)
    assert batches(gpus=4, parallel={"pp": 4}, micro_batch=2) == (32, 2, 16)
    assert batches(gpus=4, parallel={"pp": 4}, accumulation=4) == (4, 1, 4)
    assert default_batch(shapes.LLAMA_3_8B, 1, pp=4).accumulation == 16


def test_image_and_row_batches_are_per_gpu(catalog: Catalog) -> None:
    assert default_batch(find_model("resnet50", catalog), 4).batch == 128
    assert default_batch(find_model("bert-large", catalog), 2).batch == 16


def test_large_images_use_smaller_micro_batches_if_they_do_not_fit() -> None:
    answer = whichgpu.fit("efficientnet_b7", task="train", gpu=["L4", "A100 SXM 80GB"])
    assert [(row.fits, row.micro_batch, row.batch) for row in answer.gpus] == [("fits", 8, 32), ("fits", 32, 32)]
    assert "note.accumulated-some" in [one.id for one in answer.warnings]
    one = whichgpu.estimate("train", "efficientnet_b7", gpu="L4")
    assert (one.request["micro_batch"], one.request["accumulation"], one.fits) == (8, 4, "fits")
    assert "note.accumulated-default" in [one.id for one in one.warnings]


def test_recommendation_lists_its_assumptions() -> None:
    answer = whichgpu.recommend("finetune", "llama-3.1-8b", qlora=True, gpu="L4", gpus=1, as_of="2026-11-15")
    assumptions = {one.id: one.values for one in answer.assumptions}
    assert assumptions["assumed.batch-accumulated"] == {"batch": 8, "micro": 1, "n": 8}
    assert "note.checkpointing-default" in assumptions
    result = whichgpu.recommend("finetune", "llama-3.1-8b", qlora=True, gpu="L4", gpus=1, batch=4, as_of="2026-11-15")
    assert not {"assumed.batch-accumulated", "assumed.batch-train"} & {one.id for one in result.assumptions}
