"""Charts as files, and as MIME bundles for notebooks."""

from __future__ import annotations

from typing import Any

from whichgpu.surface.charts.chart_file import check_chart_file, write_chart

VEGA_LITE = "application/vnd.vegalite.v5+json"


def save(spec: dict[str, Any], path: str) -> None:
    """Write a chart as the file's ending says; needs vl-convert."""
    check_chart_file(path)
    write_chart(spec, path)


def bundle(spec: dict[str, Any]) -> dict[str, Any]:
    """MIME bundle of a chart: its spec, its titles as text, and its SVG where vl-convert is installed."""
    content: dict[str, Any] = {VEGA_LITE: spec, "text/plain": f"<Chart: {', '.join(_titles(spec))}>"}
    try:
        import vl_convert
    except ModuleNotFoundError:
        return content
    return content | {"image/svg+xml": vl_convert.vegalite_to_svg(spec)}


def _titles(spec: dict[str, Any]) -> list[str]:
    return [one["title"] for one in (spec, *spec.get("vconcat", ())) if "title" in one]
