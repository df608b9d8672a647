"""Element widths and arithmetic unit of a precision: bytes of a parameter, of the residual stream and of a GEMM operand."""

from __future__ import annotations

import msgspec

from whichgpu.catalog.engines.registry import engine_record
from whichgpu.estimate.memory.training.operators import ElementWidths, training_widths
from whichgpu.workload.precisions import PRECISION_BY_NAME


class Numerics(msgspec.Struct, frozen=True):
    """Number formats of a pass: `unit` of its GEMMs, `widths` of its tensors, `half` the 16-bit type used with fp32."""

    unit: str
    widths: ElementWidths
    half: str = "bf16"
    operand_unit: str = ""  # unit of linear layers' GEMMs if training quantises their operands

    def dtype(self, width: float) -> str:
        """Return the data type of elements of `width` bytes."""
        return "fp32" if width >= 4 else self.half


def numerics(precision: str, year: int | None = None, engine: str | None = None) -> Numerics:
    """Return the element widths and arithmetic unit of a precision; weight-only quantised precisions compute in fp16.

    `engine` and `year` decide whether `fp32-default` means TF32 for GEMMs.

    Chips with bf16 units run fp16 at the same rate, and on chips without them (Volta, Turing) engines use fp16.
    """
    record = PRECISION_BY_NAME[precision]
    unit = record.unit
    if precision == "fp32-default" and engine_record(engine, year).tf32_matmul:
        unit = "tf32"
    widths = ElementWidths(record.parameter_bytes, record.stream_bytes, record.compute_bytes)
    return Numerics(unit, widths, "fp16" if unit == "fp16" else "bf16")


def training_numerics(precision: str, year: int | None = None, engine: str | None = None) -> Numerics:
    """Return the element widths and units of training; low-precision formats are those of linear layers' GEMMs only.

    Attention, norms, embeddings, router and output head stay in bf16 (NVIDIA Transformer Engine's user guide).
    """
    record = PRECISION_BY_NAME[precision]
    if not record.quantises_training:
        return numerics(precision, year, engine)
    return Numerics("bf16", training_widths(record), operand_unit=record.operand_unit)
