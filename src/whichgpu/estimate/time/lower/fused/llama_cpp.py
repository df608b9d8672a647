"""Kernels of llama.cpp: one for almost every operator of its graph, fp32 activations, prompts in micro-batches.

Few rows are multiplied by kernels that read the weights as stored. Many rows are multiplied in fp16 by cuBLAS: for each
micro-batch, inputs are cast to fp16 and results back, and before 2025 quantised weights are first dequantised to a buffer
(ggml-cuda.cu of May 2024). Since 2025 llama.cpp's MMQ kernels multiply quantised weights for any number of rows, in int8: on
tensor cores from Turing on, in dot products (dp4a) on Pascal. Chips with neither dequantise for cuBLAS (mmq.cu). Since October
2025 a single row takes one kernel for gate, up and the gated activation (pull requests 16630 and 16715).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from whichgpu.estimate.time.lower.eager.attention import AttentionSizes
from whichgpu.estimate.time.lower.fused.kernels import FusedKernels
from whichgpu.estimate.time.operators import Number, Op, gemm

LIBRARY_ROWS = 64.0  # number of rows from which cuBLAS is used
KEY_STEP = 32.0  # keys; the KV cache is read in multiples of this
HALF_BYTES, SINGLE_BYTES = 2.0, 4.0  # bytes of an element
Q8_1_BYTES = 36 / 32  # bytes of an input element quantised for MMQ
# Variants of llama.cpp's own GEMM kernels for few rows of unquantised weights: before 2025, and since.
VECTOR_KERNEL, NEW_VECTOR_KERNEL = "gguf", "gguf_2025"


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

    def linear(
        self, rows: Number, k: Number, n: Number, *roles: str, after_attention: bool = False, parts: Sequence[Number] = ()
    ) -> None:
        """Append a linear layer, its matrices of `parts` outputs one by one: other engines multiply them in one GEMM."""
        at_once, passes = self.split_rows(rows)
        few = np.asarray(rows) < LIBRARY_ROWS
        own = np.ones_like(few) if self._multiplies_in_int8 else few
        for width in parts or (n,):
            weight = self.stored.size(k, width, *roles)
            if own.any():
                ops = self.linear_ops(at_once, k, width, weight, after_attention)
                self.put(*(op.times(passes * _count_where(own)) for op in ops))
            if not own.all():
                ops = self._cublas_ops(at_once, k, width, weight)
                self.put(*(op.times(passes * _count_where(~own)) for op in ops))

    def up_projection(self, rows: Number, k: float, ffn: float, gated: bool, *roles: str) -> None:
        """Append the up projection; since 2026 the vector kernels multiply a single row by gate and up and apply the GLU."""
        single = np.asarray(rows) == 1.0
        if not (gated and self.traits.fused_gate_up and single.any()):
            FusedKernels.up_projection(self, rows, k, ffn, gated, *roles)
            return
        *quantising, fused = self.linear_ops(1.0, k, 2.0 * ffn, 2.0 * self.stored.size(k, ffn, *roles))
        fused = replace(fused, write=ffn * SINGLE_BYTES)
        self.put(*(op.times(_count_where(single)) for op in (*quantising, fused)))
        if not single.all():
            start = len(self.ops)
            FusedKernels.up_projection(self, rows, k, ffn, gated, *roles)
            self.ops[start:] = [op.times(_count_where(~single)) for op in self.ops[start:]]

    @property
    def unit(self) -> str:
        """Arithmetic unit of GEMMs: fp16 accumulates in fp16, twice as fast on GeForce cards; cuBLAS may run fp32 in TF32."""
        if self.stored.width >= SINGLE_BYTES:
            return "tf32"
        return "fp16_fp16acc" if self.stored.unit == "fp16" else self.stored.unit

    @property
    def _multiplies_in_int8(self) -> bool:
        """Whether MMQ and MMVQ multiply the weights: quantised ones, since 2025."""
        return self.stored.weight_only and not self.traits.unfused_graph

    def linear_ops(self, rows: Number, k: Number, n: Number, weight: Number, after_attention: bool = False) -> list[Op]:
        """Return the kernels of one linear layer with `weight` bytes of weights."""
        if not self._multiplies_in_int8:
            return FusedKernels.linear_ops(self, rows, k, n, weight, after_attention)
        return [self._quantise(rows, k), self._mmq(rows, k, n, weight, {})]

    def expert_ops(self, rows: Number, k: float, n: float, touched: Number, tokens: Number, *roles: str) -> list[Op]:
        """Return the kernels of one matrix of the experts: `rows` rows, `touched` experts, chosen by `tokens` tokens."""
        if not self._multiplies_in_int8:
            return FusedKernels.expert_ops(self, rows, k, n, touched, tokens, *roles)
        weight = touched * self.stored.size(k, n, *roles)
        sizes = {"batch": touched, "tokens": tokens, "vector_tokens": float(self.traits.vector_expert_tokens)}
        return [self._quantise(rows, k), self._mmq(rows, k, n, weight, sizes)]

    def _mmq(self, rows: Number, k: Number, n: Number, weight: Number, sizes: dict[str, Number]) -> Op:
        """Return a GEMM of quantised weights by inputs in blocks of 32 int8 with a scale and a sum."""
        nested = float(self.stored.nested_scales)
        whole: dict[str, Number] = {"m": rows, "n": n, "k": k, "batch": 1.0, "weight": weight, "nested_scales": nested}
        read, written = rows * k * Q8_1_BYTES + weight, rows * n * SINGLE_BYTES
        return Op("mmq_gemm", "int8", 2.0 * rows * n * k, read, written, whole | sizes, calls=self.calls)

    def plain_gemm(self, rows: Number, k: Number, n: Number, weight: Number | None = None) -> Op:
        """Return a GEMM of unquantised weights, which llama.cpp runs in the kernel for few rows."""
        stored = k * n * self.stored.width if weight is None else weight
        role = VECTOR_KERNEL if self.traits.unfused_graph else NEW_VECTOR_KERNEL
        return gemm(rows, n, k, self.unit, self.width, weight=stored, role=role, calls=self.calls)

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


def _count_where(mask: np.ndarray) -> Number:
    return np.where(mask, 1.0, 0.0) if mask.ndim else 1.0
