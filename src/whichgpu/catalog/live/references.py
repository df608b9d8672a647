"""Price ranges of the bundled history, with which the first price of an offer in the user's store is compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from statistics import median

import msgspec

from whichgpu.base.dates import first_day
from whichgpu.catalog.currency import DollarRates
from whichgpu.catalog.pricing import PriceRow
from whichgpu.catalog.store import Catalog

# Largest plausible ratio between two prices of one offer; WIDE_JUMP is for spot prices, which move freely.
JUMP, WIDE_JUMP = 3.0, 20.0
# Plausible range of a term's price if none is known, as factors of the instance's (lowest, highest) on-demand price; bundled
# one-year terms cost 0.4 to 0.8 of the on-demand price, three-year terms 0.25 to 0.55.
_ONE_YEAR, _THREE_YEARS = (0.3, 1.2), (0.15, 1.2)
ON_DEMAND_SHARES = {
    "on-demand": (1.0 / JUMP, JUMP),
    "sustained": _ONE_YEAR,
    "reserved-1y": _ONE_YEAR,
    "committed-1y": _ONE_YEAR,
    "reserved-3y": _THREE_YEARS,
    "committed-3y": _THREE_YEARS,
}
_ANY, _FIRM, _SPOT = "any", "firm", "spot"  # Dictionary keys for the prices of all terms, of all except spot, and of spot alone.
_UNCOMMITTED = ("on-demand", "sustained")  # Terms that never cost less than spot; a commitment may.
MARKET_SHARE = 0.1  # Lowest plausible price of a new seller as a share of the median of the GPU's sellers (assumed).
MIN_PROVIDERS = 3  # A GPU's lowest known price is a reference only if this many providers sell it (assumed).


class PriceRange(msgspec.Struct, frozen=True):
    """Lowest and highest known price of an offer or GPU, and those still plausible, in US dollars per GPU hour."""

    low: float  # lowest known price
    high: float  # highest known price
    plausible_low: float  # lowest plausible price
    plausible_high: float  # highest plausible price
    machine_known: bool = True  # whether the range is of the machine itself, not of its GPU at all sellers


class _Extremes(msgspec.Struct):
    low: float = float("inf")
    high: float = 0.0

    def add(self, price: float) -> None:
        self.low, self.high = min(self.low, price), max(self.high, price)


class ReferencePrices:
    """Bundled price ranges with which new prices are compared: by offer, by instance in all regions, and by GPU.

    The prices of a GPU are read when it is first asked for: most imports name a few GPUs.
    """

    def __init__(self, catalog: Catalog, rates: DollarRates) -> None:
        self._catalog, self._rates = catalog, rates
        self._by_gpu: dict[str, _GpuPrices] = {}

    def _of(self, gpu: str) -> _GpuPrices:
        if gpu not in self._by_gpu:
            self._by_gpu[gpu] = _GpuPrices(self._catalog.prices((gpu,)), self._rates)
        return self._by_gpu[gpu]

    def find(
        self, provider: str, instance: str, region: str, term: str, includes: str, gpu: str, alias: bool = False
    ) -> PriceRange | None:
        """Return the price range of this offer, else of the instance in other regions, else on demand, else of the GPU anywhere.

        Spot prices are no reference for other terms. `alias`: the offer goes by another name of the instance, under which it may
        be on sale (Standard_NC6_Promo).
        """
        wide, shares = (1.0 / WIDE_JUMP, WIDE_JUMP), ON_DEMAND_SHARES.get(term)
        if shares is None:  # For spot and owned offers, any price of the GPU is a reference.
            terms, other, own = _ANY, ((provider, instance, _ANY), wide), wide
        else:
            terms, other = _FIRM, ((provider, instance, "on-demand"), shares)
            own = wide if alias else (1.0 / JUMP, JUMP)
        history = self._of(gpu)
        offer, floor = (provider, instance, includes, term), history.floor(terms)
        for key, (low_factor, high_factor) in (((*offer, region), own), (offer, own), other, ((terms,), wide)):
            if (extremes := history.ranges.get(key)) is not None:
                low, high = max(extremes.low * low_factor, floor), extremes.high * high_factor
                return PriceRange(extremes.low, extremes.high, low, high, machine_known=key != (terms,))
        return None

    def market_rejection(self, gpu: str, gpus: float, term: str, dollars: float) -> str | None:
        """Return why a price in US dollars per hour is too low for a machine that the bundled history lacks; None if it is not.

        It is compared with all sellers of the GPU: no price per GPU that somebody asks already is too low.
        """
        history = self._of(gpu)
        firm, spot, usual = history.ranges.get((_FIRM,)), history.ranges.get((_SPOT,)), history.usual
        if firm is None:
            return None
        each, lowest = dollars / gpus, firm.low if spot is None else min(firm.low, spot.low)
        floor = lowest if spot is not None and term in _UNCOMMITTED else lowest / JUMP
        is_fraction = usual is not None and each < MARKET_SHARE * usual
        if each >= lowest or not (each < floor or is_fraction):
            return None
        if gpus > 1 and lowest <= dollars <= firm.high:
            return "one-for-all"
        return "below-market" if is_fraction or spot is None or term not in _UNCOMMITTED else "below-spot"

    def market_words(self, gpu: str, gpus: float, dollars: float) -> str:
        """Return a price per GPU hour and the range and median of the GPU's sellers, as text in US dollars."""
        history = self._of(gpu)
        firm, usual = history.ranges[_FIRM,], "" if history.usual is None else f" (median {history.usual:.3g})"
        return f"{dollars / gpus:.3g} USD / GPU h; {firm.low:.3g}-{firm.high:.3g} USD{usual}"


class _GpuPrices:
    """Bundled price ranges of one GPU, in US dollars per GPU hour, by offer, instance and kind of term."""

    def __init__(self, rows: Iterable[PriceRow], rates: DollarRates) -> None:
        self.ranges: dict[tuple[str, ...], _Extremes] = defaultdict(_Extremes)
        self._providers: dict[str, set[str]] = defaultdict(set)  # by kind of term
        on_demand: dict[str, list[float]] = defaultdict(list)  # by seller
        for row in rows:
            price = rates.dollars(row.price, row.currency, first_day(row.observed))
            if price is None:
                continue
            for terms in _terms_of(row):
                self._providers[terms].add(row.provider)
            if row.term == "on-demand":
                on_demand[row.provider].append(price / row.gpus)
            for key in _keys_of(row):
                self.ranges[key].add(price / row.gpus)
        self.usual = median(map(median, on_demand.values())) if on_demand else None  # median of the sellers' medians

    def floor(self, terms: str) -> float:
        """Return the lowest plausible price: a third of the lowest known; 0 if too few providers sell the GPU to tell."""
        many = len(self._providers.get(terms, ())) >= MIN_PROVIDERS
        return self.ranges[terms,].low / JUMP if many else 0.0


def _keys_of(row: PriceRow) -> Iterator[tuple[str, ...]]:
    offer = (row.provider, row.instance, row.includes, row.term)
    for region in row.regions:
        yield (*offer, region)
    yield offer
    yield (row.provider, row.instance, _ANY)
    if row.term == "on-demand":
        yield (row.provider, row.instance, row.term)
    for terms in _terms_of(row):
        yield (terms,)
    if row.term == "spot":
        yield (_SPOT,)


def _terms_of(row: PriceRow) -> tuple[str, ...]:
    return (_ANY,) if row.term == "spot" else (_ANY, _FIRM)
