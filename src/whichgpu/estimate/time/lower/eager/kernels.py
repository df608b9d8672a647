"""Kernels that PyTorch launches in eager mode, forward and backward, described by the bytes each moves."""

from __future__ import annotations

import msgspec

from whichgpu.estimate.time.lower.numerics import Numerics
from whichgpu.estimate.time.operators import Number, Op, Phase

# Variant of elementwise kernels that PyTorch cannot vectorise: an operand is broadcast, strided or of another width.
STRIDED = "strided"
OpSizes = dict[str, Number]


class MatrixSizes(msgspec.Struct, frozen=True):
    """Sizes of a tensor, taken as a matrix: `rows` x `columns` elements of `width` bytes."""

    rows: Number
    columns: Number
    width: float

    @property
    def elements(self) -> Number:
        """Number of elements."""
        return self.rows * self.columns

    @property
    def bytes(self) -> Number:
        """Size in bytes."""
        return self.elements * self.width

    @property
    def sizes(self) -> dict[str, Number]:
        """Sizes by the names that the operators' timing models read: `rows`, and `width` for elements per row."""
        return {"rows": self.rows, "width": self.columns}

    def like(self, columns: Number | None = None, width: float | None = None) -> MatrixSizes:
        """Return a tensor with the same rows and other columns or bytes per element."""
        return MatrixSizes(self.rows, self.columns if columns is None else columns, self.width if width is None else width)

    def per_head(self, dim: float) -> MatrixSizes:
        """Return the tensor reshaped so that each row is one head."""
        return MatrixSizes(self.elements / dim, dim, self.width)


class KernelWriter(msgspec.Struct):
    """Collects the kernels of a pass; if `training`, those of its backward pass too."""

    numerics: Numerics
    training: bool = True
    frozen: bool = False  # weights have no gradients
    lora_rank: int = 0  # rank of LoRA adapters on frozen weights; 0: none
    targets: frozenset[str] = frozenset()  # projections with an adapter; empty: all
    quantised: bool = False  # frozen weights are 4-bit and dequantised for every GEMM (QLoRA)
    accumulates: bool = False  # GEMMs of weight gradients add to the gradients of earlier micro-batches
    count: float = 1.0  # how often each kernel runs: the number of equal layers
    ops: list[Op] = msgspec.field(default_factory=list)

    @property
    def compute(self) -> float:
        """Bytes per element of GEMM operands."""
        return self.numerics.widths.compute

    @property
    def stream(self) -> float:
        """Bytes per element of the residual stream."""
        return self.numerics.widths.stream

    @property
    def mixed(self) -> bool:
        """Whether autocast is on."""
        return self.numerics.widths.mixed

    @property
    def trains_weights(self) -> bool:
        """Whether the base weights are trained, not only LoRA adapters."""
        return not self.frozen and not self.lora_rank

    def put(self, op: Op, phase: Phase = "forward") -> None:
        """Append an operator; operators of the backward pass are dropped unless training."""
        if phase == "forward" or self.training:
            count = op.count * self.count
            self.ops.append(Op(op.kind, op.unit, op.flops, op.read, op.write, op.sizes, count, phase, op.calls, op.role))

    def move(
        self, kind: str, read: Number, write: Number, *, width: float, sizes: OpSizes, phase: Phase = "forward", role: str = ""
    ) -> None:
        """Append a kernel that reads and writes this many bytes; `width` is the bytes per element."""
        if phase == "forward" or self.training:
            self.ops.append(Op(kind, self.numerics.dtype(width), 0.0, read, write, sizes, self.count, phase, 1.0, role))

    def elementwise(
        self, x: MatrixSizes, read: float, write: float, *, phase: Phase = "forward", kind: str = "elementwise", role: str = ""
    ) -> None:
        """Append an elementwise kernel that reads and writes this many bytes per element of `x`."""
        sizes = {"elements": x.elements}
        self.move(kind, x.elements * read, x.elements * write, width=write, sizes=sizes, phase=phase, role=role)

    def backward(self, x: MatrixSizes, read: float, write: float, *, role: str = "") -> None:
        """Append an elementwise kernel to the backward pass."""
        self.elementwise(x, read, write, phase="backward", role=role)

    def reduce(self, x: MatrixSizes, phase: Phase = "forward") -> None:
        """Append a sum or mean of each row."""
        self.move("reduce", x.bytes, x.rows * x.width, width=x.width, sizes=x.sizes, phase=phase)

    def reduce_columns(self, x: MatrixSizes) -> None:
        """Append a sum over the rows, as for the gradient of a bias."""
        self.move("reduce_columns", x.bytes, x.columns * x.width, width=x.width, sizes=x.sizes, phase="backward")

    def tiny_kernels(self, count: float = 1, phase: Phase = "forward") -> None:
        """Append `count` kernels on a few numbers each, which cost only their launch."""
        self.put(Op("elementwise", "fp32", read=4096.0, write=4096.0, sizes={"elements": 1024.0}, count=float(count)), phase)

    def concat(self, x: MatrixSizes, phase: Phase = "forward") -> None:
        """Append a concatenation whose result has the size of `x`."""
        self.elementwise(x, x.width, x.width, phase=phase, kind="transpose", role="concat")

    def transpose(self, x: MatrixSizes, phase: Phase = "forward") -> None:
        """Append a copy that reorders heads and tokens."""
        self.elementwise(x, x.width, x.width, phase=phase, kind="copy", role=STRIDED)

    def copy(self, elements: Number, source: float, target: float, phase: Phase = "forward") -> None:
        """Append a cast of `elements` elements from `source` to `target` bytes each; PyTorch does not vectorise upcasts."""
        role = "upcast" if target > source else ""
        sizes = {"elements": elements}
        self.move("copy", elements * source, elements * target, width=target, sizes=sizes, phase=phase, role=role)

    def cast(self, x: MatrixSizes, width: float) -> MatrixSizes:
        """Append a cast and the cast of its gradient back; return the cast tensor."""
        if x.width == width:
            return x
        self.copy(x.elements, x.width, width)
        self.copy(x.elements, width, x.width, "backward")
        return x.like(width=width)

    def sum_gradients(self, x: MatrixSizes, uses: int) -> None:
        """Append the sums of gradients for a tensor that is used `uses` times."""
        for _ in range(uses - 1):
            self.backward(x, 2 * x.width, x.width)
