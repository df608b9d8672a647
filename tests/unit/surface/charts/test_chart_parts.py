"""Charts are in the page's language: marks have titles, and no text is in English only."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import vl_convert

from whichgpu.surface.charts.chart_file import write_chart
from whichgpu.surface.charts.parts import coloured, picture, quantity, tips

VALUES = [{"gpu": "T4", "gib": 3.5, "part": "가중치"}, {"gpu": "L4", "gib": 2.5, "part": "활성값"}]
SAID = tips(("gpu", "그래픽"), ("part", "구성"), ("gib", "메모리"))
BARS: dict[str, Any] = {
    "mark": "bar",
    "encoding": {
        "x": quantity("gib", "메모리"), "y": {"field": "gpu", "type": "nominal", "title": None},
        "color": coloured("part", ["가중치", "활성값"]), "tooltip": SAID,
    },
}  # fmt: skip
NAMES: dict[str, Any] = {"mark": "text", "encoding": {"x": quantity("gib", "메모리"), "text": {"field": "gpu"}}}


def test_marks_are_called_by_titles_and_not_by_names_of_the_data() -> None:
    svg = vl_convert.vegalite_to_svg(json.dumps(picture("막대", 120, data={"values": VALUES}, layer=[BARS, NAMES])))
    labels = re.findall(r'aria-label="([^"]*)"', svg)
    assert any("그래픽: T4" in label and "구성: 가중치" in label for label in labels)
    assert [label for label in labels if re.search(r"\b(?:gpu|gib|part|axis|legend|titled)\b", label)] == []


def test_an_axis_or_legend_without_a_title_stays_without() -> None:
    whole = picture("막대", 120, data={"values": VALUES}, layer=[BARS, NAMES])
    bars, names = (layer["encoding"] for layer in whole["layer"])
    assert (bars["y"]["title"], bars["y"]["axis"]) == ("그래픽", {"title": None})
    assert (bars["color"]["title"], bars["color"]["legend"]) == ("구성", {"title": None})
    assert bars["x"] == BARS["encoding"]["x"]
    assert names["text"] == {"field": "gpu", "title": "그래픽"}
    assert whole["description"] == "막대"


def test_single_view_chart_has_a_title_too() -> None:
    whole = picture("막대", 120, data={"values": VALUES}, **BARS)
    assert whole["encoding"]["color"]["title"] == "구성"
    assert "layer" not in whole


def test_no_name_ends_the_script_of_a_chart_page(tmp_path: Path) -> None:
    name = "a</script><script>alert(1)</script><!--&\u2028"
    spec = picture("막대", 120, data={"values": [{**VALUES[0], "gpu": name}]}, layer=[BARS])
    write_chart(spec, str(tmp_path / "chart.html"))
    page = (tmp_path / "chart.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "\u2028" not in page.partition("const spec")[2]
    [line] = re.findall(r"const spec = (.*);\n", page)
    assert json.loads(line) == json.loads(json.dumps(spec))
