"""Google's Cloud Billing catalog: public prices of cores, memory and GPUs by region. Needs a key (GOOGLE_API_KEY).

Has on-demand, spot and committed use (1 and 3 years): instances are summed from their parts by the table `skus.csv`, and GPUs
for N1 hosts are offers by themselves (`includes` gpu). Leaves out local disks, TPUs, sustained-use discounts, calendar and
flex-start prices. A GPU whose description the table lacks is reported as unknown.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from urllib.parse import quote

import msgspec

from whichgpu.base.errors import DataError
from whichgpu.base.messages import msg
from whichgpu.base.units import GIB
from whichgpu.catalog.host import Instance
from whichgpu.catalog.live.rows import OfferRow, PriceBatch, ReadCounts, RejectedRow, SourceRequest, parse_price
from whichgpu.catalog.live.source_tables import rows
from whichgpu.catalog.live.sources.endpoint import decode_body, malformed_row, source_url

BASE = "https://cloudbilling.googleapis.com/v1"
SKUS = "/services/6F81-5844-456A/skus"
MAX_PAGES = 100  # Pages of all SKUs; more mean that the paging does not end (set by judgement).
TERMS = {"OnDemand": "on-demand", "Preemptible": "spot", "Commit1Yr": "committed-1y", "Commit3Yr": "committed-3y"}
ATTACHED = {"K80": (1, 2, 4, 8), "P4": (1, 2, 4), "P100": (1, 2, 4), "V100": (1, 2, 4, 8), "T4": (1, 2, 4)}

# Prefixes and region suffixes of an SKU description that do not change what is sold.
_DECORATION = re.compile(
    r"^(spot preemptible |commitment v\d+: )+|( attached to spot preemptible vms)?( running)? in .*$", re.IGNORECASE
)
# Words in descriptions of SKUs that are sold on none of TERMS.
_OTHER_TERMS = re.compile(r"sole tenancy|custom|premium|reserved|dws|calendar|flex|suspended|extended|overcommit", re.IGNORECASE)


class _Sku(msgspec.Struct):
    class Category(msgspec.Struct):
        resourceFamily: str
        resourceGroup: str
        usageType: str

    class Pricing(msgspec.Struct):
        class Expression(msgspec.Struct):
            class TieredRate(msgspec.Struct):
                class UnitPrice(msgspec.Struct):
                    currencyCode: str
                    units: str = "0"
                    nanos: int = 0

                unitPrice: UnitPrice

            tieredRates: list[TieredRate]
            usageUnit: str

        pricingExpression: Expression

    description: str
    category: Category
    serviceRegions: list[str]
    pricingInfo: list[Pricing]


class _SkuPage(msgspec.Struct):
    skus: list[msgspec.Raw]
    nextPageToken: str = ""


class _Part(msgspec.Struct, frozen=True):
    pattern: re.Pattern[str]
    part: str
    family: str
    machines: re.Pattern[str] | None


class _Parts(msgspec.Struct):
    """Google's prices of cores, memory and GPUs, by part and machine family, then by region and term."""

    currency: str = "USD"
    prices: dict[tuple[str, str], dict[tuple[str, str], Decimal]] = msgspec.field(default_factory=lambda: defaultdict(dict))


class Gcp:
    """Google Cloud as a source of prices: all regions in one batch."""

    name = "gcp"
    key = "GOOGLE_API_KEY"
    heavy = False

    def batches(self, request: SourceRequest) -> Iterator[PriceBatch]:
        """Yield one batch of prices of all pages, since the parts of an instance are spread over them."""
        read = ReadCounts()
        yield PriceBatch(self.name, request.currency, self._rows(request, read), request.today, read=read)

    def _rows(self, request: SourceRequest, read: ReadCounts) -> Iterator[OfferRow | RejectedRow]:
        parts, part_table = _Parts(request.currency), _table()
        for raw in self._skus(request):
            read.rows += 1
            try:
                sku = msgspec.json.decode(raw, type=_Sku)
                price = _price(sku)
            except (msgspec.DecodeError, msgspec.ValidationError, ValueError, IndexError):
                yield malformed_row(bytes(raw))
                continue
            term = TERMS.get(sku.category.usageType)
            if sku.category.resourceFamily != "Compute" or term is None or _OTHER_TERMS.search(sku.description):
                read.aside += 1
                continue
            part = _part_of(sku.description, part_table)
            if part is not None:
                for region in sku.serviceRegions:
                    parts.prices[part.part, part.family][region, term] = price
            elif sku.category.resourceGroup == "GPU":
                yield RejectedRow("unknown-gpu", sku.description)
            else:
                read.aside += 1
        yield from _machines(parts, part_table, request.machines)
        yield from _attached(parts)

    def _skus(self, request: SourceRequest) -> Iterator[msgspec.Raw]:
        base, token = source_url(self.name, BASE, request.keys), ""
        headers = {"X-Goog-Api-Key": request.keys.get(self.key, "")}
        for _ in range(MAX_PAGES):
            url = f"{base}{SKUS}?currencyCode={request.currency}&pageSize=5000" + (f"&pageToken={quote(token)}" if token else "")
            page = decode_body(self.name, request.client.get(url, headers=headers, conditional=False).bytes(), _SkuPage)
            yield from page.skus
            token = page.nextPageToken
            if not token:
                return
        raise DataError("endless-pages", msg("error.endless-pages", name=self.name, n=MAX_PAGES), msg("hint.http"))


def _table() -> tuple[_Part, ...]:
    return tuple(
        _Part(
            re.compile(re.escape(row["description"]), re.IGNORECASE),
            row["part"],
            row["family"],
            re.compile(row["machines"]) if row["machines"] else None,
        )
        for row in rows("skus")
    )


def _part_of(description: str, part_table: tuple[_Part, ...]) -> _Part | None:
    bare = _DECORATION.sub("", description).replace(" Cpu", " Instance Core")
    return next((part for part in part_table if part.pattern.fullmatch(bare)), None)


def _price(sku: _Sku) -> Decimal:
    rate = sku.pricingInfo[0].pricingExpression.tieredRates[-1].unitPrice
    return Decimal(rate.units) + Decimal(rate.nanos) / 10**9


def _machines(parts: _Parts, part_table: tuple[_Part, ...], machines: tuple[Instance, ...]) -> Iterator[OfferRow]:
    """Yield the price of each instance for which all parts (cores, memory, GPUs) have a price in a region on a term."""
    for machine in machines:
        if machine.provider != "gcp" or machine.vcpus is None or machine.ram_bytes is None:
            continue
        needed = {part.part: part for part in part_table if part.machines and part.machines.fullmatch(machine.instance)
                  and parts.prices.get((part.part, part.family))}  # fmt: skip
        if set(needed) != {"core", "ram", "gpu"}:
            continue
        sizes = {"core": machine.vcpus, "ram": machine.ram_bytes / GIB, "gpu": machine.gpus}
        tables = {name: parts.prices[name, part.family] for name, part in needed.items()}
        for place in set.intersection(*(set(table) for table in tables.values())):
            total = sum((tables[name][place] * Decimal(str(size)) for name, size in sizes.items()), Decimal(0))
            yield _row(machine.instance, "", None, place, total, "gpu+host", parts.currency)


def _attached(parts: _Parts) -> Iterator[OfferRow]:
    """Yield the prices of GPUs that are sold without a host and can be attached to any."""
    for family, counts in ATTACHED.items():
        for place, price in parts.prices.get(("gpu", family), {}).items():
            for count in counts:
                yield _row(f"n1+{count}x{family.lower()}", family, float(count), place, price * count, "gpu", parts.currency)


def _row(
    instance: str, family: str, count: float | None, place: tuple[str, str], price: Decimal, includes: str, currency: str
) -> OfferRow:
    region, term = place
    return OfferRow("gcp", instance, region, family, count, None, term, parse_price(price), currency=currency, includes=includes)
