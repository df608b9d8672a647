"""Charts of a recommendation: candidates by cost and time, cost by rental term, and throughput against latency."""

from __future__ import annotations

from whichgpu.base.messages import Language
from whichgpu.base.units import format_amount, significant
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.decide.candidate import Candidate
from whichgpu.surface.candidate_cells import user_wait
from whichgpu.surface.charts.palette import CARD, CHOSEN, COLOURS, INK, SOFT, THREE_DIGITS
from whichgpu.surface.charts.parts import Spec, coloured, dashed, file_chart, picture, quantity, tips
from whichgpu.surface.charts.point_labels import LABEL_PLACE, LABEL_SIZE, NARROW_CHART_TEST, place_labels

HOURS = (1, 730, 1460, 2190, 2920, 3650, 4380, 5110, 5840, 6570, 7300, 8030, 8760)  # Ends of the months of a year, in hours.
HEIGHT = 340  # Height of a chart in pixels.
POINT = ("name", "machine", "time", "cost")
# Mark of a 90% range.
RANGE_MARK = {"type": "rule", "color": SOFT, "strokeWidth": 1.2, "opacity": 0.6, "aria": False}


def front_chart(answer: RecommendAnswer, language: Language) -> Spec:
    """Return the chart of `recommend --plot`: cost and time of candidates, then rental terms and batch sizes if several."""
    text = language.text
    panels = [(text("chart.front"), front_picture(answer, language))]
    if answer.terms:
        machine = f"{answer.answer.provider} {answer.answer.instance}"
        panels.append((text("chart.terms", machine=machine), terms_picture(answer, language)))
    if len(answer.curve) > 1:
        panels.append((text("chart.curve"), _batch_curve(answer, language)))
    return file_chart(*panels)


def _batch_curve(answer: RecommendAnswer, language: Language) -> Spec:
    """Return a chart of throughput against latency, one point per batch size that fits on the recommended GPUs."""
    points = [{"batch": batch, "ms": seconds * 1000, "rate": rate} for batch, seconds, rate in answer.curve]
    encoding = {
        "x": quantity("ms", language.text("chart.milliseconds"), scale={"type": "log"}),
        "y": quantity("rate", answer.answer.throughput.unit),
        "tooltip": [{"field": "batch"}, {"field": "ms"}, {"field": "rate"}],
    }
    mark = {"type": "line", "point": True, "color": COLOURS[0]}
    return {"width": 640, "height": 260, "data": {"values": points}, "mark": mark, "encoding": encoding}


def front_picture(answer: RecommendAnswer, language: Language) -> Spec:
    """Return a chart of cost against run time, or against a service's latency, with the recommended candidate marked."""
    text, is_service = language.text, answer.kind == "service"
    candidates = {id(one): one for one in (*answer.candidates, *answer.pareto)}.values()
    points = list({(one.gpu, one.gpus, one.instance): _point(one, is_service, language) for one in candidates}.values())
    front = _pareto_front(points)
    best = _point(answer.answer, is_service, language)
    kinds = [text("web.kind-answer"), text("web.kind-front"), text("web.kind-other")]
    for point in points:
        point["kind"] = kinds[0] if _same(point, best) else kinds[1] if any(_same(point, one) for one in front) else kinds[2]
    axis = "web.axis-hours" if not is_service else "web.axis-tpot" if answer.answer.tpot else "web.axis-ms"
    currency = answer.answer.cost.currency
    x = quantity("time", text(axis), log=True, axis={"format": THREE_DIGITS, "tickCount": 5})
    cost = text("web.axis-month" if is_service else "web.axis-cost", currency=currency)
    y = quantity("cost", cost, log=True, axis={"format": "~s" if min(one["cost"] for one in points) >= 1 else "~g"})
    kind = {"field": "kind", "type": "nominal", "title": text("field.kind"), "sort": kinds, "legend": {"title": None}}
    marks = {
        "data": {"values": points},
        "mark": {"type": "point", "filled": True, "opacity": 1, "stroke": CARD, "strokeWidth": 1},
        "encoding": {
            "x": x, "y": y,
            "tooltip": tips(
                ("name", text("web.tip-gpus")), ("machine", text("web.tip-machine")), ("cost", y["title"]), ("time", x["title"]),
                ("range", text("web.column-range")),
            ),
            "color": {**kind, "scale": {"domain": kinds, "range": [CHOSEN, COLOURS[0], SOFT]}},
            "shape": {**kind, "scale": {"domain": kinds, "range": ["diamond", "circle", "square"]}},
            "size": {**kind, "scale": {"domain": kinds, "range": [320, 110, 70]}},
        },
    }  # fmt: skip
    time_ranges = {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y}
    cost_ranges = {"x": x, "y": {**y, "field": "low_cost"}, "y2": {"field": "high_cost"}}
    spans = [point for point in points if point["low"] < point["high"]]
    ranges = [
        {"data": {"values": spans}, "mark": RANGE_MARK, "encoding": encoding}
        for encoding in (time_ranges, *(() if is_service else (cost_ranges,)))
        if spans
    ]
    line = {
        "data": {"values": front},
        "mark": {"type": "line", "color": COLOURS[0], "strokeWidth": 1.5, "strokeDash": [4, 3]},
        "encoding": {"x": x, "y": y},
    }
    place_labels(points, kinds[:2], HEIGHT)
    names = {
        "data": {"values": [point for point in points if "align" in point]},
        "mark": {"type": "text", "fontSize": LABEL_SIZE, "color": INK, **{key: {"expr": f"datum.{key}"} for key in LABEL_PLACE}},
        "encoding": {"x": x, "y": y, "text": {"condition": {"test": NARROW_CHART_TEST, "value": ""}, "field": "name"}},
    }
    cheapest = format_amount(answer.answer.cost.amount)
    description = text("web.described-front", n=len(points), name=best["name"], cost=cheapest, currency=currency)
    return picture(description, HEIGHT, layer=[*ranges, line, marks, names])


def _point(one: Candidate, is_service: bool, language: Language) -> Spec:
    wait, scale = (user_wait(one), 1e3) if is_service else (one.run_time, 1 / 3600)
    low, high = significant(wait.low * scale), significant(wait.high * scale)
    point = {
        "name": f"{one.gpus}× {one.gpu_name}",
        "machine": language.listed(filter(None, (one.provider, one.instance, one.region, language.text(f"term.{one.term}")))),
        "time": float(f"{wait.value * scale:.4g}"),
        "cost": float(one.cost_per_month.amount if is_service else one.cost.amount),
        "low": float(f"{wait.low * scale:.4g}"), "high": float(f"{wait.high * scale:.4g}"),
        "range": language.text("web.range", low=low, high=high),
    }  # fmt: skip
    costs = {} if is_service else {"low_cost": float(one.cost.low), "high_cost": float(one.cost.high)}
    return point | costs


def _same(one: Spec, other: Spec) -> bool:
    return all(one[name] == other[name] for name in POINT)


def _pareto_front(points: list[Spec]) -> list[Spec]:
    """Return the Pareto front: points that no other beats in both cost and time, cheapest first."""
    front: list[Spec] = []
    for point in sorted(points, key=lambda one: (one["cost"], one["time"])):
        if not front or point["time"] < front[-1]["time"]:
            front.append({name: point[name] for name in POINT})
    return front


def terms_picture(answer: RecommendAnswer, language: Language) -> Spec:
    """Return a chart of the recommended machine's cost by hours used in a year, a line per term; commitments are paid in full."""
    text = language.text
    lines = {language.listed(filter(None, (text(f"term.{line.term}"), line.payment))): line for line in reversed(answer.terms)}
    names = list(reversed(lines))
    points = [
        {"hours": hours, "cost": round(float(lines[name].price.amount) * max(hours, lines[name].bound_hours), 2), "term": name}
        for name in names
        for hours in HOURS
    ]
    x = quantity("hours", text("web.axis-hours-used"))
    y = quantity("cost", text("web.axis-cost", currency=answer.answer.cost.currency), axis={"format": "~s"})
    machine = f"{answer.answer.provider} {answer.answer.instance}"
    return picture(
        text("web.described-terms", n=len(names), machine=machine),
        280,
        data={"values": points},
        mark={"type": "line", "strokeWidth": 2.2, "point": False},
        encoding={
            "x": x, "y": y, "color": coloured("term", names), "strokeDash": dashed("term", names),
            "tooltip": tips(("term", text("web.tip-term")), ("hours", x["title"]), ("cost", y["title"])),
        },
    )  # fmt: skip
