"""Requests once estimated wrongly: files' types by other names, tiny images, precisions that a GPU or an engine lacks."""

from __future__ import annotations

from typing import Any

import pytest

import whichgpu
from whichgpu.base.errors import UsageError
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.curves.gpus import build_gpu_columns
from whichgpu.estimate.time.lower.fused.weight_storage import weight_storage
from whichgpu.workload.models import find_model
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.spelling import from_object

CATALOG = Catalog()
GPUS = {gpu.id: gpu for gpu in CATALOG.gpus}


def seconds(task: str, model: str, **fields: Any) -> float:
    figure = whichgpu.estimate(task, model, no_own_measurements=True, **fields).time
    assert figure is not None
    return figure.value


@pytest.mark.parametrize(("short", "long"), [("q3_k", "q3_k_m"), ("q4_k", "q4_k_m")])
def test_types_of_files_by_their_other_names(short: str, long: str) -> None:
    shape = find_model("gpt-oss-20b", CATALOG)
    assert isinstance(shape, Transformer)
    assert weight_storage(shape, short, "fp16") == weight_storage(shape, long, "fp16")


def test_a_model_stored_in_four_bits_by_llama_cpp() -> None:
    assert 0 < seconds("decode", "gpt-oss-20b", gpu="h100-sxm", precision="mxfp4_moe") < 1


@pytest.mark.parametrize(("model", "minimum"), [("vit-base-patch16-224", 16), ("levit_256", 28), ("resnet50", 28)])
def test_images_too_small_for_a_network_are_refused(model: str, minimum: int) -> None:
    with pytest.raises(UsageError) as refused:
        whichgpu.estimate("forward", model, gpu="h100-sxm", image=minimum - 1)
    assert (refused.value.kind, str(minimum) in str(refused.value)) == ("small-image", True)
    assert seconds("forward", model, gpu="h100-sxm", image=minimum, batch=4) > 0


def test_image_networks_have_no_gguf_precisions() -> None:
    with pytest.raises(UsageError) as refused:
        whichgpu.estimate("forward", "resnet50", gpu="rtx-4080", precision="q4_k_m")
    assert refused.value.kind == "wrong-precision"


@pytest.mark.parametrize("gpu", ["t4", "v100-sxm-16gb", "k80"])
def test_tf32_is_fp32_on_a_gpu_without_it(gpu: str) -> None:
    fields: dict[str, Any] = {"gpu": gpu, "batch": 64, "memory_format": "contiguous"}
    assert seconds("train", "resnet50", precision="tf32", **fields) == seconds("train", "resnet50", precision="fp32", **fields)


def test_sixteen_bits_that_kepler_computes_in_fp32_gain_bandwidth_alone() -> None:
    fields: dict[str, Any] = {"gpu": "k80", "batch": 64, "memory_format": "contiguous"}
    assert seconds("forward", "vgg16", precision="fp16", **fields) > 0.75 * seconds(
        "forward", "vgg16", precision="fp32", **fields
    )


def test_clock_of_a_server_chip_on_a_workstation_card_is_the_stated_boost() -> None:
    (pascal, server) = (GPUS[name] for name in ("gtx-1080-ti", "quadro-gp100"))
    assert build_gpu_columns([pascal]).clock.item() > (pascal.boost_clock_hz or 0)
    assert build_gpu_columns([server]).clock.item() == server.boost_clock_hz


def warning_ids(task: str, model: str, **fields: Any) -> list[str]:
    return [one.id for one in whichgpu.estimate(task, model, **fields).warnings]


def test_untraced_size_is_noted_once() -> None:
    assert warning_ids("train", "resnet50", gpu="t4", batch=64, image=192).count("warning.image-scaled") == 1


def test_eager_pytorch_notes_that_quantised_weights_save_no_time() -> None:
    fields: dict[str, Any] = {"gpu": "h100-sxm", "precision": "int4"}
    assert "warning.plain-products" in warning_ids("decode", "llama-3.1-8b", engine="pytorch", **fields)
    assert "warning.plain-products" not in warning_ids("decode", "llama-3.1-8b", engine="vllm", **fields)


def test_true_fp32_differs_from_pytorch_s_default_tf32() -> None:
    assert "warning.true-fp32" in warning_ids("train", "resnet50", gpu="a100-sxm-80gb", precision="fp32")
    assert "warning.true-fp32" not in warning_ids("train", "resnet50", gpu="v100-sxm-16gb", precision="fp32")
    assert "warning.true-fp32" not in warning_ids("train", "resnet50", gpu="a100-sxm-80gb", precision="fp32-default")


def test_lengths_by_their_short_names_in_an_object() -> None:
    fields = {"task": "serve", "model": "llama-3.1-8b"}
    workload = from_object({**fields, "in": 100, "out": 20}).workload
    assert (workload.seq_in, workload.seq_out) == (100, 20)
    with pytest.raises(UsageError):
        from_object({**fields, "in": 100, "seq_in": 100})
