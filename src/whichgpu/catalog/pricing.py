"""The bundled price history: rows of `prices.csv`, and the rules and rates beside it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache

import msgspec

from whichgpu.catalog.offer import Observation
from whichgpu.catalog.tables import Row

ANY_REGION = "any"
# US dollars per kWh, what the cheapest industrial power costs: nobody rents a GPU out for less than its power for long.
POWER_PRICE = 0.03
UNKNOWN_TDP_WATTS = 10.0  # assumed where a maker states none: less than any accelerator of the catalog draws
HIGHEST_PRICE = 100.0  # US dollars per GPU hour; the highest on offer in 2026 is near 25


@dataclass(frozen=True, slots=True)
class PriceRow:
    """A price of a machine in some regions, from the first to the last day it was seen."""

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
        """One for each region."""
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


@dataclass(frozen=True, slots=True)
class Discount:
    """A published rule that makes one term's price of another's: a share of it, or shares by the part of the month run."""

    id: str
    provider: str
    term: str
    instances: tuple[str, ...]  # the beginnings of their names
    share: Decimal | None  # of the on-demand price
    steps: tuple[Decimal, ...]  # shares of the on-demand price for each equal part of the month, in turn
    first: str
    last: str | None
    sources: tuple[str, ...]
    recorded: str


# Currencies the European Central Bank quotes, or quoted once.
ECB = (
    "AUD BGN BRL CAD CHF CNY CYP CZK DKK EEK EUR GBP HKD HRK HUF IDR ILS INR ISK JPY KRW LTL LVL MTL MXN MYR NOK NZD PHP PLN ROL "
    "RON RUB SEK SGD SIT SKK THB TRL TRY USD ZAR"
).split()


@dataclass(frozen=True, slots=True)
class DollarExchangeRate:
    """What one US dollar was worth in a currency on a day, or on average over a year."""

    currency: str
    date: str
    rate: Decimal
    sources: tuple[str, ...]
    recorded: str


@dataclass(frozen=True, slots=True)
class MeasuredLatency:
    """A round trip somebody measured from a city to a region, in milliseconds."""

    city: str
    provider: str
    region: str
    milliseconds: Decimal
    observed: str
    sources: tuple[str, ...]
    recorded: str


def implausible_price(tdp_watts: float | None, dollars: float) -> str | None:
    """Why nobody rents out a GPU at so many US dollars an hour: `below-power` or `too-dear`; None if it is plausible.

    >>> implausible_price(700, 0.01), implausible_price(700, 6.88), implausible_price(None, 125_000), implausible_price(None, 0)
    ('below-power', None, 'too-dear', 'below-power')
    """
    if dollars < POWER_PRICE * (tdp_watts or UNKNOWN_TDP_WATTS) / 1000:
        return "below-power"
    return "too-dear" if dollars > HIGHEST_PRICE else None


def fill_price(row: Row, machines: Mapping[tuple[str, str], Row]) -> Row:
    """A table row with the fields of a PriceRow: a machine of `instances.csv` brings its GPUs.

    It stays a row, since only those of the GPUs asked for are ever made into records.
    """
    holder = row if row["gpu"] else machines.get((row["provider"], row["instance"]))
    gpus = holder["gpus"] if holder else Decimal(1)
    row["gpu"] = holder["gpu"] if holder else ""
    row["gpus"] = int(gpus) if gpus == int(gpus) else float(gpus)
    row["last_observed"] = row["last_observed"] or row["observed"]
    return row


@dataclass(frozen=True, slots=True)
class PackedPrices:
    """All rows of one GPU, packed: a question about one GPU need not unpack the prices of all the others."""

    gpu: str
    rows: msgspec.Raw

    def unpacked(self) -> tuple[PriceRow, ...]:
        """The rows."""
        return _decoder().decode(self.rows)


def pack_prices(rows: Iterable[Row]) -> tuple[PackedPrices, ...]:
    """Filled rows by their GPU, each in its order."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["gpu"]].append(row)
    return tuple(PackedPrices(gpu, msgspec.Raw(msgspec.msgpack.encode(group))) for gpu, group in groups.items())


@cache
def _decoder() -> msgspec.msgpack.Decoder[tuple[PriceRow, ...]]:
    return msgspec.msgpack.Decoder(tuple[PriceRow, ...])


def build_discount(row: Row) -> Discount:
    """The rule of a table row."""
    plain = {name: row[name] for name in Discount.__dataclass_fields__}
    return Discount(**plain | {"steps": tuple(map(Decimal, row["steps"]))})


def build_exchange(row: Row) -> DollarExchangeRate:
    """The rate of a table row."""
    return DollarExchangeRate(**{name: row[name] for name in DollarExchangeRate.__dataclass_fields__})


def build_latency(row: Row) -> MeasuredLatency:
    """The measurement of a table row."""
    return MeasuredLatency(**{name: row[name] for name in MeasuredLatency.__dataclass_fields__})
