"""KV capacity of a server from its memory; clients, replicas and totals of a simulated load by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.serving_cases import CATALOG, DEFAULT_LIMITS, linear, small, workload_and_shape
from whichgpu.base.errors import NoAnswer
from whichgpu.base.units import MIB
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.estimate.memory.engine_memory import static_share
from whichgpu.estimate.serving.kv_capacity import MemorySettings, cache_room
from whichgpu.estimate.serving.scheduler_limits import LimitOverrides, SchedulerLimits, scheduler_limits
from whichgpu.estimate.serving.server import server_of
from whichgpu.estimate.serving.simulator import Arrival, simulate

H100, L4, A100 = (CATALOG.gpu_by_id[name] for name in ("h100-sxm", "l4", "a100-sxm-80gb"))
H100_BYTES = H100.memory_bytes
A_TOKEN = 128 * 1024  # bytes of keys and values of Llama-3.1-8B: 32 layers, 8 heads of 128, 2 bytes each
STEP = 1e-3


def room(share: float | None = None, **fields: Any) -> tuple[int, dict[str, int]]:
    """Bytes for the cache, and what all else needs."""
    workload, shape = workload_and_shape("llama-3.1-8b", **fields)
    parts = estimate_memory(replace(workload, batch=1, micro_batch=None), shape, H100).parts
    others = {name: int(part.value) for name, part in parts.items() if name != "kv_cache"}
    return cache_room(workload, shape, H100, MemorySettings(share)), others


def test_vllm_fills_its_share_plus_uncounted_memory() -> None:
    left, others = room()
    beside = (4 * 132 + 150) * MIB  # the bare context, and what its allocator keeps unused
    assert left == int(H100_BYTES * 0.92 + beside) - sum(others.values())
    left, others = room(year=2025)
    assert left == int(H100_BYTES * 0.90 + beside) - sum(others.values()) + others["cuda_graphs"]  # graphs were outside its share
    left, others = room(0.5)
    assert left == int(H100_BYTES * 0.5 + beside) - sum(others.values())
    left, others = room(1.0)
    assert left == H100_BYTES - sum(others.values())  # never more than there is


def test_room_under_other_engines() -> None:
    left, others = room(engine="tensorrt-llm")
    assert left == int((H100_BYTES - sum(others.values())) * 0.9)
    left, others = room(0.5, engine="tensorrt-llm")
    assert left == int((H100_BYTES - sum(others.values())) * 0.5)
    left, others = room(engine="llama.cpp")
    assert left == H100_BYTES - sum(others.values())
    left, others = room(0.5, engine="sglang")
    assert left == int(H100_BYTES * 0.5) - sum(others.values())


def limits(gpu: Any = H100, overrides: LimitOverrides | None = None, typical: int = 0, **fields: Any) -> SchedulerLimits:
    workload, shape = workload_and_shape("llama-3.1-8b", **fields)
    return scheduler_limits(workload, shape, gpu, overrides, typical)


def test_the_cache_is_whole_blocks() -> None:
    for engine, block in (("vllm", 16), ("tensorrt-llm", 32), ("llama.cpp", 256)):
        left, _ = room(engine=engine, seq_in=1000, seq_out=200, kv_precision="bf16")
        result = limits(engine=engine, seq_in=1000, seq_out=200, kv_precision="bf16")
        assert result.cache_tokens == left // (block * A_TOKEN) * block
    narrow = limits(seq_in=1000, seq_out=200, kv_precision="fp8")
    assert narrow.cache_tokens == pytest.approx(2 * limits(seq_in=1000, seq_out=200).cache_tokens, abs=32)


def test_an_old_engine_reads_whole_prompts() -> None:
    assert limits(year=2023, seq_in=3000, seq_out=100).max_batched_tokens == 3100
    assert limits(year=2023, seq_in=1000, seq_out=100).max_batched_tokens == 2048
    assert limits(year=2026, seq_in=3000, seq_out=100).max_batched_tokens == 8192
    assert limits(engine="pytorch", seq_in=3000, seq_out=100).max_batched_tokens == 8192
    assert limits(engine="pytorch").max_sequences == 64


def test_user_settings_are_bounded() -> None:
    assert limits(overrides=LimitOverrides(max_sequences=10**6, max_batched_tokens=10**7)).max_sequences == 8192
    assert limits(overrides=LimitOverrides(max_sequences=10**6, max_batched_tokens=10**7)).max_batched_tokens == 1 << 18
    assert limits(overrides=LimitOverrides(mixed_steps=False)).mixed_steps is False
    assert limits().mixed_steps is True


def test_memory_share_of_each_engine() -> None:
    assert limits().memory_share == 0.92
    assert limits(year=2024).memory_share == 0.90
    assert limits(engine="tensorrt-llm").memory_share == 0.90
    assert limits(overrides=LimitOverrides(memory_share=0.7)).memory_share == 0.7
    assert limits(engine="llama.cpp").memory_share == 1.0
    static = static_share(engine_record("sglang").memory, H100, 1, 1)
    assert limits(engine="sglang").memory_share > static  # with the graphs and context in addition


def test_weights_that_leave_no_room_are_refused() -> None:
    workload, shape = workload_and_shape("llama-3.1-70b")
    with pytest.raises(NoAnswer) as error:
        scheduler_limits(workload, shape, L4)
    assert "GB" in str(error.value) or "GiB" in str(error.value)


def test_a_server_s_lanes_are_no_wider_than_their_cache() -> None:
    workload, shape = workload_and_shape("llama-3.1-8b", seq_in=100, seq_out=20)
    server = server_of(workload, shape, H100, overrides=LimitOverrides(max_sequences=8))
    assert (server.batch_limits.max_sequences, server.replicas, server.stages) == (8, 1, 1)
    staged, shape = workload_and_shape("llama-3.1-8b", seq_in=100, seq_out=20, gpus=4, parallel={"pp": 2, "dp": 2})
    both = server_of(staged, shape, H100, overrides=LimitOverrides(max_sequences=8))
    assert (both.batch_limits.max_sequences, both.replicas, both.stages) == (4, 2, 2)
    assert both.batch_limits.cache_tokens <= both.limits.cache_tokens // 2


def requests(*lengths: tuple[float, int, int]) -> list[Arrival]:
    return [(time, prompt, output, ()) for time, prompt, output in lengths]


def test_a_load_s_accounts_by_hand() -> None:
    """A step for the prompt and nine with one sequence; a pause; then two prompts of ten, a step apart, four tokens each."""
    load = requests((0.0, 100, 10), (1.0, 10, 4), (1.0 + STEP / 2, 10, 4))
    outcome = linear(small(256)).run(load)
    assert (outcome.finished / STEP).round(6).tolist() == [10, 1004, 1005]
    assert outcome.busy == pytest.approx((10 + 5) / 1005)
    assert outcome.peak_cache == pytest.approx(7 / 16)  # 109 tokens at the most
    assert (outcome.batch_steps[:3]).tolist() == [0, 9 + 1 + 1, 2]
    assert (outcome.batch_seconds[:3] / STEP).round(6).tolist() == [2, 11, 2]
    assert outcome.read == 120


def test_clients_send_the_next_request_after_the_reply() -> None:
    """Two clients, five requests of four tokens: a request sent at the end of a step is prefilled in the one after the next."""
    outcome = linear().run(requests(*((9.9, 10, 4),) * 5), concurrency=2)
    assert (outcome.arrived / STEP).round(6).tolist() == [0, 0, 4, 5, 9]
    assert (outcome.finished / STEP).round(6).tolist() == [4, 5, 9, 10, 14]
    refused = linear(small(64)).run(requests((0, 500, 4), (0, 10, 4), (0, 500, 4), (0, 10, 4)), concurrency=1)
    assert refused.refused == 2
    assert (refused.finished / STEP).round(6).tolist() == [-1 / STEP, 4, -1 / STEP, 8]


def test_of_a_prompt_that_is_all_in_the_cache_one_token_is_read() -> None:
    load: list[Arrival] = [(0.0, 512, 2, (1, 2)), (1.0, 512, 2, (1, 2)), (2.0, 400, 2, (1, 2))]
    outcome = linear(replace(DEFAULT_LIMITS, prefix_caching=True)).run(load, hash_tokens=256)
    assert (outcome.cached, outcome.read) == (511 + 399, 512 + 1 + 1)


def test_a_stage_begins_when_the_batch_before_it_has_left() -> None:
    """Two stages of half a step: alternating batches come out half a step apart."""
    steps = linear(stages=2).steps
    outcome = simulate(requests((0.0, 10, 3), (0.0, 10, 3)), steps, DEFAULT_LIMITS, stages=2)
    assert (outcome.first / STEP).round(6).tolist() == [1, 1.5]
    assert (outcome.finished / STEP).round(6).tolist() == [3, 3.5]
    alone = simulate(requests((0.0, 10, 3)), steps, DEFAULT_LIMITS, stages=2)
    assert float(alone.finished[0]) == pytest.approx(3 * STEP)


def test_decode_runs_end_at_an_arrival() -> None:
    """Steps that grow by a tenth each: an arrival is prefilled after the current step."""
    server = linear(fixed=STEP, context=STEP / 1000)
    lone = server.run(requests((0.0, 100, 40)))
    for came in (5.0, 12.3, 30.1):
        outcome = server.run(requests((0.0, 100, 40), (came * STEP, 1, 1)))
        ends = [float(outcome.arrived[1]), float(outcome.first[1])]
        # one whole step of its own, and no more than the rest of the current step
        longest = STEP * (1 + (100 + 40) / 1000) + 2 * STEP
        assert STEP < ends[1] - ends[0] < longest
        assert float(outcome.finished[0]) > float(lone.finished[0])
    assert np.all(lone.finished > 40 * STEP)
