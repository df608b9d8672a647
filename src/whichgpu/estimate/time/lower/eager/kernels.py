"""Kernels as PyTorch launches them eagerly, one by one, forward and backward, by the bytes each must move."""

from __future__ import annotations

from dataclasses import dataclass, field

from whichgpu.estimate.time.lower.numerics import Numerics
from whichgpu.estimate.time.operators import Number, Op, Phase

# The role of elementwise kernels that PyTorch cannot vectorise: an operand is broadcast, strided or of another width.
STRIDED = "strided"


@dataclass(frozen=True, slots=True)
class Tensor:
    """`rows` x `columns` elements of `width` bytes."""

    rows: Number
    columns: Number
    width: float

    @property
    def elements(self) -> Number:
        """How many."""
        return self.rows * self.columns

    @property
    def bytes(self) -> Number:
        """Its size."""
        return self.elements * self.width

    @property
    def sizes(self) -> dict[str, Number]:
        """Rows and elements of one, in the words of the kinds of operators."""
        return {"rows": self.rows, "width": self.columns}

    def like(self, columns: Number | None = None, width: float | None = None) -> Tensor:
        """A tensor of as many rows."""
        return Tensor(self.rows, self.columns if columns is None else columns, self.width if width is None else width)

    def per_head(self, dim: float) -> Tensor:
        """The same elements, one head a row."""
        return Tensor(self.elements / dim, dim, self.width)


@dataclass(slots=True)
class KernelWriter:
    """Writes the kernels of a pass; with `training`, those of its backward pass too."""

    numerics: Numerics
    training: bool = True
    frozen: bool = False  # weights without gradients
    lora_rank: int = 0  # of adapters beside the frozen weights
    targets: frozenset[str] = frozenset()  # projections that have one; empty: all
    quantised: bool = False  # frozen weights are stored in 4 bits and unpacked for every product (QLoRA)
    count: float = 1.0  # how often all of it is run: layers alike
    ops: list[Op] = field(default_factory=list)

    @property
    def compute(self) -> float:
        """Bytes of a product's operand."""
        return self.numerics.widths.compute

    @property
    def stream(self) -> float:
        """Bytes of an element of the residual stream."""
        return self.numerics.widths.stream

    @property
    def mixed(self) -> bool:
        """Whether autocast is on."""
        return self.numerics.widths.mixed

    def put(self, op: Op, phase: Phase = "forward") -> None:
        """One operator; those of the backward pass only when training."""
        if phase == "forward" or self.training:
            count = op.count * self.count
            self.ops.append(Op(op.kind, op.unit, op.flops, op.read, op.write, op.sizes, count, phase, op.calls, op.role))

    def move(
        self,
        kind: str,
        read: Number,
        write: Number,
        *,
        width: float,
        sizes: dict[str, Number],
        phase: Phase = "forward",
        role: str = "",
    ) -> None:
        """A kernel by the bytes it moves; `width` is that of its elements."""
        if phase == "forward" or self.training:
            self.ops.append(Op(kind, self.numerics.dtype(width), 0.0, read, write, sizes, self.count, phase, 1.0, role))

    def elementwise(
        self,
        x: Tensor,
        read: float,
        write: float,
        *,
        phase: Phase = "forward",
        kind: str = "pointwise",
        role: str = "",
    ) -> None:
        """An elementwise kernel: so many bytes read and written for each element of `x`."""
        sizes = {"elements": x.elements}
        self.move(kind, x.elements * read, x.elements * write, width=write, sizes=sizes, phase=phase, role=role)

    def backward(self, x: Tensor, read: float, write: float, *, kind: str = "pointwise", role: str = "") -> None:
        """An elementwise kernel of the backward pass."""
        self.elementwise(x, read, write, phase="backward", kind=kind, role=role)

    def reduce(self, x: Tensor, phase: Phase = "forward", width: float | None = None) -> None:
        """A sum or mean of each row."""
        wide = x.width if width is None else width
        self.move("reduce", x.bytes, x.rows * wide, width=x.width, sizes=x.sizes, phase=phase)

    def reduce_columns(self, x: Tensor, phase: Phase = "backward") -> None:
        """A sum over the rows, as for the gradient of a bias."""
        self.move("reduce_columns", x.bytes, x.columns * x.width, width=x.width, sizes=x.sizes, phase=phase)

    def tiny_kernels(self, count: float = 1, phase: Phase = "forward") -> None:
        """Kernels on a few numbers: they cost their launch."""
        self.put(Op("pointwise", "fp32", read=4096.0, write=4096.0, sizes={"elements": 1024.0}, count=float(count)), phase)

    def concat(self, x: Tensor, phase: Phase = "forward") -> None:
        """Tensors joined to one of this size."""
        self.elementwise(x, x.width, x.width, phase=phase, kind="transpose", role="join")

    def transpose(self, x: Tensor, phase: Phase = "forward") -> None:
        """A copy into another order of heads and tokens."""
        self.elementwise(x, x.width, x.width, phase=phase, kind="copy", role=STRIDED)

    def copy(self, elements: Number, source: float, target: float, phase: Phase = "forward") -> None:
        """A copy in another width. PyTorch has no vectorised kernel for widening."""
        role = "widen" if target > source else ""
        sizes = {"elements": elements}
        self.move("copy", elements * source, elements * target, width=target, sizes=sizes, phase=phase, role=role)

    def cast(self, x: Tensor, width: float) -> Tensor:
        """The tensor in another width; its gradient is cast back."""
        if x.width == width:
            return x
        self.copy(x.elements, x.width, width)
        self.copy(x.elements, width, x.width, "backward")
        return x.like(width=width)

    def fan_out(self, x: Tensor, uses: int) -> None:
        """A tensor used several times: its gradients are added one to another."""
        for _ in range(uses - 1):
            self.backward(x, 2 * x.width, x.width)
