"""The throughput-latency curve of a server: as a Vega-Lite spec, and as lines of text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from whichgpu.api.workloads.estimate import EstimateAnswer
from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import Language, msg
from whichgpu.base.units import format_seconds, significant
from whichgpu.estimate.serving.curve import RatePoint
from whichgpu.estimate.serving.summary import PERCENTILES
from whichgpu.surface.charts.vega import PALETTE, SCHEMA

WIDTH = 30  # characters of the longest bar
METRICS = ("ttft", "tpot", "latency")


def curve_chart(answer: EstimateAnswer, language: Language) -> dict[str, Any]:
    """Latency percentiles against output tokens a second, one panel a metric; a point each for the rates simulated."""
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
    x = {"field": "throughput", "type": "quantitative", "title": text("chart.serving-throughput")}
    y = {"field": "seconds", "type": "quantitative", "title": text("chart.serving-seconds"), "scale": {"type": "log"}}
    colour = {
        "field": "percentile", "type": "nominal", "title": None, "sort": lines,
        "scale": {"domain": lines, "range": list(PALETTE[: len(lines)])},
    }  # fmt: skip
    shape = {
        "field": "saturated", "type": "nominal", "title": text("chart.serving-saturated"),
        "scale": {"domain": [False, True], "range": ["circle", "cross"]},
    }  # fmt: skip
    tooltip = [{"field": name} for name in ("rate", "throughput", "percentile", "seconds")]
    model = answer.request["model"]
    title = text(
        "chart.serving",
        model=model if isinstance(model, str) else model.get("model_type", "config.json"),
        gpus=answer.request["gpus"],
        gpu=str(answer.request["gpu"]),
    )
    return {
        "$schema": SCHEMA,
        "title": {"text": title, "subtitle": text("chart.serving-subtitle"), "anchor": "start"},
        "data": {"values": values},
        "facet": {"column": {"field": "metric", "type": "nominal", "title": None, "sort": list(titles.values())}},
        "spec": {
            "width": 280,
            "height": 260,
            "layer": [
                {"mark": {"type": "line"}, "encoding": {"x": x, "y": y, "color": colour, "order": {"field": "rate"}}},
                {
                    "mark": {"type": "point", "filled": True, "size": 50},
                    "encoding": {"x": x, "y": y, "color": colour, "shape": shape, "tooltip": tooltip},
                },
            ],
        },
        "resolve": {"scale": {"y": "independent"}},
        "config": {"font": "sans-serif", "view": {"stroke": None}},
    }  # fmt: skip


def curve_lines(points: Sequence[RatePoint], text: Callable[..., str]) -> list[str]:
    """A bar a rate: as long as its output tokens a second, latencies beside it, a mark where it is more than can be borne."""
    if not points:
        return []
    most = max(point.throughput for point in points)
    found = [text("serving.curve-head")]
    for point in points:
        bar = "█" * max(1, round(WIDTH * point.throughput / most))
        words = text(
            "serving.curve-line",
            rate=f"{significant(point.rate):>6}",
            bar=f"{bar:<{WIDTH}}",
            throughput=f"{significant(point.throughput):>7}",
            ttft=f"{format_seconds(point.ttft[0]):>8} / {format_seconds(point.ttft[-1]):>8}",
            tpot=f"{format_seconds(point.tpot[0]):>8} / {format_seconds(point.tpot[-1]):>8}",
        )
        found.append(words + (f"  {text('serving.curve-full')}" if point.saturated else ""))
    return found
