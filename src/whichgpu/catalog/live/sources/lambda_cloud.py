"""Lambda's API: instances with their price and the regions with capacity now. Needs a key (LAMBDA_API_KEY).

Has on-demand prices, which are the same in every region; no spot and no reserved terms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

import msgspec

from whichgpu.catalog.live.rows import ANY_REGION, OfferRow, PriceBatch, ReadCounts, RejectedRow, SourceRequest, parse_price
from whichgpu.catalog.live.sources.endpoint import decode_body, decode_rows, source_url

BASE = "https://cloud.lambda.ai/api/v1"
_GPU = re.compile(r"(?P<name>.+?) \((?P<gb>\d+) GB(?: (?P<form>[^)]+))?\)")


class _Entry(msgspec.Struct):
    class Type(msgspec.Struct):
        class Specs(msgspec.Struct):
            gpus: int

        name: str
        price_cents_per_hour: int
        specs: Specs
        gpu_description: str = ""

    class RegionName(msgspec.Struct):
        name: str

    instance_type: Type
    regions_with_capacity_available: list[RegionName] = []


class _LambdaAnswer(msgspec.Struct):
    data: dict[str, msgspec.Raw]


class Lambda:
    """Lambda as a source of prices: all instances in one batch."""

    name = "lambda"
    key = "LAMBDA_API_KEY"
    heavy = False

    def batches(self, request: SourceRequest) -> Iterator[PriceBatch]:
        """Request Lambda's instance types once, and yield their prices as one batch."""
        base = source_url(self.name, BASE, request.keys)
        headers = {"Authorization": f"Bearer {request.keys.get(self.key, '')}"}
        reply = request.client.get(f"{base}/instance-types", headers=headers, conditional=False)
        answer = decode_body(self.name, reply.bytes(), _LambdaAnswer)
        read = ReadCounts()
        yield PriceBatch(self.name, ANY_REGION, _rows(answer.data, read), request.today, read=read)


def _rows(entries: dict[str, msgspec.Raw], read: ReadCounts) -> Iterator[OfferRow | RejectedRow]:
    for entry in decode_rows(entries.values(), _Entry, read):
        if isinstance(entry, RejectedRow):
            yield entry
        elif entry.instance_type.specs.gpus < 1:
            read.aside += 1
        else:
            yield _row(entry)


def _row(entry: _Entry) -> OfferRow:
    machine = entry.instance_type
    described = _GPU.search(machine.gpu_description)
    regions = ", ".join(sorted(region.name for region in entry.regions_with_capacity_available))
    return OfferRow(
        provider="lambda",
        instance=machine.name,
        region=ANY_REGION,
        accelerator=machine.gpu_description or machine.name,
        count=float(machine.specs.gpus),
        memory_mib=int(described["gb"]) * 1024 if described else None,
        term="on-demand",
        price=parse_price(Decimal(machine.price_cents_per_hour) / 100),
        names=(f"{described['name']} {described['form'] or ''}".strip(),) if described else (),
        availability=f"capacity now: {regions}" if regions else "no capacity now",
    )
