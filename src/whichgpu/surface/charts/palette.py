"""Colours, shapes, dashes and number formats of charts.

Colours are variables of the style sheet with a fallback: inside a page they follow light and dark. A picture in a file has the
fallbacks alone on a white ground, since drawing programs and PNG converters know no variables and would leave out the marks.
Every nominal colour has a shape or a dash beside it, so that no mark is identified by colour alone.
"""

from __future__ import annotations

import json
import re
from typing import Any

# Okabe and Ito's palette, distinct with any colour vision (https://jfly.uni-koeln.de/color/), and two greys for overheads.
PALETTE = ("#0072B2", "#56B4E9", "#009E73", "#F0E442", "#E69F00", "#D55E00", "#CC79A7", "#882255", "#44AA99", "#332288")
GREYS = ("var(--g1, #999999)", "var(--g2, #CCCCCC)")
INK, SOFT, GRID, CARD = "var(--ink, #1b2430)", "var(--soft, #55606e)", "var(--line, #d9dde3)", "var(--card, #fff)"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
COLOURS = tuple(f"var(--c{place}, {colour})" for place, colour in enumerate(PALETTE, start=1))
ACCENT = "var(--accent, #0b5cad)"
CHOSEN = "var(--chosen, #b3430a)"
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [10, 4], [4, 2], [1, 3], [12, 3, 3, 3])
THREE_DIGITS = ",.3~r"  # Vega's format for three significant digits without SI prefixes.
SECONDS = "datum.value >= 1 ? datum.value + ' s' : datum.value >= 0.001 ? datum.value * 1000 + ' ms' : datum.value * 1e6 + ' µs'"
_VARIABLE = re.compile(r"var\(--[a-z0-9]+, (#[0-9A-Fa-f]{3,6})\)")


def with_fixed_colours(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a chart for a file of its own: with the fallbacks of its colours, on a white ground.

    >>> with_fixed_colours({"mark": {"color": INK}})
    {'mark': {'color': '#1b2430'}, 'background': '#fff'}
    """
    return {**json.loads(_VARIABLE.sub(r"\1", json.dumps(spec))), "background": "#fff"}
