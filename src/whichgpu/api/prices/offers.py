"""The verb `offers`: prices valid on a day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from operator import attrgetter
from pathlib import Path

import msgspec
from msgspec.structs import replace

from whichgpu.api.context import Context
from whichgpu.api.request.offers import OffersRequest
from whichgpu.api.request.read import read
from whichgpu.base.display import Displayable
from whichgpu.base.errors import NoAnswer, UsageError
from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message, msg
from whichgpu.base.names import unknown_word
from whichgpu.catalog.currency import DOLLAR, Exchanger, parse_rates
from whichgpu.catalog.host import Region, Source
from whichgpu.catalog.live.overlay import NAME as OVERLAY
from whichgpu.catalog.live.overlay import apply_overlay, overlay_path, read_overlay
from whichgpu.catalog.live.stored_offers import StoredOffers, cheapest_live_offers, last_snapshot, live_offers
from whichgpu.catalog.offer import KEPT_OFFERS, Observation
from whichgpu.catalog.places.distance import city_point, round_trip
from whichgpu.catalog.schema import DATA_DIR
from whichgpu.catalog.select import count_matching
from whichgpu.catalog.store import Catalog
from whichgpu.price.asof import RECENT_DAYS, PriceOnDay, price_on_day, prices_on_day
from whichgpu.price.filters import OffersQuery as OffersQuery
from whichgpu.price.filters import countries_meant, offer_filter, split_names
from whichgpu.price.offers import GROUPS, Offer, OfferFilter, build_offer, cheapest_by_group, group_of, ordered
from whichgpu.price.sellers import cite_sources, unknown_seller
from whichgpu.price.terms import prices_from_rules


class OffersAnswer(Displayable, msgspec.Struct, frozen=True):
    """Offers as of a day, and the documents that state them."""

    as_of: str
    hours_per_month: int | float
    near: str | None
    offers: tuple[Offer, ...]
    snapshot: int | None  # newest of the user's own price snapshots used here; --catalog-as-known @N repeats this answer
    matching: int  # number of matching offers, including those beyond the row limit
    stale: int  # number of prices shown that were last seen more than 30 days before `as_of`
    cheapest: Offer  # matching offer with the lowest price per GPU and hour, whatever the order
    recent: Offer  # cheapest offer seen in the last 30 days; if there is none, in the last 90, 180 or 365, else of all
    nearest: Offer | None  # with `near`: the offer with the shortest round trip, and the cheapest of those
    without_rate: dict[str, int]  # number of offers left out for lack of an exchange rate on the day, by currency
    unused_rates: tuple[str, ...]  # currencies of exchange rates in the request that converted no price
    countries: dict[str, tuple[str, ...]]  # country codes of each continent or union that the request names
    sources: tuple[Source, ...]
    warnings: tuple[Message, ...] = ()  # about sellers of the cheapest offers that the catalog does not know


def offers(request: OffersRequest, context: Context) -> OffersAnswer:
    """Return the rental offers that match a request, as of the day in `context`."""
    values = read(OffersRequest, request, context.spell)
    values.pop("per", None)
    prices = values.pop("prices", None)
    if "exchange_rate" in values:
        values["exchange_rate"] = parse_rates(values["exchange_rate"])
    return list_offers(OffersQuery(**values), context.as_of, context.catalog, prices)


def list_offers(
    query: OffersQuery = OffersQuery(),  # noqa: B008 - frozen
    as_of: date | None = None,
    catalog: Catalog | None = None,
    overlay: Path | None = None,
) -> OffersAnswer:
    """Return prices valid on a day, lowest price per GPU and hour first unless the query sets an order.

    `overlay` is the user's file of discounts, contracts and owned machines, if it is not in its default place.
    """
    catalog = catalog or Catalog()
    day = as_of or catalog.as_known or date.today()
    exchanger = Exchanger(day, catalog.exchange, query.exchange_rate or {})
    currency = exchanger.check(query.currency) if query.currency else None
    if currency is not None:
        exchanger.rate(DOLLAR, currency)  # Raises an error if there is no exchange rate on that day.
    filter = offer_filter(catalog, query)
    groups = split_names(query.group_by)
    for name in groups:
        if name not in GROUPS:
            raise unknown_word("group", name, GROUPS)
    trips = _Trips(catalog, query.near)
    if filter.max_latency is not None and query.near is None:
        raise UsageError("no-near", msg("error.no-near"), msg("hint.no-near"))
    names = {gpu.id: gpu.name for gpu in catalog.gpus}
    stored = _stored(catalog, day, filter, query)
    prices = _laid_over(_standing(catalog, day, filter, query.hours, stored.offers), catalog, day, overlay)
    lacking = {code for code in {one.observation.currency for one in prices} if not exchanger.can_convert(code, currency)}
    offers = [
        build_offer(
            one, names.get(run.gpu, run.gpu), exchanger, None if run.currency in lacking else currency, query.hours, trips.to(run)
        )
        for one in prices
        for run in (one.observation,)
    ]
    tests = filter.tests(catalog.gpu_by_id)
    matching = [offer for offer in offers if all(test(offer) for test in tests.values())]
    fitting = [offer for offer in matching if offer.listed_price.currency not in lacking]
    without_rate = Counter(offer.listed_price.currency for offer in matching if offer.listed_price.currency in lacking)
    if without_rate and not fitting:
        exchanger.rate(DOLLAR, without_rate.most_common(1)[0][0])  # Raises an error that names the missing exchange rate.
    if not fitting and stored.left_out:
        return list_offers(replace(query, limit=None, group_by=()), as_of, catalog, overlay)  # Count all offers in the error.
    if not fitting:
        alone = tuple(
            msg("error.leaves", flag=name.replace("_", "-"), n=left) for name, left in count_matching(offers, tests).items()
        )
        message = msg("error.no-offer" if offers else "error.no-offer-then", n=len(offers), day=day.isoformat())
        if alone and offers:
            message = msg("error.because", what=message, why=alone)
        raise NoAnswer("no-offer", message, msg("hint.no-offer" if offers else "hint.no-offer-then"))
    by_price = ordered(fitting, None, exchanger)
    recent = _recent(by_price)
    nearest = min((offer for offer in by_price if offer.round_trip), key=attrgetter("round_trip.value"), default=None)
    used = {code for offer in fitting if offer.exchange_rate for code in (offer.listed_price.currency, offer.price.currency)}
    unused = tuple(code for code in query.exchange_rate or {} if code not in used)
    left_out = {group: stored.left_out[group] for group in set(map(group_of, fitting)) if group in stored.left_out}
    if groups:
        fitting = cheapest_by_group(fitting, groups, exchanger, left_out)
    count = len(fitting) + (0 if groups else sum(left_out.values()))
    listed = tuple(ordered(fitting, query.sort, exchanger)[: query.limit])
    rates = tuple(dict.fromkeys(offer.exchange_rate.source for offer in listed if offer.exchange_rate))
    trips_from = tuple(dict.fromkeys(source for offer in listed if offer.round_trip for source in offer.round_trip.sources[:1]))
    warned = dict.fromkeys(unknown_seller(catalog, offer.provider, offer.source) for offer in (by_price[0], recent))
    priced_by = (offer.source for offer in (by_price[0], recent, *listed))
    discounted = (OVERLAY for offer in listed if offer.discount)
    cited = cite_sources(catalog, (*priced_by, *discounted), rates, trips_from)
    hours = int(query.hours) if query.hours == int(query.hours) else float(query.hours)
    snapshot = last_snapshot(catalog.known_by) if catalog.folder == DATA_DIR else None
    stale = sum(offer.stale for offer in listed)
    return OffersAnswer(
        day.isoformat(),
        hours,
        trips.city,
        listed,
        snapshot,
        count,
        stale,
        by_price[0],
        recent,
        nearest,
        dict(without_rate),
        unused,
        countries_meant(query),
        cited,
        tuple(one for one in warned if one is not None),
    )


def _stored(catalog: Catalog, day: date, filter: OfferFilter, query: OffersQuery) -> StoredOffers:
    """Return the offers of the user's price store that the answer may list: the cheapest suffice for a page sorted by price."""
    if catalog.folder != DATA_DIR:
        return StoredOffers((), {})
    if query.group_by or (query.limit is not None and query.limit <= KEPT_OFFERS and query.sort is None):
        names = {instance for _, instance in filter.instances or ()}
        stored = cheapest_live_offers(day, catalog.known_by, gpus=filter.gpu_ids, instances=names)
        return StoredOffers(stored.offers, {}) if names else stored
    return StoredOffers(live_offers(day, catalog.known_by, gpus=filter.gpu_ids), {})


def _standing(
    catalog: Catalog, day: date, filter: OfferFilter, hours: Decimal, stored: Iterable[Observation]
) -> list[PriceOnDay]:
    """Return catalog and stored prices on a day for the GPUs of a filter, and prices derived from them by discount rules."""
    observations = [run for row in catalog.prices(filter.gpu_ids) for run in row.observations()]
    prices = list(prices_on_day((*observations, *stored), day))
    return prices + list(prices_from_rules(prices, catalog.discounts, day, hours))


def _laid_over(prices: list[PriceOnDay], catalog: Catalog, day: date, overlay: Path | None) -> list[PriceOnDay]:
    """Return the prices after applying `overlay`, the user's file of discounts, contracts and owned machines."""
    terms = read_overlay(overlay, catalog, day) if overlay_path(overlay) else None
    if terms is None:
        return prices
    changed = apply_overlay([one.observation for one in prices], terms, day)
    own = [price_on_day([run], day) for run in changed[len(prices) :]]
    return [replace(one, observation=run) for one, run in zip(prices, changed, strict=False)] + [one for one in own if one]


def _recent(by_price: list[Offer]) -> Offer:
    """Return the cheapest offer that is not stale; if all are, the cheapest seen in the shortest of RECENT_DAYS with any."""
    fresh = next((offer for offer in by_price if not offer.stale), None)
    lately = (offer for days in RECENT_DAYS for offer in by_price if offer.age_days <= days)
    return fresh or next(lately, by_price[0])


class _Trips:
    """Cache of network round-trip times in seconds, from one city to the regions of offers."""

    def __init__(self, catalog: Catalog, city: str | None) -> None:
        self.city: str | None = None
        if city is not None:
            self.city, self._point = city_point(catalog.regions, city)
            self._regions: dict[tuple[str, str], Region] = {(row.provider, row.region): row for row in catalog.regions}
            self._measured = catalog.latencies

    def to(self, run: Observation) -> Figure | None:
        """Return the round trip in seconds to the region of an offer; None if unknown."""
        region = self._regions.get((run.provider, run.region)) if self.city else None
        return round_trip(self.city or "", self._point, region, self._measured) if region else None
