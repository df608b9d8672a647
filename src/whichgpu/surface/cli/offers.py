"""`whichgpu offers`: prices as of any date, in any currency."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from whichgpu import api
from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Fact, Language, Message, msg
from whichgpu.base.money import Money
from whichgpu.base.numerals import Numeral
from whichgpu.base.units import parse_bytes, parse_seconds, significant
from whichgpu.catalog.currency import parse_rates
from whichgpu.catalog.offer import TERMS
from whichgpu.catalog.select import parse_span
from whichgpu.price.asof import LATELY
from whichgpu.price.offers import GROUPS, Offer
from whichgpu.price.terms import MONTH_HOURS
from whichgpu.surface.cli.frame import GPU, INSTANCE, SELLER, Parsed, Words, catalog_of, command, option
from whichgpu.surface.cli.session import Session
from whichgpu.surface.cli.settings import user_path
from whichgpu.surface.cli.sources import say_sources
from whichgpu.surface.fields import field_named

PERIODS = ("hour", "month")
ROWS = 40  # of a table on a terminal, where no limit is asked for
SOURCES = 8  # named under an answer


def parse_hours(text: str) -> Decimal:
    """Hours of a month, with or without their unit.

    >>> parse_hours("365"), parse_hours("200h")
    (Decimal('365'), Decimal('200'))
    """
    digits = text.strip().removesuffix("h").strip()
    hours = Decimal(digits) if digits.replace(".", "", 1).isdigit() and digits.isascii() else Decimal(0)
    if not 0 < hours <= MONTH_HOURS:
        raise UsageError("bad-hours", msg("error.bad-hours", text=text), msg("hint.bad-hours", most=MONTH_HOURS))
    return hours


def parse_limit(text: str) -> int:
    """A number of rows; "all" is as many as there are.

    >>> parse_limit("20"), parse_limit("all") == sys.maxsize
    (20, True)
    """
    digits = text.strip()
    if digits == "all":
        return sys.maxsize
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18 and int(digits)):
        raise UsageError("bad-row-limit", msg("error.bad-row-limit", text=text), msg("hint.bad-row-limit"))
    return int(digits)


@command("offers", "[OPTIONS]", epilog=True)
@option("--gpu", type=GPU, metavar="NAMES", help="option.gpu-names")
@option("--instance", type=INSTANCE, metavar="NAMES", help="option.instance-names")
@option("--gpus", type=Parsed("span", parse_span), metavar="N[..M]")
@option("--min-memory", type=Parsed("size", parse_bytes), metavar="SIZE", help="option.min-memory-gpu")
@option("--provider", type=SELLER, metavar="NAMES")
@option("--region", metavar="NAMES", help="option.region-names")
@option("--near", metavar="CITY")
@option("--max-latency", type=Parsed("duration", parse_seconds), metavar="TIME")
@option("--term", type=Words("term", TERMS, many=True), metavar="TERMS")
@option("--currency", metavar="CODE")
@option("--exchange-rate", type=Parsed("rate", parse_rates), metavar="CODE=RATE")
@option("--per", type=Words("period", PERIODS, many=True), metavar="PERIODS")
@option("--hours", type=Parsed("hours", parse_hours), metavar="N")
@option("--prices", "--overlay", "overlay", type=Parsed("path", user_path), metavar="FILE")
@option("--sort", metavar="FIELD")
@option("--group-by", type=Words("group", GROUPS, many=True), metavar="FIELDS")
@option("--limit", type=Parsed("limit", parse_limit), metavar="N")
def offers(
    session: Session,
    per: tuple[str, ...] | None,  # noqa: ARG001 - of the table
    sort: str | None,
    overlay: Path | None,
    **wanted: Any,
) -> api.OffersAnswer:
    """Prices."""
    query = {name: value for name, value in wanted.items() if value is not None}
    query["sort"] = field_named(sort, Offer, session.language)
    if session.for_eyes:
        query.setdefault("limit", ROWS)
    return api.offers(api.OffersQuery(**query), session.as_of, catalog_of(session), overlay)


@offers.shows
def show(session: Session, answer: api.OffersAnswer) -> None:
    """A list of prices, and what is to be known of them."""
    per, asked = session.asked.get("per"), session.asked
    ordered = not asked or asked["sort"] is not None or asked["max_latency"] is not None  # shown alone, who knows how
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


def _columns(answer: api.OffersAnswer, per: Sequence[str], language: Language) -> list[Column]:
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


def headline(answer: api.OffersAnswer, language: Language) -> Message:
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
    days = next(days for days in LATELY if recent.age_days <= days)
    return msg("offers.and-lately", what=sentence, days=days, offer=told)


def _told(offer: Offer, near: str | None, language: Language) -> Message:
    """A price, whose it is, how far that is, and when it was seen."""
    machine = f"{offer.provider} {offer.instance}"
    seen = msg("offers.seen-before" if offer.age_days else "offers.seen-then", day=offer.observed_at, n=offer.age_days)
    where: tuple[str, ...] = (machine, offer.region, offer.term)
    if near and offer.round_trip:
        where = (*where, language.text("offers.trip-from", trip=trip(offer, language), city=Fact(near)))
    return msg("offers.told", price=money(offer.price_per_gpu_hour), where=where, seen=seen)


def notes(answer: api.OffersAnswer, per: Sequence[str], sort: str | None, is_bounded: bool, language: Language) -> list[Message]:
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
