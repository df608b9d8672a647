"""Azure's retail price feed: pages of JSON, no key needed.

Gives on-demand, spot and reservations (1 and 3 years, their whole price stated and here spread over their hours) of every
region, in the currency asked for; prices in other currencies than USD are Microsoft's own reference. Gives no savings
plans here, no Windows, no dedicated hosts, and no word on stock or quota. Which GPUs a machine holds is the catalog's to know.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from urllib.parse import quote, urlsplit

import msgspec

from whichgpu.base.errors import DataError, UnknownName
from whichgpu.base.messages import msg
from whichgpu.catalog.live.rows import OfferRow, PriceBatch, ReadCounts, RejectedRow, SourceRequest, parse_price
from whichgpu.catalog.live.sources.endpoint import source_url

BASE = "https://prices.azure.com/api/retail/prices"
FILTER = "serviceName eq 'Virtual Machines' and startswith(armSkuName, 'Standard_N')"
MOST_PAGES = 2000
HOURS = {"1 Year": ("reserved-1y", 8760), "3 Years": ("reserved-3y", 26280)}


class _Page(msgspec.Struct):
    items: list[msgspec.Raw] = msgspec.field(name="Items")
    next: str | None = msgspec.field(name="NextPageLink", default=None)


class _Item(msgspec.Struct):
    currency: str = msgspec.field(name="currencyCode")
    price: Decimal = msgspec.field(name="retailPrice")
    region: str = msgspec.field(name="armRegionName")
    product: str = msgspec.field(name="productName")
    meter: str = msgspec.field(name="meterName")
    sku: str = msgspec.field(name="skuName")
    machine: str = msgspec.field(name="armSkuName")
    type: str
    unit: str = msgspec.field(name="unitOfMeasure")
    minimum: Decimal = msgspec.field(name="tierMinimumUnits", default=Decimal(0))
    term: str | None = msgspec.field(name="reservationTerm", default=None)


class Azure:
    """All machines of the N series, one batch."""

    name = "azure"
    key = None
    heavy = False

    def batches(self, request: SourceRequest) -> Iterator[PriceBatch]:
        """One batch of all pages, or one for each region asked for: half of them would make the other half look gone."""
        for region in request.regions:
            if not (region.isascii() and region.isalnum()):
                raise UnknownName("unknown-region", msg("error.unknown-region", name=region), msg("hint.list-regions"))
        for place in request.regions or (None,):
            read, scope = ReadCounts(), request.currency if place is None else f"{request.currency}/{place}"
            yield PriceBatch(self.name, scope, self._rows(request, read, place), request.today, read=read)

    def _rows(self, request: SourceRequest, read: ReadCounts, region: str | None) -> Iterator[OfferRow | RejectedRow]:
        base = source_url(self.name, BASE, request.keys)
        wish = FILTER if region is None else f"{FILTER} and armRegionName eq '{region}'"
        url: str | None = f"{base}?api-version=2023-01-01-preview&currencyCode='{request.currency}'&$filter={quote(wish)}"
        seen: set[str] = set()
        while url:
            if url in seen or len(seen) >= MOST_PAGES:
                raise DataError("endless-pages", msg("error.endless-pages", name=self.name, n=len(seen)), msg("hint.http"))
            seen.add(url)
            page = _decoded(request.client.get(url, conditional=False).bytes())
            for raw in page.items:
                read.rows += 1
                yield from _item_rows(raw, region, read)
            url = page.next or None
            if url and urlsplit(url).netloc != urlsplit(base).netloc:
                raise DataError("http-redirect", msg("error.http-redirect", url=base, to=url), msg("hint.http"))


def _decoded(body: bytes) -> _Page:
    try:
        return msgspec.json.decode(body, type=_Page)
    except (msgspec.DecodeError, msgspec.ValidationError) as problem:
        raise DataError(
            "http-malformed", msg("error.http-malformed", name="azure", why=str(problem)), msg("hint.http")
        ) from problem


def _item_rows(raw: msgspec.Raw, region: str | None, read: ReadCounts) -> Iterator[OfferRow | RejectedRow]:
    try:
        item = msgspec.json.decode(raw, type=_Item)
        row = _row(item)
    except (msgspec.DecodeError, msgspec.ValidationError, ValueError):
        yield RejectedRow("malformed", bytes(raw)[:500].decode("utf-8", "replace"))
        return
    if row is None or region not in (None, item.region):
        read.aside += 1
    else:
        yield row


def _row(item: _Item) -> OfferRow | None:
    """The price of a Linux machine; None for what is not one (Windows, dedicated hosts, low priority, later tiers)."""
    if "Windows" in item.product or "Dedicated" in item.product or item.minimum or "Low Priority" in item.sku:
        return None
    upfront, price, term = None, item.price, "on-demand"
    if item.type == "Reservation":
        if item.term not in HOURS:
            return None
        term, hours = HOURS[item.term]
        price = item.price / hours  # paid monthly at no extra cost, so the hourly share is the price
    elif item.type != "Consumption" or item.unit != "1 Hour":
        return None
    elif item.sku.endswith(" Spot") or item.meter.endswith(" Spot"):
        term = "spot"
    payment = "no-upfront" if item.type == "Reservation" else None
    return OfferRow(
        provider="azure",
        instance=item.machine,
        region=item.region,
        accelerator="",
        count=None,
        memory_mib=None,
        term=term,
        price=parse_price(price),
        currency=item.currency,
        payment=payment,
        upfront=upfront,
    )
