"""Whether all sequences of a batch fit in memory at once; if not, the engine ran a smaller batch than printed."""

from __future__ import annotations

from functools import cache
from typing import Any

from evidence.names import as_model
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.memory.kv import kv_bytes_per_token
from whichgpu.workload.models import find_model
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.shapes import Transformer

USABLE = 0.9  # share of the memory, assumed: the rest is context and activations
_BYTES = {"fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.56, "mxfp4": 0.56, "nvfp4": 0.58}


@cache
def _catalog() -> Catalog:
    return Catalog()


@cache
def _sizes(model: str, kv: str) -> tuple[int, int]:
    shape = find_model(as_model(model), _catalog())
    assert isinstance(shape, Transformer)
    return int(count_parameters(shape).total), kv_bytes_per_token(shape, kv)


def max_sequences(model: str, gpu: str, precision: str, tokens: int, kv_precision: str = "", gpus: int = 1) -> int:
    """Number of sequences of this many tokens whose KV cache fits next to the weights."""
    parameters, token_bytes = _sizes(model, kv_precision or "fp16")
    memory = _catalog().gpu_by_id[gpu].memory_bytes * gpus * USABLE
    return max(int((memory - parameters * _BYTES[precision]) / (token_bytes * tokens)), 0)


def fits_at_once(model: str, request: dict[str, Any]) -> bool:
    """Whether the request's whole batch runs at once."""
    tokens = request["seq_in"] + request["seq_out"]
    kv = request.get("kv_precision", "")
    return max_sequences(model, request["gpu"], request["precision"], tokens, kv, request["gpus"]) >= int(request["batch"])
