"""RunPod's GraphQL: the price of a GPU in its secure and community clouds, on demand and spot. No key needed.

Gives prices per GPU, the same in every data centre, and whether any are in stock now. Gives no regions, no reserved terms.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import msgspec

from whichgpu.base.errors import DataError
from whichgpu.base.messages import msg
from whichgpu.catalog.live.rows import ANY_REGION, OfferRow, PriceBatch, ReadCounts, RejectedRow, SourceRequest, parse_price
from whichgpu.catalog.live.sources.endpoint import source_url

BASE = "https://api.runpod.io/graphql"
QUERY = (
    "query { gpuTypes { id displayName memoryInGb maxGpuCount secureCloud communityCloud securePrice communityPrice "
    "secureSpotPrice communitySpotPrice lowestPrice(input: {gpuCount: 1}) { stockStatus } } }"
)
COUNTS = (1, 2, 4, 8)


class _Type(msgspec.Struct):
    class Lowest(msgspec.Struct):
        stockStatus: str | None = None

    id: str
    displayName: str
    memoryInGb: float
    maxGpuCount: int | None = None
    securePrice: Decimal | None = None
    communityPrice: Decimal | None = None
    secureSpotPrice: Decimal | None = None
    communitySpotPrice: Decimal | None = None
    lowestPrice: Lowest | None = None


class _Answer(msgspec.Struct):
    class Data(msgspec.Struct):
        gpuTypes: list[msgspec.Raw]

    data: Data | None = None
    errors: list[dict[str, object]] = []


class RunPod:
    """All GPU types, one batch."""

    name = "runpod"
    key = None
    heavy = False

    def batches(self, request: SourceRequest) -> Iterator[PriceBatch]:
        """One question, one batch."""
        key = request.keys.get("RUNPOD_API_KEY")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        base = source_url(self.name, BASE, request.keys)
        reply = request.client.post(base, msgspec.json.encode({"query": QUERY}), headers=headers)
        try:
            answer = msgspec.json.decode(reply.bytes(), type=_Answer)
        except (msgspec.DecodeError, msgspec.ValidationError) as problem:
            message = msg("error.http-malformed", name=self.name, why=str(problem))
            raise DataError("http-malformed", message, msg("hint.http")) from problem
        if answer.data is None or answer.errors:
            why = str(answer.errors[0].get("message", "")) if answer.errors else "no data"
            raise DataError("http-malformed", msg("error.http-malformed", name=self.name, why=why), msg("hint.http"))
        read = ReadCounts()
        yield PriceBatch(self.name, ANY_REGION, _rows(answer.data.gpuTypes, read), request.today, read=read)


def _rows(types: list[msgspec.Raw], read: ReadCounts) -> Iterator[OfferRow | RejectedRow]:
    for raw in types:
        read.rows += 1
        try:
            found = msgspec.json.decode(raw, type=_Type)
        except (msgspec.DecodeError, msgspec.ValidationError):
            yield RejectedRow("malformed", bytes(raw)[:500].decode("utf-8", "replace"))
            continue
        rows = list(_offers(found))
        if not rows:
            read.aside += 1  # a type nobody rents out just now has no price
        yield from rows


def _offers(found: _Type) -> Iterator[OfferRow]:
    stock = found.lowestPrice.stockStatus if found.lowestPrice else None
    stated = (
        ("SECURE", "on-demand", found.securePrice),
        ("SECURE", "spot", found.secureSpotPrice),
        ("COMMUNITY", "on-demand", found.communityPrice),
        ("COMMUNITY", "spot", found.communitySpotPrice),
    )
    for cloud, term, price in stated:
        if not price:
            continue
        for count in COUNTS:
            if count <= (found.maxGpuCount or 1):
                yield OfferRow(
                    provider="runpod",
                    instance=f"{count}x_{found.displayName.replace(' ', '-')}_{cloud}",
                    region=ANY_REGION,
                    accelerator=found.displayName,
                    count=float(count),
                    memory_mib=found.memoryInGb * 1024,
                    term=term,
                    price=parse_price(price * count),
                    names=(found.id, found.displayName),
                    availability=f"stock: {stock}" if stock else None,
                )
