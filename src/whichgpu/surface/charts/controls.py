"""Legend filters and zoom of a chart on a web page, as Vega-Lite selections.

A click on a legend entry leaves only that series; dragging moves the chart, Ctrl and the wheel zoom it, a double click shows all
of it again. `usermeta` of the spec names the fields, from which the page's script makes the same controls for the keyboard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whichgpu.surface.charts.parts import Spec

LEGEND_CHANNELS = ("color", "strokeDash", "shape")
MAX_ROWS = 240  # Largest number of rows in a chart's table; its CSV has all.
ZOOM = "zoom"  # Name of the selection that is bound to the axes.
# A plain wheel and a finger scroll the page.
ZOOM_EVENTS = {
    "zoom": "wheel![event.ctrlKey]",
    "translate": "[pointerdown[event.pointerType == 'mouse'], window:pointerup] > window:pointermove!",
}


def with_controls(spec: Spec) -> Spec:
    """Return a chart with several series that has a legend filter for each of their fields and a zoom; others as they are."""
    home = next((view for view in _views(spec) if _series(view)), None)
    if home is None:
        return spec
    series, axes = _series(home), _axes(home, spec)
    filters = [{"name": _name(field), "select": {"type": "point", "fields": [field]}, "bind": "legend"} for field in series]
    zoom = {"name": ZOOM, "select": {"type": "interval", "encodings": list(axes), **ZOOM_EVENTS}, "bind": "scales"}
    params = {"params": [*filters, zoom] if axes else filters}

    def controlled(view: Spec) -> Spec:
        chosen = [{"filter": {"param": _name(field)}} for field in series if any(field in value for value in _values(view, spec))]
        return {**view, **({"transform": chosen} if chosen else {}), **(params if view is home else {})}

    layers = {"layer": [controlled(view) for view in spec["layer"]]} if "layer" in spec else controlled(spec)
    return {**spec, **layers, "usermeta": {"series": series, "zoom": axes, "stacked": _stacked(home)}}


def _views(spec: Spec) -> Sequence[Spec]:
    layers: Sequence[Spec] = spec.get("layer", (spec,))
    return layers


def _name(field: str) -> str:
    return f"only_{field}"


def _series(view: Spec) -> dict[str, list[str]]:
    """Return the names of a view's series by field: those of each legend with at least two."""
    channels = [view["encoding"].get(name, {}) for name in LEGEND_CHANNELS]
    return {one["field"]: one["scale"]["domain"] for one in channels if len(one.get("scale", {}).get("domain", ())) > 1}


def _axes(home: Spec, spec: Spec) -> dict[str, str]:
    """Return the field of each axis that can be zoomed: continuous, and the same for all layers."""
    own = spec.get("resolve", {}).get("scale", {})
    shared = {axis: to for axis in ("x", "y") if (to := home["encoding"].get(axis)) and axis not in own}
    return {axis: to["field"] for axis, to in shared.items() if to["type"] in ("quantitative", "temporal")}


def _stacked(home: Spec) -> list[str]:
    """Return the axes on which bars are stacked: their zoom begins at zero."""
    return [axis for axis in ("x", "y") if home["encoding"].get(axis, {}).get("stack")]


def _values(view: Spec, spec: Spec) -> Sequence[dict[str, Any]]:
    """Return the values that a view draws: its own, or those of the whole chart."""
    data: Spec = view.get("data") or spec.get("data") or {}
    values: Sequence[dict[str, Any]] = data.get("values", ())
    return values


def chart_table(spec: Spec) -> tuple[list[str], list[list[Any]], int]:
    """Return a chart's table: titles and values of the fields in its tooltip, and the number of rows beyond MAX_ROWS."""
    view = next(view for view in _views(spec) if "tooltip" in view["encoding"])
    tips = view["encoding"]["tooltip"]
    values = _values(view, spec)
    rows = [[value.get(tip["field"], "") for tip in tips] for value in values[:MAX_ROWS]]
    return [tip["title"] for tip in tips], rows, len(values) - len(rows)
