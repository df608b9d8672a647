"""Labels beside the points of a chart, placed so that none covers another; a point without free space has only its tooltip."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Any

from whichgpu.surface.charts.parts import WIDTH

LABEL_SIZE = 11.5  # Font size in pixels.
LETTER_WIDTH, LINE_HEIGHT, PADDING = 0.56 * LABEL_SIZE, 14.0, 28.0  # Width of a letter, height of a line, chart padding: pixels.
LABEL_PLACE = ("align", "dx", "dy")
SPOTS = (("left", 11.0, -8.0), ("right", -11.0, -8.0), ("right", 8.0, -18.0), ("left", -8.0, -18.0), ("right", 8.0, 20.0))
NARROW_CHART_TEST = "width < 480 && !datum.first"  # A narrow chart has room for the first label only.

Point = dict[str, Any]
Box = tuple[float, float, float, float]  # Left, top, right, bottom, in pixels.


def place_labels(points: Sequence[Point], kinds: Sequence[str], height: float, width: float = WIDTH - 60) -> None:
    """Add a label position to each point with free space beside it, in the order of `kinds`; both axes are logarithmic."""
    xs, ys = _coordinates(points, height, width)
    dots: list[Box] = [(x - 7, y - 7, x + 7, y + 7) for x, y in zip(xs, ys, strict=True)]
    names: list[Box] = []
    order = [place for kind in kinds for place, one in enumerate(points) if one["kind"] == kind]
    for place in order:
        one, others = points[place], (*names, *dots[:place], *dots[place + 1 :])
        one["first"] = not names
        tried = [(spot, _box(xs[place], ys[place], LETTER_WIDTH * len(one["name"]), spot)) for spot in SPOTS]
        inside = [(spot, box) for spot, box in tried if box[0] >= 0 and box[2] <= width]
        free = [(spot, box) for spot, box in inside if not any(_overlap(box, other) for other in others)]
        for spot, box in free[:1] or tried[: 1 if one["first"] else 0]:
            one |= dict(zip(LABEL_PLACE, spot, strict=True))
            names.append(box)


def _coordinates(points: Sequence[Point], height: float, width: float) -> tuple[list[float], list[float]]:
    """Return the pixel positions of points from the left and from the top; both axes have room for their 90% ranges."""
    times = [end for one in points for end in (one["low"], one["high"])]
    costs = [one[name] for one in points for name in ("low_cost", "high_cost") if name in one]
    ys = _positions([one["cost"] for one in points], costs, height)
    return _positions([one["time"] for one in points], times, width), [height - y for y in ys]


def _positions(values: Sequence[float], ends: Sequence[float], size: float) -> list[float]:
    """Return pixel positions of values on a logarithmic axis of `size` pixels that also has room for `ends`."""
    logs = [log(value) if value > 0 else 0.0 for value in (*values, *ends)]
    low, span = min(logs, default=0.0), (max(logs, default=0.0) - min(logs, default=0.0)) or 1.0
    return [PADDING + (one - low) / span * (size - 2 * PADDING) for one in logs[: len(values)]]


def _box(x: float, y: float, wide: float, spot: tuple[str, float, float]) -> Box:
    align, dx, dy = spot
    left = x + dx if align == "left" else x + dx - wide
    return left, y + dy - LINE_HEIGHT / 2, left + wide, y + dy + LINE_HEIGHT / 2


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
