"""Kernels of engines that fuse: products with whatever rides on them, one kernel for each run of elementwise operators."""

from __future__ import annotations

from dataclasses import dataclass, field

from whichgpu.catalog.engines.record import KernelTraits
from whichgpu.estimate.time.lower.eager.attention import Attention
from whichgpu.estimate.time.lower.fused.weight_storage import WeightStorage
from whichgpu.estimate.time.operators import Number, Op, gemm
from whichgpu.workload.precisions import PRECISION_BY_NAME


@dataclass(slots=True)
class FusedKernels:
    """Writes the kernels of an inference pass; `calls` are the host's for each."""

    stored: WeightStorage
    traits: KernelTraits
    calls: float = 0.0
    ops: list[Op] = field(default_factory=list)

    @property
    def width(self) -> float:
        """Bytes of an activation."""
        return self.stored.width

    @property
    def unit(self) -> str:
        """Of products in plain numbers."""
        return self.stored.unit

    @property
    def unpacking(self) -> str:
        """Whose kernel multiplies weights stored narrow."""
        return self.traits.weight_only_gemm

    def put(self, op: Op) -> None:
        """One operator."""
        self.ops.append(op)

    def move(self, kind: str, read: Number, write: Number, sizes: dict[str, Number], count: float = 1.0, role: str = "") -> None:
        """A kernel by the bytes it moves, in `count` equal parts."""
        dtype = "fp32" if self.width >= 4 else self.stored.half
        self.put(Op(kind, dtype, 0.0, read / count, write / count, sizes, count, calls=self.calls, role=role))

    def pointwise(self, read: Number, write: Number, count: float = 1.0, role: str = "") -> None:
        """An elementwise kernel, or `count` of them that share the bytes."""
        self.move("pointwise", read, write, {"elements": (read + write) / (2 * self.width * count)}, count, role)

    def norm(self, rows: Number, columns: float, tensors: float = 4.0) -> None:
        """A normalisation with the residual sum before it: reads both, writes the sum and the normed (`tensors` in all)."""
        moved = rows * columns * self.width * tensors / 2
        self.move("norm", moved, moved, {"rows": rows, "width": columns}, role="fused")

    def linear(self, rows: Number, k: Number, n: Number, *roles: str, attended: bool = False, parts: int = 1) -> None:
        """A linear layer, its input quantised first where the precision asks for it; `attended`: it reads attention's output.

        Made of so many `parts` by the model; they are multiplied as one.
        """
        weight = self.stored.size(k, n, *roles)
        if self.stored.full_width(*roles):
            self.put(self.product(rows, k, n, weight))
            return
        for op in self.products(rows, k, n, weight, attended):
            self.put(op)

    def products(self, rows: Number, k: Number, n: Number, weight: Number, attended: bool = False) -> list[Op]:
        """The kernels of one linear layer with so many bytes of weights."""
        stored, width = self.stored, self.width
        quantised = [] if self.traits.quantises_in_producer and not attended else [self._quantise(rows, k)]
        if stored.narrow:
            record = PRECISION_BY_NAME[stored.precision]
            unit, narrow = record.operand_unit, record.operand_bytes
            op = Op(
                "gemm",
                unit,
                2.0 * rows * n * k,
                rows * k * narrow + weight,
                rows * n * width,
                {"m": rows, "n": n, "k": k, "batch": 1.0},
                calls=self.calls,
            )
            return [*quantised, op]
        if stored.unpacked:
            op = Op(
                "unpack_gemm",
                self.unit,
                2.0 * rows * n * k,
                rows * k * width + weight,
                rows * n * width,
                {"m": rows, "n": n, "k": k, "batch": 1.0, "weight": weight},
                role=self.unpacking,
                calls=self.calls,
            )
            return [*quantised, op] if self.traits.weight_only_gemm == "gguf" else [op]
        return [self.product(rows, k, n, weight)]

    def plain(self, rows: Number, k: Number, n: Number, weight: Number | None = None) -> None:
        """A product that is never quantised: a router, a head in 16 bits."""
        self.put(self.product(rows, k, n, weight))

    def product(self, rows: Number, k: Number, n: Number, weight: Number | None) -> Op:
        """A product in plain numbers."""
        return gemm(rows, n, k, self.unit, self.width, weight=weight, calls=self.calls)

    def attend(self, over: Attention, decoding: bool, cache_width: float) -> None:
        """The attention kernel: over a prompt, or of one token over the cache."""
        if decoding:
            op = over.op(self.stored.unit, self.width, "decode_attention", cache_width, self.traits.decode_attention)
        else:
            op = over.op(self.stored.unit, self.width)
        self.put(Op(op.kind, op.unit, op.flops, op.read, op.write, op.sizes, calls=self.calls, role=op.role))

    def _quantise(self, rows: Number, k: Number) -> Op:
        """Inputs to narrow numbers, a scale for each row."""
        dtype = "fp32" if self.width >= 4 else self.stored.half
        read, write = rows * k * self.width, rows * k
        return Op("reduce", dtype, 0.0, read, write, {"rows": rows, "width": k}, calls=self.calls, role="quantise")
