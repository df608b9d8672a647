"""Parts of Vega-Lite specs that charts share: encoding channels, and the settings around a whole chart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from whichgpu.surface.charts.palette import COLOURS, DASHES, FONT, GRID, INK, SHAPES, SOFT

Spec = dict[str, Any]
WIDTH = 680  # Width of a chart in pixels.
MAX_LINES = 8  # Largest number of lines in a chart, which a reader can still tell apart.
PAGE_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
FILE_SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
FILE_CONFIG = {"font": "sans-serif", "view": {"stroke": None}}
_VARIABLE = re.compile(r"var\(--[a-z0-9]+, (#[0-9a-fA-F]+)\)")

PAGE_CONFIG: Spec = {
    "font": FONT,
    "background": None,
    "view": {"stroke": None},
    "axis": {
        "labelColor": SOFT, "titleColor": SOFT, "gridColor": GRID, "domainColor": GRID, "tickColor": GRID, "labelFontSize": 12,
        "titleFontSize": 12, "titleFontWeight": "normal", "titlePadding": 10, "labelPadding": 6, "labelLimit": 200, "aria": False,
    },  # Vega describes axes and legends in English only; the text alternative of the whole chart covers them.
    "legend": {"labelColor": INK, "titleColor": SOFT, "labelFontSize": 12, "orient": "bottom", "symbolSize": 140,
        "symbolStrokeWidth": 2.2, "aria": False,},
    "text": {"color": INK, "fontSize": 12, "font": FONT},
}  # fmt: skip


def picture(description: str, height: int, width: int = WIDTH, **spec: Any) -> Spec:
    """Return the whole Vega-Lite spec of a chart on a web page; `description` is the chart's text alternative."""
    fit = {"type": "fit-x", "contains": "padding"}
    frame = {"$schema": PAGE_SCHEMA, "description": description, "width": width, "height": height, "autosize": fit}
    return frame | {"config": PAGE_CONFIG} | _titled(spec)


def file_chart(*pictures: tuple[str, Spec]) -> Spec:
    """Return the Vega-Lite spec of a chart file: the titled `pictures` below each other, in fixed colours."""
    left_out = ("$schema", "autosize", "config", "description")
    panels = [{"title": title, **{name: part for name, part in spec.items() if name not in left_out}} for title, spec in pictures]
    content = panels[0] if len(panels) == 1 else {"vconcat": panels}
    return dict(_fixed_colours({"$schema": FILE_SCHEMA, **content, "config": FILE_CONFIG}))


def _fixed_colours(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _fixed_colours(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_fixed_colours(item) for item in value]
    return _VARIABLE.sub(r"\1", value) if isinstance(value, str) else value


def _titled(spec: Spec) -> Spec:
    """Return a chart whose untitled channels get the title of their field's tooltip, for the marks' text alternatives."""
    views = [one for one in (spec, *spec.get("layer", ())) if "encoding" in one]
    titles = {tip["field"]: tip["title"] for one in views for tip in one["encoding"].get("tooltip", ())}
    titled = {
        id(one): {**one, "encoding": {name: _with_title(name, to, titles) for name, to in one["encoding"].items()}}
        for one in views
    }
    base = titled.get(id(spec), spec)
    return base | ({"layer": [titled.get(id(one), one) for one in spec["layer"]]} if "layer" in spec else {})


def _with_title(channel: str, to: Any, titles: dict[str, str]) -> Any:
    """Return a Vega-Lite channel with the title of its field, without a title on its axis or legend."""
    is_untitled = isinstance(to, dict) and to.get("title", None if channel == "text" else "") is None
    if not is_untitled or not titles.get(to.get("field", "")):
        return to
    if channel == "text":
        return {**to, "title": titles[to["field"]]}
    guide = "axis" if channel in ("x", "y") else "legend"
    untitled = {guide: {**to.get(guide, {}), "title": None}} if to.get(guide, {}) is not None else {}
    return {**to, "title": titles[to["field"]], **untitled}


def quantity(field: str, title: str | None, log: bool = False, **more: Any) -> Spec:
    """Return the Vega-Lite encoding channel of a numeric field, on a logarithmic scale if `log`."""
    scale = {"scale": {"type": "log", "nice": False, "padding": 28}} if log else {}
    return {"field": field, "type": "quantitative", "title": title, **scale, **more}


def row_names(field: str, order: Sequence[str]) -> Spec:
    """Return a Vega-Lite channel with names on the vertical axis in this order, without grid lines."""
    axis = {"domain": False, "ticks": False, "labelColor": INK}
    return {"field": field, "type": "nominal", "sort": list(order), "title": None, "axis": axis}


def coloured(field: str, names: Sequence[str], **more: Any) -> Spec:
    """Return a Vega-Lite channel that gives each name a colour."""
    return _by_name(field, names, COLOURS) | more


def shaped(field: str, names: Sequence[str]) -> Spec:
    """Return a Vega-Lite channel that gives each name a point shape."""
    return _by_name(field, names, SHAPES)


def dashed(field: str, names: Sequence[str]) -> Spec:
    """Return a Vega-Lite channel that gives each name a dash pattern of its line."""
    return _by_name(field, names, DASHES)


def _by_name(field: str, names: Sequence[str], values: Sequence[Any]) -> Spec:
    scale = {"domain": list(names), "range": [values[place % len(values)] for place in range(len(names))]}
    return {"field": field, "type": "nominal", "title": None, "sort": list(names), "scale": scale}


def tips(*titles: tuple[str, str]) -> list[Spec]:
    """Return Vega-Lite tooltip channels for pairs of a field and its title."""
    return [{"field": field, "title": title} for field, title in titles]


def decades(low: float, high: float) -> list[float]:
    """Return the powers of ten from one number to another.

    >>> decades(0.002, 30)
    [0.01, 0.1, 1.0, 10.0]
    """
    return [float(f"1e{power}") for power in range(-12, 13) if low <= 10.0**power <= high]
