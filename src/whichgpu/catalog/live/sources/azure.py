"""Azure's retail price feed: pages of JSON. Needs no key.

Has on-demand, spot and reserved prices (1 and 3 years, the total spread over the hours) of every region in a currency; those in
other currencies than USD are Microsoft's own reference. Leaves out savings plans, Windows and dedicated hosts, and has no stock
or quota. The catalog knows which GPUs an instance has.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from urllib.parse import quote, urlsplit

import msgspec

from whichgpu.base.errors import DataError, UnknownName
from whichgpu.base.messages import msg
from whichgpu.catalog.live.rows import OfferRow, PriceBatch, ReadCounts, RejectedRow, SourceRequest, parse_price
from whichgpu.catalog.live.sources.endpoint import decode_body, malformed_row, source_url

BASE = "https://prices.azure.com/api/retail/prices"
FILTER = "serviceName eq 'Virtual Machines' and startswith(armSkuName, 'Standard_N')"
MAX_PAGES = 2000  # Pages of one region; more mean that the paging does not end (set by judgement).
HOURS = {"1 Year": ("reserved-1y", 8760), "3 Years": ("reserved-3y", 26280)}


class _PricePage(msgspec.Struct):
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
    """Azure as a source of prices: all instances of the N series, which have GPUs."""

    name = "azure"
    key = None
    heavy = False

    def batches(self, request: SourceRequest) -> Iterator[PriceBatch]:
        """Yield one batch of prices for all regions, or one per requested region, since missing offers count as ended."""
        for region in request.regions:
            if not (region.isascii() and region.isalnum()):
                raise UnknownName("unknown-region", msg("error.unknown-region", name=region), msg("hint.list-regions"))
        for place in request.regions or (None,):
            read, scope = ReadCounts(), request.currency if place is None else f"{request.currency}/{place}"
            yield PriceBatch(self.name, scope, self._rows(request, read, place), request.today, read=read)

    def _rows(self, request: SourceRequest, read: ReadCounts, region: str | None) -> Iterator[OfferRow | RejectedRow]:
        base = source_url(self.name, BASE, request.keys)
        filter = FILTER if region is None else f"{FILTER} and armRegionName eq '{region}'"
        url: str | None = f"{base}?api-version=2023-01-01-preview&currencyCode='{request.currency}'&$filter={quote(filter)}"
        pages_read: set[str] = set()
        while url:
            if url in pages_read or len(pages_read) >= MAX_PAGES:
                raise DataError("endless-pages", msg("error.endless-pages", name=self.name, n=len(pages_read)), msg("hint.http"))
            pages_read.add(url)
            page = decode_body(self.name, request.client.get(url, conditional=False).bytes(), _PricePage)
            for raw in page.items:
                read.rows += 1
                yield from _item_rows(raw, region, read)
            url = page.next or None
            if url and urlsplit(url).netloc != urlsplit(base).netloc:
                raise DataError("http-redirect", msg("error.http-redirect", url=base, to=url), msg("hint.http"))


def _item_rows(raw: msgspec.Raw, region: str | None, read: ReadCounts) -> Iterator[OfferRow | RejectedRow]:
    try:
        item = msgspec.json.decode(raw, type=_Item)
        row = _row(item)
    except (msgspec.DecodeError, msgspec.ValidationError, ValueError):
        yield malformed_row(bytes(raw))
        return
    if row is None or region not in (None, item.region):
        read.aside += 1
    else:
        yield row


def _row(item: _Item) -> OfferRow | None:
    """Return the price of a Linux instance; None for Windows, dedicated hosts, low priority and higher volume tiers."""
    if "Windows" in item.product or "Dedicated" in item.product or item.minimum or "Low Priority" in item.sku:
        return None
    price, term = item.price, "on-demand"
    if item.type == "Reservation":
        if item.term not in HOURS:
            return None
        term, hours = HOURS[item.term]
        price = item.price / hours  # A reservation can be paid monthly at no extra cost.
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
    )
