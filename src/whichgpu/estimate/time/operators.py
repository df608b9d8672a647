"""Operators as a GPU runs them: what each computes, reads and writes, and the sizes its speed depends on.

Numbers may be floats or arrays over batch sizes, so that one lowering serves a whole range of batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    import numpy as np

Number: TypeAlias = "float | np.ndarray"

OperatorClass = Literal["gemm", "attention", "conv", "memory"]
Phase = Literal["forward", "backward", "optimizer"]

# What each kind is, by the class whose corrections it takes. Sizes a kind needs are named here; all others follow from bytes and
# FLOPs. `resident` of any kind: the share of its bytes touched just before, which the L2 still holds where everything fits.
CLASS_BY_KIND: dict[str, OperatorClass] = {
    # gemm: batch x [m, k] @ [k, n]; `weight` bytes of the k x n operand; role: forward, dgrad, wgrad
    "gemm": "gemm",
    # a grouped product of a mixture of experts: `batch` experts touched, m rows in all; role: fused (an engine's), framework
    "grouped_gemm": "gemm",
    # weights stored narrow and unpacked in the kernel: m, n, k; `weight` bytes as stored; role: marlin, tinygemm, gguf, mmq
    "unpack_gemm": "gemm",
    # flash: batch sequences, heads, kv_heads, queries, keys, dim, causal (1 or 0)
    "attention": "attention",
    "attention_backward": "attention",
    # one query a sequence against a cache: batch, heads, kv_heads, keys, dim; role: split (over SMs), whole (one SM a head),
    # gguf (split, and the cache read for each head)
    "decode_attention": "attention",
    # convolutions: batch, height, width (of the output), cin, cout, kernel (height x width taps), stride, groups, nhwc (1 or 0)
    "conv": "conv",
    "conv_dgrad": "conv",
    "conv_wgrad": "conv",
    # bandwidth: bytes in and out, as often as the kernel needs them; `elements`; `rows` and `width` for those that reduce
    "pointwise": "memory",  # role: gelu, silu and their _backward cost arithmetic too
    "copy": "memory",  # same layout; casts too
    "transpose": "memory",  # strided copies whose innermost run stays; role: matrix where it does not
    "norm": "memory",  # layer norm, rms norm in one kernel: rows, width
    "norm_backward": "memory",  # two read, one written: the weights' gradients are in the curve
    "batch_norm": "memory",  # in training: read twice, written once
    "batch_norm_backward": "memory",
    "softmax": "memory",  # rows, width
    "softmax_backward": "memory",  # two read, one written: PyTorch's product before it is in the curve
    "reduce": "memory",  # rows, width: sums and means over the width
    "reduce_columns": "memory",  # rows, width: sums over the rows (bias gradients)
    "pool": "memory",  # role: _adaptive_avg_pool2d
    "pool_backward": "memory",
    "embedding": "memory",
    "embedding_backward": "memory",
    "dropout": "memory",
    "optimizer": "memory",
}


@dataclass(slots=True)
class Op:
    """One operator. FLOPs and bytes are of one call; `count` calls are made.

    Shared by whoever asks for the same step, so never changed; not frozen, since lowering makes them by the ten thousand and a
    frozen one takes three times as long to make.
    """

    kind: str
    unit: str  # the peak that bounds it: fp32, tf32, bf16, fp16, fp8, int8, fp4; for bandwidth kinds the element's dtype
    flops: Number = 0.0
    read: Number = 0.0
    write: Number = 0.0
    sizes: Mapping[str, Number] = field(default_factory=dict)
    count: Number = 1.0
    phase: Phase = "forward"
    calls: float = 1.0  # framework calls the host makes for it; 0 where it is fused into another or inside a captured graph
    role: str = ""  # what the curve may know beyond sizes: dgrad, wgrad, gelu, …

    def times(self, count: Number) -> Op:
        """The same operator run `count` times as often."""
        return self.with_count(self.count * count)

    def with_count(self, count: Number) -> Op:
        """The same operator run so often."""
        return self._again(count, self.calls)

    def with_calls(self, calls: float) -> Op:
        """The same operator with so many calls of the framework."""
        return self._again(self.count, calls)

    def _again(self, count: Number, calls: float) -> Op:
        """Written out, since lowering does this by the ten thousand and `replace` takes twice as long."""
        return Op(self.kind, self.unit, self.flops, self.read, self.write, self.sizes, count, self.phase, calls, self.role)


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
    calls: float = 1.0,
) -> Op:
    """batch x [m, k] @ [k, n] with elements of `width` bytes; `weight`: bytes of the k x n operand where stored otherwise."""
    stored = batch * k * n * width if weight is None else weight
    return Op(
        "gemm",
        unit,
        flops=2.0 * batch * m * n * k,
        read=batch * m * k * width + stored,
        write=batch * m * n * width,
        sizes={"m": m, "n": n, "k": k, "batch": batch},
        role=role,
        calls=calls,
    )


def pointwise(
    elements: Number,
    read_width: float,
    write_width: float,
    *,
    unit: str = "bf16",
    kind: str = "pointwise",
    role: str = "",
    calls: float = 1.0,
) -> Op:
    """An elementwise operator: so many bytes read and written for each element."""
    return Op(
        kind, unit, read=elements * read_width, write=elements * write_width, sizes={"elements": elements}, role=role, calls=calls
    )
