"""Memory of a workload as stacked bars: one bar per GPU, a tick at its usable memory, and the verdict as text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from whichgpu.api.workloads.estimate import EstimateAnswer
from whichgpu.api.workloads.fit import FitAnswer, FitRow
from whichgpu.base.errors import NoAnswer
from whichgpu.base.figure import Figure
from whichgpu.base.messages import Language, msg
from whichgpu.base.units import GB, GIB, significant
from whichgpu.estimate.nearest_evidence import NearMeasurement
from whichgpu.surface.charts.palette import CARD, COLOURS, GREYS, INK, SOFT
from whichgpu.surface.charts.parts import Spec, file_chart, picture, quantity, row_names, tips
from whichgpu.surface.commands.render.workload import model_label, part_name

UNITS = {"GiB": GIB, "GB": GB, "percent": 0}  # Bytes in each unit of a bar's length; a percent is of the GPU's usable memory.
MAX_PERCENT = 150  # Longer bars are cut off there.
ERROR_SPAN = 50  # Percent that the axis of errors reaches to either side; larger errors end there.
MAX_BARS = 12  # Largest number of bars in a chart file.
# Index of the colour of each common part of memory, so that a part has the same colour in every chart.
PART_COLOURS = {
    "weights": 0, "kv_cache": 4, "activations": 2, "optimizer": 5, "gradients": 6, "temporary": 1, "workspace": 3,
    "cuda_graphs": 8, "master_weights": 9, "cast_weights": 7, "adapters": 8, "text_encoders": 5, "vae": 6,
}  # fmt: skip


class MemoryBar(msgspec.Struct, frozen=True):
    """Memory of a workload on one GPU by part, and the GPU's usable memory, in bytes."""

    gpu_name: str
    fits: str
    needed: Figure
    usable: int
    parts: Mapping[str, Figure]

    def scale(self, unit: str) -> float:
        """Return the bytes in one unit of the bar's length."""
        return UNITS[unit] or self.usable / 100

    @property
    def share(self) -> str:
        """Return the share of the usable memory that is needed, such as `82%`."""
        return f"{self.needed.value / self.usable:.0%}" if self.usable else "–"


def memory_chart(answer: FitAnswer, language: Language) -> Spec:
    """Return the chart of `fit --plot`: a bar for each GPU in the request."""
    text = language.text
    bars = [MemoryBar(row.gpu_name, row.fits, answer.needed, row.usable, answer.memory_parts) for row in _bar_rows(answer)]

    def verdict(bar: MemoryBar) -> str:
        return text("chart.verdict", verdict=text(f"verdict.{bar.fits}"), usable=f"{bar.usable / GIB:.1f} GiB")

    title = text("chart.title", model=model_label(answer.request), task=answer.request["task"])
    return file_chart((title, memory_picture(bars, language, verdict, right_padding=120)))


def estimate_chart(answer: EstimateAnswer, language: Language) -> Spec:
    """Return the charts of an estimate's report: its memory on its GPU, and how far estimates are off on the nearest runs."""
    text = language.text
    request = answer.request
    bar = MemoryBar(str(request["gpu"]), answer.fits or "", answer.memory, answer.usable or 0, answer.memory_parts)
    title = text("chart.title", model=model_label(request), task=request["task"])
    memory = memory_picture([bar] if answer.usable else [], language, lambda one: one.share, right_padding=60)
    panels = [(title, memory)] if answer.usable else []
    if rows := [row for row in answer.evidence if row.error is not None]:
        panels.append((text("chart.near-errors"), _error_picture(rows, language)))
    if not panels:
        raise NoAnswer("no-curve", msg("error.no-curve"), msg("hint.no-rate"))
    return file_chart(*panels)


def _error_picture(rows: Sequence[NearMeasurement], language: Language) -> Spec:
    """Return a chart of the estimate's error on measured runs, a bar for each."""
    names = [
        f"{row.model}, {row.gpu}" + (f", {language.text('web.size-batch', n=row.batch)}" if row.batch else "") for row in rows
    ]
    points = [{"run": name, "error": round(100 * (row.error or 0.0), 1)} for name, row in zip(names, rows, strict=True)]
    x = quantity("error", language.text("chart.axis-error"), scale={"domain": [-ERROR_SPAN, ERROR_SPAN], "clamp": True})
    encoding = {"y": row_names("run", list(dict.fromkeys(names))), "x": x}
    bars = {"mark": {"type": "bar", "color": COLOURS[0], "height": 12}, "encoding": encoding}
    zero = {"mark": {"type": "rule", "color": SOFT}, "encoding": {"x": {"datum": 0}}}
    return picture(language.text("chart.near-errors"), 30 * len(points) + 20, data={"values": points}, layer=[bars, zero])


def _bar_rows(answer: FitAnswer) -> Sequence[FitRow]:
    """Return the rows to draw: all, or of more than MAX_BARS those with memory nearest to the need, one per memory size."""
    if len(answer.gpus) <= MAX_BARS:
        return answer.gpus
    sizes = {round(row.usable / GIB): row for row in answer.gpus}
    nearest = sorted(sizes.values(), key=lambda row: abs(row.usable - answer.memory_device.value))[:MAX_BARS]
    return sorted(nearest, key=lambda row: row.usable)


def memory_picture(
    bars: Sequence[MemoryBar], language: Language, verdict: Callable[[MemoryBar], str], right_padding: int, unit: str = "GiB"
) -> Spec:
    """Return a chart with a stacked bar per GPU and a tick at its usable memory; `verdict` writes the text after the bar."""
    text = language.text
    names = [bar.gpu_name for bar in bars]
    kinds = list(dict.fromkeys(name for bar in bars for name in bar.parts))
    labels = {name: part_name(name, language) for name in kinds}
    end = MAX_PERCENT if unit == "percent" else math.inf
    parts = [
        {"gpu": bar.gpu_name, "part": labels[name], "size": round(size, 3), "drawn": drawn, "order": kinds.index(name)}
        for bar in bars
        for name, size, drawn in _lengths(bar, unit, end)
    ]
    limits = [_limits(bar, unit, end, language) | {"text": verdict(bar)} for bar in bars]
    y = row_names("gpu", names)
    title = text(f"chart.axis-{unit.lower()}")
    ranges = tips(("gpu", text("web.tip-gpu")), ("range", text("web.column-range")))
    text_of = {"condition": {"test": "datum.end < domain('x')[0]", "value": ""}, "field": "text"}  # Not left of a zoomed chart.
    x = quantity("size" if end == math.inf else "drawn", title, stack="zero", axis={"tickCount": 6})
    stack = {
        "data": {"name": "bars", "values": parts},
        "mark": {"type": "bar", "stroke": CARD, "strokeWidth": 1},
        "encoding": {
            "y": y, "x": x, "order": {"field": "order", "type": "quantitative"},
            "color": {
                "field": "part", "type": "nominal", "title": None, "sort": list(labels.values()),
                "scale": {"domain": list(labels.values()), "range": _colours(kinds)},
                "legend": {"columns": 4, "symbolType": "square"},
            },
            "tooltip": tips(("gpu", text("web.tip-gpu")), ("part", text("column.part")), ("size", title)),
        },
    }  # fmt: skip
    room = {
        "data": {"name": "limits", "values": limits},
        "mark": {"type": "bar", "color": SOFT, "opacity": 0.16, "aria": False},
        "encoding": {"y": y, "x": quantity("needed", title), "x2": {"field": "size"}},
    }
    range_ = {
        "data": {"name": "limits", "values": limits},
        "mark": {"type": "rule", "color": INK, "strokeWidth": 1.5},
        "encoding": {"y": y, "x": quantity("low", title), "x2": {"field": "high"}, "tooltip": ranges},
    }
    tick = {
        "data": {"name": "limits", "values": limits},
        "mark": {"type": "tick", "thickness": 3, "size": 24, "color": INK},
        "encoding": {"y": y, "x": quantity("size", title)},
    }
    words = {
        "data": {"name": "limits", "values": limits},
        "mark": {"type": "text", "align": "left", "dx": 8, "fontSize": 12, "clip": False},
        "encoding": {"y": y, "x": quantity("end", title), "text": text_of},
    }
    fitting = tuple(bar.gpu_name for bar in bars if bar.fits == "fits")
    description = text("web.described-memory", n=len(names), fitting=fitting or ("–",))
    padding = {"left": 4, "top": 4, "bottom": 4, "right": right_padding}
    return picture(description, 32 * len(names), layer=[room, stack, range_, tick, words], padding=padding)


def _limits(bar: MemoryBar, unit: str, end: float, language: Language) -> Spec:
    """Return the lengths of a GPU's usable memory and of the need with its 90% range; `end` is where the text begins at most."""
    scale, need = bar.scale(unit), bar.needed
    lengths = {
        "size": bar.usable / scale, "needed": min(bar.usable, need.value) / scale, "low": min(need.low / scale, end),
        "high": min(need.high / scale, end), "end": min(max(bar.usable, need.high) / scale, end),
    }  # fmt: skip
    ends = language.text("web.range", low=significant(need.low / scale), high=significant(need.high / scale))
    return {"gpu": bar.gpu_name, "fits": bar.fits, "range": ends, **{name: round(value, 3) for name, value in lengths.items()}}


def _lengths(bar: MemoryBar, unit: str, end: float) -> Iterator[tuple[str, float, float]]:
    """Yield the name and size of each part of a bar, and the length that is drawn of it before the end."""
    start = 0.0
    for name, figure in bar.parts.items():
        size = figure.value / bar.scale(unit)
        yield name, size, round(max(0.0, min(size, end - start)), 3)
        start += size


def _colours(names: Sequence[str]) -> list[str]:
    greys = iter(GREYS)
    return [
        next(greys) if name in ("context", "slack") else COLOURS[PART_COLOURS.get(name, place) % len(COLOURS)]
        for place, name in enumerate(names)
    ]
