"""Charts as files, and as what a notebook can draw."""

from __future__ import annotations

from typing import Any

from whichgpu.surface.charts.vega import check_plot, write_chart

VEGA_LITE = "application/vnd.vegalite.v5+json"


def save(spec: dict[str, Any], path: str) -> None:
    """The picture the file's ending names; needs vl-convert."""
    check_plot(path)
    write_chart(spec, path)


def bundle(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec by its type, the SVG of it where vl-convert is there, and its titles."""
    found: dict[str, Any] = {VEGA_LITE: spec, "text/plain": f"<Chart: {', '.join(_titles(spec))}>"}
    try:
        import vl_convert
    except ModuleNotFoundError:
        return found
    return found | {"image/svg+xml": vl_convert.vegalite_to_svg(spec)}


def _titles(spec: dict[str, Any]) -> list[str]:
    titles = [one.get("title", "") for one in (spec, *spec.get("vconcat", ()))]
    return [text for text in (str(title.get("text", "")) if isinstance(title, dict) else title for title in titles) if text]
