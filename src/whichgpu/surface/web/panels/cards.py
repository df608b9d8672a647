"""Cards on a page: a number with its unit, its 90% range and its basis (measured, calibrated, extrapolated)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from whichgpu.base.figure import Figure
from whichgpu.base.messages import Language

Card = dict[str, Any]


def card(title: str, value: str, unit: str, range: str = "", basis: str = "", share: int | None = None) -> Card:
    """Return a card of a web page: a titled number with unit, range and basis; `share` is the percentage of its meter, if any."""
    return {"title": title, "value": value, "unit": unit, "range": range, "basis": basis, "share": share}


def figure_card(
    title: str, figure: Figure, write: Callable[[float], str], language: Language, unit: str = "", always_range: bool = False
) -> Card:
    """Return a web page's card of a figure written by `write`, which may add a unit; with the range if its ends differ."""
    value, _, own_unit = write(figure.value).partition(" ")
    return card(title, value, own_unit or unit, range_text(figure, write, language, always_range), figure.basis)


def range_text(figure: Figure, write: Callable[[float], str], language: Language, always: bool = False) -> str:
    """Return the 90% range of a figure as text; empty if both ends are written alike, unless `always`."""
    low, high = write(figure.low), write(figure.high)
    return language.text("web.range", low=low, high=high) if always or low != high else ""
