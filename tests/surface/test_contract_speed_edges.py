"""The contract of `estimate` where a request does not fit, is not sure, or cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.surface.cli import assert_refused, assert_refused_json, call
from tests.surface.speed import CNN, ENCODER, LLM, estimate_json, estimate_lines, of
from whichgpu.catalog.store import Catalog


def test_time_is_estimated_even_if_memory_does_not_fit() -> None:
    reply = estimate_json("decode", "llama-3.1-70b", "--precision", "fp16", "--gpu", "T4", "--batch", "1", "--seq-in", "512")
    assert reply["ok"] is True
    assert reply["fits"] == "no"
    assert reply["time"]["value"] > 0.3  # 141 GB over 320 GB/s


def test_without_a_gpu_only_memory_is_answered() -> None:
    reply = call("estimate", "decode", LLM, "--json")
    assert reply.code == 0
    document = reply.json()
    assert document["memory"]["value"] > 0
    assert [
        name for name in ("time", "time_device", "time_host", "throughput", "ttft", "tpot", "bound") if document.get(name)
    ] == []


def test_a_family_name_is_ambiguous() -> None:
    assert_refused(call("estimate", "decode", LLM, "--gpu", "A100"), 2)
    choices = assert_refused_json(call("estimate", "decode", LLM, "--gpu", "A100", "--json"), 2)["choices"]
    assert {"A100 SXM 40GB", "A100 SXM 80GB", "A100 PCIe 80GB"} <= set(choices)


IMPOSSIBLE = [
    ["forward", CNN, "--engine", "tensorrt", "--gpu", "MI300X"],
    ["decode", LLM, "--engine", "tensorrt-llm", "--gpu", "MI300X"],
    ["train", LLM, "--engine", "vllm", "--gpu", "H200 SXM"],
    ["train", CNN, "--engine", "tensorrt", "--gpu", "H200 SXM"],
    ["forward", CNN, "--engine", "vllm", "--gpu", "H200 SXM"],
]


@pytest.mark.parametrize("argv", IMPOSSIBLE, ids=" ".join)
def test_an_engine_that_cannot_is_refused_with_those_that_can(argv: list[str]) -> None:
    assert_refused(call("estimate", *argv), 2)
    error = assert_refused_json(call("estimate", *argv, "--json"), 2)
    assert error["choices"]
    assert argv[3] not in error["choices"]


def test_an_engine_that_only_once_could_is_warned_of() -> None:
    reply = estimate_json("decode", LLM, "--engine", "vllm", "--gpu", "V100 SXM 32GB", "--precision", "fp16", "--batch", "1")
    assert any("vLLM" in warning and "V100" in warning for warning in reply["warnings"])


@pytest.mark.parametrize(
    ("gpu", "precision", "task", "words"),
    [
        ("V100 SXM 32GB", "bf16", "decode", ("bf16", "V100")),
        ("V100 SXM 32GB", "amp-bf16", "train", ("bf16", "V100")),
        ("GTX 1080 Ti", "amp-bf16", "train", ("bf16", "1080")),
        ("A100 SXM 80GB", "fp8", "decode", ("fp8", "A100")),
        ("H200 SXM", "nvfp4", "decode", ("nvfp4", "H200")),
    ],
)
def test_a_precision_the_gpu_lacks_is_answered_with_a_warning(
    gpu: str, precision: str, task: str, words: tuple[str, str]
) -> None:
    reply = estimate_json(task, LLM, "--gpu", gpu, "--precision", precision, "--batch", "1", "--seq-in", "512")
    assert reply["time"]["value"] > 0
    assert any(all(word in warning for word in words) for warning in reply["warnings"]), reply["warnings"]


@pytest.mark.parametrize(
    ("gpu", "precision"), [("H200 SXM", "bf16"), ("H200 SXM", "fp8"), ("V100 SXM 32GB", "fp16"), ("B200", "nvfp4")]
)
def test_one_it_has_is_not_warned_of(gpu: str, precision: str) -> None:
    reply = estimate_json("decode", LLM, "--gpu", gpu, "--precision", precision, "--batch", "1", "--seq-in", "512")
    assert not any(precision in warning and gpu in warning for warning in reply["warnings"]), reply["warnings"]


def test_bf16_on_a_v100_costs_and_fp16_does_not() -> None:
    flags = ["train", LLM, "--gpu", "V100 SXM 32GB", "--batch", "1", "--seq-in", "1024"]
    slow, fast = (estimate_json(*flags, "--precision", precision)["time"]["value"] for precision in ("amp-bf16", "amp-fp16"))
    assert slow > 1.2 * fast


@pytest.mark.parametrize(
    ("gpu", "basis"),
    [
        ("tpu-v4", "modelled"),
        ("apple-m2", "modelled"),
        ("gaudi-2", "modelled"),
        ("trainium1", "calibrated"),  # Inferentia2, which has its cores, was measured
        ("arc-a770-16gb", "modelled"),
    ],
)
def test_other_accelerators_have_a_wide_range(gpu: str, basis: str) -> None:
    reply = estimate_json("decode", LLM, "--gpu", gpu, "--batch", "1", "--seq-in", "512")
    assert reply["time"]["basis"] == basis
    own = of("decode")["time"]  # a low end may be the physical floor
    assert reply["time"]["high"] / reply["time"]["value"] > own["high"] / own["value"]


def test_ranges_of_other_accelerators_follow_the_evidence() -> None:
    """Inferentia2 was measured, Trainium1 has its cores, of Gaudi 2 the specifications are used."""
    replies = [
        estimate_json("decode", LLM, "--gpu", gpu, "--batch", "1", "--seq-in", "512")
        for gpu in ("inferentia2", "trainium1", "gaudi-2")
    ]
    assert [reply["tier"] for reply in replies] == ["measured", "kin", "specs"]
    widths = [reply["time"]["high"] / reply["time"]["low"] for reply in replies]
    assert widths == sorted(widths)


def test_int8_bert_has_its_accuracy_loss() -> None:
    reply = estimate_json(
        "forward", ENCODER, "--gpu", "T4", "--precision", "int8", "--engine", "tensorrt", "--batch", "8", "--seq-in", "384"
    )
    assert any("SQuAD" in warning and "F1" in warning for warning in reply["warnings"]), reply["warnings"]
    assert {"mlperf-inference-bert", "nvidia-gtc2019-s9659"} & set(reply["sources"])


def test_image_training_has_the_required_loading_rate() -> None:
    reply = estimate_json("train", CNN, "--batch", "128", "--gpu", "V100 SXM 16GB", "--precision", "amp-fp16")
    assert any("vCPU" in warning for warning in reply["warnings"]), reply["warnings"]
    text = estimate_json("train", LLM, "--batch", "4", "--seq-in", "1024")
    assert not any("vCPU" in warning for warning in text["warnings"])


@pytest.mark.parametrize("gpu", [gpu.id for gpu in Catalog().gpus if not gpu.peaks])
def test_gpu_without_published_peaks_is_modelled_or_refused_with_a_reason(gpu: str) -> None:
    reply = estimate_json("decode", LLM, "--gpu", gpu, "--batch", "1", "--seq-in", "512")
    assert reply["fits"]
    if reply.get("time") is None:
        assert reply["warnings"]
    else:
        assert reply["time"]["basis"] == "modelled"


@pytest.mark.long
def test_every_gpu_of_the_catalog_is_answered(tmp_path: Path) -> None:
    rated = [gpu.id for gpu in Catalog().gpus if gpu.peaks]
    steps: list[dict[str, Any]] = [{"task": "decode", "model": LLM, "seq_in": 512}, {"task": "train", "model": CNN, "batch": 8}]
    code, replies = estimate_lines(tmp_path, *({"id": gpu, "gpu": gpu, **step} for gpu in rated for step in steps))
    assert code == 0
    assert [reply["id"] for reply in replies if not reply["ok"] or not reply["time"]["value"] > 0] == []


@pytest.mark.parametrize(
    ("argv", "names", "what"),
    [
        (["serve", LLM, "--qlora"], ["--qlora"], "serve"),
        (["decode", LLM, "--optimizer", "sgd", "--checkpointing", "full"], ["--optimizer", "--checkpointing"], "decode"),
        (["train", LLM, "--out", "64", "--ttft", "50ms"], ["--seq-out", "--ttft-max"], "train"),
        (["forward", CNN, "--in", "300"], ["--seq-in"], CNN),
        (["decode", LLM, "--image", "224", "--memory-format", "contiguous"], ["--image", "--memory-format"], LLM),
    ],
)
def test_an_option_without_effect_is_named(argv: list[str], names: list[str], what: str) -> None:
    notes = [warning for warning in estimate_json(*argv)["warnings"] if "no effect on" in warning]
    assert len(notes) == 1, notes
    assert all(name in notes[0] for name in names)
    assert notes[0].endswith(what)


@pytest.mark.parametrize(
    "argv", [["finetune", LLM, "--qlora"], ["serve", LLM, "--no-qlora", "--out", "64"], ["forward", CNN, "--image", "224"]]
)
def test_one_with_effect_or_at_its_default_is_not(argv: list[str]) -> None:
    assert not any("no effect" in warning for warning in estimate_json(*argv)["warnings"])


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("decode", "resnet50"), "wrong-task"),
        (("prefill", "resnet50"), "wrong-task"),
        (("decode", "bert-base"), "wrong-task"),
        (("train", "gpt2", "--batch", "32", "--accumulation", "7"), "batch-split"),
        (("train", "gpt2", "--batch", "32", "--micro-batch", "64"), "batch-mismatch"),
    ],
)
def test_requests_that_cannot_be_are_refused(words: tuple[str, ...], kind: str) -> None:
    reply = call("estimate", *words, "--gpu", "T4", "--json")
    assert reply.code == 2
    assert json.loads(reply.out)["error"]["kind"] == kind


def test_gpu_without_bf16_defaults_to_its_usual_precision() -> None:
    document = [
        json.loads(call("estimate", "train", "resnet50", "--gpu", name, "--json").out)["request"]
        for name in ("V100-SXM-16GB", "K80")
    ]
    assert [request["precision"] for request in document] == ["amp-fp16", "fp32"]
    assert all("precision" in request["defaults"] for request in document)


def test_out_of_memory_is_reported_before_speed() -> None:
    whole = ("--batch", "8", "--micro-batch", "8")  # as stated: nothing is made to fit
    message = call("estimate", "finetune", "llama-3.1-8b", *whole, "--gpu", "A100 PCIe 80GB").err.splitlines()
    assert "it does not fit A100 PCIe 80GB" in message[0]
    assert message[1].startswith("The workload does not fit; if it did")
