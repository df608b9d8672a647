"""A bill in the FinOps Open Cost and Usage Specification (FOCUS 1.0 to 1.2): what the user's own machines cost an hour.

Usage rows by the hour of machines that the catalog knows are summed by machine, region and pricing category: their effective cost
over their hours is the user's own rate, as of the last day charged. Rows of commitments are set aside: a bill does not say for
how many years they are. Specification: https://focus.finops.org/focus-specification/
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from decimal import Decimal

import msgspec

from whichgpu.catalog.live.rows import ANY_REGION, InstanceLookup, OfferRow, ReadCounts, RejectedRow, parse_price

NEEDED = frozenset({"BillingCurrency", "ChargeCategory", "ChargePeriodStart", "EffectiveCost", "PricingQuantity", "PricingUnit"})
# Ids of providers by what a bill's ProviderName contains, in lower case.
PROVIDERS = {"aws": "aws", "amazon": "aws", "google": "gcp", "microsoft": "azure", "azure": "azure", "oracle": "oci"}
TERMS = {"standard": "on-demand", "": "on-demand", "dynamic": "spot"}  # by PricingCategory
HOURS = ("hour", "hours", "hrs", "hr", "1 hour", "instance-hours")
INSTANCE_COLUMNS = ("InstanceType", "x_InstanceType", "x_SkuInstanceType")  # of providers' own columns
DETAIL_COLUMNS = ("SkuPriceDetails", "SkuDetails")  # JSON, with the key InstanceType since FOCUS 1.2
Key = tuple[str, str, str, str, str]  # provider, instance, region, term and currency


class _Usage(msgspec.Struct):
    cost: Decimal = Decimal(0)
    hours: Decimal = Decimal(0)
    last: str = ""  # last day charged


def is_layout(header: Iterable[str]) -> bool:
    """Whether a CSV header is that of a FOCUS bill."""
    names = set(header)
    return names >= NEEDED and bool({"ProviderName", "ServiceProviderName"} & names)


def focus_rows(lines: Iterable[str], machine_of: InstanceLookup, read: ReadCounts) -> Iterator[OfferRow | RejectedRow]:
    """Yield the user's own rates in a FOCUS bill, and rejected rows; those that are no hours of a GPU machine are set aside."""
    usage: dict[Key, _Usage] = {}
    for cells in csv.DictReader(lines):
        read.rows += 1
        if None in cells or None in cells.values():
            yield RejectedRow("malformed", str(list(cells.values()))[:300])
            continue
        key = _key(cells)
        if key is None or machine_of(key[0], key[1]) is None:
            read.aside += 1
            continue
        try:
            cost, hours = parse_price(cells["EffectiveCost"]), parse_price(cells["PricingQuantity"])
            day = date.fromisoformat(cells["ChargePeriodStart"][:10]).isoformat()
        except (ValueError, ArithmeticError):
            yield RejectedRow("malformed", str({name: cells[name] for name in sorted(NEEDED)}))
            continue
        one = usage.setdefault(key, _Usage())
        one.cost, one.hours, one.last = one.cost + cost, one.hours + hours, max(one.last, day)
    for (provider, instance, region, term, currency), one in usage.items():
        if one.hours <= 0:
            yield RejectedRow("malformed", f"{provider} {instance} {region}: {one.hours} hours")
            continue
        yield OfferRow(
            provider=provider,
            instance=instance,
            region=region,
            accelerator="",
            count=None,
            memory_mib=None,
            term=term,
            price=parse_price(one.cost / one.hours),
            currency=currency,
            observed_on=date.fromisoformat(one.last),
        )


def _key(cells: Mapping[str, str]) -> Key | None:
    """Return whose hours a row charges; None for other charges."""
    seller = (cells.get("ProviderName") or cells.get("ServiceProviderName") or "").lower()
    provider = next((id for word, id in PROVIDERS.items() if word in seller), None)
    term, instance = TERMS.get((cells.get("PricingCategory") or "").lower()), _instance(cells)
    is_usage = cells["ChargeCategory"].lower() == "usage" and cells["PricingUnit"].strip().lower() in HOURS
    if provider is None or term is None or not instance or not is_usage:
        return None
    return provider, instance, cells.get("RegionId") or ANY_REGION, term, cells["BillingCurrency"].upper()


def _instance(cells: Mapping[str, str]) -> str:
    """Return the name of the machine type that a row charges; empty if it has none."""
    if name := next((cells[column] for column in INSTANCE_COLUMNS if cells.get(column)), ""):
        return name
    for column in DETAIL_COLUMNS:
        try:
            details = json.loads(cells.get(column) or "{}")
        except (ValueError, RecursionError):
            continue
        if isinstance(details, dict) and isinstance(details.get("InstanceType"), str):
            return str(details["InstanceType"])
    return ""
