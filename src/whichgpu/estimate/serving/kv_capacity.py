"""KV cache of one replica: the bytes that a GPU has left for it, and the tokens it holds as the engine's log states them."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

import msgspec
from msgspec.structs import replace

from whichgpu.base.figure import Figure
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.estimate.memory.engine_memory import budget_bytes, chunk_tokens, device_share_budget, engine_of
from whichgpu.estimate.memory.inference import profile_step_bytes
from whichgpu.estimate.memory.kv import admission_bytes, kv_bytes
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Workload


class MemorySettings(msgspec.Struct, frozen=True):
    """Settings of an engine that size its KV cache; None is the engine's default."""

    share: float | None = None  # share of the GPU's memory that the engine may use
    step_tokens: int | None = None  # most tokens of a step
    sequences: int | None = None  # most running sequences


DEFAULTS = MemorySettings()
Parts = Mapping[str, Figure]


def cache_room(workload: Workload, shape: Transformer, gpu: Gpu, settings: MemorySettings = DEFAULTS) -> int:
    """Return one GPU's bytes left for the KV cache after everything else the engine needs; negative if that does not fit."""
    parts = _other_parts(workload, shape, gpu, settings)
    return _bytes_left(workload, gpu, settings.share, sum(int(part.value) for part in parts))


def kv_tokens(
    workload: Workload, shape: Transformer, gpu: Gpu, settings: MemorySettings = DEFAULTS, memory_parts: Parts | None = None
) -> Figure | None:
    """Return the tokens that one replica's KV cache holds, as its engine states them; None for one that sizes no cache at start.

    The cache is divided among sequences of the request's context (`max_model_len` in vLLM). `memory_parts` are the request's
    memory by part if already estimated.
    """
    memory = engine_of(workload).memory
    if memory.reservation == "none" or not shape.has_kv_cache:
        return None
    context, block = max(1, (workload.seq_in or 1) + (workload.seq_out or 0)), memory.block_tokens
    precision, layout = workload.kv_precision or "bf16", workload.parallel
    if memory.window_steps and shape.window:
        tokens = settings.step_tokens or chunk_tokens(memory, gpu, workload.task, context) or context
        sequence = admission_bytes(shape, context, precision, block, memory.window_steps * tokens, layout)
    else:
        sequence = kv_bytes(shape, 1, context, precision, block, parallel=layout, memory=memory)
        context = -(-context // block) * block
    parts = _other_parts(workload, shape, gpu, settings, memory_parts)
    used = sum(part.value for part in parts)
    above = sqrt(sum((part.high - part.value) ** 2 for part in parts))  # Independent deviations add as squares.
    below = sqrt(sum((part.value - part.low) ** 2 for part in parts))
    rooms = (_bytes_left(workload, gpu, settings.share, int(one)) for one in (used, used + above, used - below))
    value, low, high = (float(max(0, int(room * context / sequence)) // block * block) for room in rooms)
    return Figure(value, low, high, "tokens", "modelled", ("engine-defaults",))


def _other_parts(
    workload: Workload, shape: Transformer, gpu: Gpu, settings: MemorySettings, memory_parts: Parts | None = None
) -> list[Figure]:
    """Return the parts of memory, other than the KV cache, that count against the engine's share of the GPU."""
    single = replace(workload, batch=workload.parallel.dp, micro_batch=None)
    memory = engine_of(workload).memory
    if memory_parts is None or workload.local_batch > memory.sampled_rows:  # Logits of a large batch are not profiled.
        memory_parts = estimate_memory(single, shape, gpu).parts
    parts = {name: part for name, part in memory_parts.items() if name != "kv_cache"}
    if memory.reservation == "device-share" and not memory.graphs_inside_share:
        parts.pop("cuda_graphs", None)
    if settings.step_tokens and memory.managed and "activations" in parts:
        usual = parts["activations"]
        rows = min(settings.sequences or memory.sampled_rows, max(1, memory.sampled_rows))
        factor = profile_step_bytes(single, shape, gpu, settings.step_tokens, rows) / usual.value
        value, low, high = (factor * bound for bound in (usual.value, usual.low, usual.high))
        parts["activations"] = Figure(value, low, high, usual.unit, usual.basis, usual.sources)
    return list(parts.values())


def _bytes_left(workload: Workload, gpu: Gpu, share: float | None, used: int) -> int:
    """Return the bytes that `used` bytes leave for the KV cache in the engine's `share` of a GPU; negative if they do not fit."""
    memory = engine_of(workload).memory
    if memory.reservation == "free-share":
        return int((gpu.memory_bytes - used) * (share or memory.share))
    if share and memory.reservation == "device-share":
        gpus = workload.parallel.tp * workload.parallel.pp
        return min(gpu.memory_bytes, device_share_budget(memory, gpu, gpus, share)) - used
    return int(gpu.memory_bytes * share if share else budget_bytes(workload, gpu)) - used
