"""Bundled price history (`prices.csv`), discount rules, exchange rates and measured latencies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from functools import cache

import msgspec

from whichgpu.catalog.gpu import plain_number
from whichgpu.catalog.offer import Observation
from whichgpu.catalog.tables import Row, record_of

# US dollars per kWh of the cheapest industrial power (assumed): a lower rent would not pay for the electricity.
POWER_PRICE = 0.03
UNKNOWN_TDP_WATTS = 10.0  # Watts assumed if the maker states none: less than any accelerator of the catalog draws.
HIGHEST_PRICE = 100.0  # US dollars per GPU hour; the highest price on offer in 2026 is near 25.


class PriceRow(msgspec.Struct, frozen=True):
    """Hourly price of an instance in some regions, with the first and last day it was seen."""

    provider: str
    instance: str
    regions: tuple[str, ...]
    gpu: str
    gpus: int | float
    term: str
    payment: str | None
    price: Decimal
    currency: str
    includes: str
    observed: str
    last_observed: str
    ended: str | None
    sources: tuple[str, ...]
    recorded: str

    def observations(self) -> Iterator[Observation]:
        """Yield one observation for each region of this price."""
        for region in self.regions:
            yield Observation(
                self.provider,
                self.instance,
                region,
                self.gpu,
                self.gpus,
                self.term,
                self.payment,
                self.price,
                self.currency,
                None,
                self.includes,
                self.observed,
                self.last_observed,
                self.ended,
                self.sources[0],
                self.recorded,
            )


class Discount(msgspec.Struct, frozen=True):
    """Published rule that derives a term's price from the on-demand price: one share, or shares by part of the month."""

    id: str
    provider: str
    term: str
    instances: tuple[str, ...]  # prefixes of the names of instances it applies to
    share: Decimal | None  # price as a share of the on-demand price
    steps: tuple[Decimal, ...]  # shares of the on-demand price for each equal part of the month
    first: str
    last: str | None
    sources: tuple[str, ...]
    recorded: str


# Currencies that the European Central Bank quotes or once quoted.
ECB = (
    "AUD BGN BRL CAD CHF CNY CYP CZK DKK EEK EUR GBP HKD HRK HUF IDR ILS INR ISK JPY KRW LTL LVL MTL MXN MYR NOK NZD PHP PLN ROL "
    "RON RUB SEK SGD SIT SKK THB TRL TRY USD ZAR"
).split()


class DollarExchangeRate(msgspec.Struct, frozen=True):
    """Units of a currency per US dollar on a day, or averaged over a year."""

    currency: str
    date: str
    rate: Decimal
    sources: tuple[str, ...]
    recorded: str


class MeasuredLatency(msgspec.Struct, frozen=True):
    """Measured round-trip time from a city to a region, in milliseconds."""

    city: str
    provider: str
    region: str
    milliseconds: Decimal
    observed: str
    sources: tuple[str, ...]
    recorded: str


def implausible_price(tdp_watts: float | None, dollars: float) -> str | None:
    """Return why a price in US dollars per GPU hour is implausible: `below-power` or `too-dear`; None if it is plausible.

    >>> implausible_price(700, 0.01), implausible_price(700, 6.88), implausible_price(None, 125_000), implausible_price(None, 0)
    ('below-power', None, 'too-dear', 'below-power')
    """
    if dollars < POWER_PRICE * (tdp_watts or UNKNOWN_TDP_WATTS) / 1000:
        return "below-power"
    return "too-dear" if dollars > HIGHEST_PRICE else None


def fill_price(row: Row, machines: Mapping[tuple[str, str], Row]) -> Row:
    """Return a price row with the GPU of its instance added from `instances.csv`, so that it has all fields of a PriceRow.

    It stays a row, since only rows of the GPUs in question are ever decoded to records.
    """
    holder = row if row["gpu"] else machines.get((row["provider"], row["instance"]))
    gpus = holder["gpus"] if holder else Decimal(1)
    row["gpu"] = holder["gpu"] if holder else ""
    row["gpus"] = plain_number(gpus)
    row["last_observed"] = row["last_observed"] or row["observed"]
    return row


class PackedPrices(msgspec.Struct, frozen=True):
    """All price rows of one GPU, encoded: a question about one GPU does not decode the prices of the others."""

    gpu: str
    rows: msgspec.Raw

    def decode(self) -> tuple[PriceRow, ...]:
        """Decode the packed rows of one GPU to price records."""
        return _decoder().decode(self.rows)


def pack_prices(rows: Iterable[Row]) -> tuple[PackedPrices, ...]:
    """Group price rows by GPU and encode each group, so that one GPU's prices can be decoded alone."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["gpu"]].append(row)
    return tuple(PackedPrices(gpu, msgspec.Raw(msgspec.msgpack.encode(group))) for gpu, group in groups.items())


@cache
def _decoder() -> msgspec.msgpack.Decoder[tuple[PriceRow, ...]]:
    return msgspec.msgpack.Decoder(tuple[PriceRow, ...])


def build_discount(row: Row) -> Discount:
    """Return a discount rule made from its row of the catalog's table, with its shares as decimals."""
    return record_of(Discount, row, steps=tuple(map(Decimal, row["steps"])))
