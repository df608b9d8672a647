"""The throughput-latency curve of a server, as charts and as lines of text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from whichgpu.api.workloads.estimate import EstimateAnswer
from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import Language, msg
from whichgpu.base.units import format_seconds, significant
from whichgpu.estimate.serving.curve import RatePoint
from whichgpu.estimate.serving.serving_answer import ServingAnswer
from whichgpu.estimate.serving.summary import PERCENTILES
from whichgpu.surface.charts.palette import CHOSEN, SOFT, THREE_DIGITS
from whichgpu.surface.charts.parts import Spec, coloured, file_chart, picture, quantity, shaped, tips
from whichgpu.surface.commands.render.workload import model_label

BAR_WIDTH = 30  # Length of the longest bar in characters.
METRICS = ("ttft", "tpot", "latency")


def curve_chart(answer: EstimateAnswer, language: Language) -> Spec:
    """Return the chart of `estimate --plot`: latency percentiles against output tokens per second, one panel per metric."""
    serving, text = answer.serving, language.text
    if serving is None or not serving.curve:
        raise NoAnswer("no-curve", msg("error.no-curve"), msg("hint.no-rate"))
    lines = [f"p{one:g}" for one in PERCENTILES]
    titles = {name: text(f"chart.serving-{name}") for name in METRICS}
    values = [
        {
            "throughput": round(point.throughput, 3), "rate": round(point.rate, 4), "metric": titles[metric], "percentile": line,
            "seconds": float(f"{seconds:.4g}"), "saturated": point.saturated,
        }
        for point in serving.curve
        for metric in METRICS
        for line, seconds in zip(lines, getattr(point, metric), strict=True)
    ]  # fmt: skip
    place = {
        "x": quantity("throughput", text("chart.serving-throughput")),
        "y": quantity("seconds", text("chart.serving-seconds"), scale={"type": "log"}),
        "color": coloured("percentile", lines),
    }
    scale = {"domain": [False, True], "range": ["circle", "cross"]}
    shape = {"field": "saturated", "type": "nominal", "title": text("chart.serving-saturated"), "scale": scale}
    tooltip = [{"field": name} for name in ("rate", "throughput", "percentile", "seconds")]
    layers = [
        {"mark": {"type": "line"}, "encoding": {**place, "order": {"field": "rate"}}},
        {"mark": {"type": "point", "filled": True, "size": 50}, "encoding": {**place, "shape": shape, "tooltip": tooltip}},
    ]
    request = answer.request
    title = text("chart.serving", model=model_label(request), gpus=request["gpus"], gpu=str(request["gpu"]))
    spec = {
        "data": {"values": values},
        "facet": {"column": {"field": "metric", "type": "nominal", "title": None, "sort": list(titles.values())}},
        "spec": {"width": 280, "height": 260, "layer": layers},
        "resolve": {"scale": {"y": "independent"}},
    }
    return file_chart((title, spec))


def curve_picture(serving: ServingAnswer, metric: str, language: Language) -> Spec:
    """Return a chart of a latency's percentiles against the request rate, with the requested rate marked."""
    text = language.text
    lines = [f"p{one:g}" for one in PERCENTILES]
    values = [
        {"rate": float(f"{point.rate:.4g}"), "line": line, "ms": float(f"{seconds * 1e3:.4g}"),
         "throughput": round(point.throughput, 1)}
        for point in serving.curve
        for line, seconds in zip(lines, getattr(point, metric), strict=True)
    ]  # fmt: skip
    spans = [
        {"rate": float(f"{serving.load.rate:.4g}"), "line": line, "low": figure.low * 1e3, "high": figure.high * 1e3}
        for line, figure in getattr(serving, metric).items()
        if 0 < figure.low < figure.high and line in lines
    ]
    now = {"data": {"values": [{"rate": float(f"{serving.load.rate:.4g}"), "said": text("web.now")}]}}
    x = quantity("rate", text("web.axis-rate-asked"), axis={"tickCount": 6})
    y = quantity("ms", text("web.axis-ms"), log=True, axis={"format": THREE_DIGITS, "tickCount": 5})
    titles = tips(
        ("line", text("web.tip-percentile")), ("rate", x["title"]), ("ms", y["title"]), ("throughput", text("part.throughput"))
    )
    marks = [
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"x": x, "y": y, "color": coloured("line", lines)}},
        {
            "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
            "encoding": {"x": x, "y": y, "color": coloured("line", lines), "shape": shaped("line", lines), "tooltip": titles},
        },
        {  # The 90% ranges at the requested rate, which overlap: that of p50 is the widest.
            "data": {"values": spans},
            "mark": {"type": "rule", "opacity": 0.55, "strokeWidth": {"expr": f"10 - 4 * indexof({lines}, datum.line)"}},
            "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": coloured("line", lines)},
        },
        {
            **now,
            "mark": {"type": "rule", "color": CHOSEN, "strokeDash": [4, 3], "strokeWidth": 1.5},
            "encoding": {"x": x},
        },
        {
            **now,
            "mark": {"type": "text", "align": "left", "dx": 5, "dy": 6, "baseline": "top", "color": SOFT, "fontSize": 11.5},
            "encoding": {"x": x, "y": {"value": 0}, "text": {"field": "said"}},
        },
    ]
    description = text("web.described-curve", metric=text(f"chart.serving-{metric}"), n=len(serving.curve))
    return picture(description, 280, width=460, data={"values": values}, layer=marks)


def curve_lines(points: Sequence[RatePoint], text: Callable[..., str]) -> list[str]:
    """Return lines of text, one per request rate: a bar of output tokens per second, latencies, and a mark if saturated."""
    if not points:
        return []
    largest = max(point.throughput for point in points)
    lines = [text("serving.curve-head")]
    for point in points:
        bar = "█" * max(1, round(BAR_WIDTH * point.throughput / largest))
        words = text(
            "serving.curve-line",
            rate=f"{significant(point.rate):>6}",
            bar=f"{bar:<{BAR_WIDTH}}",
            throughput=f"{significant(point.throughput):>7}",
            ttft=f"{format_seconds(point.ttft[0]):>8} / {format_seconds(point.ttft[-1]):>8}",
            tpot=f"{format_seconds(point.tpot[0]):>8} / {format_seconds(point.tpot[-1]):>8}",
        )
        lines.append(words + (f"  {text('serving.curve-full')}" if point.saturated else ""))
    return lines
