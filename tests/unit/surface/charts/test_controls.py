"""Legend filters and zoom are added to charts with several series, on every layer that draws the series."""

from __future__ import annotations

from typing import Any

from whichgpu.surface.charts.controls import MAX_ROWS, chart_table, with_controls
from whichgpu.surface.charts.parts import coloured, picture, quantity, row_names, tips

X, Y = quantity("day", "Day"), quantity("price", "Price")


def chart(names: list[str], **more: Any) -> dict[str, Any]:
    values = [{"day": day, "price": 1.0, "gpu": name} for day in range(3) for name in names]
    encoding = {"x": X, "y": Y, "color": coloured("gpu", names), "tooltip": tips(("gpu", "GPU"), ("day", "Day"))}
    return picture("", 100, **{"data": {"values": values}, "mark": "line", "encoding": encoding} | more)


def test_a_chart_with_two_series_has_a_legend_filter_and_a_zoom_of_both_axes() -> None:
    spec = with_controls(chart(["T4", "L4"]))
    assert [(one["name"], one["bind"]) for one in spec["params"]] == [("only_gpu", "legend"), ("zoom", "scales")]
    assert spec["params"][1]["select"]["encodings"] == ["x", "y"]
    assert spec["transform"] == [{"filter": {"param": "only_gpu"}}]
    assert spec["usermeta"] == {"series": {"gpu": ["T4", "L4"]}, "zoom": {"x": "day", "y": "price"}, "stacked": []}


def test_a_chart_with_one_series_has_no_controls() -> None:
    spec = chart(["T4"])
    assert with_controls(spec) == spec


def test_only_layers_that_draw_the_series_are_filtered_and_only_shared_continuous_axes_zoomed() -> None:
    colour = coloured("part", ["weights", "KV cache"])
    bars = {"mark": "bar", "encoding": {"x": {**X, "stack": "zero"}, "y": row_names("gpu", ["T4", "L4"]), "color": colour}}
    values = [{"gpu": "T4", "part": part, "day": 1} for part in ("weights", "KV cache")]
    limits = {"data": {"values": [{"gpu": "T4", "day": 2}]}, "mark": "tick", "encoding": {"x": X}}
    spec = with_controls(picture("", 100, layer=[limits, {"data": {"values": values}, **bars}]))
    assert ["transform" in layer for layer in spec["layer"]] == [False, True]
    assert ["params" in layer for layer in spec["layer"]] == [False, True]
    assert (spec["usermeta"]["zoom"], spec["usermeta"]["stacked"]) == ({"x": "day"}, ["x"])
    apart = with_controls(chart(["T4", "L4"], resolve={"scale": {"y": "independent"}}))
    assert apart["usermeta"]["zoom"] == {"x": "day"}


def test_the_table_of_a_chart_has_the_fields_of_its_tooltip() -> None:
    titles, rows, more = chart_table(chart(["T4", "L4"]))
    assert titles == ["GPU", "Day"]
    assert rows[:2] == [["T4", 0], ["L4", 0]]
    assert (len(rows), more) == (6, 0)
    _, rows, more = chart_table(chart([str(number) for number in range(MAX_ROWS)]))
    assert (len(rows), more) == (MAX_ROWS, 2 * MAX_ROWS)
