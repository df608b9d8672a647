"""A call of a PyTorch operator with its sizes, and the options that decide which kernels it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from whichgpu.estimate.time.operators import Number, Op, Phase

Sizes = tuple[Number, ...]
DTYPE_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "bfloat16": 2, "float16": 2, "int8": 1, "uint8": 1, "bool": 1}
IMAGE_AXES = 4  # batch, channels, height, width


class LoweringOptions(msgspec.Struct, frozen=True):
    """Options that decide which kernels PyTorch's calls run: arithmetic units, memory format, autocast, quantisation."""

    half: str = "bf16"  # unit of 16-bit GEMMs: bf16 or fp16
    gemm32: str = "fp32"  # unit of fp32 GEMMs: fp32 or tf32
    conv32: str = "fp32"  # unit of fp32 convolutions
    nhwc: bool = True
    amp: bool = False
    training: bool = True
    quantised_unit: str = ""  # unit of GEMMs quantised below 16 bits; empty if none is quantised
    quantised_width: float = 1.0  # bytes per operand element of quantised GEMMs


class Call(msgspec.Struct):
    """One call of a PyTorch operator in a pass: its bare name and its shapes, whose numbers may be arrays over batches."""

    name: str
    phase: Phase
    dtype: str  # data type of the first output
    count: float
    inputs: tuple[Sizes, ...] = ()
    outputs: tuple[Sizes, ...] = ()
    attributes: Mapping[str, Any] = msgspec.field(default_factory=dict)
    growing: tuple[tuple[bool, ...], ...] = ()  # by input: which sizes grow with the batch; () if unknown
    grown: tuple[bool, ...] = ()  # by output: whether it grows with the batch
    alike: bool = False  # whether all inputs have the same shape

    @property
    def width(self) -> int:
        """Bytes of a tensor element."""
        return DTYPE_BYTES.get(self.dtype, 4)

    def op(self, kind: str, unit: str, read: Number = 0.0, write: Number = 0.0, **rest: Any) -> Op:
        """Return an operator that this PyTorch call launches, with the bytes it reads and writes; host cost is added later."""
        return Op(kind, unit, read=read, write=write, count=self.count, phase=self.phase, calls=0.0, **rest)

    def adopt(self, op: Op) -> Op:
        """Return a copy of an operator that counts as launched by this call."""
        return replace(op, count=op.count * self.count, phase=self.phase, calls=0.0)

    def unit(self, options: LoweringOptions, single: str = "fp32") -> str:
        """Return the arithmetic unit of this call; `single` is the unit for fp32."""
        return options.half if self.dtype in ("bfloat16", "float16") else single


def elements(shape: Sizes) -> Number:
    """Return the number of elements of a shape.

    >>> elements((2.0, 3.0, 4.0))
    24.0
    """
    total: Number = 1.0
    for size in shape:
        total = total * size
    return total
