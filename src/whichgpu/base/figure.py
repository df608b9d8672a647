"""A figure: a number with its 90% range, unit, basis and sources."""

from __future__ import annotations

from typing import Literal

import msgspec

Basis = Literal["measured", "calibrated", "modelled", "published"]


class Figure(msgspec.Struct, frozen=True):
    """A number with its 90% range, unit, basis (such as published or calibrated) and sources.

    >>> Figure(41.0, 38.0, 45.0, "token/s", "calibrated", ("truth-h200",)).relative_range
    (0.926..., 1.097...)
    """

    value: float
    low: float
    high: float
    unit: str
    basis: Basis
    sources: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"a figure's value must lie in its range: {self.low} <= {self.value} <= {self.high}")

    @classmethod
    def exact(cls, value: float, unit: str, basis: Basis = "published", sources: tuple[str, ...] = ()) -> Figure:
        """Return a figure without uncertainty, whose range is the value itself."""
        return cls(value, value, value, unit, basis, sources)

    @property
    def relative_range(self) -> tuple[float, float]:
        """Return the low and high end of the 90% range, each divided by the value."""
        return self.low / self.value, self.high / self.value
