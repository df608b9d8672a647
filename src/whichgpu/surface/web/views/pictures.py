"""What the charts of pages have in common: colours that follow the page's theme, type, and how marks are told apart.

Colours are names of the style sheet's variables with a fallback: inside a page they follow light and dark, alone in a file the
fallback holds. Every nominal colour has a shape or a dash beside it, so that none is told by colour alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whichgpu.surface.charts import PALETTE

INK, SOFT, GRID = "var(--ink, #1b2430)", "var(--soft, #55606e)", "var(--line, #d9dde3)"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
COLOURS = tuple(f"var(--c{place}, {colour})" for place, colour in enumerate(PALETTE, start=1))
ACCENT = "var(--accent, #0b5cad)"
CHOSEN = "var(--chosen, #b3430a)"
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [10, 4], [4, 2], [1, 3], [12, 3, 3, 3])
WIDTH = 680
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
PLAIN = ",.3~r"  # numbers to three digits, without prefixes
SECONDS = "datum.value >= 1 ? datum.value + ' s' : datum.value >= 0.001 ? datum.value * 1000 + ' ms' : datum.value * 1e6 + ' µs'"

CONFIG: dict[str, Any] = {
    "font": FONT,
    "background": None,
    "view": {"stroke": None},
    "axis": {
        "labelColor": SOFT, "titleColor": SOFT, "gridColor": GRID, "domainColor": GRID, "tickColor": GRID, "labelFontSize": 12,
        "titleFontSize": 12, "titleFontWeight": "normal", "titlePadding": 10, "labelPadding": 6, "labelLimit": 200,
    },
    "legend": {"labelColor": INK, "titleColor": SOFT, "labelFontSize": 12, "orient": "bottom", "symbolSize": 140,
        "symbolStrokeWidth": 2.2,},
    "text": {"color": INK, "fontSize": 12, "font": FONT},
}  # fmt: skip


def picture(described: str, height: int, width: int = WIDTH, **spec: Any) -> dict[str, Any]:
    """A whole spec; `described` is its text alternative."""
    fitted = {"type": "fit-x", "contains": "padding"}
    whole = {"$schema": SCHEMA, "description": described, "width": width, "height": height, "autosize": fitted, "config": CONFIG}
    return whole | spec


def quantity(field: str, title: str | None, log: bool = False, **more: Any) -> dict[str, Any]:
    """A quantitative channel."""
    scale = {"scale": {"type": "log", "nice": False, "padding": 28}} if log else {}
    return {"field": field, "type": "quantitative", "title": title, **scale, **more}


def coloured(field: str, names: Sequence[str], **more: Any) -> dict[str, Any]:
    """A colour for each name."""
    return {
        "field": field, "type": "nominal", "title": None, "sort": list(names),
        "scale": {"domain": list(names), "range": [COLOURS[place % len(COLOURS)] for place in range(len(names))]}, **more,
    }  # fmt: skip


def shaped(field: str, names: Sequence[str]) -> dict[str, Any]:
    """A shape for each name."""
    shapes = [SHAPES[place % len(SHAPES)] for place in range(len(names))]
    return {
        "field": field,
        "type": "nominal",
        "title": None,
        "sort": list(names),
        "scale": {"domain": list(names), "range": shapes},
    }


def dashed(field: str, names: Sequence[str]) -> dict[str, Any]:
    """A dash for each name."""
    dashes = [DASHES[place % len(DASHES)] for place in range(len(names))]
    return {
        "field": field,
        "type": "nominal",
        "title": None,
        "sort": list(names),
        "scale": {"domain": list(names), "range": dashes},
    }


def tips(*named: tuple[str, str]) -> list[dict[str, Any]]:
    """Fields and their titles for the tooltip."""
    return [{"field": field, "title": title} for field, title in named]


def decades(low: float, high: float) -> list[float]:
    """Powers of ten from one number to another.

    >>> decades(0.002, 30)
    [0.01, 0.1, 1.0, 10.0]
    """
    return [float(f"1e{power}") for power in range(-12, 13) if low <= 10.0**power <= high]
