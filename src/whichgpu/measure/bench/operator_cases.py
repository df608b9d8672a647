"""Single operators to measure, chosen by the GPU's execution units and free memory."""

from __future__ import annotations

from collections.abc import Iterator

from whichgpu.base.units import GIB, MIB
from whichgpu.catalog.gpu import Gpu
from whichgpu.estimate.time.units import UNITS
from whichgpu.measure.bench.case import OperatorCase

DTYPES = ("bf16", "fp16", "tf32", "fp32", "fp8")
SQUARES = (2048, 4096, 8192)  # Sizes of square GEMMs: as in small models; peak rate before the power limit acts; sustained rate.
DECODING = ((1, 8192, 8192), (16, 8192, 8192), (64, 4096, 14336))  # m, k, n of decode GEMMs: few tokens times a weight matrix
LARGEST_COPY, SMALLEST_COPY = 4 * GIB, 64 * MIB
# Batch, heads, tokens and head dimension of attention cases.
ATTENTION = ((4, 16, 2048, 128), (16, 12, 512, 64), (1, 32, 8192, 128))


def operator_cases(gpu: Gpu, free_bytes: int, several: bool) -> Iterator[OperatorCase]:
    """Yield the operators to measure on a GPU, the most important first; `several` GPUs add an all-reduce."""
    yield from _copies(free_bytes)
    for dtype in DTYPES:
        if dtype in gpu.peaks:
            yield from (gemm(dtype, side, side, side) for side in SQUARES)
    half = "bf16" if "bf16" in gpu.peaks else "fp16"
    for m, k, n in DECODING:
        yield gemm(half, m, n, k)
    for batch, heads, tokens, dim in ATTENTION:
        yield from _attention(half, batch, heads, tokens, dim)
    yield OperatorCase("launch", "launch", "fp32", {"elements": 16}, memory=MIB)
    for kind in ("upload", "download"):
        yield OperatorCase(kind, kind, "uint8", {"bytes": 256 * MIB}, memory=256 * MIB)
    if several:
        yield OperatorCase("all-reduce", "all_reduce", half, {"bytes": 256 * MIB}, memory=256 * MIB)


def gemm(dtype: str, m: int, n: int, k: int) -> OperatorCase:
    """Return the GEMM [m, k] @ [k, n] as an operator to measure, with the bytes of memory it needs."""
    width = int(UNITS[dtype].bytes)
    name = f"{m}" if m == n == k else f"{m}x{n}x{k}"
    memory_bytes = (m * k + k * n) * width + m * n * max(2, width)
    return OperatorCase(f"gemm-{dtype}-{name}", "gemm", dtype, {"m": m, "n": n, "k": k}, memory_bytes)


def _copies(free_bytes: int) -> Iterator[OperatorCase]:
    """Yield memory-bandwidth cases: copies (half read, half written) and sums (read only) of arrays larger than any cache."""
    size = LARGEST_COPY
    while size > SMALLEST_COPY and 3 * size > free_bytes:
        size //= 2
    yield OperatorCase("copy", "copy", "fp32", {"bytes": size}, 2 * size)
    yield OperatorCase("read", "read", "fp32", {"bytes": size}, size)


def _attention(dtype: str, batch: int, heads: int, tokens: int, dim: int) -> Iterator[OperatorCase]:
    """Yield causal attention of these sizes as two operators to measure: the forward and the backward pass."""
    sizes = {"batch": batch, "heads": heads, "tokens": tokens, "dim": dim}
    size = 4 * batch * heads * tokens * dim * 2
    name = f"{batch}x{heads}x{tokens}x{dim}"
    yield OperatorCase(f"attention-{dtype}-{name}", "attention", dtype, sizes, size)
    yield OperatorCase(f"attention-backward-{dtype}-{name}", "attention_backward", dtype, sizes, 3 * size)
