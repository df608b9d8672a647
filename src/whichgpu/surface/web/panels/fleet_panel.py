"""The part of the plan page about a planned fleet: cards, groups and the bill."""

from __future__ import annotations

from datetime import date
from typing import Any

from whichgpu.base.messages import Language
from whichgpu.base.units import format_seconds, significant
from whichgpu.catalog.offer import STALE_DAYS
from whichgpu.decide.plan.plan_answer import GroupRow, PlanAnswer
from whichgpu.surface.charts.parts import Spec
from whichgpu.surface.charts.plan import alone_picture, hours_picture, objective_picture
from whichgpu.surface.web.panels.cards import Card, card, figure_card


def fleet_charts(answer: PlanAnswer, language: Language) -> dict[str, Spec]:
    """Return the charts of a planned fleet by name: GPUs by hour, cost by GPU type, cost by latency objective."""
    charts = {"alone": alone_picture(answer, language)}
    if len(answer.timeline) > 1:
        charts["hours"] = hours_picture(answer, language)
    if len(answer.curve) > 1:
        charts["objective"] = objective_picture(answer, language)
    return charts


def fleet_content(answer: PlanAnswer, language: Language) -> dict[str, Any]:
    """Return the template values of a planned fleet: cards, groups of GPUs, the bill, assumptions, warnings and sources."""
    return {
        "answer": answer,
        "cards": _cards(answer, language),
        "groups": _groups(answer, language),
        "bill": _bill(answer, language),
        "breaks": answer.breaks_first,
        "assumptions": answer.assumptions,
        "warnings": answer.warnings,
        "owned_rows": answer.owned,
        "sources": answer.sources,
    }


def _cards(answer: PlanAnswer, language: Language) -> list[Card]:
    text, cost, currency = language.text, answer.cost_per_hour, answer.bound.currency
    ends = text("web.range", low=significant(float(cost.low)), high=significant(float(cost.high)))
    cards = [
        card(text("web.card-hour"), significant(float(cost.amount)), currency, ends),
        card(text("web.card-month"), significant(float(answer.cost_per_month.amount)), currency),
        card(text("web.card-gap"), f"{100 * answer.gap:.2g}", "%", text("web.gap-of", n=answer.offers)),
    ]
    for one in answer.simulation:
        percentile = f"{one.percentile:g}"
        for name, figure in (("ttft", one.ttft), ("tpot", one.tpot)):
            title = text(f"web.card-{name}-late", percentile=percentile)
            cards.append(figure_card(title, figure, format_seconds, language, always_range=True))
    return cards


def _role(row: GroupRow, language: Language) -> str:
    """Return the role of a group of prefill or decode workers in parentheses; empty for aggregated replicas."""
    return "" if row.role == "both" else f" ({language.text(f'plan.role-{row.role}')})"


def _groups(answer: PlanAnswer, language: Language) -> list[dict[str, Any]]:
    return [
        {
            "gpus": f"{row.gpus}× {row.gpu_name}{_role(row, language)}",
            "machine": f"{row.machines}× {row.provider} {row.instance}".strip(),
            "where": language.listed(filter(None, (row.region, language.text(f"term.{row.term}")))), "copies": row.copies,
            "each": row.gpus_per_copy, "batch": row.batch, "rate": significant(row.rate), "use": f"{row.utilisation:.0%}",
            "cost": significant(float(row.cost_per_hour.amount)), "currency": row.cost_per_hour.currency,
            "seen": row.price_observed_at,
        }
        for row in answer.groups
    ]  # fmt: skip


def _bill(answer: PlanAnswer, language: Language) -> list[dict[str, Any]]:
    """Return the rows of a plan's bill, each price with the day it was last seen and its publisher."""
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
