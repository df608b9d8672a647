"""Candidates of a recommendation for people: the cells of their table, and each in a few words."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_amount, format_duration, format_seconds, significant, with_unit
from whichgpu.decide.answer.explain import gpu_count_label
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.decide.candidate import Candidate

LEAST = Decimal("0.001")  # of a unit's cost that is told
# Columns of the table by what is asked for; where cards are bought, `price` stands for machine and term.
HEADS = {
    "run": ("gpus", "machine", "term", "time", "speed", "cost"),
    "service": ("gpus", "machine", "term", "wait", "stands", "month"),
    "mix": ("gpus", "machine", "term", "speed", "hour", "value"),
}


def run_time(seconds: float) -> str:
    """A run's length for people."""
    return format_duration(seconds)


def columns(answer: RecommendAnswer) -> tuple[str, ...]:
    """Names of the columns."""
    names: tuple[str, ...] = HEADS[answer.kind]
    if answer.answer.purchase is not None:
        names = (names[0], "price", *names[3:])
    return tuple("whole" if name == "wait" and answer.answer.tpot is None else name for name in names)


def cell(name: str, one: Candidate, text: Callable[..., str], best: Candidate) -> str:
    """One cell of a candidate's row; `best` is the answer."""
    if name == "term":
        old = text("recommend.cell-old", n=one.price_age_days) if _aged(one, best) else ""
        return text("list.separator").join(filter(None, (one.region, text(f"term.{one.term}"), old)))
    return CELLS[name](one)


def _aged(one: Candidate, best: Candidate) -> bool:
    """Whether a row says how old its price is: a stale one that moves every day, or is older than the answer's, which says so."""
    return one.price_stale and one.term != "owned" and (one.term == "spot" or one.price_age_days > best.price_age_days)


def _machine(one: Candidate) -> str:
    name = one.instance if one.machines == 1 else f"{one.machines}x {one.instance}"
    return name if one.term == "owned" else f"{one.provider} {name}"


def _wait(one: Candidate) -> str:
    """What a user waits: between tokens and for the first of them, or for the whole."""
    first = format_seconds(one.ttft.value) if one.ttft else ""
    return f"{format_seconds(one.tpot.value)} / {first}" if one.tpot else first


def _price(one: Candidate) -> str:
    return f"{format_amount(one.purchase.amount)} {one.purchase.currency}" if one.purchase else ""


def _cost(one: Candidate) -> str:
    return f"{format_amount(one.cost.amount)} {one.cost.currency} ({format_amount(one.cost_per_hour.amount)}/h)"


def _month(one: Candidate) -> str:
    return f"{format_amount(one.cost_per_month.amount)} {one.cost.currency} ({format_amount(one.cost_per_hour.amount)}/h)"


def _value(one: Candidate) -> str:
    return f"{significant(float(one.cost_per_hour.amount) / one.throughput.value)} {one.cost.currency}"


CELLS: dict[str, Callable[[Candidate], str]] = {
    "gpus": lambda one: f"{gpu_count_label(one.gpus)} {one.gpu_name}",
    "machine": _machine,
    "price": _price,
    "time": lambda one: run_time(one.run_time.value),
    "speed": lambda one: with_unit(one.throughput.value, one.throughput.unit),
    "cost": _cost,
    "wait": _wait,
    "whole": _wait,
    "stands": lambda one: with_unit(one.capacity.value, one.capacity.unit) if one.capacity else "",
    "month": _month,
    "hour": lambda one: f"{format_amount(one.cost_per_hour.amount)} {one.cost.currency}",
    "value": _value,
}


def unit_costs(one: Candidate) -> tuple[Message, ...]:
    """What a million tokens, a thousand samples and an epoch cost."""
    tokens = "output-tokens" if one.throughput.unit.startswith("output") else "tokens"
    samples = "denoising-steps" if one.throughput.unit.startswith("denoising") else "samples"
    costs = {tokens: one.cost_per_million_tokens, samples: one.cost_per_thousand_samples, "epoch": one.cost_per_epoch}
    return tuple(
        msg(f"unit-cost.{name}", cost=format_amount(cost.amount), currency=cost.currency)
        for name, cost in costs.items()
        if cost and cost.amount >= LEAST
    )


def short(one: Candidate, kind: str) -> Message:
    """A candidate in a few words."""
    values = {"gpus": gpu_count_label(one.gpus), "gpu": one.gpu_name, "currency": one.cost.currency}
    speed, hour = significant(one.throughput.value), format_amount(one.cost_per_hour.amount)
    if one.purchase is not None and kind == "mix":
        return msg("recommend.candidate-buy", price=format_amount(one.purchase.amount), speed=speed, **values)
    if kind == "mix":
        return msg("recommend.candidate-mix", cost=hour, speed=speed, **values)
    if kind == "service":
        each = one.tpot or one.ttft or one.time
        id = "recommend.candidate-service" if one.tpot else "recommend.candidate-passes"
        return msg(id, cost=format_amount(one.cost_per_month.amount), time=format_seconds(each.value), **values)
    return msg("recommend.candidate", cost=format_amount(one.cost.amount), time=run_time(one.run_time.value), **values)
