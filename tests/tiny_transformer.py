"""A transformer small enough to count the operators of its layers by hand, and the counts themselves."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from whichgpu.estimate.time.operators import Op
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.tasks import Task
from whichgpu.workload.workload import Workload

H, F, Q, K = 64.0, 256.0, 64.0, 16.0  # hidden, MLP, eight heads of 8, two of keys
TINY = Transformer("tiny", "llama", 64, 4, 8, 2, 8, 256, 1000, True, "rms", "silu", False, True, 0, 4096)
ROWS = 30.0  # three sequences of ten tokens
ENCODER_DECODER = replace(TINY, encoder_layers=2, encoder_context=7)


def gemm_sizes(ops: list[Op], *kinds: str) -> list[tuple[float, float, float]]:
    """Rows, columns and inner dimension of each GEMM, or of operators of these kinds."""
    return [tuple(float(op.sizes[name]) for name in "mnk") for op in ops if op.kind in (kinds or ("gemm",))]  # type: ignore[misc]


def bytes_moved(ops: list[Op], kind: str, role: str | None = None) -> list[tuple[float, float]]:
    """Bytes read and written by each operator of a kind and role."""
    return [(float(op.read * op.count), float(op.write * op.count)) for op in ops if op.kind == kind and role in (None, op.role)]


def tiny_workload(task: Task = "prefill", **fields: Any) -> Workload:
    """A workload of the tiny model, bf16 under vLLM unless stated otherwise."""
    defaults: dict[str, Any] = {"precision": "bf16", "engine": "vllm"}
    return Workload(task, "tiny", **(defaults | fields))
