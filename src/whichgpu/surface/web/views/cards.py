"""Cards: a number with its unit, its range and how it is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from whichgpu.base.figure import Figure
from whichgpu.base.messages import Language

Card = dict[str, Any]


def card(title: str, value: str, unit: str, range: str = "", basis: str = "", share: int | None = None) -> Card:
    """A card; `share` is the percentage that a meter shows."""
    return {"title": title, "value": value, "unit": unit, "range": range, "basis": basis, "share": share}


def figure_card(
    title: str, figure: Figure, write: Callable[[float], str], language: Language, unit: str = "", always_range: bool = False
) -> Card:
    """Card of a figure written by `write`, which may add a unit of its own; the range where its ends differ."""
    value, _, own_unit = write(figure.value).partition(" ")
    low, high = write(figure.low), write(figure.high)
    range = language.text("web.range", low=low, high=high) if always_range or low != high else ""
    return card(title, value, own_unit or unit, range, figure.basis)
