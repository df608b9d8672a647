"""The contract of `estimate` where it speaks of time: fields, figures, units, what each task's time means."""

from __future__ import annotations

import math

import pytest

from tests.surface.speed import CASES, CNN, LLM, estimate_json, of
from whichgpu.api.workloads.estimate import estimate
from whichgpu.catalog.store import Catalog

ALWAYS = "time time_device time_host throughput memory memory_device memory_parts fits bound warnings basis sources".split()
SERVING = ("ttft", "tpot")
FIGURE = {"value", "low", "high", "unit", "basis", "sources"}
BASES = {"measured", "calibrated", "modelled", "published"}
BOUNDS = {"compute", "bandwidth", "overhead", "interconnect"}
every_case = pytest.mark.parametrize("case", CASES)


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
    reply, source_ids = of(case), Catalog().sources
    cited = {*reply["sources"], *reply["time"]["sources"], *reply["throughput"]["sources"]}
    assert reply["time"]["sources"]
    assert sorted(id for id in cited if id not in source_ids) == []


@every_case
def test_throughput_has_its_unit(case: str) -> None:
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
def test_time_is_between_the_longer_of_device_and_host_and_their_sum(case: str) -> None:
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
    answer = estimate("decode", LLM, gpu="H200 SXM", batch=8, seq_in=1024)
    assert answer.time is not None
    assert answer.throughput is not None
    reply = of("decode")
    assert answer.time.value == pytest.approx(reply["time"]["value"])
    assert answer.throughput.unit == "output tokens/s"
    assert answer.bound == reply["bound"]


def test_serving_objectives_are_figures_and_hold_together() -> None:
    reply = of("serve")
    assert reply["tpot"]["value"] == pytest.approx(reply["time"]["value"])
    prompt = estimate_json("prefill", LLM, "--batch", "1", "--seq-in", "1024", "--engine", reply["request"]["engine"])
    assert reply["ttft"]["value"] >= prompt["time"]["value"] * 0.9


def test_serving_by_rate_is_answered() -> None:
    reply = estimate_json("serve", LLM, "--rate", "2/s", "--in", "1024", "--out", "128")
    assert reply["request"]["rate"] == 2
    assert reply["ttft"]["value"] > 0
    assert reply["tpot"]["value"] > 0


# What a step is made of


def test_the_optimizer_step_can_be_left_out() -> None:
    with_step = of("train-llm")
    without = estimate_json(*CASES["train-llm"][0], "--no-include-optimizer-step")
    assert with_step["request"]["include_optimizer_step"] is True
    assert without["request"]["include_optimizer_step"] is False
    saved = with_step["time"]["value"] - without["time"]["value"]
    assert saved > 0
    # AdamW in bf16 reads and writes at least weight, gradient and two moments of 1.24 billion parameters
    assert saved >= 0.8 * 7 * 2 * 1.2358e9 / 4.8e12


def test_accumulation_does_the_same_samples_in_smaller_steps() -> None:
    flags = ["train", LLM, "--seq-in", "1024"]
    whole = estimate_json(*flags, "--batch", "8")
    parts = estimate_json(*flags, "--batch", "8", "--accumulation", "4")
    small = estimate_json(*flags, "--batch", "2")
    assert parts["request"]["accumulation"] == 4
    assert parts["time"]["value"] >= 0.97 * whole["time"]["value"]
    # the device saves three optimizer steps; the host makes a call more for each parameter and round, to add up gradients
    assert parts["time_device"]["value"] <= 4 * small["time_device"]["value"]
    assert parts["time"]["value"] - 4 * small["time"]["value"] <= parts["time_host"]["value"] - 4 * small["time_host"]["value"]
    assert parts["throughput"]["value"] == pytest.approx(8 * 1024 / parts["time"]["value"], rel=1e-6)


def test_checkpointing_computes_the_forward_pass_again() -> None:
    flags = [*CASES["train-llm"][0]]
    ratio = estimate_json(*flags, "--checkpointing", "full")["time"]["value"] / of("train-llm")["time"]["value"]
    assert 1.1 <= ratio <= 1.5


def test_lora_is_faster_than_training_all_of_a_large_model() -> None:
    """No gradients of frozen weights: of three products two are left. Small models lose it again to adapters' small kernels."""
    flags = ["finetune", "mistral-7b", "--batch", "4", "--seq-in", "1024"]
    ratio = estimate_json(*flags)["time"]["value"] / estimate_json(*flags, "--lora-rank", "64")["time"]["value"]
    assert 1.0 <= ratio <= 2.0


def test_decode_time_is_at_the_requested_context() -> None:
    flags = ["decode", LLM, "--batch", "32"]
    short, long = (estimate_json(*flags, "--seq-in", length)["time"]["value"] for length in ("1024", "16384"))
    assert long > short


def test_prefill_is_of_the_whole_batch() -> None:
    one, four = (estimate_json("prefill", LLM, "--seq-in", "4096", "--batch", batch)["time"]["value"] for batch in ("1", "4"))
    assert 2.2 <= four / one <= 4.2


@pytest.mark.parametrize(
    ("flags", "bound"),
    [
        (["decode", "llama-3.1-8b", "--batch", "1", "--seq-in", "1024"], "bandwidth"),
        (["train", "llama-3.1-8b", "--batch", "8", "--seq-in", "2048"], "compute"),
        (["forward", "mlp:64x64x10", "--batch", "1"], "overhead"),
    ],
)
def test_bound_of_a_step(flags: list[str], bound: str) -> None:
    assert estimate_json(*flags)["bound"] == bound


def test_software_year_is_used_and_echoed() -> None:
    flags = ["serve", "llama-3.1-8b", "--engine", "vllm", "--batch", "16"]
    early, late = (estimate_json(*flags, "--year", year) for year in ("2023", "2026"))
    assert (early["request"]["year"], late["request"]["year"]) == (2023, 2026)
    assert early["time"]["value"] > 0
    assert late["time"]["value"] > 0


@pytest.mark.parametrize("engine", ["pytorch", "pytorch-compile", "cuda-graphs", "vllm", "sglang", "tensorrt-llm", "tensorrt"])
def test_every_engine_answers(engine: str) -> None:
    reply = estimate_json("decode", LLM, "--batch", "4", "--seq-in", "512", "--engine", engine)
    assert reply["request"]["engine"] == engine
    assert reply["time"]["value"] > 0


@pytest.mark.parametrize("precision", ["q4_k_m", "q8_0", "f16"])
def test_gguf_types_are_answered_under_llama_cpp(precision: str) -> None:
    reply = estimate_json(
        "decode", "llama-3.1-8b", "--precision", precision, "--gpu", "RTX 4090", "--batch", "1", "--seq-in", "512"
    )
    assert reply["request"]["engine"] == "llama.cpp"
    assert reply["bound"] == "bandwidth"


@pytest.mark.parametrize("precision", ["fp32", "fp32-default", "tf32", "amp-bf16", "amp-fp16", "bf16", "fp16"])
def test_every_training_precision_is_answered(precision: str) -> None:
    assert estimate_json("train", CNN, "--batch", "32", "--precision", precision)["time"]["value"] > 0
