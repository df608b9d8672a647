"""The front of cost against time as a Vega-Lite spec: every candidate shown, the front joined, the answer marked."""

from __future__ import annotations

from typing import Any

from whichgpu.base.messages import Language
from whichgpu.decide.answer.explain import gpu_count_label
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.decide.candidate import Candidate
from whichgpu.surface.charts.vega import PALETTE, SCHEMA

HOURS = (1, 730, 1460, 2190, 2920, 3650, 4380, 5110, 5840, 6570, 7300, 8030, 8760)  # months of a year


def front_chart(answer: RecommendAnswer, language: Language) -> dict[str, Any]:
    """Points of all candidates shown, a line through the front; a service's time is that of an answer."""
    text, service = language.text, answer.kind == "service"
    shown = [_point(one, answer) for one in (*answer.candidates, *answer.pareto)]
    points = list({(one["name"], one["machine"]): one for one in shown}.values())
    front = [_point(one, answer) for one in answer.pareto]
    title = text("chart.answer-seconds" if service else "chart.hours")
    axis = {"type": "log", "nice": False, "padding": 24}
    x = {"field": "time", "type": "quantitative", "title": title, "scale": axis, "axis": {"format": "~g"}}
    cost = text("chart.cost-month" if service else "chart.cost", currency=answer.answer.cost.currency)
    y = {"field": "cost", "type": "quantitative", "title": cost, "scale": axis, "axis": {"format": "~s"}}
    place = {"x": x, "y": y}
    tips = [{"field": name} for name in ("name", "machine", "cost", "time")]
    line = {"data": {"values": front}, "mark": {"type": "line", "color": PALETTE[0]}, "encoding": place}
    mark = {"type": "point", "filled": True, "size": 60, "color": PALETTE[0], "opacity": 0.6}
    dots = {"data": {"values": points}, "mark": mark, "encoding": {**place, "tooltip": tips}}
    named = {one["name"]: one for one in (*front, _point(answer.answer, answer))}  # others would lie on top of each other
    label = {"type": "text", "dy": -11, "align": "left"}
    names = {"data": {"values": list(named.values())}, "mark": label, "encoding": {**place, "text": {"field": "name"}}}
    best = {
        "data": {"values": [_point(answer.answer, answer)]},
        "mark": {"type": "point", "size": 260, "color": PALETTE[5]},
        "encoding": place,
    }
    whole = {"title": text("chart.front"), "width": 640, "height": 420, "layer": [line, dots, names, best]}
    more = [chart for chart in (_terms(answer, language), _curve(answer, language)) if chart]
    return {"$schema": SCHEMA, "vconcat": [whole, *more]}


def _terms(answer: RecommendAnswer, language: Language) -> dict[str, Any] | None:
    """What the answer's machine costs on each term as its hours grow: a commitment is paid whole from the start."""
    if not answer.terms:
        return None
    text = language.text
    points = [
        {"hours": hours, "cost": float(line.price.amount) * max(hours, line.bound_hours), "term": text(f"term.{line.term}")}
        for line in answer.terms
        for hours in HOURS
    ]
    x = {"field": "hours", "type": "quantitative", "title": text("chart.hours-used")}
    y = {"field": "cost", "type": "quantitative", "title": text("chart.cost", currency=answer.answer.cost.currency)}
    color = {"field": "term", "type": "nominal", "title": None, "scale": {"range": list(PALETTE)}}
    title = text("chart.terms", machine=f"{answer.answer.provider} {answer.answer.instance}")
    encoding = {"x": x, "y": y, "color": color}
    return {"title": title, "width": 640, "height": 260, "data": {"values": points}, "mark": "line", "encoding": encoding}


def _curve(answer: RecommendAnswer, language: Language) -> dict[str, Any] | None:
    """Work a second against seconds of each batch the answer's GPUs hold."""
    if len(answer.curve) < 2:
        return None
    text = language.text
    points = [{"batch": batch, "ms": seconds * 1000, "rate": rate} for batch, seconds, rate in answer.curve]
    x = {"field": "ms", "type": "quantitative", "title": text("chart.milliseconds"), "scale": {"type": "log"}}
    y = {"field": "rate", "type": "quantitative", "title": answer.answer.throughput.unit}
    mark = {"type": "line", "point": True, "color": PALETTE[0]}
    encoding = {"x": x, "y": y, "tooltip": [{"field": "batch"}, {"field": "ms"}, {"field": "rate"}]}
    return {
        "title": text("chart.curve"),
        "width": 640,
        "height": 260,
        "data": {"values": points},
        "mark": mark,
        "encoding": encoding,
    }


def _point(one: Candidate, answer: RecommendAnswer) -> dict[str, Any]:
    service = answer.kind == "service"
    time = _answered(one, answer) if service else one.run_time.value / 3600.0
    return {
        "name": f"{gpu_count_label(one.gpus)} {one.gpu_name}",
        "machine": f"{one.provider} {one.instance}, {one.region}, {one.term}",
        "time": round(time, 4),
        "cost": float((one.cost_per_month if service else one.cost).amount),
    }


def _answered(one: Candidate, answer: RecommendAnswer) -> float:
    """Seconds from a request to the end of its answer."""
    first = one.ttft.value if one.ttft else one.time.value
    tokens = max(1, int(answer.request.get("seq_out") or 1)) - 1
    return first + tokens * one.tpot.value if one.tpot else first
