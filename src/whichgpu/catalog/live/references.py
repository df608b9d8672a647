"""Price ranges of the bundled history: what the first price of an offer in the user's store is compared with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from whichgpu.base.dates import first_day
from whichgpu.catalog.currency import DollarRates
from whichgpu.catalog.pricing import PriceRow
from whichgpu.catalog.store import Catalog

# Largest plausible ratio between two prices of one offer: spot prices move freely, and so may the price of another term.
JUMP, WIDE_JUMP = 3.0, 20.0
ENOUGH_PROVIDERS = 3  # with prices of a GPU, before the range of all of them counts as complete


@dataclass(frozen=True, slots=True)
class PriceRange:
    """Known prices and plausible prices, US dollars per GPU hour."""

    low: float  # lowest known
    high: float  # highest known
    least: float  # lowest plausible
    most: float  # highest plausible


@dataclass(slots=True)
class _Extremes:
    low: float = float("inf")
    high: float = 0.0

    def add(self, price: float) -> None:
        self.low, self.high = min(self.low, price), max(self.high, price)


class ReferencePrices:
    """Ranges of the bundled prices, from the very offer to all offers of its GPU."""

    def __init__(self, catalog: Catalog, rates: DollarRates) -> None:
        self._ranges: dict[tuple[str, ...], _Extremes] = defaultdict(_Extremes)
        self._providers: dict[str, set[str]] = defaultdict(set)
        for row in catalog.prices():
            price = rates.dollars(row.price, row.currency, first_day(row.observed))
            if price is not None:
                self._providers[row.gpu].add(row.provider)
                for key in _keys_of(row):
                    self._ranges[key].add(price / row.gpus)

    def find(
        self, provider: str, instance: str, region: str, term: str, includes: str, gpu: str, alias: bool = False
    ) -> PriceRange | None:
        """The range of this offer, else of the instance in other regions, else on other terms, else of the GPU anywhere.

        `alias`: the offer goes by another name of the instance, under which it may be on sale (Standard_NC6_Promo).
        """
        jump = WIDE_JUMP if alias or term == "spot" else JUMP
        offer = (provider, instance, includes, term)
        floor = self._gpu_floor(gpu)
        for key, factor in (((*offer, region), jump), (offer, jump), ((provider, instance), WIDE_JUMP), ((gpu,), WIDE_JUMP)):
            if (found := self._ranges.get(key)) is not None:
                return PriceRange(found.low, found.high, max(found.low / factor, floor), found.high * factor)
        return None

    def _gpu_floor(self, gpu: str) -> float:
        """Lowest plausible price of a GPU on any term: a third of the lowest one known, if several providers sell it."""
        many = len(self._providers.get(gpu, ())) >= ENOUGH_PROVIDERS
        return self._ranges[gpu,].low / JUMP if many else 0.0


def _keys_of(row: PriceRow) -> Iterator[tuple[str, ...]]:
    offer = (row.provider, row.instance, row.includes, row.term)
    for region in row.regions:
        yield (*offer, region)
    yield offer
    yield (row.provider, row.instance)
    yield (row.gpu,)
