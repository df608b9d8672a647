"""mxfp4, the precision gpt-oss is published in: its bytes, its products, and words that name no units a GPU lacks."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

import whichgpu
from tests.unit import shapes
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.fit import unsupported_dtype
from whichgpu.estimate.memory.quantisation import split_weights, weight_bytes
from whichgpu.estimate.time.fallbacks import precision_warnings
from whichgpu.estimate.time.lower.fused.weight_storage import weight_storage
from whichgpu.workload.hf import shape_from_config
from whichgpu.workload.models import find_model
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.spelling import fill_defaults, from_object

CATALOG = Catalog()
GPUS = CATALOG.gpu_by_id


# Bytes of the safetensors files in openai/gpt-oss-20b and -120b: 13.76 and 65.25 GB.
@pytest.mark.parametrize(("model", "published"), [("gpt-oss-20b", 13.76e9), ("gpt-oss-120b", 65.25e9)])
def test_gpt_oss_takes_the_bytes_it_is_published_in(model: str, published: float) -> None:
    shape = find_model(model, CATALOG)
    assert isinstance(shape, Transformer)
    assert shape.native == "mxfp4"
    assert weight_bytes(shape, "mxfp4") == pytest.approx(published, rel=0.003)


def test_blocks_of_32_weights_take_17_bytes() -> None:
    dense = shapes.LLAMA_3_8B
    linear = split_weights(dense, "mxfp4").linear / split_weights(dense, "bf16").linear * 16
    assert linear == 4.25
    mixture = shapes.MIXTRAL
    assert split_weights(mixture, "mxfp4").experts * 32 == split_weights(mixture, "bf16").experts // 2 * 17
    assert split_weights(mixture, "mxfp4").linear == split_weights(mixture, "bf16").linear


def test_a_config_that_says_mxfp4_is_read_as_mxfp4() -> None:
    config = next(model for model in CATALOG.models if model.id == "llama-3.1-8b").config
    shape = shape_from_config({**config, "quantization_config": {"quant_method": "mxfp4"}}, "own")
    assert isinstance(shape, Transformer)
    assert shape.native == "mxfp4"


def test_attention_of_an_moe_model_in_mxfp4_is_multiplied_in_16_bit() -> None:
    shape = find_model("gpt-oss-20b", CATALOG)
    assert isinstance(shape, Transformer)
    storage = weight_storage(shape, "mxfp4", "bf16")
    assert storage.unquantised("attn_q", "attn_k", "attn_v")
    assert not storage.unquantised("ffn_up_exps", "ffn_gate_exps")
    assert not weight_storage(shape, "nvfp4", "bf16").unquantised("attn_q")
    assert not weight_storage(shape, "bf16", "bf16").unquantised("attn_q")


@pytest.mark.parametrize(("engine", "name"), [("vllm", "mxfp4"), ("llama.cpp", "mxfp4_moe")])
def test_each_engine_calls_it_by_its_own_name(engine: str, name: str) -> None:
    workload = from_object({"task": "serve", "model": "gpt-oss-20b", "engine": engine}).workload
    assert fill_defaults(workload, find_model("gpt-oss-20b", CATALOG)).precision == name


@pytest.mark.parametrize(("gpu", "lacks"), [("a100-sxm-80gb", True), ("h100-sxm", True), ("b200", False)])
def test_gpu_without_fp4_units_dequantises_with_a_note(gpu: str, lacks: bool) -> None:
    workload = replace(from_object({"task": "serve", "model": "gpt-oss-20b", "engine": "vllm"}).workload, precision="mxfp4")
    assert [one.id for one in precision_warnings(workload, GPUS[gpu])] == ["warning.stored-only"] * lacks
    assert unsupported_dtype(GPUS[gpu], workload) == ("fp4" if lacks else None)


@pytest.mark.parametrize("gpu", ["A100 SXM 80GB", "H100 SXM"])
def test_a_recommendation_claims_no_units_the_gpu_lacks(gpu: str) -> None:
    answer = whichgpu.recommend("batch", "gpt-oss-20b", gpu=gpu, gpus=1, as_of="2026-11-15")
    assert answer.answer.precision == "mxfp4"
    ids = [one.id for one in answer.assumptions]
    assert "assumed.precision-published" in ids
    assert "assumed.precision" not in ids
    assert "warning.stored-only" in [one.id for one in answer.warnings]


def test_default_precision_with_hardware_units_is_in_the_assumptions() -> None:
    answer = whichgpu.recommend("batch", "llama-3.1-8b", gpu="A100 SXM 80GB", gpus=1, as_of="2026-11-15")
    assert "assumed.precision-chosen" in [one.id for one in answer.assumptions]
