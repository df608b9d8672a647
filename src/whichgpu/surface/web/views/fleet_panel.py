"""A fleet as the plan page shows it: groups, the bill, the hours of the day, and what each kind of GPU would cost alone.

The planner is another verb's module; where it is not there, the page shows one server under load instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from whichgpu.base.messages import Language
from whichgpu.base.units import format_seconds, significant
from whichgpu.decide.requirements import Requirements
from whichgpu.price.asof import STALE_DAYS
from whichgpu.surface.web.views.chart_parts import ACCENT, CHOSEN, COLOURS, INK, SOFT, coloured, picture, quantity, tips
from whichgpu.surface.web.views.forms import day_of
from whichgpu.surface.web.views.shared_catalog import lookups

SECONDS = 4.0  # the program may take; what is not settled by then is told with its gap
Charts = dict[str, dict[str, Any]]


@cache
def fleets() -> bool:
    """Whether there is a planner."""
    return find_spec("whichgpu.api.plan.plan") is not None


def planned(
    model: str,
    traffic: Mapping[str, str],
    wishes: Mapping[str, Any],
    owned: str | None,
    only_owned: bool,
    curve: bool,
    as_of: str | None,
    language: Language,
) -> tuple[dict[str, Any], Charts]:
    """What the template shows of a plan, and its charts."""
    planning, files, requests = (
        import_module(f"whichgpu.api.{name}") for name in ("plan.plan", "plan.plan_file", "plan.request")
    )
    asked = requests.PlanRequest(
        models=(files.model_asked({"name": model, **traffic}, "plan"),),
        owned=files.owned_text(owned) if owned else (),
        only_owned=only_owned,
        query=Requirements(**wishes),
        curve=curve,
        time_limit=SECONDS,
    )
    answer = planning.plan(asked, day_of(as_of), lookups().catalog)
    charts = {"alone": alone_picture(answer, language)}
    if len(answer.timeline) > 1:
        charts["hours"] = hours_picture(answer, language)
    if len(answer.curve) > 1:
        charts["objective"] = objective_picture(answer, language)
    return {"answer": answer, "cards": _cards(answer, language), "groups": _groups(answer, language)} | _more(
        answer, language
    ), charts


def _cards(answer: Any, language: Language) -> list[dict[str, Any]]:
    text, cost, currency = language.text, answer.cost_per_hour, answer.bound.currency
    ends = text("web.range", low=significant(float(cost.low)), high=significant(float(cost.high)))
    shown = [
        _card(text("web.card-hour"), significant(float(cost.amount)), currency, ends),
        _card(text("web.card-month"), significant(float(answer.cost_per_month.amount)), currency),
        _card(text("web.card-gap"), f"{100 * answer.gap:.2g}", "%", text("web.gap-of", n=answer.offers)),
    ]
    for one in answer.simulation:
        for name in ("ttft", "tpot"):
            figure = getattr(one, name)
            value, _, unit = format_seconds(figure.value).partition(" ")
            ends = text("web.range", low=format_seconds(figure.low), high=format_seconds(figure.high))
            title = text(f"web.card-{name}-late", percentile=f"{one.percentile:g}")
            shown.append(_card(title, value, unit, ends, figure.basis))
    return shown


def _card(title: str, value: str, unit: str, ends: str = "", basis: str = "") -> dict[str, Any]:
    return {"title": title, "value": value, "unit": unit, "range": ends, "basis": basis}


def _groups(answer: Any, language: Language) -> list[dict[str, Any]]:
    return [
        {
            "gpus": f"{row.gpus}× {row.gpu_name}", "machine": f"{row.machines}× {row.provider} {row.instance}".strip(),
            "where": language.listed(filter(None, (row.region, language.text(f"term.{row.term}")))), "copies": row.copies,
            "each": row.gpus_per_copy, "batch": row.batch, "rate": significant(row.rate), "use": f"{row.utilisation:.0%}",
            "cost": significant(float(row.cost_per_hour.amount)), "currency": row.cost_per_hour.currency, "because": row.because,
            "seen": row.price_observed_at,
        }
        for row in answer.groups
    ]  # fmt: skip


def _bill(answer: Any, language: Language) -> list[dict[str, Any]]:
    """Each price with the day it was last seen and who says so."""
    publishers = {source.id: source.publisher for source in answer.sources}
    day = date.fromisoformat(answer.as_of)
    return [
        {
            "machine": f"{row.provider} {row.instance}".strip(), "machines": row.machines,
            "where": ", ".join(filter(None, (row.region, language.text(f"term.{row.term}")))),
            "price": f"{row.price.amount} {row.price.currency}", "seen": row.price_observed_at, "source": row.source,
            "old": bool(row.price_observed_at) and (day - date.fromisoformat(row.price_observed_at)).days > STALE_DAYS,
            "said_by": publishers.get(row.source, row.source),
            "month": f"{row.cost_per_month.amount:,.0f} {row.cost_per_month.currency}",
        }
        for row in answer.bill
    ]  # fmt: skip


def _more(answer: Any, language: Language) -> dict[str, Any]:
    return {
        "bill": _bill(answer, language),
        "breaks": answer.breaks_first,
        "assumptions": answer.assumptions,
        "warnings": answer.warnings,
        "owned_rows": answer.owned,
        "sources": answer.sources,
        "verify": answer.verify,
    }


def hours_picture(answer: Any, language: Language) -> dict[str, Any]:
    """GPUs kept in each hour, stacked by kind, and the requests they face."""
    text = language.text
    kinds = list(dict.fromkeys(name for hour in answer.timeline for name in hour.gpus))
    bars = [{"hour": hour.hour, "gpu": name, "gpus": count} for hour in answer.timeline for name, count in hour.gpus.items()]
    rates = [{"hour": hour.hour, "rate": round(hour.rate, 3)} for hour in answer.timeline]
    x: dict[str, Any] = {
        "field": "hour",
        "type": "ordinal",
        "title": text("web.axis-hour"),
        "axis": {"labelAngle": 0, "labelOverlap": True},
    }
    bar = {
        "data": {"values": bars},
        "mark": {"type": "bar", "stroke": "var(--card, #fff)", "strokeWidth": 1},
        "encoding": {
            "x": x, "y": quantity("gpus", text("web.axis-gpus"), stack="zero", axis={"tickMinStep": 1}),
            "color": coloured("gpu", kinds),
            "tooltip": tips(("hour", x["title"]), ("gpu", text("web.tip-gpu")), ("gpus", text("web.axis-gpus"))),
        },
    }  # fmt: skip
    line = {
        "data": {"values": rates},
        "mark": {"type": "line", "color": CHOSEN, "strokeWidth": 2, "point": {"color": CHOSEN, "shape": "diamond", "size": 40}},
        "encoding": {
            "x": x, "y": quantity("rate", text("web.axis-rate-asked"), axis={"titleColor": CHOSEN, "grid": False}),
            "tooltip": tips(("hour", x["title"]), ("rate", text("web.axis-rate-asked"))),
        },
    }  # fmt: skip
    described = text("web.described-hours", n=len(answer.timeline), kinds=tuple(kinds))
    return picture(described, 260, layer=[bar, line], resolve={"scale": {"y": "independent"}})


def alone_picture(answer: Any, language: Language) -> dict[str, Any]:
    """An hour of the plan against each kind of GPU alone."""
    text, currency = language.text, answer.bound.currency
    mine = text("web.this-plan")
    rows = [(one.gpu_name, one.cost_per_hour, one.gpus) for one in answer.alone if one.cost_per_hour is not None]
    points = [
        {"who": mine, "mine": True, "cost": float(answer.cost_per_hour.amount), "gpus": sum(row.gpus for row in answer.groups)}
    ]
    points += [{"who": name, "cost": float(cost.amount), "gpus": gpus} for name, cost, gpus in rows]
    points.sort(key=lambda one: float(str(one["cost"])))
    order = [one["who"] for one in points]
    x = quantity("cost", text("web.axis-an-hour", currency=currency))
    y = {
        "field": "who",
        "type": "nominal",
        "sort": order,
        "title": None,
        "axis": {"ticks": False, "domain": False, "labelColor": INK},
    }
    own = {"condition": {"test": "datum.mine", "value": CHOSEN}, "value": COLOURS[0]}
    bar = {
        "mark": {"type": "bar", "height": 14},
        "encoding": {
            "x": x,
            "y": y,
            "color": own,
            "tooltip": tips(("who", text("web.tip-gpu")), ("cost", x["title"]), ("gpus", text("web.axis-gpus"))),
        },
    }
    words = {
        "mark": {"type": "text", "align": "left", "dx": 5, "color": SOFT},
        "encoding": {"x": x, "y": y, "text": {"field": "cost", "format": ".3~g"}},
    }
    described = text("web.described-alone", n=len(rows), cost=significant(float(answer.cost_per_hour.amount)), currency=currency)
    return picture(described, 26 * len(points), width=460, data={"values": points}, layer=[bar, words])


def objective_picture(answer: Any, language: Language) -> dict[str, Any]:
    """What an hour costs were the objective tighter or looser."""
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
