"""`whichgpu offers`: prices as of any date, in any currency."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from whichgpu.api.prices import offers as verbs
from whichgpu.api.request.offers import OffersRequest
from whichgpu.base.messages import Fact, Language, Message, msg
from whichgpu.base.money import Money
from whichgpu.base.numerals import Numeral
from whichgpu.base.units import significant
from whichgpu.price.asof import RECENT_DAYS
from whichgpu.price.offers import Offer
from whichgpu.price.terms import MONTH_HOURS
from whichgpu.surface.cells import sorted_by
from whichgpu.surface.commands.command import Request, command
from whichgpu.surface.commands.render.sources import say_sources
from whichgpu.surface.commands.session import Session

if TYPE_CHECKING:
    from whichgpu.api.prices.offers import OffersAnswer

ROWS = 40  # of a table on a terminal, where no limit is asked for
SOURCES = 8  # named under an answer


@command("offers", OffersRequest, has_examples=True)
def offers(session: Session, request: Request) -> OffersAnswer:
    """Prices; on a terminal the first so many, unless asked otherwise."""
    limited = {"limit": str(ROWS), **request} if session.for_eyes else request
    return verbs.offers(sorted_by(limited, Offer, session.language), session.context())  # type: ignore[arg-type]


@offers.shows
def show(session: Session, answer: OffersAnswer) -> None:
    """A list of prices, and what is to be known of them."""
    per, asked = session.asked.get("per"), session.asked
    ordered = not asked or "sort" in asked or "max_latency" in asked  # shown alone, who knows how
    said = headline(answer, session.language)
    if session.format in ("json", "csv") or session.columns:
        session.show(answer, answer.offers, (), said)
    else:
        session.say(said)
        columns = _columns(answer, per or ("hour",), session.language)
        rows = [[cell(offer) for _, cell in columns] for offer in answer.offers]
        session.table([session.language.text(f"offers.{name}") for name, _ in columns], rows)
    for note in notes(answer, per or (), None, ordered, session.language):
        session.say(note)
    say_sources(session, answer.sources, SOURCES)


Column = tuple[str, Callable[[Offer], str]]


def _columns(answer: OffersAnswer, per: Sequence[str], language: Language) -> list[Column]:
    columns: list[Column] = [
        ("machine", lambda offer: f"{offer.provider} {offer.instance}"),
        ("gpus", lambda offer: f"{offer.gpus:g}x {offer.gpu_name}"),
        ("region", lambda offer: offer.region),
        ("term", lambda offer: term_of(offer, language)),
    ]
    if "hour" in per:
        columns.append(("hour", lambda offer: money(offer.price)))
    if "month" in per:
        columns.append(("month", lambda offer: money(offer.price_month, month=True)))
    columns.append(("gpu-hour", lambda offer: money(offer.price_per_gpu_hour)))
    if answer.near:
        columns.append(("round-trip", lambda offer: trip(offer, language)))
    if any(offer.cheapest_of for offer in answer.offers):
        columns.append(("cheapest-of", lambda offer: str(offer.cheapest_of or "")))
    columns.append(("seen", lambda offer: _seen(offer, language)))
    columns.append(("source", lambda offer: offer.source))
    return columns


def term_of(offer: Offer, language: Language) -> str:
    """The term, how it is paid, and what it leaves out."""
    own = (
        language.text(f"offers.{offer.standing}", off=f"{float(offer.discount or 0) * 100:.4g}%")
        if offer.standing != "list"
        else ""
    )
    parts = [offer.term, offer.payment or "", language.text("offers.gpu-only") if offer.includes == "gpu" else "", own]
    return language.listed(part for part in parts if part)


def money(price: Money, month: bool = False) -> str:
    """Rents to four digits after the point at most, months to two; a currency of small units to whole ones."""
    places = 2 if month else 4
    amount = price.amount.quantize(Decimal(1)) if price.amount >= 10000 else price.amount
    text = f"{amount:,.{places}f}" if amount != amount.to_integral_value() else f"{amount:,.0f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text and not month else text} {price.currency}"


def trip(offer: Offer, language: Language) -> str:
    """The round trip in words; empty where it is not known."""
    if offer.round_trip is None:
        return ""
    kind = "measured" if offer.round_trip.basis == "measured" else "estimated"
    return language.text(f"offers.trip-{kind}", ms=significant(offer.round_trip.value * 1000))


def _seen(offer: Offer, language: Language) -> str:
    return language.text(f"offers.seen-{offer.confidence}", day=offer.observed_at, n=offer.age_days)


def headline(answer: OffersAnswer, language: Language) -> Message:
    """How many, and the cheapest with the day it was seen; where that is long ago, the cheapest of those seen lately too."""
    first = answer.cheapest
    sentence = msg("offers.sentence", n=answer.matching, day=answer.as_of, offer=_told(first, answer.near, language))
    if not first.stale:
        return sentence
    recent = answer.recent
    if (recent.observed_at, recent.price_per_gpu_hour) == (first.observed_at, first.price_per_gpu_hour):
        return msg("offers.none-recent", what=sentence)
    told = _told(recent, answer.near, language)
    if not recent.stale:
        return msg("offers.and-recent", what=sentence, offer=told)
    days = next(days for days in RECENT_DAYS if recent.age_days <= days)
    return msg("offers.and-lately", what=sentence, days=days, offer=told)


def _told(offer: Offer, near: str | None, language: Language) -> Message:
    """A price, whose it is, how far that is, and when it was seen."""
    machine = f"{offer.provider} {offer.instance}"
    seen = msg("offers.seen-before" if offer.age_days else "offers.seen-then", day=offer.observed_at, n=offer.age_days)
    where: tuple[str, ...] = (machine, offer.region, offer.term)
    if near and offer.round_trip:
        where = (*where, language.text("offers.trip-from", trip=trip(offer, language), city=Fact(near)))
    return msg("offers.told", price=money(offer.price_per_gpu_hour), where=where, seen=seen)


def notes(answer: OffersAnswer, per: Sequence[str], sort: str | None, is_bounded: bool, language: Language) -> list[Message]:
    """What else to say of the offers shown."""
    said = []
    shown = answer.offers
    if answer.near and not is_bounded and sort is None:
        nearest = answer.nearest
        told = None if nearest is None else _told(nearest, answer.near, language)
        said.append(msg("offers.by-price") if told is None else msg("offers.by-price-nearest", offer=told))
    said += [msg("offers.countries", name=name, codes=codes) for name, codes in answer.countries.items()]
    said += [msg("offers.without-rate", n=count, currency=code) for code, count in answer.without_rate.items()]
    said += [msg("offers.unused-rate", currency=code) for code in answer.unused_rates]
    if len(shown) < answer.matching:
        said.append(msg("offers.limited", n=len(shown), matching=answer.matching))
    if "month" in per or answer.hours_per_month != MONTH_HOURS:
        said.append(msg("offers.month-hours", hours=answer.hours_per_month))
    if any(offer.includes == "gpu" for offer in shown):
        said.append(msg("offers.alone", n=sum(offer.includes == "gpu" for offer in shown)))
    rates = {(offer.listed_price.currency, offer.price.currency): offer.exchange_rate for offer in shown if offer.exchange_rate}
    for (source, target), rate in rates.items():
        id = "offers.rate" if rate.date else "offers.rate-given"
        said.append(msg(id, value=Numeral(f"{rate.value:,.6g}"), target=target, source=source, day=rate.date or ""))
    if answer.stale:
        oldest = min(offer.observed_at for offer in shown if offer.stale)
        said.append(msg("offers.stale", n=answer.stale, oldest=oldest))
    said += [msg("offers.note", machine=f"{offer.provider} {offer.instance}", note=offer.note) for offer in shown if offer.note][
        :10
    ]
    return said
