"""AWS's public price list: one file per region, hundreds of megabytes, read line by line. Needs no key.

Has on-demand and reserved prices (1 and 3 years, standard class, three payments) of Linux instances on shared tenancy in USD; no
spot prices (those need an account), savings plans or capacity blocks. The catalog knows which GPUs an instance has; an unknown
one is reported. Requested only if named; `--region` chooses the regions.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from itertools import islice

import msgspec

from whichgpu.base.messages import msg
from whichgpu.base.names import unknown_word
from whichgpu.base.units import MIB
from whichgpu.catalog.live.rows import InstanceLookup, OfferRow, PriceBatch, ReadCounts, RejectedRow, SourceRequest, parse_price
from whichgpu.catalog.live.sources.endpoint import decode_body, malformed, source_url
from whichgpu.catalog.live.sources.gpuhunt import version_day

BASE = "https://pricing.us-east-1.amazonaws.com"
INDEX = "/offers/v1.0/aws/AmazonEC2/current/region_index.json"
REGIONS = ("us-east-1", "us-west-2", "eu-west-1", "ap-northeast-1", "ap-northeast-2")
PREFACE_LINES = 5  # Lines before the header: format, disclaimer, publication date, version, offer code.
MAX_BODY_BYTES = 2048 * MIB  # The price list of a large region has several hundred MiB.
ACCEPTED = {
    "Tenancy": ("Shared",),
    "Operating System": ("Linux",),
    "CapacityStatus": ("Used",),
    "Currency": ("USD",),
    "Pre Installed S/W": ("", "NA"),
    "MarketOption": ("", "OnDemand"),
}
TERMS = {"1yr": "reserved-1y", "3yr": "reserved-3y"}
PAYMENTS = {"No Upfront": "no-upfront", "Partial Upfront": "partial-upfront", "All Upfront": "all-upfront"}
COLUMNS = (
    "SKU",
    "OfferTermCode",
    "TermType",
    "Unit",
    "PricePerUnit",
    "LeaseContractLength",
    "PurchaseOption",
    "OfferingClass",
    "Instance Type",
    "GPU",
    *ACCEPTED,
)


class _Index(msgspec.Struct):
    class RegionEntry(msgspec.Struct):
        code: str = msgspec.field(name="regionCode")
        url: str = msgspec.field(name="currentVersionUrl")

    regions: dict[str, RegionEntry]


class _Lease(msgspec.Struct):
    """A reservation of an instance, whose hourly and upfront prices are on separate lines of the file."""

    instance: str
    gpus: float | None
    term: str
    payment: str
    hourly: Decimal | None = None
    upfront: Decimal = Decimal(0)


class Aws:
    """AWS as a source of prices: one batch per region."""

    name = "aws"
    key = None
    heavy = True

    def batches(self, request: SourceRequest) -> Iterator[PriceBatch]:
        """Yield a batch of prices for each requested AWS region, or for the five default ones."""
        base = source_url(self.name, BASE, request.keys)
        index = decode_body(self.name, request.client.get(base + INDEX, conditional=False).bytes(), _Index)
        for region in request.regions or REGIONS:
            if region not in index.regions:
                raise unknown_word("region", region, sorted(index.regions))
            url = base + index.regions[region].url.removesuffix(".json") + ".csv"
            reply = request.client.get(url, max_bytes=MAX_BODY_BYTES)
            if reply.body is None:
                yield PriceBatch(self.name, region, iter(()), request.today, unchanged=True)
                continue
            read = ReadCounts()
            rows = aws_rows(reply.lines(), region, request.machine_of, read)
            yield PriceBatch(self.name, region, rows, request.today, _day(url), read=read, validators=(reply.validators,))


def _day(url: str) -> date | None:
    """Return the publication day in a URL: …/AmazonEC2/20261113184423/us-east-1/index.csv."""
    return next((version_day(part[:8]) for part in url.split("/") if len(part) == 14 and part.isdigit()), None)


def aws_rows(lines: Iterator[str], region: str, machine_of: InstanceLookup, read: ReadCounts) -> Iterator[OfferRow | RejectedRow]:
    """Yield the prices in one region's file; reservations come last, since their hourly and upfront prices are separate lines."""
    list(islice(lines, PREFACE_LINES))
    reader = csv.reader(lines)
    header = next(reader, [])
    if missing := [name for name in COLUMNS if name not in header]:
        raise malformed("aws", msg("why.column-lacking", column=missing[0]))
    place = {name: header.index(name) for name in COLUMNS}
    leases: dict[tuple[str, str], _Lease] = {}
    for cells in reader:
        read.rows += 1
        if len(cells) != len(header):
            yield RejectedRow("malformed", ",".join(cells)[:500])
            continue
        gpus, instance = cells[place["GPU"]], cells[place["Instance Type"]]
        is_ours = (gpus not in ("", "0", "NA") or machine_of("aws", instance) is not None) and all(
            cells[place[name]] in allowed for name, allowed in ACCEPTED.items()
        )
        if not is_ours:
            read.aside += 1
            continue
        try:
            row = _line({name: cells[index] for name, index in place.items()}, region, leases)
        except ValueError:
            yield RejectedRow("malformed", ",".join(cells)[:500])
            continue
        if row is not None:
            yield row
    yield from (_leased(lease, region) for lease in leases.values())


def _line(cells: dict[str, str], region: str, leases: dict[tuple[str, str], _Lease]) -> OfferRow | None:
    price, instance = parse_price(cells["PricePerUnit"]), cells["Instance Type"]
    count = float(cells["GPU"]) if cells["GPU"] not in ("", "0", "NA") else None
    if cells["TermType"] == "OnDemand":
        if cells["Unit"] != "Hrs":
            raise ValueError(cells["Unit"])
        return _row(instance, region, count, "on-demand", price, None, None)
    if cells["TermType"] != "Reserved" or cells["OfferingClass"] != "standard":
        return None
    term, payment = TERMS.get(cells["LeaseContractLength"]), PAYMENTS.get(cells["PurchaseOption"])
    if term is None or payment is None:
        raise ValueError(cells["LeaseContractLength"])
    lease = leases.setdefault((cells["SKU"], cells["OfferTermCode"]), _Lease(instance, count, term, payment))
    if cells["Unit"] == "Quantity":
        lease.upfront = price
    else:
        lease.hourly = price
    return None


def _leased(lease: _Lease, region: str) -> OfferRow | RejectedRow:
    if lease.hourly is None:
        return RejectedRow("no-price", f"{lease.instance} {lease.term} {lease.payment}")
    hours = 8760 if lease.term == "reserved-1y" else 26280
    whole = parse_price(lease.hourly + lease.upfront / hours)  # The upfront payment is spread over all hours of the term.
    return _row(lease.instance, region, lease.gpus, lease.term, whole, lease.payment, lease.upfront or None)


def _row(
    instance: str, region: str, count: float | None, term: str, price: Decimal, payment: str | None, upfront: Decimal | None
) -> OfferRow:
    return OfferRow("aws", instance, region, "", count, None, term, price, payment=payment, upfront=upfront)
