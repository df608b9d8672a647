"""Plausibility checks of driver values: a percentage above 100, a GPU of 9 kW or 2^63 bytes is dropped."""

from __future__ import annotations

from typing import Any

from whichgpu.base.units import MIB

MAX_NAME_LENGTH = 96  # Length of NVML's name buffer in characters (nvml.h).

# Plausible lowest and highest values, in the drivers' units.
BOUNDS: dict[str, tuple[float, float]] = {
    "percent": (0, 100),
    "milliwatts": (0, 5_000_000),
    "celsius": (-60, 150),
    "megahertz": (0, 20_000),
    "bytes": (0, 64 << 40),
    "kilobytes_per_second": (0, 10**9),
    "generation": (1, 8),
    "width": (1, 32),
    "count": (0, 1_000_000),
}


class PlausibilityFilter:
    """Passes plausible driver values, replaces the others by None, and collects the names of their fields."""

    def __init__(self) -> None:
        self._odd: dict[str, None] = {}

    @property
    def odd(self) -> tuple[str, ...]:
        """Return the names of fields whose values were dropped as implausible."""
        return tuple(self._odd)

    def number(self, name: str, value: Any, kind: str) -> int | None:
        """Return a driver's integer if it is within the plausible limits of its quantity, else None."""
        if value is None:
            return None
        low, high = BOUNDS[kind]
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            self._odd[name] = None
            return None
        return int(value)

    def scaled(self, name: str, value: Any, kind: str, scale: int) -> int | None:
        """Return a driver's number times `scale`, which converts its unit to the base unit; None if it is implausible."""
        number = self.number(name, value, kind)
        return None if number is None else number * scale

    def watts(self, name: str, value: Any) -> float | None:
        """Return a driver's milliwatts as watts; None if they are implausible."""
        number = self.number(name, value, "milliwatts")
        return None if number is None else number / 1000

    def memory(self, name: str, total: Any, free: Any) -> tuple[int | None, int | None]:
        """Return total and used bytes of GPU memory from total and free ones; both None if these contradict each other."""
        size, left = self.number(name, total, "bytes"), self.number(name, free, "bytes")
        if size is not None and (size < MIB or (left is not None and left > size)):
            self._odd[name] = None
            return None, None
        return size, None if size is None or left is None else size - left

    def words(self, name: str, value: Any) -> str | None:
        """Return a driver's text if it is printable and not too long, else None."""
        if value is None:
            return None
        text = "".join(mark for mark in str(value) if mark.isprintable()).strip()
        if not text or len(text) > MAX_NAME_LENGTH:
            self._odd[name] = None
        return text[:MAX_NAME_LENGTH] or None
