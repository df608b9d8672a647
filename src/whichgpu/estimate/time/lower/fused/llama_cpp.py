"""Kernels of llama.cpp: one for nearly every operator of its graph, activations in fp32, a prompt by micro-batches of 512 tokens.

A few rows are multiplied by kernels that read weights as they are stored. Many are multiplied in fp16 by the vendor's library:
for each micro-batch, inputs are cast to fp16 and results back, and before 2025 weights stored narrow are widened to a buffer
first (ggml-cuda.cu of May 2024). Since then its own kernels multiply those, however many rows there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whichgpu.estimate.time.lower.eager.attention import Attention
from whichgpu.estimate.time.lower.fused.kernels import FusedKernels
from whichgpu.estimate.time.operators import Number, Op, gemm

MICRO_BATCH = 512.0  # tokens; llama.cpp's default
LIBRARY_ROWS = 64.0  # rows from which the library multiplies
KEY_STEP = 32.0  # the cache is looked at in steps of so many
HALF_BYTES, SINGLE_BYTES = 2.0, 4.0  # bytes of an element
VECTOR_KERNEL, MMQ_KERNEL = "gguf", "mmq"  # whose kernels multiply


@dataclass(slots=True)
class LlamaCppKernels(FusedKernels):
    """Writes llama.cpp's kernels."""

    @property
    def width(self) -> float:
        """Bytes of an activation."""
        return SINGLE_BYTES

    def norm(self, rows: Number, columns: float, tensors: float = 4.0) -> None:
        """Before 2025 the residual sum, the norm and its weights are three kernels."""
        if not self.traits.unfused_graph:
            FusedKernels.norm(self, rows, columns, tensors)
            return
        size = rows * columns * SINGLE_BYTES
        if tensors > 2.0:
            self.pointwise(2.0 * size, size)
        self.move("norm", size, size, {"rows": rows, "width": columns}, role="fused")
        self.pointwise(size, size)

    def pointwise(self, read: Number, write: Number, count: float = 1.0, role: str = "") -> None:
        """Before 2025 a gated activation is two kernels."""
        if role == "gated" and self.traits.unfused_graph:
            FusedKernels.pointwise(self, write, write)
            read = 2.0 * write
        FusedKernels.pointwise(self, read, write, count, role)

    def linear(self, rows: Number, k: Number, n: Number, *roles: str, attended: bool = False, parts: int = 1) -> None:
        """So many layers of their own that others multiply as one."""
        n, weight = n / parts, self.stored.size(k, n, *roles) / parts
        at_once, passes = np.minimum(rows, MICRO_BATCH), np.maximum(rows / MICRO_BATCH, 1.0)
        few = np.asarray(rows) < LIBRARY_ROWS
        own = np.ones_like(few) if self.stored.unpacked and not self.traits.unfused_graph else few
        if own.any():
            for op in self.products(at_once, k, n, weight, attended):
                self.put(op.times(passes * _where(own, parts)))
        if not own.all():
            for op in self._by_library(at_once, k, n, weight):
                self.put(op.times(passes * _where(~own, parts)))

    @property
    def unit(self) -> str:
        """fp16 is summed in fp16, which GeForce cards do at twice the rate; what is fp32 the library may multiply in TF32."""
        if self.stored.width >= SINGLE_BYTES:
            return "tf32"
        return "fp16_fp16acc" if self.stored.unit == "fp16" else self.stored.unit

    @property
    def unpacking(self) -> str:
        """Whose kernel multiplies weights stored narrow."""
        return VECTOR_KERNEL if self.traits.unfused_graph else MMQ_KERNEL

    def product(self, rows: Number, k: Number, n: Number, weight: Number | None) -> Op:
        """Read as vectors are."""
        stored = k * n * self.stored.width if weight is None else weight
        return gemm(rows, n, k, self.unit, self.width, weight=stored, role=VECTOR_KERNEL, calls=self.calls)

    def _by_library(self, rows: Number, k: Number, n: Number, weight: Number) -> list[Op]:
        """One micro-batch."""
        if self.stored.width >= SINGLE_BYTES:
            return [self.product(rows, k, n, weight)]
        widened = [self._cast(k * n, weight, k * n * HALF_BYTES)] if self.stored.unpacked else []
        return [
            *widened,
            self._cast(rows * k, rows * k * SINGLE_BYTES, rows * k * HALF_BYTES),
            gemm(rows, n, k, self.unit, HALF_BYTES, role=VECTOR_KERNEL, calls=self.calls),
            self._cast(rows * n, rows * n * HALF_BYTES, rows * n * SINGLE_BYTES),
        ]

    def attend(self, over: Attention, decoding: bool, cache_width: float) -> None:
        """Flash attention since 2025; before, a prompt's scores are written out, micro-batch by micro-batch."""
        if decoding or not self.traits.unfused_graph:
            FusedKernels.attend(self, over, decoding, cache_width)
            return
        rows = np.minimum(over.queries, MICRO_BATCH)
        keys = (over.keys + rows) / 2.0 if over.causal else over.keys  # of a micro-batch on average: those before it, and its own
        keys = np.ceil(keys / KEY_STEP) * KEY_STEP
        pairs, passes = over.batch * over.heads, over.queries / rows
        scores, made = pairs * rows * keys, pairs * rows * over.value_dim
        steps = [
            gemm(rows, keys, over.dim, self.unit, HALF_BYTES, batch=pairs, role=VECTOR_KERNEL, calls=self.calls),
            self._cast(scores, scores * HALF_BYTES, scores * SINGLE_BYTES),
            Op(
                "softmax",
                "fp32",
                0.0,
                scores * SINGLE_BYTES,
                scores * SINGLE_BYTES,
                {"rows": pairs * rows, "width": keys},
                calls=self.calls,
            ),
            self._cast(scores, scores * SINGLE_BYTES, scores * HALF_BYTES),
            gemm(rows, over.value_dim, keys, self.unit, HALF_BYTES, batch=pairs, role=VECTOR_KERNEL, calls=self.calls),
            self._cast(made, made * HALF_BYTES, made * SINGLE_BYTES),
            Op("transpose", "fp32", 0.0, made * SINGLE_BYTES, made * SINGLE_BYTES, {"elements": made}, calls=self.calls),
        ]
        for op in steps:
            self.put(op.times(passes))

    def _cast(self, elements: Number, read: Number, write: Number) -> Op:
        return Op("copy", "fp32", 0.0, read, write, {"elements": elements}, calls=self.calls)


def _where(chosen: np.ndarray, count: float) -> Number:
    return np.where(chosen, float(count), 0.0) if chosen.ndim else float(count)
