"""Multimodal models whole: language model, vision tower and projector add up to the weights their publishers list."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.workload.defaults import fill_defaults
from whichgpu.workload.hf import shape_from_config
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Workload

LLAVA_7B: dict[str, Any] = {
    "model_type": "llava",
    "text_config": {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
                    "num_attention_heads": 32, "vocab_size": 32064},
    "vision_config": {"model_type": "clip_vision_model", "hidden_size": 1024, "image_size": 336, "intermediate_size": 4096,
                      "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14, "projection_dim": 768},
}  # fmt: skip
PALIGEMMA_3B: dict[str, Any] = {
    "model_type": "paligemma",
    "text_config": {"model_type": "gemma", "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 18,
                    "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 257216},
    "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152, "image_size": 224, "intermediate_size": 4304,
                      "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": False},
}  # fmt: skip
MISTRAL_SMALL_24B: dict[str, Any] = {
    "model_type": "mistral3", "multimodal_projector_bias": False, "spatial_merge_size": 2,
    "text_config": {"model_type": "mistral", "hidden_size": 5120, "intermediate_size": 32768, "num_hidden_layers": 40,
                    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 131072},
    "vision_config": {"model_type": "pixtral", "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16,
                      "num_hidden_layers": 24, "num_channels": 3, "patch_size": 14, "image_size": 1540},
}  # fmt: skip
QWEN25_VL_7B: dict[str, Any] = {
    "model_type": "qwen2_5_vl", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False,
    "vision_config": {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "out_hidden_size": 3584, "patch_size": 14,
                      "spatial_merge_size": 2, "temporal_patch_size": 2, "in_chans": 3},
}  # fmt: skip
QWEN3_VL_8B: dict[str, Any] = {
    "model_type": "qwen3_vl", "tie_word_embeddings": False,
    "text_config": {"model_type": "qwen3_vl_text", "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
                    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936},
    "vision_config": {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "patch_size": 16, "spatial_merge_size": 2,
                      "temporal_patch_size": 2, "num_position_embeddings": 2304, "deepstack_visual_indexes": [8, 16, 24]},
}  # fmt: skip


def total(config: dict[str, Any]) -> int:
    shape = shape_from_config(config, "m")
    assert isinstance(shape, Transformer)
    return count_parameters(shape).total


@pytest.mark.parametrize(
    ("config", "published"),
    [
        pytest.param(LLAVA_7B, 7_063_427_072, id="LLaVA-1.5-7B"),
        pytest.param(PALIGEMMA_3B, 2_923_466_480, id="PaliGemma-3B-224"),
        pytest.param(MISTRAL_SMALL_24B, 24_011_361_280, id="Mistral-Small-3.1-24B"),
        pytest.param(QWEN25_VL_7B, 8_292_166_656, id="Qwen2.5-VL-7B"),
        pytest.param(QWEN3_VL_8B, 8_767_123_696, id="Qwen3-VL-8B"),
    ],
)
def test_a_model_with_its_tower_has_the_weights_its_files_have(config: dict[str, Any], published: int) -> None:
    assert total(config) == published


def beside(config: dict[str, Any], **vision: Any) -> int:
    """Parameters of the tower and the projector alone."""
    without = {name: value for name, value in config.items() if name != "vision_config"}
    return total(config | {"vision_config": config["vision_config"] | vision}) - total(without)


def test_unknown_vision_tower_is_not_guessed() -> None:
    assert beside(LLAVA_7B, model_type="siglip2_navit") == 0
    assert beside(LLAVA_7B | {"model_type": "novel_llava"}) == 0
    assert beside(LLAVA_7B) == 303_507_456 + 20_979_712  # CLIP ViT-L/14-336 and its projector


def test_vision_tower_fields_of_a_config_are_used() -> None:
    assert beside(MISTRAL_SMALL_24B | {"multimodal_projector_bias": True}) - beside(MISTRAL_SMALL_24B) == 2 * 5120
    merger = beside(QWEN3_VL_8B) - beside(QWEN3_VL_8B, deepstack_visual_indexes=[8, 16])
    assert beside(QWEN3_VL_8B, deepstack_visual_indexes=[8, 16]) - beside(QWEN3_VL_8B, deepstack_visual_indexes=[8]) == merger > 0
    assert beside(QWEN3_VL_8B, deepstack_visual_indexes="all") == beside(QWEN3_VL_8B)  # no list: as the family has it


SMALL: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "vocab_size": 100,
}  # fmt: skip


def _compressed(kind: str, bits: int, group: int | None) -> dict[str, Any]:
    weights = {"num_bits": bits, "type": kind, "group_size": group, "symmetric": True}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights, "targets": ["Linear"]}}}


@pytest.mark.parametrize(
    ("dtype", "native"),
    [
        (None, ""),
        ("int4", ""),
        ({"quant_method": "gptq", "bits": 4}, "int4"),
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "FP8"}, "fp8"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "quip", "bits": 4}, ""),
        ({"quant_method": "gptq", "bits": "4"}, "int4"),
        ({"quant_method": "gptq", "bits": 3}, ""),
        ({"quant_method": "awq", "w_bit": 4}, "int4"),
        ({"quant_method": "exl3", "bits": 4.0}, "int4"),
        ({"quant_method": "exl3", "bits": 3.5}, ""),
        (_compressed("int", 4, 128), "int4"),
        (_compressed("int", 8, None), "int8"),
        (_compressed("float", 8, None), "fp8"),
        (_compressed("float", 4, 16), "nvfp4"),
        (_compressed("float", 4, 32), "mxfp4"),
        (_compressed("int", 2, 128), ""),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": 3}}, ""),
        ({"quant_method": "compressed-tensors"}, ""),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4"}}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"}, "int4"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, ""),
        ({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}}, "int4"),
        ({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 3}}}, ""),
        ({"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4WeightOnlyConfig"}}}, "int4"),
        ({"quant_method": "torchao", "quant_type": "float8_dynamic_activation_float8_weight"}, "fp8"),
        ({"quant_method": "quanto", "weights": "int8"}, "int8"),
        ({"quant_method": "quanto", "weights": "int2"}, ""),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}}}, "fp8"),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32}}}, "mxfp4"),
        ({"quant_method": ["fp8"]}, ""),
        ("fp8", ""),
        (["fp8"], ""),
    ],
)
def test_published_weights_have_the_config_s_dtype_if_known(dtype: Any, native: str) -> None:
    shape = shape_from_config(SMALL | {"quantization_config": dtype}, "m")
    assert isinstance(shape, Transformer)
    assert shape.native == native
    assert bool(shape.unknown_quantisation) == (bool(dtype) and not native)
    within = shape_from_config({"model_type": "llava", "text_config": SMALL | {"quantization_config": dtype}}, "m")
    assert (within.native, bool(within.unknown_quantisation)) == (native, bool(shape.unknown_quantisation))


@pytest.mark.parametrize(
    ("dtype", "task", "precision"),
    [
        ("float16", "serve", "fp16"), ("torch.float16", "forward", "fp16"), ("bfloat16", "serve", "bf16"),
        (None, "serve", "bf16"),
        ("float32", "serve", "bf16"),  # vLLM converts fp32 weights to 16 bits.
        ("float32", "forward", "fp32"), (["float16"], "serve", "bf16"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("key", ["torch_dtype", "dtype"])
def test_the_dtype_of_a_checkpoint_is_its_precision(dtype: Any, task: Any, precision: str, key: str) -> None:
    shape = shape_from_config(SMALL | {key: dtype}, "m")
    assert fill_defaults(Workload(task, "m"), shape).precision == precision


def test_a_quantisation_without_a_precision_is_a_warning() -> None:
    shape = shape_from_config(SMALL | {"quantization_config": {"quant_method": "aqlm"}}, "m")
    workload = fill_defaults(Workload("serve", "m"), shape)
    (warning,) = estimate_memory(workload, shape).warnings
    assert (warning.id, warning.values["method"], warning.values["precision"]) == ("warning.unknown-quantisation", "aqlm", "bf16")
    assert not estimate_memory(replace(workload, precision="int4"), shape).warnings


def test_a_bare_model_has_no_head_and_a_classifier_has_its_own() -> None:
    whole = total(SMALL)
    assert whole - total(SMALL | {"architectures": ["LlamaModel"]}) == 100 * 64
    assert total(SMALL | {"architectures": ["LlamaForCausalLM"]}) == whole
    classes = SMALL | {"architectures": ["LlamaForSequenceClassification"], "id2label": {"0": "no", "1": "yes", "2": "maybe"}}
    assert whole - total(classes) == 100 * 64 - 3 * 64


def test_more_experts_at_once_than_there_are_is_refused_with_the_field() -> None:
    mixture = SMALL | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 5}
    with pytest.raises(UsageError, match="num_experts_per_tok"):
        shape_from_config(mixture, "m")
    assert total(mixture | {"num_experts_per_tok": 4, "mlp_only_layers": [0]}) < total(mixture | {"num_experts_per_tok": 4})
