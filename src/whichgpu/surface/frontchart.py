"""The front of cost against time as a Vega-Lite spec: every candidate shown, the front joined, the answer marked."""

from __future__ import annotations

from typing import Any

from whichgpu.api.recommending import RecommendAnswer
from whichgpu.base.messages import Language
from whichgpu.decide.answer import Candidate
from whichgpu.surface.charts import PALETTE, SCHEMA

HOURS = (1, 730, 1460, 2190, 2920, 3650, 4380, 5110, 5840, 6570, 7300, 8030, 8760)  # months of a year


def front_chart(answer: RecommendAnswer, language: Language) -> dict[str, Any]:
    """Points of all candidates shown, a line through the front."""
    text = language.text
    points = list({(one["name"], one["machine"]): one for one in map(_point, (*answer.candidates, *answer.pareto))}.values())
    x = {"field": "hours", "type": "quantitative", "title": text("chart.hours"), "scale": {"type": "log"}}
    cost = text("chart.cost", currency=answer.answer.cost.currency)
    y = {"field": "cost", "type": "quantitative", "title": cost, "scale": {"type": "log"}}
    line = {
        "data": {"values": [_point(one) for one in answer.pareto]},
        "mark": {"type": "line", "color": PALETTE[0]},
        "encoding": {"x": x, "y": y},
    }
    dots = {
        "data": {"values": points},
        "mark": {"type": "point", "filled": True, "size": 60, "color": PALETTE[0]},
        "encoding": {"x": x, "y": y, "tooltip": [{"field": "name"}, {"field": "machine"}, {"field": "cost"}, {"field": "hours"}]},
    }
    names = {
        "data": {"values": points},
        "mark": {"type": "text", "dy": -9},
        "encoding": {"x": x, "y": y, "text": {"field": "name"}},
    }
    best = {
        "data": {"values": [_point(answer.answer)]},
        "mark": {"type": "point", "size": 260, "color": PALETTE[5]},
        "encoding": {"x": x, "y": y},
    }
    front = {"title": text("chart.front"), "width": 640, "height": 420, "layer": [line, dots, names, best]}
    more = [chart for chart in (_terms(answer, language), _curve(answer, language)) if chart]
    return {"$schema": SCHEMA, "vconcat": [front, *more]}


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


def _point(one: Candidate) -> dict[str, Any]:
    return {
        "name": f"{one.gpus}x {one.gpu_name}",
        "machine": f"{one.provider} {one.instance}, {one.region}, {one.term}",
        "hours": round(one.run_time.value / 3600.0, 4),
        "cost": float(one.cost.amount),
    }
