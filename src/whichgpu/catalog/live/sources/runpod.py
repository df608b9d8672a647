"""RunPod's GraphQL API: GPU prices in its secure and community clouds, on demand and spot. Needs no key.

Has prices per GPU, the same in every data centre, and stock now; no regions and no reserved terms.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import msgspec

from whichgpu.catalog.live.rows import ANY_REGION, OfferRow, PriceBatch, ReadCounts, RejectedRow, SourceRequest, parse_price
from whichgpu.catalog.live.sources.endpoint import decode_body, decode_rows, malformed, source_url

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


class _RunpodAnswer(msgspec.Struct):
    class Data(msgspec.Struct):
        gpuTypes: list[msgspec.Raw]

    data: Data | None = None
    errors: list[dict[str, object]] = []


class RunPod:
    """RunPod as a source of prices: all GPU types in one batch."""

    name = "runpod"
    key = None
    heavy = False

    def batches(self, request: SourceRequest) -> Iterator[PriceBatch]:
        """Request RunPod's GPU types once, and yield their prices as one batch."""
        key = request.keys.get("RUNPOD_API_KEY")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        base = source_url(self.name, BASE, request.keys)
        reply = request.client.post(base, msgspec.json.encode({"query": QUERY}), headers=headers)
        answer = decode_body(self.name, reply.bytes(), _RunpodAnswer)
        if answer.data is None or answer.errors:
            why = str(answer.errors[0].get("message", "")) if answer.errors else "no data"
            raise malformed(self.name, why)
        read = ReadCounts()
        yield PriceBatch(self.name, ANY_REGION, _rows(answer.data.gpuTypes, read), request.today, read=read)


def _rows(types: list[msgspec.Raw], read: ReadCounts) -> Iterator[OfferRow | RejectedRow]:
    for gpu_type in decode_rows(types, _Type, read):
        if isinstance(gpu_type, RejectedRow):
            yield gpu_type
            continue
        rows = list(_offers(gpu_type))
        if not rows:
            read.aside += 1  # A GPU type without current offers has no price.
        yield from rows


def _offers(gpu_type: _Type) -> Iterator[OfferRow]:
    stock = gpu_type.lowestPrice.stockStatus if gpu_type.lowestPrice else None
    prices = (
        ("SECURE", "on-demand", gpu_type.securePrice),
        ("SECURE", "spot", gpu_type.secureSpotPrice),
        ("COMMUNITY", "on-demand", gpu_type.communityPrice),
        ("COMMUNITY", "spot", gpu_type.communitySpotPrice),
    )
    for cloud, term, price in prices:
        if not price:
            continue
        for count in COUNTS:
            if count <= (gpu_type.maxGpuCount or 1):
                yield OfferRow(
                    provider="runpod",
                    instance=f"{count}x_{gpu_type.displayName.replace(' ', '-')}_{cloud}",
                    region=ANY_REGION,
                    accelerator=gpu_type.displayName,
                    count=float(count),
                    memory_mib=gpu_type.memoryInGb * 1024,
                    term=term,
                    price=parse_price(price * count),
                    names=(gpu_type.id, gpu_type.displayName),
                    availability=f"stock: {stock}" if stock else None,
                )
