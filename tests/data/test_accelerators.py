"""TPU, Trainium, Inferentia and Gaudi: their engines, what was measured of them, and answers that say what is known."""

from __future__ import annotations

import pytest

from whichgpu.api.workloads.estimate import estimate
from whichgpu.api.workloads.fit import fit_model
from whichgpu.base.errors import UsageError
from whichgpu.catalog.architecture import architecture_of
from whichgpu.catalog.engines.engine import engine_support
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.curves.parameters import parameters
from whichgpu.estimate.time.rooflines import roofline_evidence

GOAL = 0.25  # largest median error on TPUs and Inferentia2 when left out of the fit


@pytest.mark.parametrize(
    ("gpu", "task", "engine"),
    [
        ("tpu-v4", "train", "jax"),
        ("tpu-v7", "decode", "jax"),
        ("inferentia2", "decode", "neuron"),
        ("trainium2", "train", "neuron"),
        ("gaudi-3", "decode", "vllm"),
        ("gaudi-3", "train", "pytorch"),
        ("apple-m3-ultra", "decode", "llama.cpp"),
    ],
)
def test_default_engine_of_chips_that_are_no_gpus(gpu: str, task: str, engine: str) -> None:
    answer = estimate(task, "llama-3.2-1b", gpu=gpu, batch=1, seq_in=512)
    assert answer.request["engine"] == engine
    assert answer.time is not None
    assert answer.time.low < answer.time.value < answer.time.high


@pytest.mark.parametrize(
    ("gpu", "engine", "works"),
    [("tpu-v5p", "tensorrt-llm", "jax"), ("trainium2", "llama.cpp", "neuron"), ("h100-sxm", "neuron", "vllm")],
)
def test_unsupported_engine_is_refused_with_supported_ones(gpu: str, engine: str, works: str) -> None:
    with pytest.raises(UsageError) as refused:
        estimate("decode", "llama-3.2-1b", gpu=gpu, engine=engine)
    assert works in refused.value.choices
    assert engine not in refused.value.choices


def test_engines_of_tpus_and_of_neuron_chips(catalog: Catalog) -> None:
    engines = {engine.id: engine for engine in catalog.engines}
    gpus = catalog.gpu_by_id
    assert [engine_support(engines["jax"], gpus[name]) for name in ("tpu-v5e", "h100-sxm", "inferentia2")] == ["yes", "yes", "no"]
    assert [engine_support(engines["neuron"], gpus[name]) for name in ("trainium1", "tpu-v4")] == ["yes", "no"]


def test_left_out_errors_of_tpus_and_inferentia2_meet_the_goal() -> None:
    """TPU v4 and v5p are left out one at a time, Inferentia2 one model at a time (tools/calibration/fit_rooflines.py)."""
    measured = {(row.gpu, row.step): row for row in roofline_evidence() if row.rows}
    assert {"tpu-v4", "tpu-v5p", "inferentia2"} == {gpu for gpu, _ in measured}
    for row in measured.values():
        assert row.left_out_error <= GOAL, row
        assert row.low < 0 < row.high


def test_training_llama_2_70b_on_512_tpus_is_near_what_google_prints() -> None:
    """692 tokens/s per chip (MaxText, 512 TPU v5p, 4,096 tokens), a row that is not in the fit since it prints no batch."""
    answer = estimate(
        "train", "llama-2-70b", gpu="tpu-v5p", gpus=512, precision="amp-bf16", batch=1024, seq_in=4096, checkpointing="selective"
    )
    assert answer.throughput is not None
    assert answer.throughput.value / 512 == pytest.approx(692, rel=GOAL)
    assert answer.tier == "measured"
    assert "results-maxtext" in answer.sources


@pytest.mark.parametrize(
    ("gpu", "engine", "step", "tier"),
    [
        ("tpu-v5p", "jax", "train", "measured"),
        ("tpu-v6e", "jax", "train", "extrapolated"),
        ("tpu-v5p", "jax", "decode", "specs"),
        ("inferentia2", "neuron", "decode", "measured"),
        ("trainium1", "neuron", "decode", "kin"),
        ("trainium2", "neuron", "decode", "extrapolated"),
        ("trainium2", "neuron", "train", "specs"),
        ("gaudi-3", "vllm", "decode", "specs"),
        ("arc-pro-b60-24gb", "vllm", "decode", "specs"),
        ("apple-m3-ultra", "llama.cpp", "decode", "measured"),
    ],
)
def test_tiers_name_what_was_measured(gpu: str, engine: str, step: str, tier: str) -> None:
    precision = "q4_k_m" if engine == "llama.cpp" else "bf16"
    answer = estimate(step, "llama-3.1-8b", gpu=gpu, engine=engine, precision=precision, batch=1, seq_in=512)
    assert answer.tier == tier


@pytest.mark.parametrize("gpu", ["apple-m2-pro", "apple-m3-max", "apple-m4-max", "apple-m5"])
def test_apple_chips_without_a_published_peak_have_times(gpu: str, catalog: Catalog) -> None:
    """Decode of a 4-bit 8B model reads 4.6 GiB per token, so it takes at least those bytes over the bandwidth."""
    answer = estimate("decode", "llama-3.1-8b", gpu=gpu, batch=1, seq_in=512, precision="q4_k_m")
    floor = 4.5 * 2**30 / catalog.gpu_by_id[gpu].memory_bandwidth
    assert answer.time is not None
    assert floor < answer.time.value < 2.5 * floor


def test_no_step_beats_the_roofline_and_shares_are_shares(catalog: Catalog) -> None:
    shares = {name: value for name, value in parameters().items() if name.startswith("roofline.") and "_share." in name}
    assert shares
    assert all(0 < value <= 1 for value in shares.values())
    families = {architecture_of(gpu).roofline for gpu in catalog.gpus} - {""}
    assert {name.rpartition(".")[2] for name in shares} == families
    answer = estimate("decode", "llama-3.1-8b", gpu="tpu-v6e", batch=1, seq_in=512)
    assert answer.time is not None
    assert answer.time.low * catalog.gpu_by_id["tpu-v6e"].memory_bandwidth > 15e9


def test_fit_answers_for_tpus_and_trainium() -> None:
    answer = fit_model("llama-3.1-8b", gpu=["tpu-v6e", "trainium2"])
    assert [row.fits for row in answer.gpus] == ["fits", "fits"]
