"""Text of a recommendation's candidates: the cells of their table, and a summary of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal

from whichgpu.base.figure import Figure
from whichgpu.base.messages import Language, Message, msg
from whichgpu.base.money import Money
from whichgpu.base.numerals import Numeral
from whichgpu.base.units import format_amount, format_duration, format_seconds, significant, with_unit
from whichgpu.decide.answer.explain import gpu_count_label
from whichgpu.decide.answer.recommend_answer import RecommendAnswer
from whichgpu.decide.candidate import Candidate, Cost
from whichgpu.decide.configurations.precision_choices import quality_of

MAX_MEASURED_COST = 2.0  # A measured candidate is named if it costs at most this many times as much as the answer (assumed).
CLEARLY_SAFER = 0.05  # A candidate that is this much likelier than the answer to keep its limits is named (assumed).
# Reasons that name a candidate which costs less than the answer.
CHEAPER_REASONS = (
    "because.tie-measured", "because.tie-roomier", "because.stale-cheaper", "because.stale-spot", "because.risky-cheaper",
    "because.tight-cheaper",
)  # fmt: skip
SHORT_TERMS = {"reserved-1y": "1y", "committed-1y": "1y", "reserved-3y": "3y", "committed-3y": "3y"}  # ends of message ids
MIN_UNIT_COST = Decimal("0.001")  # Smaller costs per unit, in the answer's currency, are not displayed.
# Columns of the table by the kind of request; for purchases `price` replaces machine and term. With limits, `offer`
# replaces these and `keeps` is added: the table has six columns at most.
COLUMNS = {
    "run": ("gpus", "machine", "term", "time", "speed", "cost"),
    "service": ("gpus", "machine", "term", "wait", "sustained", "month"),
    "mix": ("gpus", "machine", "term", "speed", "hour", "value"),
}


def money_text(cost: Money | Cost) -> str:
    """Return an amount of money as text with its currency: `12.5 USD`."""
    return f"{format_amount(cost.amount)} {cost.currency}"


def cost_parts(prefix: str, parts: Mapping[str, Money | Cost]) -> tuple[Message, ...]:
    """Return a message with name and cost for each part of a bill; `prefix` begins the message ids of the names."""
    return tuple(
        msg("recommend.cost-line", name=msg(f"{prefix}{name}"), cost=format_amount(part.amount), currency=part.currency)
        for name, part in parts.items()
    )


def user_wait(one: Candidate) -> Figure:
    """Return the seconds that a user of a service waits: between tokens, else for the first token, else for the step."""
    return one.tpot or one.ttft or one.time


def columns(answer: RecommendAnswer) -> tuple[str, ...]:
    """Return the column names of the table of recommended candidates, by the kind of request; a purchase has a price column."""
    names: tuple[str, ...] = COLUMNS[answer.kind]
    if answer.answer.purchase is not None:
        names = (names[0], "price", *names[3:])
    if answer.kind != "mix" and (answer.answer.keeps_objective is not None or answer.answer.keeps_budget is not None):
        names = (*(name for name in names[:-1] if name != "term"), "keeps", names[-1])
        names = tuple("offer" if name == "machine" else name for name in names)
    return tuple("whole" if name == "wait" and answer.answer.tpot is None else name for name in names)


def candidate_cell(name: str, one: Candidate, text: Callable[..., str], best: Candidate) -> str:
    """Return one cell of a candidate's row as text; `best` is the recommended candidate."""
    if name == "term":
        age = text("recommend.cell-old", n=one.price_age_days) if _shows_price_age(one, best) else ""
        return text("list.separator").join(filter(None, (one.region, text(f"term.{one.term}"), age)))
    if name == "offer":
        return text("recommend.cell-offer", machine=_machine(one), term=candidate_cell("term", one, text, best))
    if name == "price" and one.purchase is not None and one.purchase_basis == "used":
        return text("recommend.price-used", price=money_text(one.purchase))
    return CELLS[name](one)


def _shows_price_age(one: Candidate, best: Candidate) -> bool:
    """Return whether a row states the age of its price: if stale, and either a spot price or older than the recommended one's."""
    return one.price_stale and one.term != "owned" and (one.term == "spot" or one.price_age_days > best.price_age_days)


def _machine(one: Candidate) -> str:
    name = one.instance if one.machines == 1 else f"{one.machines}x {one.instance}"
    return name if one.term == "owned" else f"{one.provider} {name}"


def _precision(one: Candidate) -> str:
    """Return the precision of quantised weights as text to put after the GPU's name; empty for others."""
    return "" if quality_of(one.precision) == "lossless" else f", {one.precision}"


def _wait(one: Candidate) -> str:
    """Return a candidate's time between tokens and to the first token as text, or the time of the whole response."""
    first = format_seconds(one.ttft.value) if one.ttft else ""
    return f"{format_seconds(one.tpot.value)} / {first}" if one.tpot else first


def _with_hourly(cost: Money | Cost, one: Candidate) -> str:
    return f"{format_amount(cost.amount)} {one.cost.currency} ({format_amount(one.cost_per_hour.amount)}/h)"


def short_cell(name: str, one: Candidate, text: Callable[..., str], best: Candidate) -> str:
    """Return one cell of a row of the short table, whose units are in the heading; `best` is the recommended candidate."""
    if name == "seller":
        seller = text(f"recommend.seller-{SHORT_TERMS.get(one.term, one.term)}", provider=one.provider)
        return text("recommend.seller-aged", what=seller, n=one.price_age_days) if has_older_price(one, best) else seller
    if name == "wait" and one.tpot and one.ttft:
        return _shared_unit(format_seconds(one.tpot.value), format_seconds(one.ttft.value))
    if name == "sustained" and one.capacity:
        return f"{significant(one.capacity.value)}/s"
    if name == "speed":
        return significant(one.throughput.value)
    if name == "month-alone":
        return format_amount(one.cost_per_month.amount)
    if name in ("month", "cost"):
        cost = one.cost_per_month if name == "month" else one.cost
        unit = one.cost_per_million_tokens or one.cost_per_thousand_samples
        each = f" ({format_amount(unit.amount)})" if unit and unit.amount >= MIN_UNIT_COST else ""
        return Numeral(f"{format_amount(cost.amount)}{each}")
    return candidate_cell(name, one, text, best)


def has_older_price(one: Candidate, best: Candidate) -> bool:
    """Return whether a candidate's price is stale and older than the recommended one's."""
    return one.price_stale and one.term != "owned" and one.price_age_days > best.price_age_days


def _shared_unit(first: str, second: str) -> Numeral:
    """Return two quantities with a slash between them; a unit that both have is written once.

    >>> _shared_unit("32.4 ms", "286 ms"), _shared_unit("32.4 ms", "1.2 s")
    ('32.4 / 286 ms', '32.4 ms / 1.2 s')
    """
    number, _, unit = first.partition(" ")
    return Numeral(f"{number if second.endswith(f' {unit}') else first} / {second}")


def short_heading(name: str, best: Candidate, language: Language) -> str:
    """Return the heading of a column of the short table, with the unit of its cells."""
    text = language.text
    if name == "speed":
        return language.localize(best.throughput.unit)
    if name in ("month", "cost"):
        unit = "tokens" if best.cost_per_million_tokens else "samples"
        return text(f"recommend.column-{name}-{unit}", currency=best.cost.currency)
    return text(f"recommend.column-{name}", currency=best.cost.currency)


CELLS: dict[str, Callable[[Candidate], str]] = {
    "gpus": lambda one: f"{gpu_count_label(one.gpus)} {one.gpu_name}{_precision(one)}",
    "machine": _machine,
    "price": lambda one: money_text(one.purchase) if one.purchase else "",
    "time": lambda one: format_duration(one.run_time.value),
    "speed": lambda one: with_unit(one.throughput.value, one.throughput.unit),
    "cost": lambda one: _with_hourly(one.cost, one),
    "wait": _wait,
    "whole": _wait,
    "sustained": lambda one: with_unit(one.capacity.value, one.capacity.unit) if one.capacity else "",
    "keeps": lambda one: f"{one.keeps_limits:.0%}",
    "month": lambda one: _with_hourly(one.cost_per_month, one),
    "hour": lambda one: f"{format_amount(one.cost_per_hour.amount)} {one.cost.currency}",
    "value": lambda one: f"{significant(float(one.cost_per_hour.amount) / one.throughput.value)} {one.cost.currency}",
}


def unit_costs(one: Candidate) -> tuple[Message, ...]:
    """Return messages with a candidate's cost of a million tokens, a thousand samples and an epoch, as far as known."""
    tokens = "output-tokens" if one.throughput.unit.startswith("output") else "tokens"
    counted = one.throughput.unit.removesuffix("/s").replace(" ", "-")
    samples = counted if counted in ("denoising-steps", "pictures", "videos") else "samples"
    costs = {tokens: one.cost_per_million_tokens, samples: one.cost_per_thousand_samples}
    if tokens == "tokens" and samples == "samples":  # Texts and pictures that are generated have no epochs.
        costs["epoch"] = one.cost_per_epoch
    return tuple(
        msg(
            f"unit-cost.{name}",
            cost=format_amount(cost.amount),
            currency=cost.currency,
            count=significant(1000 / float(cost.amount)),
        )
        for name, cost in costs.items()
        if cost and cost.amount >= MIN_UNIT_COST
    )


def unit_cost_lines(answer: RecommendAnswer) -> list[Message]:
    """Return a message with the answer's cost per unit of work, if a model is named and the cost is known."""
    costs = unit_costs(answer.answer) if answer.kind != "mix" else ()
    return [msg("recommend.unit-costs", what=costs)] if costs else []


def purchase_lines(answer: RecommendAnswer) -> list[Message]:
    """Return messages on other cards to buy with what each does for its price, and on candidates left out."""
    lines = []
    for one in answer.other_purchases:
        assert one.purchase is not None
        values = {
            "gpus": gpu_count_label(one.gpus), "gpu": f"{one.gpu_name}{_precision(one)}", "price": money_text(one.purchase),
            "seen": msg(f"recommend.seen-{one.purchase_basis}", day=one.purchase_day or ""), "memory": one.gpu_memory,
        }  # fmt: skip
        if answer.kind == "service" and one.tpot:
            lines.append(msg("recommend.or-buy-chat", speed=significant(1.0 / one.tpot.value, 2), **values))
        elif answer.kind == "run":
            lines.append(msg("recommend.or-buy-run", time=format_duration(one.run_time.value), **values))
        else:
            lines.append(msg("recommend.or-buy", **values))
    return [*lines, *answer.left_out]


def fallback_lines(answer: RecommendAnswer) -> list[Message]:
    """Return a message on the best candidate that is not spot, with how likely it keeps its limits, if the answer is spot."""
    one = answer.fallback
    if one is None:
        return []
    values = {"what": candidate_summary(one, answer.kind), "term": msg(f"term.{one.term}")}
    if one.keeps_objective is None and one.keeps_budget is None:
        return [msg("recommend.fallback", **values)]
    return [msg("recommend.fallback-likely", share=f"{one.keeps_limits:.0%}", **values)]


def terms_line(answer: RecommendAnswer) -> list[Message]:
    """Return a message with the price of the answer's machine on every term, for a service with several."""
    if answer.kind != "service" or len(answer.terms) < 2:
        return []
    prices = tuple(
        msg("recommend.term-price", term=msg(f"term.{one.term}"), price=f"{format_amount(one.price.amount)} {one.price.currency}")
        for one in answer.terms
    )
    return [msg("recommend.terms", what=prices)]


def any_seller_line(one: Candidate, kind: str) -> Message:
    """Return a message that names a cheaper candidate from a marketplace or on a card for desktops."""
    return msg("recommend.any-seller", what=candidate_summary(one, kind))


def front_lines(answer: RecommendAnswer) -> list[Message]:
    """Return a message on the cheapest and the fastest candidate, without those that are the answer or named in a reason."""
    best, kind = answer.answer, answer.kind
    if best.purchase is not None and kind == "mix":
        return []
    explained = {(reason.values.get("gpus"), reason.values.get("gpu")) for reason in best.because if reason.id in CHEAPER_REASONS}
    is_cheaper = answer.cheapest.cost.amount < best.cost.amount
    lines = []
    if is_cheaper and (gpu_count_label(answer.cheapest.gpus), answer.cheapest.gpu_name) not in explained:
        shares = {"share": f"{answer.cheapest.keeps_limits:.0%}", "other": f"{best.keeps_limits:.0%}"}
        id = "recommend.cheapest-risk" if shares["share"] != shares["other"] else "recommend.cheapest"
        lines.append(msg(id, what=candidate_summary(answer.cheapest, kind), **shares))
    if (answer.fastest.gpu, answer.fastest.gpus) != (best.gpu, best.gpus):
        lines.append(msg("recommend.fastest", what=candidate_summary(answer.fastest, kind)))
    return lines


def uncertainty_lines(answer: RecommendAnswer) -> list[Message]:
    """Return messages on a clearly safer candidate than the answer, and on a measured one if the answer was not measured."""
    kind, lines, best, safest = answer.kind, list[Message](), answer.answer, answer.safest
    if safest.keeps_limits >= best.keeps_limits + CLEARLY_SAFER:
        shares = {"share": f"{safest.keeps_limits:.0%}", "other": f"{best.keeps_limits:.0%}"}
        lines.append(msg("recommend.safest", safest=candidate_summary(safest, kind), **shares))
    cost = float(best.expected_cost.amount)
    if answer.measured is not None and float(answer.measured.expected_cost.amount) <= cost * MAX_MEASURED_COST:
        values = {"gpu": answer.answer.gpu_name, "measured": candidate_summary(answer.measured, kind)}
        axes = tuple(msg(f"axis.{axis}") for axis in answer.answer.new_on)
        ratio = float(answer.measured.cost.amount) / max(float(best.cost.amount), 1e-12)  # of the costs that answers show
        id = "recommend.measured" if ratio > 1 else "recommend.measured-cheaper"
        lines.append(msg(id, axes=axes, more=f"{ratio - 1:.0%}", **values))
    return lines


def candidate_summary(one: Candidate, kind: str) -> Message:
    """Return a message that describes a candidate in a few words: GPUs, cost, speed or time, seller and the day of the price."""
    what = _without_seller(one, kind)
    if one.term == "owned":
        return what
    return msg("recommend.candidate-from", what=what, provider=one.provider, day=one.price_observed_at)


def _without_seller(one: Candidate, kind: str) -> Message:
    values = {"gpus": gpu_count_label(one.gpus), "gpu": one.gpu_name, "currency": one.cost.currency}
    speed, hour = significant(one.throughput.value), format_amount(one.cost_per_hour.amount)
    if one.purchase is not None and kind == "mix":
        return msg("recommend.candidate-buy", price=format_amount(one.purchase.amount), speed=speed, **values)
    if kind == "mix":
        return msg("recommend.candidate-mix", cost=hour, speed=speed, **values)
    if kind == "service":
        id = "recommend.candidate-service" if one.tpot else "recommend.candidate-passes"
        wait = format_seconds(user_wait(one).value)
        return msg(id, cost=format_amount(one.cost_per_month.amount), time=wait, **values)
    return msg("recommend.candidate", cost=format_amount(one.cost.amount), time=format_duration(one.run_time.value), **values)
