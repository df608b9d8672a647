"""The contract of `estimate` where it speaks of time: fields, figures, units, what each task's time means, what is refused."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.surface.cli import Reply, assert_refused, assert_refused_json, call
from whichgpu import api
from whichgpu.catalog.store import Catalog

ALWAYS = "time time_device time_host throughput memory memory_device memory_parts fits bound warnings basis sources".split()
SERVING = ("ttft", "tpot")
FIGURE = {"value", "low", "high", "unit", "basis", "sources"}
BASES = {"measured", "calibrated", "modelled", "published"}
BOUNDS = {"compute", "bandwidth", "overhead", "interconnect"}
LLM, CNN, ENCODER = "llama-3.2-1b", "resnet50", "bert-large"
# task, model, flags -> the unit of its throughput
CASES: dict[str, tuple[list[str], str]] = {
    "train-llm": (["train", LLM, "--batch", "4", "--seq-in", "1024"], "input tokens/s"),
    "finetune-lora": (["finetune", LLM, "--batch", "4", "--seq-in", "1024", "--lora-rank", "16"], "input tokens/s"),
    "train-cnn": (["train", CNN, "--batch", "64"], "samples/s"),
    "train-mlp": (["train", "mlp:784x2048x10", "--batch", "128"], "samples/s"),
    "forward-cnn": (["forward", CNN, "--batch", "8"], "samples/s"),
    "forward-encoder": (["forward", ENCODER, "--batch", "8", "--seq-in", "384"], "samples/s"),
    "prefill": (["prefill", LLM, "--batch", "2", "--seq-in", "1024"], "input tokens/s"),
    "decode": (["decode", LLM, "--batch", "8", "--seq-in", "1024"], "output tokens/s"),
    "serve": (["serve", LLM, "--batch", "8", "--in", "1024", "--out", "128"], "output tokens/s"),
    "batch": (["batch", LLM, "--batch", "32", "--in", "1024", "--out", "128"], "output tokens/s"),
}
every_case = pytest.mark.parametrize("case", CASES)


@cache
def told(*argv: str) -> Any:
    """The reply of a successful estimate, on an H200 unless a GPU is named."""
    gpu = () if "--gpu" in argv else ("--gpu", "H200 SXM")
    reply = call("estimate", *argv, *gpu, "--json")
    assert reply.code == 0, reply.err or reply.out
    return reply.json()


def of(case: str) -> Any:
    return told(*CASES[case][0])


def asked(tmp_path: Path, *lines: dict[str, Any]) -> tuple[int, list[Any]]:
    path = tmp_path / "requests.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    reply = call("estimate", "--requests", str(path))
    return reply.code, [json.loads(line) for line in reply.out.splitlines()]


@every_case
def test_every_field_is_there(case: str) -> None:
    reply = of(case)
    assert reply["ok"] is True
    assert [name for name in ALWAYS if reply.get(name) is None] == []
    assert reply["bound"] in BOUNDS
    assert reply["basis"] in BASES
    assert reply["fits"] in ("fits", "tight", "no")
    assert all(isinstance(warning, str) and warning for warning in reply["warnings"])


@every_case
def test_first_token_and_time_per_token_are_servings_own(case: str) -> None:
    reply = of(case)
    for name in SERVING:
        assert (reply.get(name) is not None) is (case == "serve"), name


@every_case
def test_figures_have_the_shape_of_figures(case: str) -> None:
    reply = of(case)
    for name in ("time", "time_device", "time_host", "throughput", *(SERVING if case == "serve" else ())):
        figure = reply[name]
        assert set(figure) == FIGURE, name
        numbers = [figure[part] for part in ("low", "value", "high")]
        assert numbers == sorted(numbers), name
        assert all(math.isfinite(number) and number >= 0 for number in numbers), name
        assert figure["basis"] in BASES
        assert isinstance(figure["sources"], list)
        if name != "throughput":
            assert figure["unit"] == "s"
    assert 0 < reply["time"]["low"] < reply["time"]["value"] < reply["time"]["high"]


@every_case
def test_every_source_cited_is_one_the_catalog_knows(case: str) -> None:
    reply, known = of(case), Catalog().sources
    cited = {*reply["sources"], *reply["time"]["sources"], *reply["throughput"]["sources"]}
    assert reply["time"]["sources"]
    assert sorted(id for id in cited if id not in known) == []


@every_case
def test_the_unit_of_throughput_says_what_is_counted(case: str) -> None:
    assert of(case)["throughput"]["unit"] == CASES[case][1]


@every_case
def test_throughput_is_work_over_time(case: str) -> None:
    reply = of(case)
    request, time = reply["request"], reply["time"]
    work = request["batch"] * (request["seq_in"] if CASES[case][1] == "input tokens/s" else 1)
    rate = reply["throughput"]
    if case in ("serve", "batch"):  # prompts take their share of the time
        assert 0 < rate["value"] <= work / time["value"] * 1.001
    else:
        assert rate["value"] == pytest.approx(work / time["value"], rel=1e-6)
        assert rate["low"] == pytest.approx(work / time["high"], rel=1e-6)
        assert rate["high"] == pytest.approx(work / time["low"], rel=1e-6)


@every_case
def test_time_is_what_remains_of_device_and_host_side_by_side(case: str) -> None:
    reply = of(case)
    time, device, host = (reply[name]["value"] for name in ("time", "time_device", "time_host"))
    assert device > 0
    assert max(device, host) * 0.999 <= time <= (device + host) * 1.001


@every_case
def test_the_request_is_echoed_with_the_engine_assumed(case: str) -> None:
    request = of(case)["request"]
    assert request["engine"]
    assert "engine" in request["defaults"]
    assert request["gpu"] == "H200 SXM"
    assert "gpu" not in request["defaults"]


def test_python_gives_the_same_answer() -> None:
    answer = api.estimate("decode", LLM, gpu="H200 SXM", batch=8, seq_in=1024)
    assert answer.time is not None
    assert answer.throughput is not None
    reply = of("decode")
    assert answer.time.value == pytest.approx(reply["time"]["value"])
    assert answer.throughput.unit == "output tokens/s"
    assert answer.bound == reply["bound"]


def test_serving_objectives_are_figures_and_hold_together() -> None:
    reply = of("serve")
    assert reply["tpot"]["value"] == pytest.approx(reply["time"]["value"])
    prompt = told("prefill", LLM, "--batch", "1", "--seq-in", "1024", "--engine", reply["request"]["engine"])
    assert reply["ttft"]["value"] >= prompt["time"]["value"] * 0.9


def test_serving_by_rate_is_answered() -> None:
    reply = told("serve", LLM, "--rate", "2/s", "--in", "1024", "--out", "128")
    assert reply["request"]["rate"] == 2
    assert reply["ttft"]["value"] > 0
    assert reply["tpot"]["value"] > 0


# What a step is made of


def test_the_optimizer_step_can_be_left_out() -> None:
    with_step = of("train-llm")
    without = told(*CASES["train-llm"][0], "--no-include-optimizer-step")
    assert with_step["request"]["include_optimizer_step"] is True
    assert without["request"]["include_optimizer_step"] is False
    saved = with_step["time"]["value"] - without["time"]["value"]
    assert saved > 0
    # AdamW in bf16 reads and writes at least weight, gradient and two moments of 1.24 billion parameters
    assert saved >= 0.8 * 7 * 2 * 1.2358e9 / 4.8e12


def test_accumulation_does_the_same_samples_in_smaller_steps() -> None:
    flags = ["train", LLM, "--seq-in", "1024"]
    whole = told(*flags, "--batch", "8")
    parts = told(*flags, "--batch", "8", "--accumulation", "4")
    small = told(*flags, "--batch", "2")
    assert parts["request"]["accumulation"] == 4
    assert parts["time"]["value"] >= 0.97 * whole["time"]["value"]
    # the device saves three optimizer steps; the host makes a call more for each parameter and round, to add up gradients
    assert parts["time_device"]["value"] <= 4 * small["time_device"]["value"]
    assert parts["time"]["value"] - 4 * small["time"]["value"] <= parts["time_host"]["value"] - 4 * small["time_host"]["value"]
    assert parts["throughput"]["value"] == pytest.approx(8 * 1024 / parts["time"]["value"], rel=1e-6)


def test_checkpointing_computes_the_forward_pass_again() -> None:
    flags = [*CASES["train-llm"][0]]
    ratio = told(*flags, "--checkpointing", "full")["time"]["value"] / of("train-llm")["time"]["value"]
    assert 1.1 <= ratio <= 1.5


def test_lora_is_faster_than_training_all_of_a_large_model() -> None:
    """No gradients of frozen weights: of three products two are left. Small models lose it again to adapters' small kernels."""
    flags = ["finetune", "mistral-7b", "--batch", "4", "--seq-in", "1024"]
    ratio = told(*flags)["time"]["value"] / told(*flags, "--lora-rank", "64")["time"]["value"]
    assert 1.0 <= ratio <= 2.0


def test_decoding_runs_at_the_context_given() -> None:
    flags = ["decode", LLM, "--batch", "32"]
    short, long = (told(*flags, "--seq-in", length)["time"]["value"] for length in ("1024", "16384"))
    assert long > short


def test_prefill_is_of_the_whole_batch() -> None:
    one, four = (told("prefill", LLM, "--seq-in", "4096", "--batch", batch)["time"]["value"] for batch in ("1", "4"))
    assert 2.2 <= four / one <= 4.2


@pytest.mark.parametrize(
    ("flags", "bound"),
    [
        (["decode", "llama-3.1-8b", "--batch", "1", "--seq-in", "1024"], "bandwidth"),
        (["train", "llama-3.1-8b", "--batch", "8", "--seq-in", "2048"], "compute"),
        (["forward", "mlp:64x64x10", "--batch", "1"], "overhead"),
    ],
)
def test_what_bounds_a_step(flags: list[str], bound: str) -> None:
    assert told(*flags)["bound"] == bound


def test_the_year_of_the_software_is_taken_and_echoed() -> None:
    flags = ["serve", "llama-3.1-8b", "--engine", "vllm", "--batch", "16"]
    early, late = (told(*flags, "--year", year) for year in ("2023", "2026"))
    assert (early["request"]["year"], late["request"]["year"]) == (2023, 2026)
    assert early["time"]["value"] > 0
    assert late["time"]["value"] > 0


@pytest.mark.parametrize("engine", ["pytorch", "pytorch-compile", "cuda-graphs", "vllm", "sglang", "tensorrt-llm", "tensorrt"])
def test_every_engine_answers(engine: str) -> None:
    reply = told("decode", LLM, "--batch", "4", "--seq-in", "512", "--engine", engine)
    assert reply["request"]["engine"] == engine
    assert reply["time"]["value"] > 0


@pytest.mark.parametrize("precision", ["q4_k_m", "q8_0", "f16"])
def test_gguf_types_are_answered_under_llama_cpp(precision: str) -> None:
    reply = told("decode", "llama-3.1-8b", "--precision", precision, "--gpu", "RTX 4090", "--batch", "1", "--seq-in", "512")
    assert reply["request"]["engine"] == "llama.cpp"
    assert reply["bound"] == "bandwidth"


@pytest.mark.parametrize("precision", ["fp32", "fp32-default", "tf32", "amp-bf16", "amp-fp16", "bf16", "fp16"])
def test_every_training_precision_is_answered(precision: str) -> None:
    assert told("train", CNN, "--batch", "32", "--precision", precision)["time"]["value"] > 0


# What does not fit, is not sure, or cannot be


def test_what_does_not_fit_is_still_told_its_time() -> None:
    reply = told("decode", "llama-3.1-70b", "--precision", "fp16", "--gpu", "T4", "--batch", "1", "--seq-in", "512")
    assert reply["ok"] is True
    assert reply["fits"] == "no"
    assert reply["time"]["value"] > 0.3  # 141 GB over 320 GB/s


def test_without_a_gpu_only_memory_is_answered() -> None:
    reply = call("estimate", "decode", LLM, "--json")
    assert reply.code == 0
    told = reply.json()
    assert told["memory"]["value"] > 0
    assert [name for name in ("time", "time_device", "time_host", "throughput", "ttft", "tpot", "bound") if told.get(name)] == []


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
    reply = told("decode", LLM, "--engine", "vllm", "--gpu", "V100 SXM 32GB", "--precision", "fp16", "--batch", "1")
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
    reply = told(task, LLM, "--gpu", gpu, "--precision", precision, "--batch", "1", "--seq-in", "512")
    assert reply["time"]["value"] > 0
    assert any(all(word in warning for word in words) for warning in reply["warnings"]), reply["warnings"]


@pytest.mark.parametrize(
    ("gpu", "precision"), [("H200 SXM", "bf16"), ("H200 SXM", "fp8"), ("V100 SXM 32GB", "fp16"), ("B200", "nvfp4")]
)
def test_one_it_has_is_not_warned_of(gpu: str, precision: str) -> None:
    reply = told("decode", LLM, "--gpu", gpu, "--precision", precision, "--batch", "1", "--seq-in", "512")
    assert not any(precision in warning and gpu in warning for warning in reply["warnings"]), reply["warnings"]


def test_bf16_on_a_v100_costs_and_fp16_does_not() -> None:
    flags = ["train", LLM, "--gpu", "V100 SXM 32GB", "--batch", "1", "--seq-in", "1024"]
    slow, fast = (told(*flags, "--precision", precision)["time"]["value"] for precision in ("amp-bf16", "amp-fp16"))
    assert slow > 1.2 * fast


@pytest.mark.parametrize("gpu", ["tpu-v4", "apple-m2", "gaudi-2", "trainium1", "inferentia2", "arc-a770-16gb"])
def test_other_accelerators_get_a_wide_modelled_answer(gpu: str) -> None:
    reply = told("decode", LLM, "--gpu", gpu, "--batch", "1", "--seq-in", "512")
    assert reply["time"]["basis"] == "modelled"
    own = of("decode")["time"]
    assert reply["time"]["high"] / reply["time"]["low"] > own["high"] / own["low"]


def test_int8_bert_says_what_it_costs_in_accuracy() -> None:
    reply = told(
        "forward", ENCODER, "--gpu", "T4", "--precision", "int8", "--engine", "tensorrt", "--batch", "8", "--seq-in", "384"
    )
    assert any("SQuAD" in warning and "F1" in warning for warning in reply["warnings"]), reply["warnings"]
    assert {"mlperf-inference-bert", "nvidia-gtc2019-s9659"} & set(reply["sources"])


def test_training_on_images_says_what_the_host_must_feed() -> None:
    reply = told("train", CNN, "--batch", "128", "--gpu", "V100 SXM 16GB", "--precision", "amp-fp16")
    assert any("vCPU" in warning for warning in reply["warnings"]), reply["warnings"]
    text = told("train", LLM, "--batch", "4", "--seq-in", "1024")
    assert not any("vCPU" in warning for warning in text["warnings"])


@pytest.mark.parametrize("gpu", [gpu.id for gpu in Catalog().gpus if not gpu.peaks])
def test_a_gpu_without_published_rates_is_modelled_or_told_why_not(gpu: str) -> None:
    reply = told("decode", LLM, "--gpu", gpu, "--batch", "1", "--seq-in", "512")
    assert reply["fits"]
    if reply.get("time") is None:
        assert reply["warnings"]
    else:
        assert reply["time"]["basis"] == "modelled"


def test_every_gpu_of_the_catalog_is_answered(tmp_path: Path) -> None:
    rated = [gpu.id for gpu in Catalog().gpus if gpu.peaks]
    steps: list[dict[str, Any]] = [{"task": "decode", "model": LLM, "seq_in": 512}, {"task": "train", "model": CNN, "batch": 8}]
    code, replies = asked(tmp_path, *({"id": gpu, "gpu": gpu, **step} for gpu in rated for step in steps))
    assert code == 0
    assert [reply["id"] for reply in replies if not reply["ok"] or not reply["time"]["value"] > 0] == []


# Many requests, other forms


def test_a_file_of_mixed_tasks_is_answered_line_by_line(tmp_path: Path) -> None:
    common = {"gpu": "H200 SXM", "model": LLM}
    code, replies = asked(
        tmp_path,
        {"id": 1, "task": "decode", "batch": 8, "seq_in": 1024, **common},
        {"id": 2, "task": "train", "model": CNN, "batch": 64, "gpu": "V100 SXM 16GB"},
        {"id": 3, "task": "serve", "engine": "tensorrt-llm", **common, "gpu": "MI300X"},
        {"id": 4, "task": "prefill", **common, "gpu": "A100"},
        {"id": 5, "task": "forward", "model": "mlp:784x2048x10", "batch": 32, "gpu": "T4"},
        {"id": 6, "task": "serve", "rate": 1.5, **common},
        {"id": 7, "task": "decode", "model": LLM},
    )
    assert code == 0
    assert [reply["id"] for reply in replies] == [1, 2, 3, 4, 5, 6, 7]
    assert [reply["ok"] for reply in replies] == [True, True, False, False, True, True, True]
    assert [reply["throughput"]["unit"] for reply in replies if reply["ok"] and reply.get("throughput")] == [
        "output tokens/s",
        "samples/s",
        "samples/s",
        "output tokens/s",
    ]
    assert "time" not in replies[6]
    assert replies[2]["error"]["hint"]
    assert replies[0]["time"] == of("decode")["time"]


def test_the_echo_of_a_request_gives_the_same_time(tmp_path: Path) -> None:
    _, (first,) = asked(tmp_path, {"task": "train", "model": CNN, "batch": 64, "gpu": "H200 SXM"})
    _, (again,) = asked(tmp_path, first["request"])
    assert again["time"] == first["time"]


def test_a_model_by_its_config_is_timed_like_its_name(tmp_path: Path) -> None:
    config = next(model.config for model in Catalog().models if model.id == LLM)
    _, replies = asked(tmp_path, *({"task": "decode", "model": model, "gpu": "H200 SXM", "batch": 8} for model in (LLM, config)))
    assert replies[0]["time"]["value"] == pytest.approx(replies[1]["time"]["value"])


def _form(flag: str) -> Reply:
    reply = call("estimate", *CASES["decode"][0], "--gpu", "H200 SXM", *([flag] if flag else []))
    assert reply.code == 0
    return reply


def test_csv_has_the_fields_by_their_names_in_base_units() -> None:
    rows = {row[0]: row for row in _form("--csv").csv()}
    for name in ("time", "time_device", "throughput"):
        assert float(rows[name][1]) == pytest.approx(of("decode")[name]["value"], rel=1e-3)


@pytest.mark.parametrize("flag", ["", "--markdown"])
def test_tables_tell_time_and_throughput_for_people(flag: str) -> None:
    reply = _form(flag)
    text = reply.out.lower()
    assert "time" in text
    assert "tokens/s" in text
    assert " ms" in text


def test_the_first_words_are_the_answer_with_its_time() -> None:
    first = " ".join(_form("").err.splitlines()[:2])
    assert "ms" in first
    assert "tokens/s" in first
    assert LLM in first
