"""Vast.ai's search: machines that hosts offer now. Uses a key (VAST_API_KEY) if there is one.

Has on-demand prices and the lowest bid for interruptible use, by country. Each machine of this marketplace is there once, so
the cheapest of a kind in a country represents the kind, with how many are listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal

import msgspec

from whichgpu.base.units import MIB
from whichgpu.catalog.live.rows import OfferRow, PriceBatch, ReadCounts, RejectedRow, SourceRequest, parse_price
from whichgpu.catalog.live.sources.endpoint import decode_body, decode_rows, source_url

BASE = "https://console.vast.ai/api/v0"
QUERY = {
    "limit": 10000,
    "type": "ondemand",
    "verified": {"eq": True},
    "external": {"eq": False},
    "rentable": {"eq": True},
    "order": [["dph_total", "asc"]],
}


class _Offer(msgspec.Struct):
    gpu_name: str
    num_gpus: int
    gpu_ram: float  # memory of one GPU in MB
    dph_total: Decimal
    min_bid: Decimal | None = None
    geolocation: str | None = None


class _VastAnswer(msgspec.Struct):
    offers: list[msgspec.Raw]


class Vast:
    """Vast.ai as a source of prices: all verified machines in one batch."""

    name = "vast"
    key = None
    heavy = False

    def batches(self, request: SourceRequest) -> Iterator[PriceBatch]:
        """Search for all machines on Vast.ai once, and yield their prices as one batch."""
        key = request.keys.get("VAST_API_KEY")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        base = source_url(self.name, BASE, request.keys)
        reply = request.client.post(f"{base}/bundles/", msgspec.json.encode(QUERY), headers=headers, max_bytes=256 * MIB)
        answer = decode_body(self.name, reply.bytes(), _VastAnswer)
        read = ReadCounts()
        yield PriceBatch(self.name, "marketplace", _rows(answer.offers, read), request.today, read=read)


def _rows(offers: list[msgspec.Raw], read: ReadCounts) -> Iterator[OfferRow | RejectedRow]:
    decoded = list(decode_rows(offers, _Offer, read))
    yield from (row for row in decoded if isinstance(row, RejectedRow))
    valid = [row for row in decoded if isinstance(row, _Offer)]
    kinds = Counter((offer.gpu_name, offer.num_gpus, _country(offer)) for offer in valid)
    for offer in valid:
        listed = kinds[offer.gpu_name, offer.num_gpus, _country(offer)]
        yield _row(offer, "on-demand", offer.dph_total, listed)
        if offer.min_bid:
            yield _row(offer, "spot", offer.min_bid, listed)


def _country(offer: _Offer) -> str:
    """Return the country code of a host (`California, US` is US); `unknown` if it states none."""
    return (offer.geolocation or "").rpartition(",")[2].strip() or "unknown"


def _row(offer: _Offer, term: str, price: Decimal, listed: int) -> OfferRow:
    return OfferRow(
        provider="vast",
        instance=f"{offer.num_gpus}x-{offer.gpu_name.replace(' ', '_')}",
        region=_country(offer),
        accelerator=offer.gpu_name,
        count=float(offer.num_gpus),
        memory_mib=offer.gpu_ram,
        term=term,
        price=parse_price(price),
        availability=f"listed now: {listed}",
    )
