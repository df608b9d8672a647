"""Price rows as a source states them, in batches; a batch is a snapshot of one part of the source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import date
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import msgspec

from whichgpu.catalog.host import Instance
from whichgpu.catalog.offer import ANY_REGION as ANY_REGION

if TYPE_CHECKING:
    from whichgpu.catalog.live.http import Client, Validators

OWN_LIST = "own"  # source of the price lists that users write themselves
MICRO = Decimal("0.000001")
InstanceLookup = Callable[[str, str], Instance | None]
HOURS_PER_MONTH = 730  # Hours that clouds bill for a month: 8,760 / 12.
MAX_PRICE = Decimal(10) ** 12  # Highest price per hour in any currency (assumed).


class OfferRow(msgspec.Struct, frozen=True):
    """One unchecked price as a source states it, per hour for the whole instance."""

    provider: str
    instance: str
    region: str
    accelerator: str  # the source's name of the GPU; empty if it names the instance only
    count: float | None  # number of GPUs; None if the source names the instance only
    memory_mib: float | None  # memory of one GPU
    term: str
    price: Decimal
    currency: str = "USD"
    payment: str | None = None
    upfront: Decimal | None = None
    includes: str = "gpu+host"
    zone: str = ""
    names: tuple[str, ...] = ()  # further names of the GPU or the instance, most specific first
    availability: str | None = None  # stock as the source states it
    observed_on: date | None = None  # day of this price, if it differs from that of the batch


class RejectedRow(msgspec.Struct, frozen=True):
    """A price row that cannot be read, as text, and the reason; it is stored in quarantine for the user to see."""

    reason: str
    row: str


class ReadCounts(msgspec.Struct):
    """Counts of rows read and skipped in a batch of prices, which the source updates while its rows are read."""

    rows: int = 0  # lines or items read
    aside: int = 0  # rows without a GPU, which are skipped: hosts, CPU instances, disks
    digest: str | None = None  # SHA-256 of the content, set when it was read to the end


class PriceBatch(msgspec.Struct, frozen=True):
    """A snapshot of the prices of one part of a source, such as one region.

    `complete`: offers missing from it are no longer listed. `observed_on`: day of the prices; `content`: day the source's
    content last changed, if known.
    """

    source: str
    scope: str
    rows: Iterator[OfferRow | RejectedRow]
    observed_on: date
    content: date | None = None
    complete: bool = True
    unchanged: bool = False  # the server says that the last batch of this scope is still valid
    read: ReadCounts = msgspec.field(default_factory=ReadCounts)
    validators: tuple[Validators, ...] = ()
    seen_of_digest: Mapping[str, date] = msgspec.field(
        default_factory=dict
    )  # day of the prices by SHA-256, for content known to be old


class SourceRequest(msgspec.Struct, frozen=True):
    """What a price source gets to fetch prices: HTTP client, day, regions, currency, API keys and the catalog's instances."""

    client: Client
    today: date
    regions: tuple[str, ...] = ()  # () means the source's default regions
    currency: str = "USD"
    keys: Mapping[str, str] = msgspec.field(default_factory=dict)  # environment variables, which may hold API keys
    machine_of: InstanceLookup = lambda *_: None  # returns the catalog's instance by provider and name
    machines: tuple[Instance, ...] = ()  # all instances of the catalog


class PriceSource(Protocol):
    """A source of prices, such as a cloud's price list; plug-ins register one under `whichgpu.price_sources`."""

    @property
    def name(self) -> str:
        """Return the name of the price source, by which users refer to it."""
        ...

    @property
    def key(self) -> str | None:
        """Return the environment variable with the API key the source requires; None if no key is needed."""
        ...

    @property
    def heavy(self) -> bool:
        """Whether the source's price list is so large that it is downloaded only if the user names it."""
        ...

    def batches(self, request: SourceRequest) -> Iterator[PriceBatch]:
        """Yield batches of prices, one per part of the source; an error ends this source only and keeps earlier batches."""
        ...


def row_at_price(row: OfferRow, term: str, price: Decimal, instance: str | None = None, includes: str = "gpu+host") -> OfferRow:
    """Return a copy of a price row with another price and term; this is faster than `replace`."""
    return OfferRow(
        row.provider,
        row.instance if instance is None else instance,
        row.region,
        row.accelerator,
        row.count,
        row.memory_mib,
        term,
        price,
        zone=row.zone,
        names=row.names,
        includes=includes,
    )


def parse_price(value: object) -> Decimal:
    """Parse a price to a decimal without float noise or trailing zeros; raise ValueError if invalid.

    >>> parse_price("5.8854999999999995"), parse_price("4.0"), parse_price(12)
    (Decimal('5.8855'), Decimal('4'), Decimal('12'))
    """
    return _amount(value if isinstance(value, str | Decimal) else str(value))


@lru_cache(maxsize=65536)
def _amount(value: str | Decimal) -> Decimal:
    try:
        number = value if isinstance(value, Decimal) else Decimal(value.strip())
    except InvalidOperation as problem:
        raise ValueError(f"no number: {value!r}") from problem
    if not number.is_finite() or number.copy_abs() > MAX_PRICE:
        raise ValueError(f"no price: {value!r}")
    rounded = number.quantize(MICRO, ROUND_HALF_EVEN).normalize()
    return rounded.quantize(Decimal(1)) if rounded == rounded.to_integral_value() else rounded


def parse_discount(value: object) -> Decimal:
    """Parse a discount (0.15, "15%" or nothing) to a share; raise ValueError outside 0 to 1.

    >>> parse_discount("15%"), parse_discount(None)
    (Decimal('0.15'), Decimal('0'))
    """
    if value in (None, ""):
        return Decimal(0)
    text = str(value).strip()
    try:
        share = Decimal(text[:-1]) / 100 if text.endswith("%") else Decimal(text)
    except InvalidOperation as problem:
        raise ValueError(text) from problem
    if not (share.is_finite() and 0 <= share < 1):
        raise ValueError(text)
    return share
