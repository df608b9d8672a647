"""Servers for tests: with steps of known length, with small KV caches, and of real models."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike

from whichgpu.catalog.store import Catalog
from whichgpu.estimate.group.engine_steps import EngineSteps
from whichgpu.estimate.serving.scheduler_limits import SchedulerLimits
from whichgpu.estimate.serving.server import Server, server_of
from whichgpu.estimate.serving.step_tables import StepTables, TableSizes
from whichgpu.workload.models import find_model
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.spelling import fill_defaults, from_object
from whichgpu.workload.workload import Workload

CATALOG = Catalog()
DEFAULT_LIMITS = SchedulerLimits(
    max_batched_tokens=512, max_sequences=16, block_tokens=16, cache_tokens=1 << 20, chunked_prefill=True, mixed_steps=True,
    reserve_answers=False, prefix_caching=False, memory_share=0.9,
)  # fmt: skip


class Linear:
    """Steps of a fixed time plus seconds per prefill token, per sequence, and per token attended to."""

    def __init__(self, fixed: float = 1e-3, token: float = 0.0, sequence: float = 0.0, context: float = 0.0) -> None:
        self.fixed, self.token, self.sequence, self.context = fixed, token, sequence, context

    def decode(self, batch: ArrayLike, context: ArrayLike) -> np.ndarray:
        batch, context = np.broadcast_arrays(np.asarray(batch, dtype=float), np.asarray(context, dtype=float))
        return self.fixed + batch * (self.sequence + self.context * context)

    def mixed(self, tokens: ArrayLike, context: ArrayLike, batch: ArrayLike, decode_context: ArrayLike) -> np.ndarray:
        values = (np.asarray(one, dtype=float) for one in (tokens, context, batch, decode_context))
        read, reach, beside, contexts = np.broadcast_arrays(*values)
        own = read * (self.token + self.context * (reach + read / 2))
        return self.fixed + own + beside * (self.sequence + self.context * contexts)


def linear(limits: SchedulerLimits = DEFAULT_LIMITS, replicas: int = 1, stages: int = 1, **seconds: float) -> Server:
    """Server whose step times are known."""
    tables = StepTables(Linear(**seconds), TableSizes(limits.max_sequences, limits.max_batched_tokens, 1 << 14))
    return Server(tables, limits, limits, replicas, stages)


def workload_and_shape(model: str, **fields: Any) -> tuple[Workload, Transformer]:
    """Workload to serve with its defaults filled in, and its model."""
    shape = find_model(model, CATALOG)
    assert isinstance(shape, Transformer)
    return fill_defaults(from_object({"task": "serve", "model": model, **fields}).workload, shape), shape


def real(model: str = "llama-3.1-8b", gpu: str = "h100-sxm", longest: int = 0, **fields: Any) -> tuple[Server, EngineSteps]:
    """Server of a model, and the step model behind it."""
    workload, shape = workload_and_shape(model, **fields)
    device = CATALOG.gpu_by_id[gpu]
    return server_of(workload, shape, device, longest=longest), EngineSteps(workload, shape, device)


def small(cache_tokens: int, **changes: Any) -> SchedulerLimits:
    """Limits with a KV cache of that many tokens."""
    return replace(DEFAULT_LIMITS, cache_tokens=cache_tokens, **changes)
