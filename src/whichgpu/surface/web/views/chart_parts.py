"""What the charts of pages have in common: colours that follow the page's theme, type, and how marks are told apart.

Colours are names of the style sheet's variables with a fallback: inside a page they follow light and dark, alone in a file the
fallback holds. Every nominal colour has a shape or a dash beside it, so that none is told by colour alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whichgpu.surface.charts.vega import PALETTE

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
        "titleFontSize": 12, "titleFontWeight": "normal", "titlePadding": 10, "labelPadding": 6, "labelLimit": 200, "aria": False,
    },  # Vega describes axes and legends in English alone; the text alternative of the whole says what they do
    "legend": {"labelColor": INK, "titleColor": SOFT, "labelFontSize": 12, "orient": "bottom", "symbolSize": 140,
        "symbolStrokeWidth": 2.2, "aria": False,},
    "text": {"color": INK, "fontSize": 12, "font": FONT},
}  # fmt: skip


def picture(described: str, height: int, width: int = WIDTH, **spec: Any) -> dict[str, Any]:
    """A whole spec; `described` is its text alternative."""
    fitted = {"type": "fit-x", "contains": "padding"}
    whole = {"$schema": SCHEMA, "description": described, "width": width, "height": height, "autosize": fitted, "config": CONFIG}
    return whole | _titled(spec)


def _titled(spec: dict[str, Any]) -> dict[str, Any]:
    """The same with titles for channels that show none: a mark's label would call them by the names of the data."""
    views = [one for one in (spec, *spec.get("layer", ())) if "encoding" in one]
    told = {tip["field"]: tip["title"] for one in views for tip in one["encoding"].get("tooltip", ())}
    named = {
        id(one): {**one, "encoding": {name: _named(name, to, told) for name, to in one["encoding"].items()}} for one in views
    }
    whole = named.get(id(spec), spec)
    return whole | ({"layer": [named.get(id(one), one) for one in spec["layer"]]} if "layer" in spec else {})


def _named(channel: str, to: Any, told: dict[str, str]) -> Any:
    """A channel with the title its field has in tooltips, which its axis or legend goes on without."""
    is_untitled = isinstance(to, dict) and to.get("title", None if channel == "text" else "") is None
    if not is_untitled or not told.get(to.get("field", "")):
        return to
    if channel == "text":
        return {**to, "title": told[to["field"]]}
    guide = "axis" if channel in ("x", "y") else "legend"
    untitled = {guide: {**to.get(guide, {}), "title": None}} if to.get(guide, {}) is not None else {}
    return {**to, "title": told[to["field"]], **untitled}


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
