"""One server under a load, as the plan page shows it: what users wait, how much more it can bear, and the charts of that."""

from __future__ import annotations

from typing import Any

from whichgpu.base.figure import Figure
from whichgpu.base.messages import Language
from whichgpu.base.units import format_seconds, significant
from whichgpu.estimate.serving.serving_answer import ServingAnswer
from whichgpu.estimate.serving.summary import PERCENTILES
from whichgpu.surface.commands.render.serving import of_one_token
from whichgpu.surface.web.views.chart_parts import CHOSEN, PLAIN, SOFT, coloured, picture, quantity, shaped, tips

METRICS = ("ttft", "tpot", "latency")


def served(serving: ServingAnswer, language: Language) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """What the template shows, and the charts."""
    shown = {"cards": _cards(serving, language), "times": _times(serving, language), "curve": _points(serving)}
    drawn = [metric for metric in _metrics(serving) if metric in METRICS[:2]] if len(serving.curve) > 1 else []
    return shown, {metric: curve_picture(serving, metric, language) for metric in drawn}


def _metrics(serving: ServingAnswer) -> tuple[str, ...]:
    """Those that say something: nothing lies between the tokens of answers of one."""
    return tuple(metric for metric in METRICS if metric != "tpot" or not of_one_token(serving))


def _cards(serving: ServingAnswer, language: Language) -> list[dict[str, Any]]:
    def card(name: str, figure: Figure, write: Any = significant, unit: str = "") -> dict[str, Any]:
        value, _, own = write(figure.value).partition(" ")
        low, high = write(figure.low), write(figure.high)
        ends = language.text("web.range", low=low, high=high) if low != high else ""
        return {
            "title": language.text(f"web.card-{name}"),
            "value": value,
            "unit": own or unit,
            "range": ends,
            "basis": figure.basis,
        }

    shown = [
        card("ttft-p50", serving.ttft["p50"], format_seconds),
        card("ttft-p99", serving.ttft["p99"], format_seconds),
        *([] if of_one_token(serving) else [card("tpot-p50", serving.tpot["p50"], format_seconds)]),
        card("sustains", serving.sustainable_rate, unit="requests/s"),
    ]
    if serving.allowed_rate is not None:
        shown.append(card("allows", serving.allowed_rate, unit="requests/s"))
    return [*shown, card("throughput", serving.throughput, unit=serving.throughput.unit)]


def _times(serving: ServingAnswer, language: Language) -> list[dict[str, Any]]:
    return [
        {
            "name": language.text(f"chart.serving-{metric}"),
            "at": [format_seconds(getattr(serving, metric)[f"p{one:g}"].value) for one in PERCENTILES],
            "mean": format_seconds(getattr(serving, metric)["mean"].value) if "mean" in getattr(serving, metric) else "",
        }
        for metric in _metrics(serving)
    ]


def _points(serving: ServingAnswer) -> list[dict[str, Any]]:
    return [
        {
            "rate": significant(point.rate), "throughput": significant(point.throughput), "saturated": point.saturated,
            "ttft": [format_seconds(seconds) for seconds in point.ttft],
            "tpot": [format_seconds(seconds) for seconds in point.tpot],
        }
        for point in serving.curve
    ]  # fmt: skip


def curve_picture(serving: ServingAnswer, metric: str, language: Language) -> dict[str, Any]:
    """A latency's percentiles as the rate grows; where the server no longer keeps up, crosses."""
    text = language.text
    lines = [f"p{one:g}" for one in PERCENTILES]
    values = [
        {
            "rate": float(f"{point.rate:.4g}"),
            "line": line,
            "ms": float(f"{seconds * 1e3:.4g}"),
            "throughput": round(point.throughput, 1),
        }
        for point in serving.curve
        for line, seconds in zip(lines, getattr(point, metric), strict=True)
    ]
    x = quantity("rate", text("web.axis-rate-asked"), axis={"tickCount": 6})
    y = quantity("ms", text("web.axis-ms"), log=True, axis={"format": PLAIN, "tickCount": 5})
    said = tips(
        ("line", text("web.tip-percentile")), ("rate", x["title"]), ("ms", y["title"]), ("throughput", text("part.throughput"))
    )
    marks = [
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"x": x, "y": y, "color": coloured("line", lines)}},
        {
            "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
            "encoding": {"x": x, "y": y, "color": coloured("line", lines), "shape": shaped("line", lines), "tooltip": said},
        },
        {
            "data": {"values": [{"rate": float(f"{serving.load.rate:.4g}"), "said": text("web.now")}]},
            "mark": {"type": "rule", "color": CHOSEN, "strokeDash": [4, 3], "strokeWidth": 1.5},
            "encoding": {"x": x},
        },
        {
            "data": {"values": [{"rate": float(f"{serving.load.rate:.4g}"), "said": text("web.now")}]},
            "mark": {"type": "text", "align": "left", "dx": 5, "dy": 6, "baseline": "top", "color": SOFT, "fontSize": 11.5},
            "encoding": {"x": x, "y": {"value": 0}, "text": {"field": "said"}},
        },
    ]
    described = text("web.described-curve", metric=text(f"chart.serving-{metric}"), n=len(serving.curve))
    return picture(described, 280, width=460, data={"values": values}, layer=marks)
