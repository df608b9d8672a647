"""Spellings of a workload: what is read, what is refused and how, and what silence means."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.workload_flags import read_flags
from whichgpu.base.errors import UnknownName, UsageError
from whichgpu.base.messages import english
from whichgpu.workload.shapes import Dlrm, Mlp, Patches, Shape, TracedShape, Transformer, WeightsOnly
from whichgpu.workload.spelling import (
    echo,
    fill_defaults,
    from_object,
    from_texts,
    from_toml,
    to_argv,
)
from whichgpu.workload.workload import FIELDS, KINDS, Parallel, Workload

LLAMA = Transformer(
    "llama", "llama", 4096, 32, 32, 8, 128, 14336, 128256, True, "rms", "silu", False, True, 0, max_context=131072
)
GPT2 = Transformer("gpt2", "gpt2", 768, 12, 12, 12, 64, 3072, 50257, False, "layer", "gelu_tanh", True, False, 1024, 1024)
BERT = Transformer("bert", "bert", 768, 12, 12, 12, 64, 3072, 30522, False, "layer", "gelu", True, False, 512, 512, causal=False)
VIT = Transformer(
    "vit", "vit", 768, 12, 12, 12, 64, 3072, 0, False, "layer", "gelu", False, False, 0, 0, causal=False, patches=Patches(224, 16)
)
BARE = {"task": "serve", "model": "llama-3.1-8b"}


def usage_error(**fields: Any) -> UsageError:
    with pytest.raises(UsageError) as caught:
        from_object({**BARE, **fields})
    return caught.value


def words(error: UsageError) -> str:
    assert error.hint is not None
    return f"{english().render(error.message)} / {english().render(error.hint)}"


def test_every_field_has_a_kind_and_every_kind_a_field() -> None:
    assert set(KINDS) == set(FIELDS)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("batch", -1), ("batch", 0), ("batch", 10**30), ("batch", 2.5), ("batch", True), ("batch", "eight"), ("batch", [8]),
        ("seq_in", 0), ("seq_out", -1), ("gpus", 10**9), ("image", 10**6), ("micro_batch", {}), ("accumulation", 0),
        ("lora_rank", -4), ("year", 1999), ("percentile", 100), ("percentile", 0), ("epochs", -1), ("rate", 0), ("rate", "5"),
        ("ttft_max", "50"), ("ttft_max", -0.1), ("tpot_max", float("inf")), ("epochs", float("nan")), ("qlora", "perhaps"),
        ("qlora", 1), ("optimizer_fused", "yes"), ("precision", "bf17"), ("precision", 16), ("engine", "vlm"),
        ("optimizer", "lion"), ("attention", "fast"), ("checkpointing", "some"), ("memory_format", "nchwx"),
        ("lora_targets", "everything"), ("lora_targets", []), ("parallel", 4), ("parallel", {"tp": 0}),
        ("parallel", {"zero": 4}), ("parallel", {"ddp": 2}), ("parallel", "tp"), ("gpu", 5), ("gpu", " "), ("model", {}),
        ("model", 7), ("model", "{not json"), ("task", "dream"), ("method", "guess"), ("kv_precision", "tf32"), ("gpu", "a\nb"),
    ],
)  # fmt: skip
def test_invalid_field_is_named_with_a_hint(field: str, value: Any) -> None:
    error = usage_error(**{field: value})
    assert error.kind == "bad-field"
    assert error.exit_code == 2
    assert field in english().render(error.message)
    assert error.hint is not None
    assert len(english().render(error.hint)) > len(field) + 4


def test_an_unknown_field_suggests_the_nearest() -> None:
    error = usage_error(bach=8)
    assert isinstance(error, UnknownName)
    assert "batch" in error.choices
    assert "parallel" in words(usage_error(tp=2))


def test_all_errors_are_reported_at_once() -> None:
    error = usage_error(batch=-1, precision="bf17", bach=3)
    sentences = words(error)
    assert error.kind == "bad-request"
    assert all(word in sentences for word in ("batch", "bf17", "bach", "bf16"))


@pytest.mark.parametrize("missing", ["task", "model"])
def test_task_and_model_are_required(missing: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_object({name: value for name, value in BARE.items() if name != missing})
    assert caught.value.kind == "missing-field"
    assert missing in words(caught.value)


def test_null_id_and_an_echo_are_read_over() -> None:
    assert from_object({**BARE, "id": 7, "batch": None}).workload == Workload("serve", "llama-3.1-8b")
    filled = fill_defaults(Workload("serve", "llama-3.1-8b"), LLAMA)
    assert from_object(echo(filled, ())).workload == filled


@pytest.mark.parametrize(
    ("fields", "read"),
    [
        ({"precision": "BF16"}, {"precision": "bf16"}),
        ({"precision": "Q4_K_M"}, {"precision": "q4_k_m"}),
        ({"precision": "float16"}, {"precision": "fp16"}),
        ({"engine": "TensorRT LLM"}, {"engine": "tensorrt-llm"}),
        ({"checkpointing": True}, {"checkpointing": "full"}),
        ({"checkpointing": False}, {"checkpointing": "none"}),
        ({"batch": 8.0}, {"batch": 8}),
        ({"rate": "120/min"}, {"rate": 2.0}),
        ({"ttft_max": "50ms", "tpot_max": 0.02}, {"ttft_max": 0.05, "tpot_max": 0.02}),
        ({"lora_rank": 0}, {"lora_rank": None}),
        ({"lora_targets": ["q_proj", "v_proj"]}, {"lora_targets": "q,v"}),
        ({"parallel": {"tp": 2, "sp": True}}, {"parallel": Parallel(tp=2, sp=True)}),
        ({"parallel": "tp=2,zero=3"}, {"parallel": Parallel(tp=2, zero=3)}),
        ({"model": '{"model_type": "llama"}'}, {"model": {"model_type": "llama"}}),
    ],
)
def test_common_spellings_are_accepted(fields: dict[str, Any], read: dict[str, Any]) -> None:
    workload = from_object({**BARE, **fields}).workload
    assert {name: getattr(workload, name) for name in read} == read


def test_flag_errors_name_the_flag() -> None:
    with pytest.raises(UsageError) as caught:
        from_texts({"task": "serve", "model": "m", "micro_batch": "none"})
    assert "--micro-batch" in words(caught.value)


def test_toml_must_be_toml() -> None:
    assert from_toml('task = "serve"\nmodel = "m"\nbatch = 3').workload == Workload("serve", "m", batch=3)
    with pytest.raises(UsageError) as caught:
        from_toml("task = ")
    assert caught.value.kind == "bad-toml"


def test_a_config_with_nulls_reads_back_from_an_echo_and_from_flags() -> None:
    config = {"model_type": "llama", "rope_scaling": None, "eos": [1, 2], "eps": 1e-05, "nested": {"a": 'ü "quoted"'}}
    workload = Workload("train", config, batch=3)
    assert from_object(echo(workload, FIELDS)).workload == workload
    assert read_flags(to_argv(workload)).workload == workload


def test_hostile_json_is_refused_in_words() -> None:
    for text in ('{"a":' * 200 + "1" + "}" * 200, '{"a": NaN}', '{"a": 1, "a": 2}', '{"n": ' + "9" * 5000 + "}"):
        assert usage_error(model=text).kind == "bad-field"


@pytest.mark.parametrize(
    ("task", "shape", "expected"),
    [
        ("serve", LLAMA, {"precision": "bf16", "kv_precision": "bf16", "engine": "vllm", "attention": "flash", "batch": 1,
                          "seq_in": 2048, "seq_out": 256, "optimizer": None}),
        ("batch", LLAMA, {"batch": 1, "engine": "vllm"}),
        ("train", LLAMA, {"precision": "amp-bf16", "optimizer": "adamw", "batch": 8, "engine": "pytorch", "attention": "sdpa",
                          "kv_precision": None, "seq_out": None}),
        ("decode", LLAMA, {"engine": "cuda-graphs", "seq_out": None}),
        ("prefill", LLAMA, {"engine": "pytorch"}),
        ("serve", GPT2, {"seq_in": 768, "seq_out": 256}),
        ("train", GPT2, {"seq_in": 1024}),
        ("serve", BERT, {"seq_in": 512, "seq_out": None, "engine": "pytorch", "kv_precision": None}),
        ("train", VIT, {"precision": "amp-bf16", "batch": 32, "image": 224, "seq_in": 197, "optimizer": "adamw"}),
        ("train", TracedShape("resnet50", "resnet50", 224), {"precision": "amp-bf16", "optimizer": "sgd-momentum", "batch": 32,
                                                        "image": 224, "memory_format": "channels_last", "engine": "pytorch"}),
        ("train", TracedShape("swin_t", "swin_t", 224), {"optimizer": "adamw"}),
        ("forward", TracedShape("resnet50", "resnet50", 224), {"precision": "fp16", "batch": 1}),
        ("train", Mlp("mlp", (9, 4)), {"precision": "fp32", "optimizer": "sgd-momentum", "batch": 128, "attention": None}),
        ("forward", Dlrm("d", 16, (10,), (13, 8), (8, 1)), {"precision": "fp32"}),
        ("forward", WeightsOnly("w", 10, 20), {"precision": "bf16", "engine": "pytorch"}),
    ],
)  # fmt: skip
def test_default_values_of_tasks(task: Any, shape: Shape, expected: dict[str, Any]) -> None:
    workload = fill_defaults(Workload(task, "m"), shape)
    assert {name: getattr(workload, name) for name in expected} == expected


def test_user_fields_are_unchanged_and_defaults_marked() -> None:
    spelled = from_object({**BARE, "batch": 4, "precision": "fp16"})
    echoed = echo(fill_defaults(spelled.workload, LLAMA), spelled.user_fields)
    assert echoed["batch"] == 4
    assert echoed["kv_precision"] == "fp16"
    assert set(echoed) == {*FIELDS, "defaults"}
    assert {"kv_precision", "seq_in", "engine", "gpus"} <= set(echoed["defaults"])
    assert not {"task", "model", "batch", "precision", "optimizer"} & set(echoed["defaults"])


def test_a_gguf_file_says_its_precision_and_engine() -> None:
    stored = replace(LLAMA, native="q4_k_m", file_format="gguf")
    workload = fill_defaults(Workload("serve", "models/Llama-3.1-8B.gguf"), stored)
    assert (workload.precision, workload.engine, workload.kv_precision) == ("q4_k_m", "llama.cpp", "f16")
    assert fill_defaults(Workload("serve", "m", precision="q8_0"), LLAMA).engine == "llama.cpp"


@pytest.mark.parametrize(
    ("task", "gpus", "layout", "expected"),
    [
        ("serve", 1, Parallel(tp=4), (4, Parallel(tp=4))),
        ("serve", 8, Parallel(), (8, Parallel(tp=8))),
        ("serve", 6, Parallel(), (6, Parallel(tp=2, dp=3))),
        ("train", 8, Parallel(), (8, Parallel(dp=8, zero=3))),
        ("train", 8, Parallel(zero=1), (8, Parallel(dp=8, zero=1))),
        ("train", 8, Parallel(tp=2), (8, Parallel(tp=2, dp=4))),
        ("train", 4, Parallel(dp=4), (4, Parallel(dp=4))),
    ],
)
def test_gpus_and_layout_are_made_to_agree(task: Any, gpus: int, layout: Parallel, expected: tuple[int, Parallel]) -> None:
    workload = fill_defaults(Workload(task, "m", gpus=gpus, parallel=layout), LLAMA)
    assert (workload.gpus, workload.parallel) == expected


@pytest.mark.parametrize("workload", [
    Workload("train", "m", gpus=6, parallel=Parallel(dp=4)),
    Workload("train", "m", gpus=5, parallel=Parallel(tp=2)),
    Workload("train", "m", gpus=8, nodes=3),
])  # fmt: skip
def test_a_layout_that_cannot_be_is_refused(workload: Workload) -> None:
    with pytest.raises(UsageError) as caught:
        fill_defaults(workload, LLAMA)
    assert caught.value.hint is not None


def test_a_batch_follows_from_the_micro_batch() -> None:
    workload = fill_defaults(Workload("train", "m", micro_batch=2, accumulation=4, parallel=Parallel(dp=8)), LLAMA)
    assert workload.batch == 64
    assert workload.local_batch == 2


def test_an_error_names_the_flag_as_it_may_have_been_typed() -> None:
    with pytest.raises(UsageError) as caught:
        from_texts({"task": "serve", "model": "llama-3.1-8b", "tpot_max": "banana"})
    message = english().render(caught.value.message)
    assert "--tpot (--tpot-max)" in message
