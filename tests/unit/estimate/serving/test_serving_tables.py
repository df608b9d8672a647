"""Tables of step times against the step model itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.serving_cases import CATALOG, Linear, workload_and_shape
from whichgpu.estimate.group.engine_steps import EngineSteps
from whichgpu.estimate.serving.kv_capacity import cache_room
from whichgpu.estimate.serving.scheduler_limits import LimitOverrides, batch_limits, scheduler_limits
from whichgpu.estimate.serving.step_tables import StepTables, TableSizes

GPU = CATALOG.gpu_by_id["h200-sxm"]


@pytest.mark.parametrize(
    ("model", "gpu", "fields"),
    [
        ("llama-3.1-8b", "h100-sxm", {}),
        ("llama-3.1-70b", "h100-sxm", {"gpus": 8}),
        ("llama-3.1-70b", "a100-sxm-80gb", {"gpus": 4, "parallel": {"pp": 4}}),
        ("gemma-2-9b", "l40s", {}),
        ("qwen3-30b-a3b", "h200-sxm", {}),
    ],
)
def test_tables_equal_the_step_model(model: str, gpu: str, fields: dict[str, Any]) -> None:
    """Prompts and tokens exactly; both together within half a percent on average, within 6% everywhere."""
    workload, shape = workload_and_shape(model, **fields)
    steps, stages = EngineSteps(workload, shape, CATALOG.gpu_by_id[gpu]), workload.parallel.pp
    separate = EngineSteps(workload, shape, CATALOG.gpu_by_id[gpu], separate=True)
    tables = StepTables(separate, TableSizes(256, 4096, 32768), stages)
    chance = np.random.default_rng(0)
    batch, tokens = chance.integers(1, 257, 200), chance.integers(1, 4097, 200)
    context, before = np.round(np.exp(chance.uniform(3, 10, 200))), np.round(np.exp(chance.uniform(3, 10, 200)))
    alone = [tables.mixed(int(one), 0.0, 0, 0.0) for one in tokens]
    assert np.allclose(alone, steps.mixed(tokens, 0.0, 0.0, 1.0), rtol=1e-9)
    decoded = [tables.decode(int(size), float(at)) for size, at in zip(batch, context, strict=True)]
    assert np.allclose(decoded, steps.decode(batch * stages, context), rtol=0.002)
    lists = zip(tokens.tolist(), before.tolist(), batch.tolist(), context.tolist(), strict=True)
    both = np.array([tables.mixed(*one) for one in lists])
    exact = steps.mixed(tokens, before, batch * stages, context)
    assert float(np.mean(np.abs(both / exact - 1))) < 0.005
    assert float(np.max(np.abs(both / exact - 1))) < 0.06


@pytest.mark.parametrize(
    ("model", "year", "launched"),
    [("qwen3-30b-a3b", 2026, True), ("qwen3-30b-a3b", 2025, False), ("gpt-oss-20b", 2026, False), ("llama-3.1-8b", 2026, False)],
)
def test_mixed_steps_of_mixtures_are_launched_at_any_size(model: str, year: int, launched: bool) -> None:
    """vLLM of 2026: a short prompt takes as much host time as one outside graphs if it shares its step with decode tokens."""
    workload, shape = workload_and_shape(model, engine="vllm", year=year)
    steps = EngineSteps(workload, shape, GPU, separate=True)
    host = steps.mixed([100.0, 100.0, 4000.0], 0.0, [0.0, 8.0, 8.0], 500.0)[1]
    assert host[2] > 10 * host[0]
    assert bool(host[1] > 0.9 * host[2]) is launched
    tables = StepTables(steps, TableSizes(16, 4096, 2048))
    assert tables.mixed(100, 0.0, 8, 500.0) == pytest.approx(
        float(EngineSteps(workload, shape, GPU).mixed(100, 0, 8, 500)), rel=0.06
    )


def test_several_prompts_do_not_see_one_another() -> None:
    """Two prompts of 100 attend to half the context of one of 200."""
    tables = StepTables(Linear(0.0, context=1e-6), TableSizes(4, 512, 1024))
    one = tables.mixed(200, 0.0, 0, 0.0)
    reach = (2 * 100 * 100 / 200 - 200) / 2
    assert tables.mixed(200, reach, 0, 0.0) == pytest.approx(one / 2, rel=0.02)


def test_scaled_tables_are_longer_throughout() -> None:
    tables = StepTables(Linear(1e-3, 1e-6, 1e-5, 1e-8), TableSizes(8, 128, 1024))
    twice = tables.scaled(2.0)
    assert twice.decode(5, 333.0) == pytest.approx(2 * tables.decode(5, 333.0))
    assert twice.mixed(77, 40.0, 3, 500.0) == pytest.approx(2 * tables.mixed(77, 40.0, 3, 500.0))
    assert twice.mixed(77, -20.0, 0, 0.0) == pytest.approx(2 * tables.mixed(77, -20.0, 0, 0.0))


def test_limits_follow_the_engine_its_year_and_the_gpu() -> None:
    limits = {}
    for name, gpu, fields in (
        ("now", "h100-sxm", {}),
        ("small", "l40s", {}),
        ("old", "h100-sxm", {"year": 2023}),
        ("nvidia", "h100-sxm", {"engine": "tensorrt-llm"}),
    ):
        workload, shape = workload_and_shape("llama-3.1-8b", **fields)
        limits[name] = scheduler_limits(workload, shape, CATALOG.gpu_by_id[gpu])
    assert (limits["now"].max_sequences, limits["now"].max_batched_tokens) == (1024, 8192)
    assert (limits["small"].max_sequences, limits["small"].max_batched_tokens) == (256, 2048)
    assert (limits["old"].chunked_prefill, limits["old"].mixed_steps, limits["old"].max_sequences) == (False, False, 256)
    assert limits["nvidia"].reserve_answers
    assert limits["small"].cache_tokens < limits["now"].cache_tokens


def test_kv_cache_is_memory_left_by_the_estimate() -> None:
    """Llama-3.1-8B keeps 128 KiB a token."""
    workload, shape = workload_and_shape("llama-3.1-8b")
    gpu = CATALOG.gpu_by_id["h100-sxm"]
    assert scheduler_limits(workload, shape, gpu).cache_tokens == pytest.approx(
        cache_room(workload, shape, gpu) / 131072, rel=0.01
    )
    half = scheduler_limits(workload, shape, gpu, LimitOverrides(memory_share=0.5))
    assert half.cache_tokens < scheduler_limits(workload, shape, gpu).cache_tokens / 2
    assert half.memory_share == 0.5


def test_limits_can_be_set() -> None:
    workload, shape = workload_and_shape("llama-3.1-8b")
    overrides: dict[str, Any] = {"max_batched_tokens": 1000, "max_sequences": 7, "block_tokens": 32, "chunked_prefill": False}
    limits = scheduler_limits(workload, shape, CATALOG.gpu_by_id["h100-sxm"], LimitOverrides(**overrides, prefix_caching=False))
    assert {name: getattr(limits, name) for name in overrides} == overrides
    assert not limits.prefix_caching
    assert limits.cache_tokens % 32 == 0


def test_data_parallel_ranks_share_a_replica_s_resources() -> None:
    workload, shape = workload_and_shape("llama-3.1-8b")
    whole = scheduler_limits(workload, shape, CATALOG.gpu_by_id["h100-sxm"])
    limits = batch_limits(whole, 4)
    assert limits.max_sequences == whole.max_sequences // 4
    assert limits.cache_tokens <= whole.cache_tokens / 4


@pytest.mark.parametrize(
    ("model", "gpu", "tokens"),
    [("llama-3.3-70b", "l40s", 13_200), ("qwen3-30b-a3b", "rtx-4090", 50_300), ("qwen3-30b-a3b", "rtx-5090", 116_000)],
)
def test_the_room_vllm_leaves_on_small_cards(model: str, gpu: str, tokens: int) -> None:
    """Within 15% of what was in flight in cloudrift's runs of int4 models (throughput times time between tokens, at 1,500 tokens
    a sequence); what vLLM finds on a GPU, its context above all, was once taken off its share."""
    fields = {"kv_precision": "fp8"} if model.startswith("llama") else {}
    workload, shape = workload_and_shape(model, precision="int4", engine="vllm", year=2025, seq_in=1000, seq_out=1000, **fields)
    limits = scheduler_limits(workload, shape, CATALOG.gpu_by_id[gpu], LimitOverrides(memory_share=0.9))
    assert limits.cache_tokens == pytest.approx(tokens, rel=0.15)
