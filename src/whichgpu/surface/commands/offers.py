"""`whichgpu offers`: prices as of any date, in any currency."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

from msgspec.structs import asdict

from whichgpu.api.prices import offers as verbs
from whichgpu.api.prices.offers import OffersAnswer
from whichgpu.api.request.offers import OffersRequest
from whichgpu.base.messages import Fact, Language, Message, msg
from whichgpu.base.money import Money
from whichgpu.base.numerals import Numeral
from whichgpu.base.units import significant
from whichgpu.price.asof import RECENT_DAYS
from whichgpu.price.offers import Offer
from whichgpu.price.terms import MONTH_HOURS
from whichgpu.surface.commands.command import Request, command
from whichgpu.surface.commands.render.listing import say_sources
from whichgpu.surface.commands.session import Session, terminal_width
from whichgpu.surface.documents import document
from whichgpu.surface.tables import MIN_COLUMN_WIDTH

MAX_TERMINAL_ROWS = 40  # Largest number of rows on a terminal if no limit is given.
MAX_NOTES = 10  # Largest number of offers whose notes are printed.
MAX_SOURCES = 8  # Sources listed under an answer.
WIDE_ONLY = ("source",)  # Columns left out on a narrow terminal; the sources are listed below the table.
Column = tuple[str, Callable[[Offer], str]]


def offers(session: Session, request: Request) -> OffersAnswer:
    """Return prices; on a terminal only the first rows, unless a limit is given."""
    limited = {"limit": str(MAX_TERMINAL_ROWS), **request} if session.is_terminal_table else request
    return verbs.offers(limited, session.context())  # type: ignore[arg-type]


@command("offers", OffersRequest, ask=offers, row_type=Offer)
def show(session: Session, answer: OffersAnswer) -> None:
    """Print a table of rental offers with prices, and notes on them."""
    request, language = session.request, session.language
    per = request.get("per") or ()
    is_ordered = not request or "sort" in request or "max_latency" in request  # An answer displayed by itself has no request.
    columns = [COMMON["machine"], COMMON["gpus"], COMMON["region"], ("term", lambda offer: term_text(offer, language))]
    columns += [COMMON["hour"]] if "hour" in (per or ("hour",)) else []
    columns += [COMMON["month"]] if "month" in per else []
    columns += [COMMON["gpu-hour"], *trailing_columns(answer, language)]
    if session.is_terminal_table and terminal_width() < MIN_COLUMN_WIDTH * len(columns):
        columns = [column for column in columns if column[0] not in WIDE_ONLY]
    reply = asdict(answer) | {"warnings": document(answer.warnings, language)}
    session.show_columns(reply, answer.offers, "offers.", columns, headline(answer, language))
    for note in notes(answer, per, None, is_ordered, language):
        session.say(note)
    say_sources(session, answer.sources, MAX_SOURCES)


COMMON: dict[str, Column] = {
    "machine": ("machine", lambda offer: f"{offer.provider} {offer.instance}"),
    "gpus": ("gpus", lambda offer: f"{offer.gpus:g}x {offer.gpu_name}"),
    "region": ("region", lambda offer: offer.region),
    "hour": ("hour", lambda offer: money_text(offer.price)),
    "month": ("month", lambda offer: money_text(offer.price_month, month=True)),
    "gpu-hour": ("gpu-hour", lambda offer: money_text(offer.price_per_gpu_hour)),
}


def trailing_columns(answer: OffersAnswer, language: Language) -> list[Column]:
    """Return the columns after the prices: round trip and group size if there are any, the day of the price and the source."""
    text = language.text
    columns: list[Column] = [("round-trip", lambda offer: round_trip_text(offer, language))] if answer.near else []
    if any(offer.cheapest_of for offer in answer.offers):
        columns.append(("cheapest-of", lambda offer: str(offer.cheapest_of or "")))
    columns.append(("seen", lambda offer: text(f"offers.seen-{offer.confidence}", day=offer.observed_at, n=offer.age_days)))
    return [*columns, ("source", lambda offer: offer.source)]


def term_text(offer: Offer, language: Language) -> str:
    """Return an offer's term (on-demand, spot, …), payment, whether it excludes the host, and the user's discount as text."""
    parts = [offer.term, offer.payment, language.text("offers.gpu-only") if offer.includes == "gpu" else ""]
    if offer.standing != "list":
        parts.append(language.text(f"offers.{offer.standing}", off=f"{float(offer.discount or 0) * 100:.4g}%"))
    return language.listed(part for part in parts if part)


def money_text(price: Money, month: bool = False) -> str:
    """Return a price as text: at most four decimals, two for a month, none from 10,000 units of the currency on."""
    places = 2 if month else 4
    amount = price.amount.quantize(Decimal(1)) if price.amount >= 10000 else price.amount
    text = f"{amount:,.{places}f}" if amount != amount.to_integral_value() else f"{amount:,.0f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text and not month else text} {price.currency}"


def round_trip_text(offer: Offer, language: Language) -> str:
    """Return the round trip in milliseconds and whether it was measured, as text; empty if unknown."""
    if offer.round_trip is None:
        return ""
    kind = "measured" if offer.round_trip.basis == "measured" else "estimated"
    return language.text(f"offers.trip-{kind}", ms=significant(offer.round_trip.value * 1000))


def headline(answer: OffersAnswer, language: Language) -> Message:
    """Return a message that counts the offers and names the cheapest, with warnings about sellers the catalog does not know."""
    sentence = _cheapest(answer, language)
    return msg("offers.with-warning", what=sentence, warnings=answer.warnings) if answer.warnings else sentence


def _cheapest(answer: OffersAnswer, language: Language) -> Message:
    """Return a message that counts the offers and names the cheapest; if its price is stale, also the cheapest recent one."""
    first = answer.cheapest
    sentence = msg("offers.sentence", n=answer.matching, day=answer.as_of, offer=_offer_words(first, answer.near, language))
    if not first.stale:
        return sentence
    recent = answer.recent
    if (recent.observed_at, recent.price_per_gpu_hour) == (first.observed_at, first.price_per_gpu_hour):
        return msg("offers.none-recent", what=sentence)
    words = _offer_words(recent, answer.near, language)
    if not recent.stale:
        return msg("offers.and-recent", what=sentence, offer=words)
    days = next(days for days in RECENT_DAYS if recent.age_days <= days)
    return msg("offers.and-lately", what=sentence, days=days, offer=words)


def _offer_words(offer: Offer, near: str | None, language: Language) -> Message:
    """Return a message with a price, its machine, region, term, round trip and day."""
    machine = f"{offer.provider} {offer.instance}"
    day_text = msg("offers.seen-before" if offer.age_days else "offers.seen-then", day=offer.observed_at, n=offer.age_days)
    where: tuple[str, ...] = (machine, offer.region, offer.term)
    if near and offer.round_trip:
        where = (*where, language.text("offers.trip-from", trip=round_trip_text(offer, language), city=Fact(near)))
    return msg("offers.told", price=money_text(offer.price_per_gpu_hour), where=where, seen=day_text)


def notes(answer: OffersAnswer, per: Sequence[str], sort: str | None, is_bounded: bool, language: Language) -> list[Message]:
    """Return notes on the offers displayed: order, countries, rates, limits, stale prices and the offers' own notes."""
    lines = []
    offers = answer.offers
    if answer.near and not is_bounded and sort is None:
        nearest = answer.nearest
        by_price = msg("offers.by-price")
        if nearest is not None:
            by_price = msg("offers.by-price-nearest", offer=_offer_words(nearest, answer.near, language))
        lines.append(by_price)
    lines += [msg("offers.countries", name=name, codes=codes) for name, codes in answer.countries.items()]
    lines += [msg("offers.without-rate", n=count, currency=code) for code, count in answer.without_rate.items()]
    lines += [msg("offers.unused-rate", currency=code) for code in answer.unused_rates]
    if len(offers) < answer.matching:
        lines.append(msg("offers.limited", n=len(offers), matching=answer.matching))
    if "month" in per or answer.hours_per_month != MONTH_HOURS:
        lines.append(msg("offers.month-hours", hours=answer.hours_per_month))
    if any(offer.includes == "gpu" for offer in offers):
        lines.append(msg("offers.alone", n=sum(offer.includes == "gpu" for offer in offers)))
    rates = {(offer.listed_price.currency, offer.price.currency): offer.exchange_rate for offer in offers if offer.exchange_rate}
    for (source, target), rate in rates.items():
        id = "offers.rate" if rate.date else "offers.rate-given"
        lines.append(msg(id, value=Numeral(f"{rate.value:,.6g}"), target=target, source=source, day=rate.date or ""))
    if answer.stale:
        oldest = min(offer.observed_at for offer in offers if offer.stale)
        lines.append(msg("offers.stale", n=answer.stale, oldest=oldest))
    noted = [offer for offer in offers if offer.note][:MAX_NOTES]
    return lines + [msg("offers.note", machine=f"{offer.provider} {offer.instance}", note=offer.note) for offer in noted]
