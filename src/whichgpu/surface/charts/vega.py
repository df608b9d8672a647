"""Charts as Vega-Lite specs, plain dicts; written as SVG, PNG or HTML by vl-convert, which is an extra."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from whichgpu.api.workloads.fit import FitAnswer, FitRow
from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Language, msg
from whichgpu.base.units import GIB

ENDINGS = (".svg", ".png", ".html")
MOST_BARS = 12
# Okabe and Ito's palette, told apart with any colour vision (https://jfly.uni-koeln.de/color/), and two greys for overheads.
PALETTE = ("#0072B2", "#56B4E9", "#009E73", "#F0E442", "#E69F00", "#D55E00", "#CC79A7", "#882255", "#44AA99", "#332288")
GREYS = ("#999999", "#CCCCCC")
SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"


def memory_chart(answer: FitAnswer, language: Language) -> dict[str, Any]:
    """A stacked bar of the parts for each GPU, with a tick where its usable memory ends and the verdict in words."""
    text = language.text
    rows = _chosen(answer)
    parts = [(name, _label(name, language), figure.value / GIB) for name, figure in answer.memory_parts.items()]
    bars = [
        {"gpu": row.gpu_name, "part": label, "gib": round(size, 3), "order": order}
        for row in rows
        for order, (_, label, size) in enumerate(parts)
    ]
    limits = [
        {
            "gpu": row.gpu_name,
            "gib": round(row.usable / GIB, 3),
            "end": round(max(row.usable, answer.needed.value) / GIB, 3),  # words stand clear of the bars
            "text": text("chart.verdict", verdict=text(f"verdict.{row.fits}"), usable=f"{row.usable / GIB:.1f} GiB"),
        }
        for row in rows
    ]
    order = [row.gpu_name for row in rows]
    y = {"field": "gpu", "type": "nominal", "sort": order, "title": None, "axis": {"labelLimit": 240}}
    x = {"field": "gib", "type": "quantitative", "title": text("chart.axis")}
    bar = {
        "data": {"values": bars},
        "mark": {"type": "bar", "stroke": "white", "strokeWidth": 0.5},
        "encoding": {
            "y": y,
            "x": {**x, "stack": "zero"},
            "color": {
                "field": "part",
                "type": "nominal",
                "title": text("chart.parts"),
                "legend": {"orient": "bottom", "columns": 4, "labelLimit": 240},
                "scale": {"domain": [label for _, label, _ in parts], "range": _colours([name for name, _, _ in parts])},
            },
            "order": {"field": "order", "type": "quantitative"},
            "tooltip": [{"field": "gpu"}, {"field": "part"}, {"field": "gib", "title": "GiB"}],
        },
    }
    tick = {
        "data": {"values": limits},
        "mark": {"type": "tick", "thickness": 3, "size": 22, "color": "black"},
        "encoding": {"y": y, "x": x},
    }
    words = {
        "data": {"values": limits},
        "mark": {"type": "text", "align": "left", "dx": 6, "fontSize": 11},
        "encoding": {"y": y, "x": {**x, "field": "end"}, "text": {"field": "text"}},
    }
    model = answer.request["model"]
    title = text(
        "chart.title",
        model=model if isinstance(model, str) else model.get("model_type", "config.json"),
        task=answer.request["task"],
    )
    return {
        "$schema": SCHEMA,
        "title": {"text": title, "subtitle": text("chart.subtitle"), "anchor": "start"},
        "width": 640,
        "height": {"step": 30},
        "padding": {"left": 5, "top": 5, "bottom": 5, "right": 120},
        "layer": [bar, tick, words],
        "config": {"font": "sans-serif", "view": {"stroke": None}},
    }


def check_plot(path: str) -> None:
    """Refuse a file that cannot be written as a picture, before any work is done.

    A link is followed, as the shell's `>` does: the picture is written where it points, and the link stays.
    """
    if Path(path).suffix.lower() not in ENDINGS:
        raise UsageError("bad-plot", msg("error.bad-plot", name=path), msg("hint.bad-plot", endings=ENDINGS), ENDINGS)
    whole = _meant(path)
    if whole.exists() and not whole.is_file():
        raise UsageError("bad-plot", msg("error.no-plain-file", path=path), msg("hint.bad-plot", endings=ENDINGS), ENDINGS)
    _converter()


def _meant(path: str) -> Path:
    """The file a path means, links followed."""
    whole = Path(path).expanduser()
    return Path(os.path.realpath(whole)) if whole.is_symlink() else whole


def write_chart(spec: dict[str, Any], path: str) -> None:
    """The spec as the picture the file's ending names."""
    converter, ending = _converter(), Path(path).suffix.lower()
    if ending == ".svg":
        content = converter.vegalite_to_svg(spec).encode()
    elif ending == ".png":
        content = converter.vegalite_to_png(spec, scale=2)
    else:
        content = converter.vegalite_to_html(spec, bundle=True).encode()
    try:
        whole = _meant(path)
        part = whole.with_name(f".{whole.name}.{os.getpid()}.part")  # an interrupted run leaves no half picture under the name
        try:
            with part.open("xb") as file:  # anew: whatever stands there is not written through
                file.write(content)
            part.replace(whole)
        finally:
            part.unlink(missing_ok=True)
    except OSError as problem:
        message = msg("error.cannot-write-file", name=path, why=problem.strerror or str(problem))
        raise UsageError("cannot-write-file", message, msg("hint.cannot-write-file")) from problem


def _converter() -> Any:
    try:
        return import_module("vl_convert")
    except ModuleNotFoundError as missing:
        raise UsageError("needs-extra", msg("error.needs-extra", name="vl-convert-python"), msg("hint.needs-extra")) from missing


def _chosen(answer: FitAnswer) -> list[FitRow]:
    """The GPUs asked for; of very many, those whose memory lies nearest the need, one of each size."""
    if len(answer.gpus) <= MOST_BARS:
        return list(answer.gpus)
    sizes = {round(row.usable / GIB): row for row in answer.gpus}
    near = sorted(sizes.values(), key=lambda row: abs(row.usable - answer.memory_device.value))[:MOST_BARS]
    return sorted(near, key=lambda row: row.usable)


def _colours(names: list[str]) -> list[str]:
    vivid, grey = iter(PALETTE), iter(GREYS)
    return [next(grey) if name in ("context", "slack") else next(vivid, PALETTE[-1]) for name in names]


def _label(name: str, language: Language) -> str:
    return language.text(f"part.{name}") if f"part.{name}" in language else name.replace("_", " ")
