"""Longest context that a service can be started with: the model's own limit, or what the KV cache of one replica holds."""

from __future__ import annotations

from msgspec.structs import replace

from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.serving.kv_capacity import kv_tokens
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.workload import Workload

STEP = 1024  # Tokens of which a limit by memory is a multiple.


def longest_context(workload: Workload, shape: Shape, gpu: Gpu) -> int | None:
    """Return the tokens of the longest sequence that one replica serves, never fewer than the workload's; None if unknown.

    If memory decides, it is what the KV cache holds at the low end of its range, so that the engine starts; as estimated if that
    is less than the workload needs.
    """
    if not (isinstance(shape, Transformer) and shape.is_language_model and shape.max_context):
        return None
    needed = (workload.seq_in or 0) + (workload.seq_out or 0)
    limit = shape.max_context
    cache = kv_tokens(replace(workload, seq_in=limit - 1, seq_out=1), shape, gpu)
    if cache is None or cache.low >= limit:
        return max(needed, limit)
    tokens = cache.low if cache.low >= needed else cache.value
    return max(needed, min(limit, int(tokens) // STEP * STEP))
