"""The file an answer is drawn into, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def plot_path(request: Mapping[str, Any]) -> str | None:
    """The file to draw into, where one is asked for."""
    return str(request["plot"]) if "plot" in request else None


def check_plot(request: Mapping[str, Any]) -> None:
    """Refuse a file that cannot be drawn into before the answer is worked out."""
    if path := plot_path(request):
        from whichgpu.surface.charts.vega import check_plot as check

        check(path)
