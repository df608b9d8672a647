"""Offers: prices valid on a day, with machine, place and terms; selected, sorted and grouped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from whichgpu.base.figure import Figure
from whichgpu.base.money import Money
from whichgpu.base.names import unknown_word
from whichgpu.catalog.currency import DOLLAR, Exchanger, round_significant
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.offer import OfferGroup
from whichgpu.price.asof import PriceOnDay
from whichgpu.price.terms import MONTH_HOURS, YEARS, upfront


class ExchangeRate(msgspec.Struct, frozen=True):
    """The exchange rate with which a price was converted, its day (None for a rate set by the user) and its source."""

    value: float
    date: str | None
    source: str


class Offer(msgspec.Struct, frozen=True):
    """One offer of a machine: provider, region, term, and its price on the requested day."""

    provider: str
    instance: str
    region: str
    gpu: str
    gpu_name: str
    gpus: int | float
    term: str
    payment: str | None
    price: Money  # for an hour of the whole machine
    price_per_gpu_hour: Money
    price_month: Money
    upfront: Money | None
    listed_price: Money  # as the provider states it, in its own currency
    valid_from: str
    observed_at: str
    age_days: int
    confidence: str
    stale: bool
    includes: str
    exchange_rate: ExchangeRate | None
    round_trip: Figure | None
    cheapest_of: int | None  # number of offers in the group whose cheapest this is; None without grouping
    standing: str  # list price, or kind of entry in the user's price file: discounted, contract or owned
    discount: Decimal | None  # the share taken off the list price
    note: str | None
    source: str


def group_of(offer: Offer) -> OfferGroup:
    """Return what the offer has in common with those alike in all but the machine's name."""
    common = (offer.gpu, offer.provider, offer.region, offer.gpus, offer.term, offer.payment, offer.includes)
    return OfferGroup(*common, offer.listed_price.currency)


class OfferFilter(msgspec.Struct, frozen=True):
    """Conditions that offers must meet (GPU, count, provider, region, term, latency); None and () filter nothing."""

    gpu_ids: frozenset[str] | None = None
    instances: frozenset[tuple[str, str]] | None = None
    gpus: tuple[float, float] | None = None
    min_memory: int | None = None  # least bytes of one GPU, as marketed
    providers: tuple[str, ...] = ()
    excluded_providers: tuple[str, ...] = ()
    regions: frozenset[tuple[str, str]] | None = None
    terms: tuple[str, ...] = ()
    max_latency: float | None = None  # longest round trip in seconds

    def tests(self, gpus: Mapping[str, Gpu]) -> dict[str, Callable[[Offer], bool]]:
        """Return a predicate on an offer for each condition that is set, by the name of its command-line flag."""
        low, high = self.gpus or (0.0, 0.0)

        def has_gpus(offer: Offer) -> bool:
            card = gpus.get(offer.gpu)
            return card is not None and card.memory_marketed_bytes * min(offer.gpus, 1) >= (self.min_memory or 0)

        def near(offer: Offer) -> bool:
            return offer.round_trip is not None and offer.round_trip.value <= (self.max_latency or 0)

        tests: dict[str, tuple[object, Callable[[Offer], bool]]] = {
            "gpu": (self.gpu_ids, lambda offer: offer.gpu in (self.gpu_ids or ())),
            "instance": (self.instances, lambda offer: (offer.provider, offer.instance) in (self.instances or ())),
            "gpus": (self.gpus, lambda offer: low <= offer.gpus <= high),
            "min_memory": (self.min_memory, has_gpus),
            "provider": (self.providers or None, lambda offer: offer.provider in self.providers),
            "exclude_provider": (self.excluded_providers or None, lambda offer: offer.provider not in self.excluded_providers),
            "region": (self.regions, lambda offer: (offer.provider, offer.region) in (self.regions or ())),
            "term": (self.terms or None, lambda offer: offer.term in self.terms),
            "max_latency": (self.max_latency, near),
        }
        return {name: test for name, (required, test) in tests.items() if required is not None}


def build_offer(
    one: PriceOnDay, name: str, exchanger: Exchanger, currency: str | None, hours: Decimal, trip: Figure | None = None
) -> Offer:
    """Return an offer for a price on a day, in `currency` or its own; `hours` are of a month, `trip` is the round trip in s."""
    run = one.observation
    price, rate = exchanger.convert(Money(run.price, run.currency), currency or run.currency)
    listed = Money(round_significant(run.price / (1 - run.discount)) if run.discount else run.price, run.currency)
    due = upfront(run)
    month = Decimal(MONTH_HOURS) if run.term in YEARS else hours  # A commitment is paid whether or not the machine runs.
    copied = (
        "provider",
        "instance",
        "region",
        "gpu",
        "gpus",
        "term",
        "payment",
        "includes",
        "standing",
        "discount",
        "note",
        "source",
    )
    return Offer(
        **{field: getattr(run, field) for field in copied},
        gpu_name=name,
        price=price,
        price_per_gpu_hour=Money(round_significant(price.amount / Decimal(str(run.gpus))), price.currency),
        price_month=Money(cents(price.amount * month), price.currency),
        upfront=None if due is None else exchanger.convert(Money(cents(due), run.currency), currency or run.currency)[0],
        listed_price=listed,
        valid_from=run.observed,
        observed_at=one.observed_at,
        age_days=one.age_days,
        confidence=one.confidence,
        stale=one.stale,
        exchange_rate=None if rate is None else ExchangeRate(float(round_significant(rate.value, 8)), rate.date, rate.source),
        round_trip=trip,
        cheapest_of=None,
    )


def cents(amount: Decimal) -> Decimal:
    """Return an amount rounded to thousandths, as price lists print monthly prices: 206.590.

    >>> cents(Decimal("0.283") * 730)
    Decimal('206.590')
    """
    return amount.quantize(Decimal("0.001"))


GROUPS = ("gpu", "provider", "region")


def cheapest_by_group(
    offers: Iterable[Offer], names: Sequence[str], exchanger: Exchanger, left_out: Mapping[OfferGroup, int] = MappingProxyType({})
) -> list[Offer]:
    """Return the cheapest offer of each group by price per GPU and hour; `names` are the fields that define a group.

    `left_out` has the numbers of dearer offers alike in all but name that were not read; they are counted.
    """
    best: dict[tuple[str, ...], Offer] = {}
    counts: dict[tuple[str, ...], int] = {}
    for group, number in left_out.items():
        key = tuple(getattr(group, name) for name in names)
        counts[key] = counts.get(key, 0) + number
    for offer in offers:
        key = tuple(getattr(offer, name) for name in names)
        counts[key] = counts.get(key, 0) + 1
        if key not in best or dollars(offer.price_per_gpu_hour, exchanger) < dollars(best[key].price_per_gpu_hour, exchanger):
            best[key] = offer
    return [replace(offer, cheapest_of=counts[key]) for key, offer in best.items()]


MONEY = ("price", "price_per_gpu_hour", "price_month", "upfront")
SORTABLE = (
    *MONEY,
    *("provider", "instance", "region", "gpu", "gpu_name", "gpus", "term", "payment", "valid_from", "observed_at", "age_days"),
    *("confidence", "includes", "standing", "source", "round_trip"),
)


def ordered(offers: Iterable[Offer], field: str | None, exchanger: Exchanger) -> list[Offer]:
    """Return offers sorted by a field, descending with a leading `-`; by price per GPU and hour if no field is named.

    Money is compared in US dollars whatever currency is displayed; offers without the field come last. Ties go to the shorter
    round trip, if round trips are known.
    """
    sort_field = field or "price_per_gpu_hour"
    down, name = sort_field.startswith("-"), sort_field.removeprefix("-").replace("-", "_")
    if name not in SORTABLE:
        raise unknown_word("field", name, SORTABLE)

    def value(offer: Offer) -> Any:
        raw = getattr(offer, name)
        if isinstance(raw, Money):
            return dollars(raw, exchanger)
        if isinstance(raw, Figure):
            return raw.value
        return raw.lower() if isinstance(raw, str) else raw

    def tie(offer: Offer) -> tuple[float, str, str, str, str, str]:
        trip = float("inf") if offer.round_trip is None else offer.round_trip.value
        return (trip, offer.provider, offer.instance, offer.region, offer.term, offer.payment or "")

    rows = sorted(offers, key=tie)
    have = [offer for offer in rows if getattr(offer, name) is not None]
    return sorted(have, key=value, reverse=down) + [offer for offer in rows if getattr(offer, name) is None]


def dollars(money: Money, exchanger: Exchanger) -> Decimal:
    """Return an amount of money in US dollars, used to compare prices in different currencies only."""
    return money.amount / exchanger.rate(DOLLAR, money.currency).value
