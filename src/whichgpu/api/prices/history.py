"""The verb `history`: prices of a GPU over time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import msgspec
from msgspec.structs import replace

from whichgpu.api.context import Context
from whichgpu.api.prices.store import offer_query
from whichgpu.api.request.catalog import HistoryRequest
from whichgpu.api.request.read import read
from whichgpu.base.dates import first_day, last_day
from whichgpu.base.display import Displayable
from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import msg
from whichgpu.base.money import Money
from whichgpu.catalog.currency import DOLLAR, Exchanger, round_significant
from whichgpu.catalog.live.price_store import open_for_reading
from whichgpu.catalog.live.queries import OfferQuery, price_history
from whichgpu.catalog.offer import STALE_DAYS, Observation
from whichgpu.catalog.schema import DATA_DIR
from whichgpu.catalog.store import Catalog
from whichgpu.price.trend import lowest_prices

USUAL_TERMS = ("on-demand", "spot")


class HistoryRow(msgspec.Struct, frozen=True):
    """A price and the days on which it was valid; in a summary, the lowest price of a GPU at a provider."""

    gpu: str
    gpu_name: str
    provider: str
    instance: str
    region: str
    term: str
    payment: str | None
    price_per_gpu_hour: Money
    change: float | None  # change from the price before, as a share
    observed: str
    last_observed: str
    ended: str | None
    source: str


class Trend(msgspec.Struct, frozen=True):
    """Lowest price of a rental term when first seen and as last seen, and the change as a share of the first."""

    term: str
    first: HistoryRow
    last: HistoryRow
    change: float


class HistoryAnswer(Displayable, msgspec.Struct, frozen=True):
    """Rental prices of a GPU over time, oldest first."""

    history: tuple[HistoryRow, ...]
    summary: bool  # true if `history` has only the lowest price of each provider and term
    without_rate: dict[str, int]  # prices left out for lack of an exchange rate on their day, by currency
    trends: tuple[Trend, ...]  # in a summary: each term from its first day until now


def history(request: HistoryRequest, context: Context) -> HistoryAnswer:
    """Return prices of a GPU up to a day: the lowest of each provider and term whenever it changes, or every price."""
    values, catalog, as_of = read(HistoryRequest, request, context.spell), context.catalog, context.as_of
    every, terms = values.get("every", False), values.get("term") or USUAL_TERMS
    query = offer_query(catalog, values["gpu"], values.get("provider"), values.get("region"), values.get("instance"), terms)
    runs = (_until(run, as_of) for run in _all_runs(catalog, query))
    observations = sorted((run for run in runs if run is not None), key=lambda run: (run.observed, run.last_observed))
    names = {runs.id: runs.name for runs in catalog.gpus}
    without_rate: Counter[str] = Counter()
    rows = tuple(_every(observations, names) if every else _lowest(observations, names, catalog, without_rate))
    if not rows and without_rate:
        message = msg("error.only-without-rate", n=without_rate.total(), currencies=tuple(without_rate))
        raise NoAnswer("no-exchange-rate", message, msg("hint.only-without-rate"))
    if not rows:
        raise NoAnswer("no-history", msg("error.no-history"), msg("hint.no-history" if as_of is None else "hint.no-history-by"))
    return HistoryAnswer(rows, not every, dict(without_rate), () if every else tuple(_trends(rows)))


def _trends(rows: tuple[HistoryRow, ...]) -> Iterator[Trend]:
    """Yield the price trend per term (on-demand, spot, …); prices last seen a month before the term's newest are not current."""
    for term in dict.fromkeys(row.term for row in rows):
        own = [row for row in rows if row.term == term]
        newest = last_day(max(row.last_observed for row in own))
        still = [row for row in own if row.ended is None and (newest - last_day(row.last_observed)).days <= STALE_DAYS]
        if not still:
            continue
        began = min(row.observed for row in own)
        first = min((row for row in own if row.observed == began), key=_amount)
        last = min(still, key=_amount)
        yield Trend(term, first, last, round(float(_amount(last) / _amount(first) - 1), 4))


def _amount(row: HistoryRow) -> Decimal:
    return row.price_per_gpu_hour.amount


def _all_runs(catalog: Catalog, query: OfferQuery) -> Iterator[Observation]:
    for row in catalog.prices(query.gpus):
        if matches_query(row.provider, row.instance, row.term, query):
            yield from (run for run in row.observations() if query.region in (None, run.region))
    if catalog.folder == DATA_DIR:
        with open_for_reading() as connection:
            if connection is not None:
                yield from price_history(connection, query, catalog.known_by)


def _until(run: Observation, day: date | None) -> Observation | None:
    """Return a price observation as known at the end of a day; None if it began later."""
    if day is None or (last_day(run.last_observed) <= day and (run.ended is None or first_day(run.ended) <= day)):
        return run
    if first_day(run.observed) > day:
        return None
    ended = run.ended if run.ended is not None and first_day(run.ended) <= day else None
    return replace(run, last_observed=min(run.last_observed, day.isoformat()), ended=ended)


def matches_query(provider: str, instance: str, term: str, query: OfferQuery) -> bool:
    """Return whether a price of the bundled catalog matches a query."""
    return (
        query.provider in (None, provider) and query.instance in (None, instance) and (query.terms is None or term in query.terms)
    )


def _every(observations: Iterable[Observation], names: dict[str, str]) -> Iterator[HistoryRow]:
    last: dict[object, Decimal] = {}
    for run in observations:
        key = (*run.key, run.currency, run.source)
        before = last.get(key)
        last[key] = run.price
        yield _history(run, names, None if before is None else float(run.price / before - 1))


def _lowest(
    observations: Iterable[Observation], names: dict[str, str], catalog: Catalog, without_rate: Counter[str]
) -> Iterator[HistoryRow]:
    """Yield each provider's and term's lowest price per GPU hour when it changes; count prices that cannot be in dollars."""
    groups: dict[tuple[str, str, str], list[Observation]] = defaultdict(list)
    dollars = _Dollars(catalog)
    for run in observations:
        if run.includes != "gpu+host":
            continue
        if dollars.has(run):
            groups[run.gpu, run.provider, run.term].append(run)
        else:
            without_rate[run.currency] += 1
    rows: list[HistoryRow] = []
    for group in groups.values():
        before: Decimal | None = None
        for low in lowest_prices(group, dollars.of):
            change = None if before is None else float(low.price / before - 1)
            rows.append(_history(low.run, names, change, low.price, low.day, low.until))
            before = low.price
    yield from sorted(rows, key=lambda row: (row.observed, row.gpu, row.provider, row.term))


def _history(
    run: Observation,
    names: dict[str, str],
    change: float | None,
    dollars: Decimal | None = None,
    observed: str | None = None,
    ended: str | None = None,
) -> HistoryRow:
    each = Money(dollars, DOLLAR) if dollars is not None else Money(round_significant(run.price_per_gpu), run.currency)
    first = observed or run.observed
    last = max(first, run.last_observed) if ended is None else max(first, min(run.last_observed, ended))
    rounded_change = None if change is None else round(change, 4)
    return HistoryRow(
        **identity(run, names),
        price_per_gpu_hour=each,
        change=rounded_change,
        observed=first,
        last_observed=last,
        ended=ended if dollars is not None else run.ended,
    )


def identity(run: Observation, names: dict[str, str]) -> dict[str, Any]:
    """Return the fields that identify an observed offer, for a row of an answer; `names` are GPU names by id."""
    copied = ("gpu", "provider", "instance", "region", "term", "payment", "source")
    return {name: getattr(run, name) for name in copied} | {"gpu_name": names.get(run.gpu, run.gpu)}


class _Dollars:
    """Converts observed prices per GPU hour to US dollars, each at the exchange rate of the day it was seen."""

    def __init__(self, catalog: Catalog) -> None:
        self._table = catalog.exchange
        self._days: dict[date, Exchanger] = {}

    def has(self, run: Observation) -> bool:
        """Return whether there is an exchange rate for the currency and day of an observed price."""
        return run.currency == DOLLAR or self._on(run).can_convert(run.currency, DOLLAR)

    def of(self, run: Observation) -> Decimal:
        """Return the price of an observation per GPU and hour, in US dollars."""
        each = run.price_per_gpu
        if run.currency != DOLLAR:
            each = self._on(run).convert(Money(each, run.currency), DOLLAR)[0].amount
        return round_significant(each)

    def _on(self, run: Observation) -> Exchanger:
        day = last_day(run.observed)
        if day not in self._days:
            self._days[day] = Exchanger(day, self._table)
        return self._days[day]
