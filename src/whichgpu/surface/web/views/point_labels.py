"""Names beside the points of a chart, so placed that none covers another; those there is no room for are told by the tooltip."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Any

from whichgpu.surface.web.views.chart_parts import WIDTH

NAME_SIZE = 11.5
LETTER, LINE, PADDING = 0.56 * NAME_SIZE, 14.0, 28.0
PLACE = ("align", "dx", "dy")
SPOTS = (("left", 11.0, -8.0), ("right", -11.0, -8.0), ("right", 8.0, -18.0), ("left", -8.0, -18.0), ("right", 8.0, 20.0))
NARROW = 480
ONE_NAME = f"width < {NARROW} && !datum.first"  # a narrow chart has room for the first one's name alone

Point = dict[str, Any]
Box = tuple[float, float, float, float]  # left, top, right, bottom


def place_names(points: Sequence[Point], kinds: Sequence[str], height: float, width: float = WIDTH - 60) -> None:
    """Give each point a place for its name, or none; the kinds named first are served first. Both scales are logarithmic."""
    xs, ys = _placed([one["time"] for one in points], width), _placed([-one["cost"] for one in points], height)
    dots: list[Box] = [(x - 7, y - 7, x + 7, y + 7) for x, y in zip(xs, ys, strict=True)]
    names: list[Box] = []
    order = [place for kind in kinds for place, one in enumerate(points) if one["kind"] == kind]
    for place in order:
        one, others = points[place], (*names, *dots[:place], *dots[place + 1 :])
        one["first"] = not names
        tried = [(spot, _box(xs[place], ys[place], LETTER * len(one["name"]), spot)) for spot in SPOTS]
        free = [(spot, box) for spot, box in tried if _inside(box, width) and not any(_meet(box, other) for other in others)]
        for spot, box in free[:1] or tried[: 1 if one["first"] else 0]:
            one |= dict(zip(PLACE, spot, strict=True))
            names.append(box)


def _placed(values: Sequence[float], size: float) -> list[float]:
    """Where a logarithmic scale puts values; of negated ones the largest comes first, as on an axis that grows upwards."""
    logs = [log(abs(value)) if value else 0.0 for value in values]
    logs = [-one for one in logs] if values and values[0] < 0 else logs
    low, span = min(logs, default=0.0), (max(logs, default=0.0) - min(logs, default=0.0)) or 1.0
    return [PADDING + (one - low) / span * (size - 2 * PADDING) for one in logs]


def _box(x: float, y: float, wide: float, spot: tuple[str, float, float]) -> Box:
    align, dx, dy = spot
    left = x + dx if align == "left" else x + dx - wide
    return left, y + dy - LINE / 2, left + wide, y + dy + LINE / 2


def _inside(box: Box, width: float) -> bool:
    return box[0] >= 0 and box[2] <= width


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
