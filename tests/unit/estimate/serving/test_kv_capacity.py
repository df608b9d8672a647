"""Tokens of the KV cache as engines state them at start."""

from __future__ import annotations

import pytest

from tests.serving_cases import CATALOG, workload_and_shape
from whichgpu.estimate.memory.kv import admission_bytes, kv_bytes_per_token
from whichgpu.estimate.serving.kv_capacity import MemorySettings, cache_room, kv_tokens
from whichgpu.estimate.serving.scheduler_limits import scheduler_limits

H200, L4 = CATALOG.gpu_by_id["h200-sxm"], CATALOG.gpu_by_id["l4"]
SETTINGS = MemorySettings(share=0.9, step_tokens=8192, sequences=256)
# Tokens that vLLM 0.26 logged on one H200 with these settings and a context of 16,384 tokens (source truth-h200).
LOGGED = {
    ("llama-3.1-8b", "bf16"): 896_912,
    ("llama-3.1-8b", "fp8"): 949_840,
    ("qwen3-30b-a3b", "bf16"): 732_496,
    ("gpt-oss-20b", "mxfp4"): 2_420_650,
    ("deepseek-v2-lite", "bf16"): 3_285_760,
}


@pytest.mark.parametrize(("model", "precision"), LOGGED)
def test_kv_tokens_are_within_three_percent_of_those_logged(model: str, precision: str) -> None:
    fields = {"precision": precision, "kv_precision": "bf16", "engine": "vllm", "year": 2026, "seq_in": 16128, "seq_out": 256}
    workload, shape = workload_and_shape(model, **fields)
    figure = kv_tokens(workload, shape, H200, SETTINGS)
    assert figure is not None
    assert figure.value == pytest.approx(LOGGED[model, precision], rel=0.03)
    assert figure.low < figure.value < figure.high


def test_windowed_layers_count_as_full_up_to_the_tokens_in_flight() -> None:
    """gpt-oss-20b, 12 layers of each kind: 1,024 blocks of full layers, 1,025 of windowed ones; fewer in a longer context."""
    _, shape = workload_and_shape("gpt-oss-20b")
    page = 16 * kv_bytes_per_token(shape) // 24
    assert admission_bytes(shape, 16384, "bf16", 16, 2 * 8192) == (1024 + 1025) * 12 * page
    assert admission_bytes(shape, 16384, "bf16", 16, 8192) == (1024 + 521) * 12 * page
    assert admission_bytes(shape, 131072, "bf16", 16, 2 * 8192) == (8192 + 1033) * 12 * page


def test_layers_are_grouped_with_padding() -> None:
    """Gemma-3-27B: 10 full layers, 52 windowed ones in six groups of 10."""
    _, shape = workload_and_shape("gemma-3-27b")
    page = 16 * kv_bytes_per_token(shape) // shape.layers
    assert admission_bytes(shape, 1600, "bf16", 16, 8192) == (100 + 6 * 101) * 10 * page


@pytest.mark.parametrize("model", ["gpt-oss-20b", "llama-3.1-8b"])
def test_the_simulated_cache_holds_the_tokens_that_the_engine_states(model: str) -> None:
    """TensorRT-LLM caches the whole context in windowed layers as well."""
    workload, shape = workload_and_shape(model, engine="tensorrt-llm", year=2026, seq_in=1024, seq_out=8192)
    stated = kv_tokens(workload, shape, H200)
    assert stated is not None
    assert scheduler_limits(workload, shape, H200).cache_tokens == pytest.approx(stated.value, rel=0.01)


def test_a_smaller_step_leaves_more_room() -> None:
    workload, shape = workload_and_shape("llama-3.1-8b", engine="vllm", year=2026)
    small, large = (cache_room(workload, shape, L4, MemorySettings(step_tokens=tokens)) for tokens in (2048, 32768))
    assert small > large


def test_engines_that_size_no_cache_state_none() -> None:
    workload, shape = workload_and_shape("llama-3.1-8b", engine="pytorch")
    assert kv_tokens(workload, shape, H200) is None
