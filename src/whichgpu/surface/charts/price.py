"""How prices went, as a chart: a step line for each provider and term."""

from __future__ import annotations

from typing import Any

from whichgpu.api.prices.history import HistoryAnswer
from whichgpu.base.messages import Language
from whichgpu.surface.charts.vega import PALETTE, SCHEMA

MOST_LINES = 10  # as many as there are colours that can be told apart


def history_chart(answer: HistoryAnswer, language: Language, gpu: str | None = None) -> dict[str, Any]:
    """Step lines of the price of a GPU (by the name it was asked for) for an hour; of very many, those with the most changes."""
    text = language.text
    gpu = gpu or ", ".join(dict.fromkeys(row.gpu_name for row in answer.history))
    lines: dict[str, list[dict[str, Any]]] = {}
    for row in answer.history:
        name = f"{row.provider} {row.gpu_name}, {row.term}"
        points = lines.setdefault(name, [])
        money = row.price_per_gpu_hour
        points.append({"line": name, "day": row.observed, "price": float(money.amount), "currency": money.currency})
        if row.last_observed > row.observed:
            points.append({"line": name, "day": row.last_observed, "price": float(money.amount), "currency": money.currency})
    chosen = sorted(lines, key=lambda name: -len(lines[name]))[:MOST_LINES]
    values = [point for name in chosen for point in sorted(lines[name], key=lambda point: str(point["day"]))]
    currencies = sorted({str(point["currency"]) for point in values})
    return {
        "$schema": SCHEMA,
        "title": {"text": text("chart.history", gpu=gpu), "subtitle": text("chart.history-subtitle"), "anchor": "start"},
        "width": 720,
        "height": 360,
        "data": {"values": values},
        "mark": {"type": "line", "interpolate": "step-after", "point": True},
        "encoding": {
            "x": {"field": "day", "type": "temporal", "title": None},
            "y": {"field": "price", "type": "quantitative", "title": text("chart.history-axis", currency=", ".join(currencies))},
            "color": {
                "field": "line",
                "type": "nominal",
                "title": None,
                "sort": chosen,
                "scale": {"domain": chosen, "range": list(PALETTE[: len(chosen)])},
                "legend": {"orient": "bottom", "columns": 2, "labelLimit": 340},
            },
            "tooltip": [{"field": "line"}, {"field": "day"}, {"field": "price"}, {"field": "currency"}],
        },
        "config": {"font": "sans-serif", "view": {"stroke": None}},
    }
