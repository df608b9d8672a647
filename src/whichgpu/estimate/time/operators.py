"""Operators that a GPU runs: what each computes, reads and writes, and the sizes on which its speed depends.

Numbers may be floats or arrays over batch sizes, so that one lowering serves a whole range of batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from whichgpu.base.messages import Message

if TYPE_CHECKING:
    import numpy as np

Number: TypeAlias = "float | np.ndarray"

OperatorClass = Literal["gemm", "attention", "long_attention", "conv", "moe", "memory"]
Phase = Literal["forward", "backward", "optimizer"]

# Kinds of operators, each with its class, which has a timing model ("curve") and corrections of its own. Comments: sizes and
# roles (kernel variants) that set its time.
# `resident`, for any kind: share of its bytes touched just before, which the L2 cache still holds if everything fits.
CLASS_BY_KIND: dict[str, OperatorClass] = {
    # batch x [m, k] @ [k, n]; `weight`: bytes of the k x n operand; role: forward, dgrad, wgrad
    "gemm": "gemm",
    # grouped GEMM of an MoE layer: `batch` experts touched, m rows in all; role: fused (llama.cpp's), eager
    "grouped_gemm": "gemm",
    # routed experts of one MoE layer in an engine's fused kernels: tokens, rows (routed), touched (experts), hidden, ffn, ups (2
    # if gated); `weight`: stored bytes of the experts touched; role: the weights' format (16bit, fp8, fp8_block, nvfp4,
    # mxfp4, dequantised) and the engine, as in `fp8_block.vllm`
    "moe": "moe",
    # weight-only quantised GEMM, dequantised in the kernel: m, n, k; `weight`: stored bytes; role: marlin, tinygemm, gguf
    "weight_only_gemm": "gemm",
    # llama.cpp's GEMM of quantised weights: m, n, k; `weight`: stored bytes; nested_scales (1 for K-quants and IQ); for
    # experts also `batch` (experts touched) and `tokens` (m rows in all)
    "mmq_gemm": "gemm",
    # flash attention: batch (sequences), heads, kv_heads, queries, keys (read), dim, value_dim, causal (1 or 0), narrow_kv (1 if
    # the KV cache is below 16 bits); role: paged (a serving engine's prefill), mla (MLA's)
    "attention": "attention",
    "attention_backward": "attention",
    # as `attention`, over more tokens than the networks whose corrections were fitted have (pictures, videos)
    "long_attention": "long_attention",
    # one query per sequence against the KV cache: batch, heads, kv_heads, keys, dim; role: split (over SMs), per-head (split, and
    # the L2 serves the cache again to each head of a group), whole (one SM per head), gguf (split, and the cache is read for each
    # head), mla (split, all heads share the latents)
    "decode_attention": "attention",
    # batch, height, width (of the output), cin, cout, kernel (height x width taps), stride, groups, nhwc (1 or 0)
    "conv": "conv",
    "conv_dgrad": "conv",
    "conv_wgrad": "conv",
    # memory-bound: bytes read and written, counted as often as the kernel moves them; `elements`; `rows`, `width` if it reduces
    "elementwise": "memory",  # roles gelu, silu and their _backward have arithmetic costs too
    "copy": "memory",  # copies in the same layout, and casts
    "transpose": "memory",  # strided copies that keep innermost runs together; role: matrix if they do not
    "norm": "memory",  # layer norm, RMS norm in one kernel: rows, width
    "norm_backward": "memory",  # two tensors read, one written; its time includes the gradients of the weights
    "batch_norm": "memory",  # in training: the input is read twice, the result written once
    "batch_norm_backward": "memory",
    "softmax": "memory",  # rows, width
    "softmax_backward": "memory",  # two tensors read, one written; its time includes PyTorch's multiplication before it
    "reduce": "memory",  # sums and means over the width: rows, width
    "reduce_columns": "memory",  # sums over the rows (bias gradients): rows, width
    "pool": "memory",  # role _adaptive_avg_pool2d has parameters of its own
    "pool_backward": "memory",
    "embedding": "memory",
    "embedding_backward": "memory",
    "dropout": "memory",
    "optimizer": "memory",
    # recurrence of linear attention over prompts: chunks (of one sequence), between (bytes that separate kernels pass on); role:
    # chunked (separate kernels), fused (one kernel where the GPU has it); with _kda: Kimi delta attention
    "scan": "memory",
    "short_conv": "memory",  # causal convolution over a few tokens of each channel
    "host_read": "memory",  # weights in host memory; role: cpu (computed there), pcie (copied to the GPU)
}
# Timing model ("curve") of each kind of operator: that of its class, or its own.
CURVE_BY_KIND: dict[str, str] = CLASS_BY_KIND | {"long_attention": "attention", "mmq_gemm": "mmq", "host_read": "host",
                                                 "scan": "scan", "short_conv": "scan"}  # fmt: skip


class Op(msgspec.Struct, frozen=True):
    """One operator that a GPU runs, such as a GEMM. FLOPs and bytes are of one call; `count` calls are made.

    Operators are shared between requests, so they are frozen.
    """

    kind: str
    unit: str  # the arithmetic unit: fp32, tf32, bf16, fp16, fp8, int8, fp4; the element's dtype if memory-bound
    flops: Number = 0.0
    read: Number = 0.0
    write: Number = 0.0
    sizes: Mapping[str, Number] = msgspec.field(default_factory=dict)
    count: Number = 1.0
    phase: Phase = "forward"
    calls: Number = 1.0  # framework calls the host makes for it; 0 if fused into another or inside a CUDA graph
    role: str = ""  # the kernel variant, if its time differs from others of the kind: dgrad, wgrad, gelu, …

    def times(self, count: Number) -> Op:
        """Return the operator with its count multiplied by `count`."""
        return self.with_count(self.count * count)

    # The two methods below construct the copy directly because `replace` takes twice as long.
    def with_count(self, count: Number) -> Op:
        """Return the operator with a count of `count`."""
        return Op(self.kind, self.unit, self.flops, self.read, self.write, self.sizes, count, self.phase, self.calls, self.role)

    def with_calls(self, calls: Number) -> Op:
        """Return the operator with `calls` framework calls."""
        return Op(self.kind, self.unit, self.flops, self.read, self.write, self.sizes, self.count, self.phase, calls, self.role)


class LoweredStep(msgspec.Struct, frozen=True):
    """The operators of one step, pass or token in the order of their first call, with notes for the user."""

    ops: tuple[Op, ...]
    notes: tuple[Message, ...] = ()

    @property
    def gaps(self) -> Number:
        """Number of gaps between kernels that the host launches; times of kernels in a CUDA graph include the gap."""
        launched = self.calls_forward + self.calls_backward > 0
        return sum(op.count for op in self.ops) * launched

    @property
    def calls_forward(self) -> Number:
        """Number of framework calls that the host makes for the forward pass."""
        return sum(op.calls * op.count for op in self.ops if op.phase == "forward")

    @property
    def calls_backward(self) -> Number:
        """Number of framework calls that the host makes for the backward pass and the optimizer."""
        return sum(op.calls * op.count for op in self.ops if op.phase != "forward")


def gemm(
    m: Number,
    n: Number,
    k: Number,
    unit: str,
    width: float,
    *,
    batch: Number = 1.0,
    weight: Number | None = None,
    role: str = "forward",
    calls: Number = 1.0,
    result: float = 0.0,
) -> Op:
    """Return batch x [m, k] @ [k, n] with elements of `width` bytes; `weight` overrides the bytes of the k x n operand.

    Elements of the product have `result` bytes if given.
    """
    stored = batch * k * n * width if weight is None else weight
    return Op(
        "gemm",
        unit,
        flops=2.0 * batch * m * n * k,
        read=batch * m * k * width + stored,
        write=batch * m * n * (result or width),
        sizes={"m": m, "n": n, "k": k, "batch": batch},
        role=role,
        calls=calls,
    )
