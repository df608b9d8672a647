"""A call of a framework operator with its sizes worked out, and the options that decide which kernels it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from whichgpu.estimate.time.operators import Number, Op, Phase

if TYPE_CHECKING:
    Sizes = tuple[Number, ...]

DTYPE_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "bfloat16": 2, "float16": 2, "int8": 1, "uint8": 1, "bool": 1}
IMAGE_AXES = 4  # of a batch of images


@dataclass(frozen=True, slots=True)
class LoweringOptions:
    """How a model is run."""

    half: str = "bf16"  # the unit of 16-bit products: bf16 or fp16
    gemm32: str = "fp32"  # the unit of products of fp32 matrices: fp32 or tf32
    conv32: str = "fp32"  # the same of convolutions
    nhwc: bool = True
    amp: bool = False
    training: bool = True
    narrow: str = ""  # the unit of products quantised below 16 bits; empty: none are
    narrow_width: float = 1.0  # bytes of their operands' elements


@dataclass(slots=True)  # not frozen, as Op is not
class Call:
    """One operator of a pass: its name without namespace and overload, and shapes whose numbers may be arrays over batches."""

    name: str
    phase: Phase
    dtype: str  # of the first output
    count: float
    inputs: tuple[Sizes, ...] = ()
    outputs: tuple[Sizes, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    growing: tuple[tuple[bool, ...], ...] = ()  # of each input: which sizes grow with the batch; () where that is not known
    grown: tuple[bool, ...] = ()  # of each output: whether it grows with the batch
    alike: bool = False  # whether all inputs have one shape

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return DTYPE_BYTES.get(self.dtype, 4)

    def op(self, kind: str, unit: str, read: Number = 0.0, write: Number = 0.0, **rest: Any) -> Op:
        """An operator of this call; what the call costs the host is added later."""
        return Op(kind, unit, read=read, write=write, count=self.count, phase=self.phase, calls=0.0, **rest)

    def mine(self, op: Op) -> Op:
        """An operator made elsewhere, as one of this call."""
        return replace(op, count=op.count * self.count, phase=self.phase, calls=0.0)

    def unit(self, options: LoweringOptions, single: str = "fp32") -> str:
        """The unit its arithmetic runs on; `single` is that of fp32."""
        return options.half if self.dtype in ("bfloat16", "float16") else single


def elements(shape: Sizes) -> Number:
    """How many numbers a tensor of this shape has.

    >>> elements((2.0, 3.0, 4.0))
    24.0
    """
    total: Number = 1.0
    for size in shape:
        total = total * size
    return total
