"""Kernels of engines with kernel fusion: GEMMs with epilogues, and one kernel for each run of elementwise operators."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from whichgpu.catalog.engines.record import KernelTraits
from whichgpu.estimate.time.lower.eager.attention import AttentionSizes
from whichgpu.estimate.time.lower.fused.weight_storage import WeightStorage
from whichgpu.estimate.time.operators import Number, Op, gemm
from whichgpu.workload.precisions import PRECISION_BY_NAME


class FusedKernels(msgspec.Struct):
    """Collects the kernels of an inference pass; `calls` is the number of framework calls per kernel."""

    stored: WeightStorage
    traits: KernelTraits
    calls: Number = 0.0
    ops: list[Op] = msgspec.field(default_factory=list)

    @property
    def width(self) -> float:
        """Bytes of an activation element."""
        return self.stored.width

    @property
    def unit(self) -> str:
        """Arithmetic unit of unquantised GEMMs."""
        return self.stored.unit

    @property
    def dtype(self) -> str:
        """Data type of activations."""
        return "fp32" if self.width >= 4 else self.stored.half

    @property
    def absorbs_latents(self) -> bool:
        """Whether prompts attend to MLA's latents with absorbed matrices, as decode does."""
        return False

    def split_rows(self, rows: Number) -> tuple[Number, Number]:
        """Return the rows that run at once and the number of passes over all `rows`: one, unless the engine has micro-batches."""
        return rows, 1.0

    def put(self, *ops: Op) -> None:
        """Append operators to those of the pass."""
        self.ops.extend(ops)

    def add_calls(self, calls: float) -> None:
        """Count `calls` further framework calls with the last operator, if kernels are launched from the host."""
        self.ops[-1] = self.ops[-1].with_calls(self.calls * (1.0 + calls))

    def move(self, kind: str, read: Number, write: Number, sizes: dict[str, Number], count: float = 1.0, role: str = "") -> None:
        """Append a kernel that moves these bytes, or `count` kernels that share them equally."""
        self.put(Op(kind, self.dtype, 0.0, read / count, write / count, sizes, count, calls=self.calls, role=role))

    def elementwise(self, read: Number, write: Number, count: float = 1.0, role: str = "") -> None:
        """Append an elementwise kernel that moves these bytes, or `count` of them that share the bytes."""
        self.move("elementwise", read, write, {"elements": (read + write) / (2 * self.width * count)}, count, role)

    def norm(self, rows: Number, columns: float, tensors: float = 4.0) -> None:
        """Append a norm fused with the residual sum before it; `tensors` are moved, by default two read and two written."""
        moved = rows * columns * self.width * tensors / 2
        self.move("norm", moved, moved, {"rows": rows, "width": columns}, role="fused")

    def linear(
        self, rows: Number, k: Number, n: Number, *roles: str, after_attention: bool = False, parts: Sequence[Number] = ()
    ) -> None:
        """Append a linear layer of matrices `roles` (such as attn_q); its input is quantised first if the precision needs that.

        The model stores the layer in matrices of `parts` outputs each, which are multiplied in one GEMM.
        """
        weight = self.stored.size(k, n, *roles)
        if self.stored.unquantised(*roles):
            self.put(self.plain_gemm(rows, k, n, weight))
        else:
            self.put(*self.linear_ops(rows, k, n, weight, after_attention))

    def up_projection(self, rows: Number, k: float, ffn: float, gated: bool, *roles: str) -> None:
        """Append the up projection of an MLP, with the gate if it has one, and the activation function."""
        ups = 2.0 if gated else 1.0
        self.linear(rows, k, ups * ffn, *roles, parts=(float(ffn),) * int(ups))
        if gated or not self.traits.fused_activation:
            self.elementwise(rows * ups * ffn * self.width, rows * ffn * self.width, role="gated" if gated else "")

    def linear_ops(self, rows: Number, k: Number, n: Number, weight: Number, after_attention: bool = False) -> list[Op]:
        """Return the kernels of one linear layer with `weight` bytes of weights."""
        stored, width = self.stored, self.width
        quantising = [] if self.traits.quantises_in_producer and not after_attention else [self._quantise(rows, k)]
        flops, written = 2.0 * rows * n * k, rows * n * width
        sizes = {"m": rows, "n": n, "k": k, "batch": 1.0}
        if stored.quantises_inputs:
            record = PRECISION_BY_NAME[stored.precision]
            read = rows * k * record.operand_bytes + weight
            return [*quantising, Op("gemm", record.operand_unit, flops, read, written, sizes, calls=self.calls)]
        if stored.weight_only:
            read, role = rows * k * width + weight, self.traits.weight_only_gemm
            sizes |= {"weight": weight}
            op = Op("weight_only_gemm", self.unit, flops, read, written, sizes, calls=self.calls, role=role)
            return [*quantising, op] if self.traits.weight_only_gemm == "gguf" else [op]
        return [self.plain_gemm(rows, k, n, weight)]

    def expert_ops(self, rows: Number, k: float, n: float, touched: Number, tokens: Number, *roles: str) -> list[Op]:
        """Return the kernels of one grouped GEMM: `rows` rows, `touched` experts with matrices `roles`, chosen by `tokens`."""
        stored = self.stored
        *quantising, op = self.linear_ops(rows, k, n, touched * stored.size(k, n, *roles))
        sizes = {"m": rows, "n": n, "k": k, "batch": touched, "unpacked": float(stored.weight_only)}
        unit, role = self.unit if stored.weight_only else op.unit, "fused" if self.traits.fused_experts else "eager"
        return [*quantising, Op("grouped_gemm", unit, op.flops, op.read, op.write, sizes, calls=self.calls, role=role)]

    def plain_gemm(self, rows: Number, k: Number, n: Number, weight: Number | None = None) -> Op:
        """Return a GEMM that is never quantised: a router, a 16-bit output head."""
        return gemm(rows, n, k, self.unit, self.width, weight=weight, calls=self.calls)

    @property
    def paged(self) -> bool:
        """Whether attention runs in a serving engine's kernels over a paged KV cache."""
        return self.traits.decode_attention not in ("whole", "gguf") and self.traits.weight_only_gemm != "gguf"

    def attention(self, over: AttentionSizes, decoding: bool, cache_width: float) -> None:
        """Append the attention kernel, either over a prompt or for a token, or a few drafted ones, against the KV cache.

        PyTorch has a decode kernel for one token only: several run in its prefill kernel, whose tiles they leave nearly empty.
        """
        if decoding and (self.traits.decode_attention != "whole" or over.queries == 1.0):
            op = over.op(self.stored.unit, self.width, "decode_attention", cache_width, self.traits.decode_attention)
        elif self.paged:
            op = self._paged_prefill(over, cache_width)
        else:
            op = over.op(self.stored.unit, self.width)
        self.put(op.with_calls(self.calls))

    def _paged_prefill(self, over: AttentionSizes, cache_width: float) -> Op:
        """Return attention over a prompt whose keys and values are read from the cache; queries are quantised as the cache is."""
        op = over.op(self.stored.unit, self.width, "attention", cache_width, "paged")
        if cache_width >= self.width:
            return op
        queries = over.batch * over.heads * over.queries * over.dim
        self.elementwise(queries * self.width, queries * cache_width)
        return replace(op, sizes={**op.sizes, "narrow_kv": 1.0})

    def _quantise(self, rows: Number, k: Number) -> Op:
        """Return the kernel that quantises the input of a GEMM with one scale per row."""
        sizes: dict[str, Number] = {"rows": rows, "width": k}
        return Op("reduce", self.dtype, 0.0, rows * k * self.width, rows * k, sizes, calls=self.calls, role="quantise")
