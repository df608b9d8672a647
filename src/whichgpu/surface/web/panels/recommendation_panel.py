"""The part of the recommend page about the answer: its cards, and the table of candidates."""

from __future__ import annotations

from typing import Any

from whichgpu.base.messages import Language
from whichgpu.base.money import Money
from whichgpu.base.units import format_amount, format_duration, format_memory, format_seconds, significant
from whichgpu.decide.answer.explain import gpu_count_label
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.decide.candidate import Candidate, Cost
from whichgpu.surface.candidate_cells import user_wait
from whichgpu.surface.web.panels.cards import Card, card, figure_card, range_text


def cards(answer: RecommendAnswer, language: Language) -> list[Card]:
    """Return cards with cost, time, throughput, latencies and memory of the recommended candidate."""
    best, text, currency = answer.answer, language.text, answer.answer.cost.currency

    def title(name: str) -> str:
        return text(f"web.card-{name}")

    all_cards = [card(title("hour"), significant(float(best.cost_per_hour.amount)), currency)]
    if best.purchase is not None:
        all_cards = [card(title("purchase"), format_amount(best.purchase.amount), currency, purchase_basis(best, language))]
    if answer.kind == "service":
        all_cards.append(card(title("month"), significant(float(best.cost_per_month.amount)), currency))
    else:
        run_time = figure_card(title("run-time"), best.run_time, format_duration, language)
        all_cards += [_cost_card(title("cost"), best.cost, language), run_time]
    for name, cost in (("tokens", best.cost_per_million_tokens), ("epoch", best.cost_per_epoch)):
        all_cards += [_cost_card(title(name), cost, language)] if cost is not None else []
    if best.throughput.value:
        all_cards.append(figure_card(title("throughput"), best.throughput, significant, language, best.throughput.unit))
    for name, figure in (("ttft", best.ttft), ("tpot", best.tpot)):
        if figure is not None:
            percentile = answer.request.get("percentile")
            late = text(f"web.card-{name}-late", percentile=f"{percentile:g}") if best.simulated and percentile else title(name)
            all_cards.append(figure_card(late, figure, format_seconds, language))
    share = round(100 * best.needed.value / best.usable)
    detail = text("web.of-usable", usable=format_memory(best.usable), share=share)
    memory, alone = format_memory(int(best.needed.value)), "memory-alone" if best.simulated else "memory"
    return [*all_cards, card(title(alone), memory, "", detail, best.needed.basis, min(share, 100))]


def purchase_basis(one: Candidate, language: Language) -> str:
    """Return what the price of cards to buy rests on, with its day; empty if they are not bought."""
    return language.text(f"recommend.seen-{one.purchase_basis}", day=one.purchase_day or "") if one.purchase else ""


def _cost_card(title: str, cost: Cost, language: Language) -> Card:
    return card(title, significant(float(cost.amount)), cost.currency, _cost_range(cost, language))


def _cost_range(cost: Money | Cost, language: Language) -> str:
    """Return the range of a cost as text; empty if it is exact."""
    if not isinstance(cost, Cost) or format_amount(cost.low) == format_amount(cost.high):
        return ""
    return language.text("web.range", low=format_amount(cost.low), high=format_amount(cost.high))


def common_unit(answer: RecommendAnswer) -> str:
    """Return the unit of speed of all candidates; empty if they have several."""
    units = {one.throughput.unit for one in answer.candidates}
    return min(units) if len(units) == 1 else ""


def rows(answer: RecommendAnswer, language: Language) -> list[dict[str, Any]]:
    """Return the rows of the web page's table of recommended candidates, as template values."""
    return [_row(one, answer, language) for one in answer.candidates]


def _row(one: Candidate, answer: RecommendAnswer, language: Language) -> dict[str, Any]:
    is_service = answer.kind == "service"
    unit = one.cost_per_million_tokens or one.cost_per_thousand_samples
    cost = one.cost_per_month if is_service else one.cost
    late, format_late = (user_wait(one), format_seconds) if is_service else (one.run_time, format_duration)
    return {
        "gpu": one.gpu, "name": f"{gpu_count_label(one.gpus).replace('x', '×')} {one.gpu_name}", "best": one == answer.answer,
        "machine": one.instance if one.machines == 1 else f"{one.machines}× {one.instance}",
        "provider": one.provider, "region": one.region, "term": language.text(f"term.{one.term}"),
        "speed": significant(one.throughput.value), "unit": one.throughput.unit, "speed_raw": one.throughput.value,
        "speed_range": range_text(one.throughput, significant, language),
        "late": format_late(late.value), "late_raw": late.value, "late_range": range_text(late, format_late, language),
        "cost": format_amount(cost.amount), "cost_raw": float(cost.amount),
        "cost_range": _cost_range(cost, language),
        "hour": format_amount(one.cost_per_hour.amount), "hour_raw": float(one.cost_per_hour.amount),
        "each": format_amount(unit.amount) if unit else "", "each_raw": float(unit.amount) if unit else 0.0,
        "keeps": f"{one.keeps_limits:.0%}", "keeps_raw": one.keeps_limits,
        "seen": one.price_observed_at, "stale": one.price_stale, "price_basis": purchase_basis(one, language),
        "price": format_amount(one.purchase.amount) if one.purchase else "",
        "price_raw": float(one.purchase.amount) if one.purchase else 0.0,
    }  # fmt: skip
