"""Labels of chart points never overlap each other or another point."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("jinja2", reason="the page needs the web extra")

from hypothesis import given, settings
from hypothesis import strategies as st

from whichgpu.surface.charts.point_labels import LABEL_PLACE, LETTER_WIDTH, _box, _coordinates, _overlap, place_labels

HEIGHT, WIDTH = 340.0, 620.0
amounts = st.floats(0.01, 1e5)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(amounts, amounts, st.sampled_from(["front", "other"])), min_size=1, max_size=20))
def test_names_have_room(drawn: list[tuple[float, float, str]]) -> None:
    points: list[dict[str, Any]] = [
        {"name": f"{n}× H100 SXM", "time": time, "low": time / 2, "high": time * 3, "cost": cost, "kind": kind}
        for n, (time, cost, kind) in enumerate(drawn)
    ]
    points[0]["kind"] = "answer"
    place_labels(points, ["answer", "front"], HEIGHT, WIDTH)
    assert points[0]["first"]
    assert "align" in points[0]  # the answer is named whatever is in its way
    assert all("align" not in point for point in points if point["kind"] == "other")
    xs, ys = _coordinates(points, HEIGHT, WIDTH)
    boxes = {
        n: _box(xs[n], ys[n], LETTER_WIDTH * len(one["name"]), tuple(one[key] for key in LABEL_PLACE))
        for n, one in enumerate(points)
        if "align" in one
    }
    for n, box in boxes.items():
        if n == 0:
            continue
        assert not any(_overlap(box, other) for m, other in boxes.items() if m != n)
        assert not any(_overlap(box, (x - 7, y - 7, x + 7, y + 7)) for m, (x, y) in enumerate(zip(xs, ys, strict=True)) if m != n)
