"""Lambda's API: its machines with their price and the regions that have some free. Needs a key (LAMBDA_API_KEY).

Gives on-demand prices, which are the same in every region, and where there is capacity at this moment. Gives no spot and no
reserved terms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

import msgspec

from whichgpu.base.errors import DataError
from whichgpu.base.messages import msg
from whichgpu.catalog.live.rows import ANY_REGION, OfferRow, PriceBatch, ReadCounts, RejectedRow, SourceRequest, parse_price
from whichgpu.catalog.live.sources.endpoint import source_url

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

    class Region(msgspec.Struct):
        name: str

    instance_type: Type
    regions_with_capacity_available: list[Region] = []


class _Answer(msgspec.Struct):
    data: dict[str, msgspec.Raw]


class Lambda:
    """All machines, one batch."""

    name = "lambda"
    key = "LAMBDA_API_KEY"
    heavy = False

    def batches(self, request: SourceRequest) -> Iterator[PriceBatch]:
        """One question, one batch."""
        base = source_url(self.name, BASE, request.keys)
        headers = {"Authorization": f"Bearer {request.keys.get(self.key, '')}"}
        reply = request.client.get(f"{base}/instance-types", headers=headers, conditional=False)
        try:
            answer = msgspec.json.decode(reply.bytes(), type=_Answer)
        except (msgspec.DecodeError, msgspec.ValidationError) as problem:
            message = msg("error.http-malformed", name=self.name, why=str(problem))
            raise DataError("http-malformed", message, msg("hint.http")) from problem
        read = ReadCounts()
        yield PriceBatch(self.name, ANY_REGION, _rows(answer.data, read), request.today, read=read)


def _rows(entries: dict[str, msgspec.Raw], read: ReadCounts) -> Iterator[OfferRow | RejectedRow]:
    for raw in entries.values():
        read.rows += 1
        try:
            entry = msgspec.json.decode(raw, type=_Entry)
        except (msgspec.DecodeError, msgspec.ValidationError):
            yield RejectedRow("malformed", bytes(raw)[:500].decode("utf-8", "replace"))
            continue
        if entry.instance_type.specs.gpus < 1:
            read.aside += 1
            continue
        yield _row(entry)


def _row(entry: _Entry) -> OfferRow:
    machine = entry.instance_type
    said = _GPU.search(machine.gpu_description)
    regions = ", ".join(sorted(region.name for region in entry.regions_with_capacity_available))
    return OfferRow(
        provider="lambda",
        instance=machine.name,
        region=ANY_REGION,
        accelerator=machine.gpu_description or machine.name,
        count=float(machine.specs.gpus),
        memory_mib=int(said["gb"]) * 1024 if said else None,
        term="on-demand",
        price=parse_price(Decimal(machine.price_cents_per_hour) / 100),
        names=(f"{said['name']} {said['form'] or ''}".strip(),) if said else (),
        availability=f"capacity now: {regions}" if regions else "no capacity now",
    )
