"""A plan as a Vega-Lite spec: GPUs through the hours with the traffic above them, and the bill against the objective."""

from __future__ import annotations

from typing import Any

from whichgpu.base.messages import Language
from whichgpu.decide.plan.plan_answer import PlanAnswer
from whichgpu.surface.charts.vega import PALETTE, SCHEMA


def plan_chart(answer: PlanAnswer, language: Language) -> dict[str, Any]:
    """The timeline, and the curve where an objective was given."""
    charts = [_rates(answer, language), _timeline(answer, language)] if answer.timeline else [_groups(answer, language)]
    if len(answer.curve) > 1:
        charts.append(_curve(answer, language))
    return {"$schema": SCHEMA, "vconcat": charts}


def _rates(answer: PlanAnswer, language: Language) -> dict[str, Any]:
    points = [{"hour": one.hour, "rate": round(one.rate, 4)} for one in _whole(answer)]
    x = {"field": "hour", "type": "quantitative", "title": language.text("chart.hour"), "axis": {"tickMinStep": 1}}
    y = {"field": "rate", "type": "quantitative", "title": language.text("chart.requests")}
    return {
        "title": language.text("chart.plan"),
        "width": 640,
        "height": 120,
        "data": {"values": points},
        "mark": {"type": "line", "interpolate": "step-after", "color": PALETTE[0]},
        "encoding": {"x": x, "y": y},
    }


def _timeline(answer: PlanAnswer, language: Language) -> dict[str, Any]:
    """One band for each kind of GPU."""
    kinds = list(dict.fromkeys(name for one in answer.timeline for name in one.gpus))
    bars = [
        {"hour": one.hour, "end": one.hour + 1, "gpu": name, "gpus": one.gpus.get(name, 0)}
        for one in answer.timeline
        for name in kinds
    ]
    return {
        "width": 640,
        "height": 240,
        "data": {"values": bars},
        "mark": {"type": "bar", "stroke": "white", "strokeWidth": 0.3},
        "encoding": {
            "x": {"field": "hour", "type": "quantitative", "title": language.text("chart.hour"), "axis": {"tickMinStep": 1}},
            "x2": {"field": "end"},
            "y": {"field": "gpus", "type": "quantitative", "title": language.text("chart.gpus"), "stack": "zero"},
            "color": {"field": "gpu", "type": "nominal", "title": None, "scale": {"domain": kinds, "range": list(PALETTE)}},
            "tooltip": [{"field": "hour"}, {"field": "gpu"}, {"field": "gpus"}],
        },
    }


def _whole(answer: PlanAnswer) -> list[Any]:
    """A steady rate as a line, not a point."""
    last = answer.timeline[-1]
    from dataclasses import replace

    return [*answer.timeline, replace(last, hour=last.hour + 1)]


def _groups(answer: PlanAnswer, language: Language) -> dict[str, Any]:
    rows = [{"gpu": row.gpu_name, "gpus": row.gpus, "cost": float(row.cost_per_hour.amount)} for row in answer.groups]
    return {
        "title": language.text("chart.plan"),
        "width": 640,
        "data": {"values": rows},
        "mark": "bar",
        "encoding": {
            "y": {"field": "gpu", "type": "nominal", "title": None},
            "x": {"field": "gpus", "type": "quantitative", "title": language.text("chart.gpus")},
            "tooltip": [{"field": "gpu"}, {"field": "gpus"}, {"field": "cost"}],
        },
    }


def _curve(answer: PlanAnswer, language: Language) -> dict[str, Any]:
    points = [
        {"ms": round(1000 * one.value, 3), "cost": float(one.cost_per_hour.amount)} for one in answer.curve if one.cost_per_hour
    ]
    title = language.text("chart.plan-curve", goal=language.text(f"plan.goal-{answer.curve[0].objective}"))
    x = {"field": "ms", "type": "quantitative", "title": language.text("chart.milliseconds"), "scale": {"type": "log"}}
    y = {"field": "cost", "type": "quantitative", "title": language.text("chart.cost", currency=answer.bound.currency)}
    return {
        "title": title,
        "width": 640,
        "height": 220,
        "data": {"values": points},
        "mark": {"type": "line", "point": True, "color": PALETTE[0]},
        "encoding": {"x": x, "y": y},
    }
