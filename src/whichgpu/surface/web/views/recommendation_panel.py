"""A recommendation as it is shown: the figures of its card, the table of candidates, and its charts."""

from __future__ import annotations

from typing import Any

from whichgpu.base.figure import Figure
from whichgpu.base.messages import Language
from whichgpu.base.units import format_memory, format_seconds, significant
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.decide.candidate import Candidate, Cost
from whichgpu.surface.charts.front import HOURS
from whichgpu.surface.commands.recommend import format_amount, run_time
from whichgpu.surface.web.views.chart_parts import CHOSEN, COLOURS, INK, PLAIN, coloured, dashed, picture, quantity, tips
from whichgpu.surface.web.views.point_labels import NAME_SIZE, ONE_NAME, PLACE, place_names

Row = dict[str, Any]


def is_service(answer: RecommendAnswer) -> bool:
    """Whether it is kept up rather than run to its end."""
    return answer.kind == "service"


def _late(one: Candidate) -> Figure:
    """What a user of a service waits: between tokens, or for an answer that has none between."""
    return one.tpot or one.ttft or one.time


def cards(answer: RecommendAnswer, language: Language) -> list[Row]:
    """The few numbers of the answer's card: each with its range in words, and how it is known."""
    best, text = answer.answer, language.text
    shown = [_money("hour", float(best.cost_per_hour.amount), best.cost.currency, language)]
    if is_service(answer):
        shown.append(_money("month", float(best.cost_per_month.amount), best.cost.currency, language))
    else:
        shown += [_cost("cost", best.cost, language), _figure("run-time", best.run_time, run_time, language)]
    for name, cost in (("tokens", best.cost_per_million_tokens), ("epoch", best.cost_per_epoch)):
        shown += [_cost(name, cost, language)] if cost is not None else []
    if best.throughput.value:
        shown.append(_figure("throughput", best.throughput, significant, language, unit=best.throughput.unit))
    for name, figure in (("ttft", best.ttft), ("tpot", best.tpot)):
        shown += [_figure(name, figure, format_seconds, language)] if figure is not None else []
    share = round(100 * best.memory.value / best.usable)
    detail = text("web.of-usable", usable=format_memory(best.usable), share=share)
    shown.append(
        {"title": text("web.card-memory"), "value": format_memory(int(best.memory.value)), "unit": "", "range": detail,
         "basis": best.memory.basis, "share": min(share, 100)}
    )  # fmt: skip
    return shown


def _money(name: str, value: float, currency: str, language: Language) -> Row:
    title = language.text(f"web.card-{name}")
    return {"title": title, "value": significant(value), "unit": currency, "range": "", "basis": "", "share": None}


def _cost(name: str, cost: Cost, language: Language) -> Row:
    ends = [format_amount(cost.low), format_amount(cost.high)]
    told = language.text("web.range", low=ends[0], high=ends[1]) if ends[0] != ends[1] else ""
    return _money(name, float(cost.amount), cost.currency, language) | {"range": told}


def _figure(name: str, figure: Figure, write: Any, language: Language, unit: str = "") -> Row:
    value, _, own = write(figure.value).partition(" ")
    ends = {"low": write(figure.low), "high": write(figure.high)}
    told = language.text("web.range", **ends) if ends["low"] != ends["high"] else ""
    title = language.text(f"web.card-{name}")
    return {"title": title, "value": value, "unit": own or unit, "range": told, "basis": figure.basis, "share": None}


def rows(answer: RecommendAnswer, language: Language) -> list[Row]:
    """The candidates as the table has them."""
    return [_row(one, answer, language) for one in answer.candidates]


def _row(one: Candidate, answer: RecommendAnswer, language: Language) -> Row:
    service = is_service(answer)
    unit = one.cost_per_million_tokens or one.cost_per_thousand_samples
    return {
        "gpu": one.gpu, "name": f"{one.gpus}× {one.gpu_name}", "best": one == answer.answer,
        "machine": one.instance if one.machines == 1 else f"{one.machines}× {one.instance}",
        "provider": one.provider, "region": one.region, "term": language.text(f"term.{one.term}"),
        "speed": significant(one.throughput.value), "unit": one.throughput.unit, "speed_raw": one.throughput.value,
        "late": format_seconds(_late(one).value) if service else run_time(one.run_time.value),
        "late_raw": _late(one).value if service else one.run_time.value,
        "cost": format_amount(one.cost_per_month.amount if service else one.cost.amount), "currency": one.cost.currency,
        "cost_raw": float(one.cost_per_month.amount if service else one.cost.amount),
        "hour": format_amount(one.cost_per_hour.amount), "hour_raw": float(one.cost_per_hour.amount),
        "each": format_amount(unit.amount) if unit else "", "each_raw": float(unit.amount) if unit else 0.0,
        "seen": one.price_observed_at, "stale": one.price_stale, "tier": one.tier,
    }  # fmt: skip


def front_picture(answer: RecommendAnswer, language: Language) -> dict[str, Any]:
    """Cost against time: of a run its whole time, of a service the time between tokens; the answer marked."""
    text, service = language.text, is_service(answer)
    shown = {id(one): one for one in (*answer.candidates, *answer.pareto)}.values()
    points = list({(one.gpu, one.gpus, one.instance): _point(one, service, language) for one in shown}.values())
    front = _unbeaten(points)
    best = _point(answer.answer, service, language)
    kinds = [text("web.kind-answer"), text("web.kind-front"), text("web.kind-other")]
    for point in points:
        point["kind"] = kinds[0] if _same(point, best) else kinds[1] if any(_same(point, one) for one in front) else kinds[2]
    axis = "web.axis-hours" if not service else "web.axis-tpot" if answer.answer.tpot else "web.axis-ms"
    x = quantity("time", text(axis), log=True, axis={"format": PLAIN, "tickCount": 5})
    currency = answer.answer.cost.currency
    y = quantity(
        "cost", text("web.axis-month" if service else "web.axis-cost", currency=currency), log=True, axis={"format": "~s"}
    )
    shape = {"field": "kind", "type": "nominal", "title": text("field.kind"), "sort": kinds, "legend": {"title": None}}
    said = tips(("name", text("web.tip-gpus")), ("machine", text("web.tip-machine")), ("cost", y["title"]), ("time", x["title"]))
    marks = {
        "mark": {"type": "point", "filled": True, "opacity": 1, "stroke": "var(--card, #fff)", "strokeWidth": 1},
        "encoding": {
            "x": x, "y": y, "tooltip": said,
            "color": {**shape, "scale": {"domain": kinds, "range": [CHOSEN, COLOURS[0], "var(--soft, #55606e)"]}},
            "shape": {**shape, "scale": {"domain": kinds, "range": ["diamond", "circle", "square"]}},
            "size": {**shape, "scale": {"domain": kinds, "range": [320, 110, 70]}},
        },
    }  # fmt: skip
    line = {
        "data": {"values": front},
        "mark": {"type": "line", "color": COLOURS[0], "strokeWidth": 1.5, "strokeDash": [4, 3]},
        "encoding": {"x": x, "y": y},
    }
    place_names(points, kinds[:2], 340)
    names = {
        "mark": {"type": "text", "fontSize": NAME_SIZE, "color": INK, **{key: {"expr": f"datum.{key}"} for key in PLACE}},
        "transform": [{"filter": "isValid(datum.align)"}],
        "encoding": {"x": x, "y": y, "text": {"condition": {"test": ONE_NAME, "value": ""}, "field": "name"}},
    }
    described = text(
        "web.described-front", n=len(points), name=best["name"], cost=format_amount(answer.answer.cost.amount), currency=currency
    )
    return picture(described, 340, data={"values": points}, layer=[line, marks, names])


def _point(one: Candidate, service: bool, language: Language) -> Row:
    return {
        "name": f"{one.gpus}× {one.gpu_name}",
        "machine": language.listed(filter(None, (one.provider, one.instance, one.region, language.text(f"term.{one.term}")))),
        "time": float(f"{(_late(one).value * 1e3 if service else one.run_time.value / 3600):.4g}"),
        "cost": float(one.cost_per_month.amount if service else one.cost.amount),
    }


def _same(one: Row, other: Row) -> bool:
    return all(one[name] == other[name] for name in ("name", "machine", "time", "cost"))


def _unbeaten(points: list[Row]) -> list[Row]:
    """Those that none of the others beats in both cost and time, cheapest first."""
    found: list[Row] = []
    for point in sorted(points, key=lambda one: (one["cost"], one["time"])):
        if not found or point["time"] < found[-1]["time"]:
            found.append({name: point[name] for name in ("name", "machine", "time", "cost")})
    return found


def terms_picture(answer: RecommendAnswer, language: Language) -> dict[str, Any]:
    """What the answer's machine costs on each term as its hours of a year grow: a commitment is paid whole from the start."""
    text = language.text
    lines = {_term(line.term, line.payment, language): line for line in reversed(answer.terms)}
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


def _term(term: str, payment: str | None, language: Language) -> str:
    return language.listed(filter(None, (language.text(f"term.{term}"), payment)))
