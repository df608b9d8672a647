"""Charts of a plan: GPUs and traffic by hour, cost with each type of GPU alone, and cost against the latency objective."""

from __future__ import annotations

from math import ceil

from whichgpu.base.messages import Language
from whichgpu.base.units import significant
from whichgpu.decide.plan.plan_answer import PlanAnswer
from whichgpu.surface.charts.palette import ACCENT, CARD, CHOSEN, COLOURS, INK, SOFT
from whichgpu.surface.charts.parts import Spec, coloured, file_chart, picture, quantity, row_names, tips

MAX_COUNTS = 10  # Numbers of GPUs on an axis.
LABEL_SPACE = 1.12  # Length of an axis relative to the longest bar, which leaves space for that bar's label.


def plan_chart(answer: PlanAnswer, language: Language) -> Spec:
    """Return the chart of `plan --plot`: GPUs by hour of the day, or else cost by GPU type; and cost by latency objective."""
    text = language.text
    by_hour = len(answer.timeline) > 1
    first = hours_picture(answer, language) if by_hour else alone_picture(answer, language)
    panels = [(text("chart.plan" if by_hour else "chart.plan-alone"), first)]
    if len(answer.curve) > 1:
        goal = text(f"plan.goal-{answer.curve[0].objective}")
        panels.append((text("chart.plan-curve", goal=goal), objective_picture(answer, language)))
    return file_chart(*panels)


def hours_picture(answer: PlanAnswer, language: Language) -> Spec:
    """Return a chart of the GPUs in use in each hour, stacked by type, and of the request rate."""
    text = language.text
    kinds = list(dict.fromkeys(name for hour in answer.timeline for name in hour.gpus))
    bars = [
        {"hour": hour.hour, "end": hour.hour + 1, "gpu": name, "gpus": count}
        for hour in answer.timeline
        for name, count in hour.gpus.items()
    ]
    rates = [{"hour": hour.hour, "middle": hour.hour + 0.5, "rate": round(hour.rate, 3)} for hour in answer.timeline]
    peak_gpus = max((sum(hour.gpus.values()) for hour in answer.timeline), default=0)
    counts = {
        "values": list(range(0, peak_gpus + 1, max(1, ceil(peak_gpus / MAX_COUNTS)))),
        "format": "d",
    }  # There is no half GPU.
    ends = [answer.timeline[0].hour, answer.timeline[-1].hour + 1]
    axis = {"tickMinStep": 1, "tickCount": 12, "grid": False}
    x = quantity("hour", text("web.axis-hour"), axis=axis, bin="binned", scale={"domain": ends, "nice": False})
    bar = {
        "data": {"values": bars},
        "mark": {"type": "bar", "stroke": CARD, "strokeWidth": 1},
        "encoding": {
            "x": x, "x2": {"field": "end"}, "y": quantity("gpus", text("web.axis-gpus"), stack="zero", axis=counts),
            "color": coloured("gpu", kinds),
            "tooltip": tips(("hour", x["title"]), ("gpu", text("web.tip-gpu")), ("gpus", text("web.axis-gpus"))),
        },
    }  # fmt: skip
    line = {
        "data": {"values": rates},
        "mark": {"type": "line", "color": CHOSEN, "strokeWidth": 2, "point": {"color": CHOSEN, "shape": "diamond", "size": 40}},
        "encoding": {
            "x": quantity("middle", x["title"]),
            "y": quantity("rate", text("web.axis-rate-asked"), axis={"titleColor": CHOSEN, "grid": False}),
            "tooltip": tips(("hour", x["title"]), ("rate", text("web.axis-rate-asked"))),
        },
    }  # fmt: skip
    description = text("web.described-hours", n=len(answer.timeline), kinds=tuple(kinds))
    return picture(description, 260, layer=[bar, line], resolve={"scale": {"y": "independent"}})


def alone_picture(answer: PlanAnswer, language: Language) -> Spec:
    """Return a chart of the plan's hourly cost against that of a fleet with each type of GPU alone."""
    text, currency, cost = language.text, answer.bound.currency, answer.cost_per_hour
    mine = text("web.this-plan")
    rows = [(one.gpu_name, one.cost_per_hour, one.gpus) for one in answer.alone if one.cost_per_hour is not None]
    points = [
        {"who": mine, "mine": True, "cost": float(cost.amount), "gpus": sum(row.gpus for row in answer.groups),
         "low": float(cost.low), "high": float(cost.high), "end": float(cost.high)}
    ]  # fmt: skip
    points += [{"who": name, "cost": float(alone.amount), "gpus": gpus, "end": float(alone.amount)} for name, alone, gpus in rows]
    points.sort(key=lambda one: float(str(one["cost"])))
    order = [str(one["who"]) for one in points]
    longest = max(float(str(one["end"])) for one in points)
    x = quantity("cost", text("web.axis-an-hour", currency=currency), scale={"domainMax": LABEL_SPACE * longest, "nice": False})
    y = row_names("who", order)
    own = {"condition": {"test": "datum.mine", "value": CHOSEN}, "value": COLOURS[0]}
    bar = {
        "mark": {"type": "bar", "height": 14},
        "encoding": {
            "x": x, "y": y, "color": own,
            "tooltip": tips(("who", text("web.tip-gpu")), ("cost", x["title"]), ("gpus", text("web.axis-gpus"))),
        },
    }  # fmt: skip
    words = {
        "mark": {"type": "text", "align": "left", "dx": 5, "color": SOFT},
        "encoding": {"x": quantity("end", x["title"]), "y": y, "text": {"field": "cost", "format": ".3~g"}},
    }
    range_ = {
        "transform": [{"filter": "datum.low < datum.high"}],
        "mark": {"type": "rule", "color": INK, "strokeWidth": 1.5},
        "encoding": {"x": quantity("low", x["title"]), "x2": {"field": "high"}, "y": y},
    }
    description = text("web.described-alone", n=len(rows), cost=significant(float(cost.amount)), currency=currency)
    return picture(description, 26 * len(points), width=460, data={"values": points}, layer=[bar, range_, words])


def objective_picture(answer: PlanAnswer, language: Language) -> Spec:
    """Return a chart of the fleet's hourly cost if the latency objective were tighter or looser."""
    text = language.text
    points = [
        {"ms": round(1000 * one.value, 2), "cost": float(one.cost_per_hour.amount)}
        for one in answer.curve
        if one.cost_per_hour is not None
    ]
    x, y = quantity("ms", text("web.axis-ms")), quantity("cost", text("web.axis-an-hour", currency=answer.bound.currency))
    mark = {"type": "line", "color": ACCENT, "strokeWidth": 2, "point": {"color": ACCENT, "size": 60}}
    encoding = {"x": x, "y": y, "tooltip": tips(("ms", x["title"]), ("cost", y["title"]))}
    return picture(
        text("web.described-objective", n=len(points)), 240, width=460, data={"values": points}, mark=mark, encoding=encoding
    )
