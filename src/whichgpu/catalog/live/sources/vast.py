"""Vast.ai's search: machines that hosts offer at this moment. A key (VAST_API_KEY) is used where there is one.

Gives on-demand prices and the lowest bid for interruptible use, by country. A marketplace: each machine is there once and may
be gone in a minute, so the cheapest of a kind in a country stands for the kind, with how many there were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal

import msgspec

from whichgpu.base.errors import DataError
from whichgpu.base.messages import msg
from whichgpu.catalog.live.http import MIB
from whichgpu.catalog.live.rows import OfferRow, PriceBatch, ReadCounts, RejectedRow, SourceRequest, parse_price
from whichgpu.catalog.live.sources.endpoint import source_url

BASE = "https://console.vast.ai/api/v0"
QUESTION = {
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
    gpu_ram: float  # MB of one GPU
    dph_total: Decimal
    min_bid: Decimal | None = None
    geolocation: str | None = None


class _Answer(msgspec.Struct):
    offers: list[msgspec.Raw]


class Vast:
    """All verified machines, one batch."""

    name = "vast"
    key = None
    heavy = False

    def batches(self, request: SourceRequest) -> Iterator[PriceBatch]:
        """One question, one batch."""
        key = request.keys.get("VAST_API_KEY")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        base = source_url(self.name, BASE, request.keys)
        reply = request.client.post(f"{base}/bundles/", msgspec.json.encode(QUESTION), headers=headers, most=256 * MIB)
        try:
            answer = msgspec.json.decode(reply.bytes(), type=_Answer)
        except (msgspec.DecodeError, msgspec.ValidationError) as problem:
            message = msg("error.http-malformed", name=self.name, why=str(problem))
            raise DataError("http-malformed", message, msg("hint.http")) from problem
        read = ReadCounts()
        yield PriceBatch(self.name, "marketplace", _rows(answer.offers, read), request.today, read=read)


def _rows(offers: list[msgspec.Raw], read: ReadCounts) -> Iterator[OfferRow | RejectedRow]:
    found: list[_Offer] = []
    for raw in offers:
        read.rows += 1
        try:
            found.append(msgspec.json.decode(raw, type=_Offer))
        except (msgspec.DecodeError, msgspec.ValidationError):
            yield RejectedRow("malformed", bytes(raw)[:500].decode("utf-8", "replace"))
    kinds = Counter((offer.gpu_name, offer.num_gpus, _country(offer)) for offer in found)
    for offer in found:
        there = kinds[offer.gpu_name, offer.num_gpus, _country(offer)]
        yield _row(offer, "on-demand", offer.dph_total, there)
        if offer.min_bid:
            yield _row(offer, "spot", offer.min_bid, there)


def _country(offer: _Offer) -> str:
    """`California, US` is US; where a host does not say, `unknown`."""
    return (offer.geolocation or "").rpartition(",")[2].strip() or "unknown"


def _row(offer: _Offer, term: str, price: Decimal, there: int) -> OfferRow:
    return OfferRow(
        provider="vast",
        instance=f"{offer.num_gpus}x-{offer.gpu_name.replace(' ', '_')}",
        region=_country(offer),
        accelerator=offer.gpu_name,
        count=float(offer.num_gpus),
        memory_mib=offer.gpu_ram,
        term=term,
        price=parse_price(price),
        availability=f"listed now: {there}",
    )
