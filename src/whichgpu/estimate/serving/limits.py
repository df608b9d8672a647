"""What an engine allows itself: its defaults by version and GPU, each overridable.

The table is `data/limits.csv`; the tokens of a step, the block and the memory share are those of the memory estimate
(`estimate.memory.engines`), so that both tell of the same engine.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import msg
from whichgpu.base.sealed import data_rows
from whichgpu.base.units import format_memory
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.memory.dispatch import memory
from whichgpu.estimate.memory.engines import (
    DEFAULT_YEAR,
    VLLM_LARGE,
    Family,
    budget_bytes,
    chunk_tokens,
    constant,
    engine_of,
    family,
    vllm_budget,
)
from whichgpu.estimate.memory.kv import kv_bytes
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Workload

TABLE = Path(__file__).parent / "data" / "limits.csv"
MOST_SEQUENCES = 8192  # no table is made larger
MOST_TOKENS = 1 << 18


@dataclass(frozen=True, slots=True)
class Limits:
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
class Overrides:
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


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    engine: str
    since: int
    name: str
    value: float
    unit: str
    source: str


@cache
def limit_rows() -> tuple[Row, ...]:
    """The table."""
    return tuple(
        Row(row["engine"], int(row["since"]), row["name"], float(row["value"]), row["unit"], row["source"])
        for row in data_rows(TABLE)
    )


def stated(group: str, name: str, year: int) -> float | None:
    """A limit as it stood in a year, or as first known before; None where the engine has none such.

    >>> stated("vllm", "chunked_prefill", 2023), stated("vllm", "chunked_prefill", 2026)
    (0.0, 1.0)
    """
    rows = sorted((row for row in limit_rows() if (row.engine, row.name) == (group, name)), key=lambda row: row.since)
    held = [row for row in rows if row.since <= year] or rows[:1]
    return held[-1].value if held else None


def limits_of(workload: Workload, shape: Transformer, gpu: Gpu, asked: Overrides | None = None, typical: int = 0) -> Limits:
    """Of one copy of the model on its GPUs. `typical` is the length a sequence has on average, for windows of attention.

    `workload` has its defaults filled in. An error where the weights leave no room for a cache.
    """
    asked = asked or Overrides()
    group, year = family(engine_of(workload)), workload.year or DEFAULT_YEAR
    context = (workload.seq_in or 1) + (workload.seq_out or 0)
    block = asked.block_tokens or int(constant("block_tokens", group, year)) or 1
    usual = chunk_tokens(group, gpu, workload.task, context, year) or int(stated(group, "max_batched_tokens", year) or context)
    tokens = min(MOST_TOKENS, asked.max_batched_tokens or usual)
    most = min(MOST_SEQUENCES, asked.max_sequences or most_sequences(group, gpu, year))
    share = asked.memory_share or _share(group, workload, gpu)
    flags: dict[str, Any] = {
        name: bool(stated(group, name, year)) for name in ("chunked_prefill", "mixed_steps", "reserve_answers", "prefix_caching")
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
    return Limits(tokens, most, block, cache_tokens // block * block, memory_share=share, **flags)


def cache_room(workload: Workload, shape: Transformer, gpu: Gpu, share: float | None = None) -> int:
    """Bytes of one GPU left for keys and values once the engine has all else it needs; negative where even that is too much."""
    found = memory(replace(workload, batch=workload.parallel.dp, micro_batch=None), shape, gpu)
    group, year = family(engine_of(workload)), workload.year or DEFAULT_YEAR
    parts = {name: int(part.value) for name, part in found.parts.items() if name != "kv_cache"}
    if group == "vllm" and not constant("graphs_inside_share", group, year):
        parts.pop("cuda_graphs", None)  # before 2026 it captured graphs beside its share
    used = sum(parts.values())
    if group == "tensorrt-llm":
        return int((gpu.memory_bytes - used) * (share or constant("memory_share", group, year)))
    if share and group == "vllm":
        return min(gpu.memory_bytes, vllm_budget(gpu, workload.parallel.tp * workload.parallel.pp, share, year)) - used
    return int(gpu.memory_bytes * share if share else budget_bytes(workload, gpu)) - used


def lanes(limits: Limits, stages: int) -> Limits:
    """What each of the batches in flight of a pipeline may have: as many as there are stages share cache and sequences."""
    if stages == 1:
        return limits
    cache_tokens = limits.cache_tokens // stages // limits.block_tokens * limits.block_tokens
    return replace(
        limits, max_sequences=max(1, limits.max_sequences // stages), cache_tokens=max(limits.block_tokens, cache_tokens)
    )


def most_sequences(group: Family, gpu: Gpu, year: int) -> int:
    """Sequences an engine of a year runs at once by default on one replica."""
    large = gpu.memory_bytes >= VLLM_LARGE and gpu.family != "A100"
    by_size = stated(group, "max_sequences_large" if large else "max_sequences_small", year)
    since = min((row.since for row in limit_rows() if row.engine == group and row.name.endswith("_large")), default=year + 1)
    found = by_size if by_size is not None and year >= since else stated(group, "max_sequences", year)
    return int(found or 1)


def _share(group: Family, workload: Workload, gpu: Gpu) -> float:
    if group in ("tensorrt-llm", "vllm"):
        return constant("memory_share", group, workload.year or DEFAULT_YEAR)
    return budget_bytes(workload, gpu) / gpu.memory_bytes
