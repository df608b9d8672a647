"""Scheduler limits of one replica: defaults from the engine's record by year and GPU, each of which can be overridden."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import msg
from whichgpu.base.units import format_memory
from whichgpu.catalog.engines.record import EngineRecord
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.memory.engine_memory import budget_bytes, chunk_tokens, engine_of, is_large_gpu
from whichgpu.estimate.memory.kv import kv_bytes
from whichgpu.estimate.serving.kv_capacity import MemorySettings, cache_room
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Workload

MAX_SEQUENCES, MAX_TOKENS = 8192, 1 << 18  # largest batch and largest tokens of a step in a table of step times


class SchedulerLimits(msgspec.Struct, frozen=True):
    """Limits of one replica, or of one of its batches in flight. `cache_tokens` is the size of the KV cache."""

    max_batched_tokens: int
    max_sequences: int
    block_tokens: int
    cache_tokens: int
    chunked_prefill: bool
    mixed_steps: bool  # prefill chunks share steps with decode tokens; otherwise prefill has its own steps and priority
    reserve_answers: bool  # a request is admitted when its whole output has KV blocks, and never preempted
    prefix_caching: bool
    memory_share: float  # share of the GPU's memory that the engine may use
    schedules_ahead: bool = False  # a step is scheduled while the one before it runs, so it lacks requests that arrive then
    prefix_share: float = 0.0  # share of each prompt's tokens found in the prefix cache, whatever the prompts are
    request_latency: float = 0.0  # seconds of a request outside the steps: to the engine, and of a token back to the client


class LimitOverrides(msgspec.Struct, frozen=True):
    """Scheduler limits set by the user; None is the engine's default."""

    max_batched_tokens: int | None = None
    max_sequences: int | None = None
    block_tokens: int | None = None
    memory_share: float | None = None
    chunked_prefill: bool | None = None
    mixed_steps: bool | None = None
    prefix_caching: bool | None = None

    @property
    def memory(self) -> MemorySettings:
        """Those of the user's settings that decide how large the KV cache is."""
        tokens = min(MAX_TOKENS, self.max_batched_tokens) if self.max_batched_tokens else None
        return MemorySettings(self.memory_share, tokens, self.max_sequences)


def scheduler_limits(
    workload: Workload, shape: Transformer, gpu: Gpu, overrides: LimitOverrides | None = None, typical: int = 0
) -> SchedulerLimits:
    """Return the limits of one replica; `typical` is the mean length of a sequence in tokens, used for sliding windows.

    `workload` has its defaults filled in. Raise NoAnswer if the weights leave no room for a KV cache.
    """
    overrides = overrides or LimitOverrides()
    engine = engine_of(workload)
    context = (workload.seq_in or 1) + (workload.seq_out or 0)
    block = overrides.block_tokens or engine.memory.block_tokens
    default = chunk_tokens(engine.memory, gpu, workload.task, context) or engine.limits.max_batched_tokens or context
    tokens = min(MAX_TOKENS, overrides.max_batched_tokens or default)
    sequences = min(MAX_SEQUENCES, overrides.max_sequences or default_max_sequences(engine, gpu))
    share = overrides.memory_share or engine.memory.share or budget_bytes(workload, gpu) / gpu.memory_bytes
    flags: dict[str, Any] = {
        name: getattr(engine.limits, name) for name in ("chunked_prefill", "mixed_steps", "reserve_answers", "prefix_caching")
    }
    flags |= {name: value for name in flags if (value := getattr(overrides, name, None)) is not None}
    room = cache_room(workload, shape, gpu, overrides.memory)
    length = max(block, typical or context)
    precision, layout = workload.kv_precision or "bf16", workload.parallel
    sequence_bytes = kv_bytes(shape, 1, length, precision, block, parallel=layout, memory=engine.memory)
    cache_tokens = MAX_SEQUENCES * context
    if sequence_bytes:
        cache_tokens = int(room / (sequence_bytes / (-(-length // block) * block)))
    if cache_tokens < block:
        raise NoAnswer(
            "no-room", msg("error.no-cache-room", gpu=gpu.name, missing=format_memory(-min(0, room))), msg("hint.no-cache-room")
        )
    return SchedulerLimits(
        tokens, sequences, block, cache_tokens // block * block, memory_share=share,
        schedules_ahead=engine.host.schedules_ahead and workload.parallel.pp == 1,  # Stages of a pipeline run other batches.
        prefix_share=workload.prefix_hit or 0.0, request_latency=engine.host.request_latency / workload.host_speed, **flags,
    )  # fmt: skip


def batch_limits(limits: SchedulerLimits, stages: int) -> SchedulerLimits:
    """Return the limits of each batch in flight of a pipeline; one batch per stage shares the replica's cache and sequences."""
    if stages == 1:
        return limits
    cache_tokens = limits.cache_tokens // stages // limits.block_tokens * limits.block_tokens
    return replace(
        limits, max_sequences=max(1, limits.max_sequences // stages), cache_tokens=max(limits.block_tokens, cache_tokens)
    )


def default_max_sequences(engine: EngineRecord, gpu: Gpu) -> int:
    """Return the engine's default limit of running sequences of one replica on this GPU (vLLM: max_num_seqs)."""
    large = engine.limits.max_sequences_large if is_large_gpu(engine.memory, gpu) else 0
    return large or engine.limits.max_sequences
