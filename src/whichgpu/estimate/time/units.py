"""Arithmetic units of GPUs from `data/units.csv`: operand width, and rate and energy relative to 16-bit matrix units."""

from __future__ import annotations

from pathlib import Path

import msgspec

from whichgpu.base.bundled_data import data_rows, parse_record

TABLE = Path(__file__).parent / "data" / "units.csv"


class ArithmeticUnit(msgspec.Struct, frozen=True):
    """Arithmetic unit of a GPU; rate and energy relative to fp16 are None if it is not a matrix unit."""

    name: str
    bytes: float  # bytes of an operand's element
    rate_vs_fp16: float | None
    energy_vs_fp16: float | None
    product_class: str  # units whose GEMMs share an architecture's parameters: fp32, 16bit (tf32 too), fp8_fp4, int8
    conv_class: str  # units whose convolutions share parameters: fp32, tf32, 16bit (and below)
    term_class: str  # units whose steps share corrections: single, tf32, half, narrow

    @property
    def below_16_bits(self) -> bool:
        """Whether the operands have fewer than 16 bits; GPUs without the unit dequantise them to 16 bits."""
        return self.product_class in ("fp8_fp4", "int8")


UNITS = {row["name"]: parse_record(ArithmeticUnit, row) for row in data_rows(TABLE)}
