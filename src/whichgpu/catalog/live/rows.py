"""What a source hands over: rows as it states them, in batches, each batch one look at one part of the source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from whichgpu.catalog.host import Instance
from whichgpu.catalog.offer import ANY_REGION as ANY_REGION

if TYPE_CHECKING:
    from whichgpu.catalog.live.http import Client

MICRO = Decimal("0.000001")
InstanceLookup = Callable[[str, str], Instance | None]
HOURS_PER_MONTH = 730
LARGEST = Decimal(10) ** 12  # of any currency, an hour


@dataclass(frozen=True, slots=True)
class OfferRow:
    """One price as a source states it, per hour for the whole instance. Nothing in it is believed yet."""

    provider: str
    instance: str
    region: str
    accelerator: str  # the source's own word; empty where only the instance tells
    count: float | None  # GPUs, or None where only the instance tells
    memory_mib: float | None  # of one GPU
    term: str
    price: Decimal
    currency: str = "USD"
    payment: str | None = None
    upfront: Decimal | None = None
    includes: str = "gpu+host"
    zone: str = ""
    names: tuple[str, ...] = ()  # further names the source gives for the GPU or the machine, most telling first
    availability: str | None = None  # what the source says of stock, in its words; no promise
    seen: date | None = None  # the day of this row where it is not the batch's


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row that could not even be read, and why; it goes to quarantine as it stands."""

    reason: str
    row: str


@dataclass(slots=True)
class ReadCounts:
    """What has been read of a batch so far: the source counts here while its rows are taken."""

    rows: int = 0  # lines or items
    aside: int = 0  # those that sell no GPU: hosts, CPU machines, disks
    digest: str | None = None  # of the content, once it is all read


@dataclass(frozen=True, slots=True)
class Validators:
    """What makes the next request for an address conditional."""

    url: str
    etag: str | None
    modified: str | None


@dataclass(frozen=True, slots=True)
class PriceBatch:
    """One look at one part of a source.

    `complete`: all there is, so that what is missing is no longer listed. `seen`: the day the prices were true;
    `content`: the day the source's own content last changed, where it is known.
    """

    source: str
    scope: str
    rows: Iterator[OfferRow | RejectedRow]
    seen: date
    content: date | None = None
    complete: bool = True
    unchanged: bool = False  # the server says so: the last batch of this scope stands
    read: ReadCounts = field(default_factory=ReadCounts)
    validators: tuple[Validators, ...] = ()
    seen_of_digest: Mapping[str, date] = field(default_factory=dict)  # days by content, for content known to be old


def _unknown_machine(*_: str) -> None:
    return None


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """What a source is asked for, and what it may use."""

    client: Client
    today: date
    regions: tuple[str, ...] = ()  # () is the source's usual ones
    currency: str = "USD"
    keys: Mapping[str, str] = field(default_factory=dict)  # environment
    machine_of: InstanceLookup = _unknown_machine  # what the catalog knows of a machine
    machines: tuple[Instance, ...] = ()  # all it knows


class PriceSource(Protocol):
    """A cloud, a catalog or a list that can be asked for prices. Plug-ins offer one under `whichgpu.price_sources`."""

    @property
    def name(self) -> str:
        """What it is asked by."""
        ...

    @property
    def key(self) -> str | None:
        """The environment variable that must hold a key, where one is needed."""
        ...

    @property
    def heavy(self) -> bool:
        """Whether it is asked only when named."""
        ...

    def batches(self, ask: SourceRequest) -> Iterator[PriceBatch]:
        """Batches as they come; an error ends this source only, and what was yielded before it stands."""
        ...


def row_at_price(row: OfferRow, term: str, price: Decimal, instance: str | None = None, includes: str = "gpu+host") -> OfferRow:
    """The same row at a price on a term; `dataclasses.replace` takes four times as long."""
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
    """A price as a decimal without float noise or trailing zeros; a ValueError where it is none.

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
    if not number.is_finite() or number.copy_abs() > LARGEST:
        raise ValueError(f"no price: {value!r}")
    rounded = number.quantize(MICRO, ROUND_HALF_EVEN).normalize()
    return rounded.quantize(Decimal(1)) if rounded == rounded.to_integral_value() else rounded


def parse_discount(value: object) -> Decimal:
    """A discount as a share of 1: 0.15, "15%" or nothing; a ValueError outside 0 to 1.

    >>> parse_discount("15%"), parse_discount(None)
    (Decimal('0.15'), Decimal('0'))
    """
    if value in (None, ""):
        return Decimal(0)
    text = str(value).strip()
    try:
        found = Decimal(text[:-1]) / 100 if text.endswith("%") else Decimal(text)
    except InvalidOperation as problem:
        raise ValueError(text) from problem
    if not (found.is_finite() and 0 <= found < 1):
        raise ValueError(text)
    return found
