"""Kernels of llama.cpp: one for almost every operator of its graph, fp32 activations, prompts in micro-batches.

Few rows are multiplied by kernels that read the weights as stored. Many rows are multiplied in fp16 by cuBLAS: for each
micro-batch, inputs are cast to fp16 and results back, and before 2025 quantised weights are first dequantised to a buffer
(ggml-cuda.cu of May 2024). Since 2025 llama.cpp's MMQ kernels multiply quantised weights for any number of rows, in int8: on
tensor cores from Turing on, in dot products (dp4a) on Pascal. Chips with neither dequantise for cuBLAS (mmq.cu).
"""

from __future__ import annotations

import numpy as np

from whichgpu.estimate.time.lower.eager.attention import AttentionSizes
from whichgpu.estimate.time.lower.fused.kernels import FusedKernels
from whichgpu.estimate.time.operators import Number, Op, gemm

LIBRARY_ROWS = 64.0  # number of rows from which cuBLAS is used
KEY_STEP = 32.0  # keys; the KV cache is read in multiples of this
HALF_BYTES, SINGLE_BYTES = 2.0, 4.0  # bytes of an element
Q8_1_BYTES = 36 / 32  # bytes of an input element quantised for MMQ
VECTOR_KERNEL, MMQ_KERNEL = "gguf", "mmq"  # variants of llama.cpp's own GEMM kernels: for few rows, for any


class LlamaCppKernels(FusedKernels):
    """Collects llama.cpp's kernels of an inference pass; prompts run in micro-batches of `micro_batch` tokens (n_ubatch)."""

    micro_batch: float = 512.0

    def split_rows(self, rows: Number) -> tuple[Number, Number]:
        """Return the rows of one micro-batch and the number of micro-batches."""
        return np.minimum(rows, self.micro_batch), np.maximum(rows / self.micro_batch, 1.0)

    @property
    def absorbs_latents(self) -> bool:
        """Whether prompts attend to MLA's latents, as decode does: since 2025 llama.cpp has no other kernel for them."""
        return not self.traits.unfused_graph

    @property
    def width(self) -> float:
        """Bytes of an activation element."""
        return SINGLE_BYTES

    def norm(self, rows: Number, columns: float, tensors: float = 4.0) -> None:
        """Append a norm; before 2025 the residual sum, the norm and the product with its weights are three kernels."""
        if not self.traits.unfused_graph:
            FusedKernels.norm(self, rows, columns, tensors)
            return
        size = rows * columns * SINGLE_BYTES
        if tensors > 2.0:
            self.elementwise(2.0 * size, size)
        self.move("norm", size, size, {"rows": rows, "width": columns}, role="fused")
        self.elementwise(size, size)

    def elementwise(self, read: Number, write: Number, count: float = 1.0, role: str = "") -> None:
        """Append an elementwise kernel; before 2025 a gated activation takes two."""
        if role == "gated" and self.traits.unfused_graph:
            FusedKernels.elementwise(self, write, write)
            read = 2.0 * write
        FusedKernels.elementwise(self, read, write, count, role)

    def linear(self, rows: Number, k: Number, n: Number, *roles: str, after_attention: bool = False, parts: int = 1) -> None:
        """Append `parts` separate linear layers, which other engines multiply in one GEMM."""
        n, weight = n / parts, self.stored.size(k, n, *roles) / parts
        at_once, passes = self.split_rows(rows)
        few = np.asarray(rows) < LIBRARY_ROWS
        own = np.ones_like(few) if self.stored.weight_only and not self.traits.unfused_graph else few
        if own.any():
            ops = self.linear_ops(at_once, k, n, weight, after_attention)
            self.put(*(op.times(passes * _count_where(own, parts)) for op in ops))
        if not own.all():
            ops = self._cublas_ops(at_once, k, n, weight)
            self.put(*(op.times(passes * _count_where(~own, parts)) for op in ops))

    @property
    def unit(self) -> str:
        """Arithmetic unit of GEMMs: fp16 accumulates in fp16, twice as fast on GeForce cards; cuBLAS may run fp32 in TF32."""
        if self.stored.width >= SINGLE_BYTES:
            return "tf32"
        return "fp16_fp16acc" if self.stored.unit == "fp16" else self.stored.unit

    @property
    def dequantising_kernel(self) -> str:
        """Variant of llama.cpp's kernel that multiplies quantised weights: `mmq`, before 2025 `gguf` (few rows only)."""
        return VECTOR_KERNEL if self.traits.unfused_graph else MMQ_KERNEL

    @property
    def weight_only_unit(self) -> str:
        """Arithmetic unit of kernels for quantised weights: MMQ multiplies int8."""
        return "int8" if self.dequantising_kernel == MMQ_KERNEL else self.unit

    @property
    def weight_only_input_bytes(self) -> float:
        """Bytes of an input element of kernels for quantised weights: MMQ reads blocks of 32 int8 with a scale and a sum."""
        return Q8_1_BYTES if self.dequantising_kernel == MMQ_KERNEL else self.width

    def plain_gemm(self, rows: Number, k: Number, n: Number, weight: Number | None = None) -> Op:
        """Return a GEMM of unquantised weights, which llama.cpp runs in the kernel for few rows."""
        stored = k * n * self.stored.width if weight is None else weight
        return gemm(rows, n, k, self.unit, self.width, weight=stored, role=VECTOR_KERNEL, calls=self.calls)

    def _cublas_ops(self, rows: Number, k: Number, n: Number, weight: Number) -> list[Op]:
        """Return the kernels of one micro-batch's GEMM in cuBLAS."""
        if self.stored.width >= SINGLE_BYTES:
            return [self.plain_gemm(rows, k, n, weight)]
        dequantised = [self._cast(k * n, weight, k * n * HALF_BYTES)] if self.stored.weight_only else []
        return [
            *dequantised,
            self._cast(rows * k, rows * k * SINGLE_BYTES, rows * k * HALF_BYTES),
            gemm(rows, n, k, self.unit, HALF_BYTES, role=VECTOR_KERNEL, calls=self.calls),
            self._cast(rows * n, rows * n * HALF_BYTES, rows * n * SINGLE_BYTES),
        ]

    def attention(self, over: AttentionSizes, decoding: bool, cache_width: float) -> None:
        """Append flash attention; before 2025 the scores of a prompt are written to memory, one micro-batch at a time."""
        if decoding or not self.traits.unfused_graph:
            # Few queries are attended as in decode: keys are split over all SMs, and no block of queries is padded.
            FusedKernels.attention(self, over, decoding or self._few_queries(over.queries), cache_width)
            return
        rows = np.minimum(over.queries, self.micro_batch)
        keys = (over.keys + rows) / 2.0 if over.causal else over.keys  # mean over micro-batches
        keys = np.ceil(keys / KEY_STEP) * KEY_STEP
        pairs, passes = over.batch * over.heads, over.queries / rows
        scores, outputs = pairs * rows * keys, pairs * rows * over.value_dim
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
            self._cast(outputs, outputs * HALF_BYTES, outputs * SINGLE_BYTES),
            Op("transpose", "fp32", 0.0, outputs * SINGLE_BYTES, outputs * SINGLE_BYTES, {"elements": outputs}, calls=self.calls),
        ]
        self.put(*(op.times(passes) for op in steps))

    @staticmethod
    def _few_queries(queries: Number) -> bool:
        return bool(np.all(np.asarray(queries) <= LIBRARY_ROWS))

    def _cast(self, elements: Number, read: Number, write: Number) -> Op:
        return Op("copy", "fp32", 0.0, read, write, {"elements": elements}, calls=self.calls)


def _count_where(mask: np.ndarray, count: float) -> Number:
    return np.where(mask, float(count), 0.0) if mask.ndim else float(count)
