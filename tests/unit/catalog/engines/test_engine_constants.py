"""Engines' memory defaults as their documents state them, year by year, and the rules made of them, by hand."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from whichgpu.base.units import GIB, MIB
from whichgpu.catalog.engines.record import EngineMemory
from whichgpu.catalog.engines.registry import engine_entries, engine_record
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.memory.engine_memory import (
    COLLECTIVES,
    LOADED_KERNELS,
    WORKSPACE,
    WORKSPACE_HOPPER,
    budget_bytes,
    chunk_tokens,
    context_bytes,
    device_share_budget,
    engine_of,
    graph_bytes,
    static_share,
    workspace_bytes,
)
from whichgpu.estimate.memory.overhead import CONTEXT_PER_SM
from whichgpu.estimate.usable import fast_bytes, usable_bytes
from whichgpu.workload.spelling import from_object
from whichgpu.workload.tasks import Task
from whichgpu.workload.workload import Workload

GPUS = Catalog().gpu_by_id
H100 = GPUS["h100-sxm"]

# engine, name: value from a year on
STATED: dict[tuple[str, str], dict[int, float]] = {
    ("pytorch", "slack"): {2023: 20 * MIB},
    ("pytorch", "slack_of_activations"): {2023: 0.2},
    ("pytorch", "slack_of_growing_cache"): {2023: 0.05},
    ("pytorch", "block_tokens"): {2023: 1},
    ("pytorch", "logit_bytes"): {2023: 8},
    ("pytorch", "last_logits_only"): {2023: 0, 2025: 1},
    ("pytorch", "windowed_cache"): {2023: 1},
    ("pytorch", "eager_kernels"): {2016: 250 * MIB, 2019: 650 * MIB, 2023: 0},
    ("pytorch", "eager_kernels_ampere"): {2016: 1000 * MIB, 2023: 0},
    ("pytorch", "eager_convolution_kernels"): {2016: 325 * MIB},
    ("cuda-graphs", "graph"): {2023: 64 * MIB},
    ("vllm", "share"): {2023: 0.9, 2026: 0.92},
    ("vllm", "graphs_inside_share"): {2023: 0, 2026: 1},
    ("vllm", "kernels_beside_share"): {2023: 1, 2024: 0},
    ("vllm", "collectives_beside_share"): {2023: 1, 2024: 0, 2026: 1},
    ("vllm", "block_tokens"): {2023: 16},
    ("vllm", "windowed_cache"): {2023: 0, 2025: 1},
    ("vllm", "state_bytes"): {2023: 2},
    ("vllm", "least_batched_tokens"): {2023: 2048},
    ("vllm", "chunk"): {2025: 2048},
    ("vllm", "chunk_offline"): {2025: 8192},
    ("vllm", "chunk_large"): {2025: 8192},
    ("vllm", "chunk_large_offline"): {2025: 16384},
    ("vllm", "sampled_rows"): {2023: 256},
    ("vllm", "window_steps"): {2025: 1, 2026: 2},  # two with asynchronous scheduling
    ("vllm", "logit_bytes"): {2023: 39},  # 1.26 GiB for 256 rows of 128,256 logits
    ("vllm", "graph_per_layer"): {2023: 8 * MIB},
    ("vllm", "slack"): {2023: 150 * MIB},
    ("vllm", "workspace_blackwell"): {2025: 256 * MIB},
    ("sglang", "reserve"): {2025: 512 * MIB},
    ("sglang", "reserve_per_chunk_token"): {2025: 1.5 * MIB},
    ("sglang", "graph_per_sequence"): {2023: 2 * MIB},
    ("sglang", "reserve_of_eight_gpus"): {2025: GIB},
    ("sglang", "block_tokens"): {2023: 1},
    ("sglang", "windowed_cache"): {2023: 0, 2025: 1},
    ("sglang", "logit_bytes"): {2023: 8},
    ("sglang", "slack"): {2023: 150 * MIB},
    ("sglang", "workspace_blackwell"): {2025: 256 * MIB},
    ("tensorrt-llm", "share"): {2023: 0.9},
    ("tensorrt-llm", "block_tokens"): {2023: 64, 2025: 32},
    ("tensorrt-llm", "chunk"): {2023: 8192},
    ("tensorrt-llm", "windowed_cache"): {2023: 0},
    ("tensorrt-llm", "logit_bytes"): {2023: 8},
    ("tensorrt-llm", "graph_per_layer"): {2023: 8 * MIB},
    ("tensorrt-llm", "slack"): {2023: 150 * MIB},
    ("llama.cpp", "chunk"): {2023: 512},
    ("llama.cpp", "block_tokens"): {2023: 256},
    ("llama.cpp", "windowed_cache"): {2023: 0, 2025: 1},
    ("llama.cpp", "score_bytes"): {2023: 4},
    ("llama.cpp", "slack"): {2023: 64 * MIB},
}


def memory(engine: str, year: int | None = None) -> EngineMemory:
    return engine_record(engine, year).memory


@pytest.mark.parametrize(("engine", "name"), STATED)
def test_records_equal_the_cited_documents(engine: str, name: str) -> None:
    lines = [line for line in engine_entries()[engine] if line.field == f"memory.{name}"]
    stated = STATED[engine, name]
    assert {int(line.since) for line in lines} == set(stated)
    assert {year: getattr(memory(engine, year), name) for year in stated} == stated


def test_every_number_of_a_record_s_memory_is_checked_here_or_a_rule() -> None:
    rules = {"like", "managed", "reservation", "whole_prompts", "large_gpu", "large_gpu_except", "share_by_gpus",
             "chunk_by_memory", "graph_sequences_by_memory", "graph_sequences_by_memory_4_gpus", "activation_bytes",
             "logits_of_all_tokens", "embedding_on_host"}  # fmt: skip
    fields = {
        (engine, line.field.removeprefix("memory."))
        for engine in {engine for engine, _ in STATED}
        for line in engine_entries()[engine]
        if line.field.startswith("memory.")
    }
    assert {pair for pair in fields if pair[1] not in rules} == set(STATED)


def test_memory_of_drivers_and_libraries() -> None:
    assert (CONTEXT_PER_SM, LOADED_KERNELS, WORKSPACE_HOPPER) == (4 * MIB, 245 * MIB, 65 * MIB)  # 527 MiB of an H200's 132 SMs
    assert (WORKSPACE, COLLECTIVES) == (8.5 * MIB, 512 * MIB)


def test_a_value_holds_from_its_year_until_the_next_and_before_the_first() -> None:
    years = (2020, 2023, 2024, 2025, 2026)
    assert [memory("tensorrt-llm", year).block_tokens for year in years] == [64, 64, 64, 32, 32]
    assert memory("tensorrt-llm").block_tokens == 32
    assert memory("vllm", 2010).share == 0.9


def test_engines_that_manage_memory_and_those_that_allocate_as_pytorch_does() -> None:
    assert all(memory(engine).managed for engine in ("vllm", "sglang", "tensorrt-llm", "llama.cpp"))
    for engine in ("pytorch-compile", "tensorrt", "ngc", "tensorflow", "mxnet"):
        # MXNet was never built for a CUDA that loads kernels when they first run.
        eager = {name: getattr(memory("pytorch"), name) for name in ("eager_kernels", "eager_kernels_ampere")}
        assert replace(memory(engine), **eager) == memory("pytorch")
        assert bool(memory(engine).eager_kernels) == (engine == "mxnet")


def serve_workload(**fields: Any) -> Workload:
    return from_object({"task": "serve", "model": "llama-3.1-8b", **fields}).workload


def test_the_usual_engine_of_a_task() -> None:
    assert [engine_of(serve_workload(task=task)).id for task in ("serve", "batch", "decode", "train")] == [
        "vllm",
        "vllm",
        "cuda-graphs",
        "pytorch",
    ]
    assert engine_of(serve_workload(engine="sglang")).id == "sglang"


def sized(gib: float, **changed: Any) -> Gpu:
    return replace(H100, memory_bytes=int(gib * GIB), **changed)


@pytest.mark.parametrize(
    ("engine", "gpu", "task", "context", "year", "tokens"),
    [
        ("vllm", H100, "serve", 100, 2024, 2048),
        ("vllm", H100, "serve", 5000, 2024, 5000),
        ("vllm", H100, "serve", 5000, 2025, 8192),
        ("vllm", H100, "batch", 5000, None, 16384),
        ("vllm", None, "serve", 5000, None, 8192),
        ("vllm", GPUS["l4"], "serve", 5000, None, 2048),
        ("vllm", GPUS["l4"], "batch", 5000, None, 8192),
        ("vllm", GPUS["a100-sxm-80gb"], "serve", 5000, None, 2048),  # but not A100
        ("vllm", sized(70), "serve", 5000, None, 8192),
        ("vllm", sized(69.9), "serve", 5000, None, 2048),
        ("sglang", None, "serve", 5000, None, 8192),
        ("sglang", sized(19.9), "serve", 5000, None, 2048),
        ("sglang", sized(34.9), "serve", 5000, None, 2048),
        ("sglang", sized(35), "serve", 5000, None, 4096),
        ("sglang", sized(60), "serve", 5000, None, 8192),
        ("sglang", sized(159.9), "serve", 5000, None, 8192),
        ("sglang", sized(160), "serve", 5000, None, 16384),
        ("tensorrt-llm", H100, "serve", 5000, None, 8192),
        ("llama.cpp", H100, "serve", 5000, None, 512),
        ("pytorch", H100, "serve", 5000, None, None),
    ],
)
def test_tokens_of_one_step(engine: str, gpu: Gpu | None, task: Task, context: int, year: int | None, tokens: int | None) -> None:
    assert chunk_tokens(memory(engine, year), gpu, task, context) == tokens


def test_memory_outside_the_allocator() -> None:
    assert context_bytes(H100) == (4 * 132 + 245) * MIB
    assert context_bytes(None) == (4 * 132 + 245) * MIB
    assert context_bytes(GPUS["t4"]) == (4 * 40 + 245) * MIB
    assert context_bytes(H100, 2) == (4 * 132 + 245 + 512) * MIB


def test_workspaces_grew_with_hopper_and_blackwell() -> None:
    assert workspace_bytes(memory("pytorch"), H100) == 65 * MIB
    assert workspace_bytes(memory("pytorch"), None) == 65 * MIB
    assert workspace_bytes(memory("pytorch"), GPUS["a100-sxm-80gb"]) == 8.5 * MIB
    b200 = GPUS["b200"]
    assert [workspace_bytes(memory(name), b200) // MIB for name in ("pytorch", "vllm", "sglang", "llama.cpp")] == [
        65,
        321,
        321,
        65,
    ]


def test_graphs_by_layer_by_sequence_or_once() -> None:
    assert graph_bytes(memory("vllm"), H100, 32, 1) == 256 * MIB
    assert graph_bytes(memory("cuda-graphs"), H100, 32, 1) == 64 * MIB
    assert graph_bytes(memory("pytorch"), H100, 32, 1) == 0
    assert [graph_bytes(memory("sglang"), H100, 32, gpus) // MIB for gpus in (1, 3, 4)] == [512, 512, 1024]
    shares = [(sized(size), size) for size in (10, 30, 50, 100, 200)]
    assert [graph_bytes(memory("sglang"), gpu, 32, 1) // MIB for gpu, _ in shares] == [16, 48, 64, 512, 1024]
    assert [graph_bytes(memory("sglang"), gpu, 32, 4) // MIB for gpu, _ in shares] == [16, 160, 320, 1024, 1024]


@pytest.mark.parametrize(("edge", "below", "above"), [(20, 16, 48), (35, 48, 64), (60, 64, 512), (160, 512, 1024)])
def test_sglang_captures_more_on_larger_gpus(edge: int, below: int, above: int) -> None:
    whole = sized(edge)
    assert graph_bytes(memory("sglang"), whole, 32, 1) == above * MIB
    assert graph_bytes(memory("sglang"), replace(whole, memory_bytes=whole.memory_bytes - 1), 32, 1) == below * MIB


def test_vllm_uses_its_share_plus_uncounted_memory() -> None:
    size, context = H100.memory_bytes, 4 * 132 * MIB
    assert device_share_budget(memory("vllm", 2025), H100, 1, 0.9) == int(size * 0.9 + context + 150 * MIB)
    assert device_share_budget(memory("vllm", 2025), H100, 2, 0.9) == device_share_budget(memory("vllm", 2025), H100, 1, 0.9)
    assert device_share_budget(memory("vllm", 2023), H100, 1, 0.9) == int(size * 0.9 + context + (150 + 245) * MIB)
    assert device_share_budget(memory("vllm", 2023), H100, 2, 0.9) == int(size * 0.9 + context + (150 + 245 + 512) * MIB)
    assert device_share_budget(memory("vllm"), H100, 2, 0.9) == int(size * 0.9 + context + (150 + 512) * MIB)


@pytest.mark.parametrize(("gpus", "share"), [(1, 0.88), (2, 0.87), (3, 0.87), (4, 0.85), (8, 0.81), (16, 0.79), (32, 0.79)])
def test_sglang_s_share_was_by_gpus(gpus: int, share: float) -> None:
    assert static_share(memory("sglang", 2024), H100, gpus, 1) == share
    assert static_share(memory("sglang", 2024), H100, 1, gpus) == share


def test_sglang_static_share_follows_its_rule() -> None:
    reserved = 512 + 1.5 * 8192 + 2 * 256 + 128
    assert static_share(memory("sglang"), H100, 1, 1) == pytest.approx(1 - reserved * MIB / H100.memory_bytes)
    more = 512 + 1.5 * 8192 + 2 * 512 + 128 * 8
    assert static_share(memory("sglang"), H100, 4, 2) == pytest.approx(1 - more * MIB / H100.memory_bytes)
    small = sized(16)
    assert static_share(memory("sglang"), small, 1, 1) == pytest.approx(1 - (512 + 1.5 * 2048 + 16 + 128) / (16 * 1024))
    assert static_share(memory("sglang"), sized(2), 1, 1) == 0.1


def test_memory_budget_of_each_engine() -> None:
    vllm = budget_bytes(serve_workload(engine="vllm", year=2025), H100)
    assert vllm == device_share_budget(memory("vllm", 2025), H100, 1, 0.9)
    assert budget_bytes(serve_workload(engine="vllm"), sized(2)) == 2 * GIB  # never more than there is
    share = static_share(memory("sglang"), H100, 1, 1)
    beside = (4 * 132 + 245) * MIB * (1 - share) + 512 * MIB
    assert budget_bytes(serve_workload(engine="sglang"), H100) == int(H100.memory_bytes * share + beside)
    assert budget_bytes(serve_workload(engine="llama.cpp"), H100) == H100.memory_bytes


def test_a_program_gets_less_than_the_label_says() -> None:
    reported, marketed = replace(H100, memory_basis="reported"), replace(H100, memory_basis="marketed")
    assert usable_bytes(reported) == int(H100.memory_bytes * 0.985)
    assert usable_bytes(marketed) == int(H100.memory_bytes * 0.97)
    for gib, share in ((16, 2 / 3), (36, 2 / 3), (37, 0.75), (64, 0.75)):
        assert usable_bytes(_apple(gib)) == int(gib * GIB * share)
    assert usable_bytes(reported, serve_workload(engine="vllm", year=2025)) == min(
        int(H100.memory_bytes * 0.985), device_share_budget(memory("vllm", 2025), H100, 1, 0.9)
    )
    assert usable_bytes(reported, serve_workload(task="train")) == int(H100.memory_bytes * 0.985)


def _apple(gib: float) -> Gpu:
    apple = next(gpu for gpu in GPUS.values() if "apple-shared-memory" in gpu.quirk_ids)
    return replace(apple, memory_bytes=int(gib * GIB))


def test_memory_shared_with_a_processor_keeps_a_tenth_for_it() -> None:
    shared = next(
        gpu for gpu in GPUS.values() if "unified-memory" in gpu.quirk_ids and "apple-shared-memory" not in gpu.quirk_ids
    )
    assert usable_bytes(shared) == int(shared.memory_bytes * 0.9)


def test_a_gtx_970_has_three_and_a_half_fast_gibibytes() -> None:
    slow = next(gpu for gpu in GPUS.values() if "gtx-970-3.5gb" in gpu.quirk_ids)
    assert fast_bytes(slow) == 3.5 * GIB
    assert fast_bytes(H100) is None
