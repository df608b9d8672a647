"""Scheduler limits of one replica: the defaults of the engine's record by year and GPU, each overridable."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import msg
from whichgpu.base.units import format_memory
from whichgpu.catalog.engines.record import EngineRecord
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.estimate.memory.engine_memory import budget_bytes, chunk_tokens, device_share_budget, engine_of, is_large_gpu
from whichgpu.estimate.memory.kv import kv_bytes
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Workload

MOST_SEQUENCES = 8192  # no table is made larger
MOST_TOKENS = 1 << 18


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """One copy's. `cache_tokens` is the room for keys and values; lanes are the batches in flight of a pipeline."""

    max_batched_tokens: int
    max_sequences: int
    block_tokens: int
    cache_tokens: int
    chunked_prefill: bool
    mixed_steps: bool  # chunks of prompts beside the tokens of others; otherwise prompts have steps of their own, and come first
    reserve_answers: bool  # a request starts when its whole answer has room, and is never thrown out
    prefix_caching: bool
    memory_share: float  # of the device that the engine lets itself fill


@dataclass(frozen=True, slots=True)
class LimitOverrides:
    """Limits somebody set; None leaves the engine's default."""

    max_batched_tokens: int | None = None
    max_sequences: int | None = None
    block_tokens: int | None = None
    memory_share: float | None = None
    chunked_prefill: bool | None = None
    mixed_steps: bool | None = None
    prefix_caching: bool | None = None

    def given(self) -> dict[str, Any]:
        """Those that were set."""
        return {one.name: value for one in fields(self) if (value := getattr(self, one.name)) is not None}


def scheduler_limits(
    workload: Workload, shape: Transformer, gpu: Gpu, asked: LimitOverrides | None = None, typical: int = 0
) -> SchedulerLimits:
    """Of one copy of the model on its GPUs. `typical` is the length a sequence has on average, for windows of attention.

    `workload` has its defaults filled in. An error where the weights leave no room for a cache.
    """
    asked = asked or LimitOverrides()
    engine = engine_of(workload)
    context = (workload.seq_in or 1) + (workload.seq_out or 0)
    block = asked.block_tokens or engine.memory.block_tokens
    usual = chunk_tokens(engine.memory, gpu, workload.task, context) or engine.limits.max_batched_tokens or context
    tokens = min(MOST_TOKENS, asked.max_batched_tokens or usual)
    most = min(MOST_SEQUENCES, asked.max_sequences or default_max_sequences(engine, gpu))
    share = asked.memory_share or _share(engine, workload, gpu)
    flags: dict[str, Any] = {
        name: getattr(engine.limits, name) for name in ("chunked_prefill", "mixed_steps", "reserve_answers", "prefix_caching")
    }
    flags |= {name: value for name, value in asked.given().items() if name in flags}
    room = cache_room(workload, shape, gpu, asked.memory_share)
    held = max(block, typical or context)
    each = kv_bytes(shape, 1, held, workload.kv_precision or "bf16", block, parallel=workload.parallel)
    cache_tokens = int(room / (each / (-(-held // block) * block))) if each else MOST_SEQUENCES * context
    if cache_tokens < block:
        raise NoAnswer(
            "no-room", msg("error.no-cache-room", gpu=gpu.name, missing=format_memory(-min(0, room))), msg("hint.no-cache-room")
        )
    return SchedulerLimits(tokens, most, block, cache_tokens // block * block, memory_share=share, **flags)


def cache_room(workload: Workload, shape: Transformer, gpu: Gpu, share: float | None = None) -> int:
    """Bytes of one GPU left for keys and values once the engine has all else it needs; negative where even that is too much."""
    found = estimate_memory(replace(workload, batch=workload.parallel.dp, micro_batch=None), shape, gpu)
    engine = engine_of(workload).memory
    parts = {name: int(part.value) for name, part in found.parts.items() if name != "kv_cache"}
    if engine.reservation == "device-share" and not engine.graphs_inside_share:
        parts.pop("cuda_graphs", None)
    used = sum(parts.values())
    if engine.reservation == "free-share":
        return int((gpu.memory_bytes - used) * (share or engine.share))
    if share and engine.reservation == "device-share":
        gpus = workload.parallel.tp * workload.parallel.pp
        return min(gpu.memory_bytes, device_share_budget(engine, gpu, gpus, share)) - used
    return int(gpu.memory_bytes * share if share else budget_bytes(workload, gpu)) - used


def batch_limits(limits: SchedulerLimits, stages: int) -> SchedulerLimits:
    """What each of the batches in flight of a pipeline may have: as many as there are stages share cache and sequences."""
    if stages == 1:
        return limits
    cache_tokens = limits.cache_tokens // stages // limits.block_tokens * limits.block_tokens
    return replace(
        limits, max_sequences=max(1, limits.max_sequences // stages), cache_tokens=max(limits.block_tokens, cache_tokens)
    )


def default_max_sequences(engine: EngineRecord, gpu: Gpu) -> int:
    """Sequences an engine runs at once by default on one replica."""
    large = engine.limits.max_sequences_large if is_large_gpu(engine.memory, gpu) else 0
    return large or engine.limits.max_sequences


def _share(engine: EngineRecord, workload: Workload, gpu: Gpu) -> float:
    """Share of the GPU the engine lets itself fill."""
    return engine.memory.share or budget_bytes(workload, gpu) / gpu.memory_bytes
