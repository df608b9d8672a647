"""Checks of prices: positive, plausible, without jumps, and for the whole machine."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from itertools import pairwise
from statistics import median

from whichgpu.base.dates import first_day, last_day
from whichgpu.base.messages import Message, msg
from whichgpu.catalog.currency import DollarRates
from whichgpu.catalog.offer import ANY_REGION
from whichgpu.catalog.pricing import DollarExchangeRate, implausible_price
from whichgpu.catalog.tables import Fault, Finding, Row, Tables, record_of, row_key, table_findings

# Largest plausible ratio of two prices of one offer; spot prices move more than others (assumed).
MAX_JUMP, MAX_SPOT_JUMP = Decimal(3), Decimal(12)
ROUNDING = Decimal("1.001")  # Factor within which two prices count as equal, since sources round them differently.
# Plausible ratio of a price per GPU to that in the provider's other machines, to that of other providers, and to that of other
# providers for a machine with one GPU, whose host may be many times as large (assumed).
SIBLING_RATIO = (Decimal("0.65"), Decimal("1.6"))
PROVIDER_RATIO = (Decimal("0.3"), Decimal("3.3"))
SINGLE_GPU_RATIO = (Decimal("0.12"), Decimal(8))
MIN_PRICES = 3  # Fewest prices of other regions or providers that serve as a reference (assumed).


def plain(tables: Tables) -> list[Finding]:
    """Return findings for prices that are not positive, lack a currency, machine or region, or have dates in the wrong order."""
    places = {(row["provider"], row["region"]) for row in tables["regions"].rows}
    machines = _machines(tables)
    return table_findings(tables, "prices", lambda row: _plain(row, machines, places))


def _plain(row: Row, machines: dict[tuple[str, str], Row], places: set[tuple[str, str]]) -> Iterator[Fault]:
    if row["price"] is not None and row["price"] <= 0:
        yield "price-zero", "price", msg("finding.price-zero")
    if row["currency"] and not re.fullmatch(r"[A-Z]{3}", row["currency"]):
        yield "currency", "currency", msg("finding.currency-code", currency=row["currency"])
    if not row["gpu"] and (row["provider"], row["instance"]) not in machines:
        yield "unknown-instance", "instance", msg("finding.unknown-reference", id=row["instance"], table="instances")
    if row["gpu"] and not row["gpus"]:
        yield "implausible", "gpus", msg("finding.implausible", value=row["gpus"], low=msg("word.above-zero"), high=1024)
    for region in row["regions"]:
        if region != ANY_REGION and (row["provider"], region) not in places:
            yield "unknown-region", "regions", msg("finding.unknown-reference", id=region, table="regions")
    days = [row[name] for name in ("observed", "last_observed", "ended") if row[name]]
    for before, after in pairwise(days):
        if first_day(before) > last_day(after):
            yield "seen-order", "last_observed", msg("finding.seen-order", first=before, last=after)


def bounds(tables: Tables) -> list[Finding]:
    """Return findings for prices per GPU hour below the cost of electricity or above any known, in US dollars on the day."""
    gpus, machines = {row["id"]: row for row in tables["gpus"].rows}, _machines(tables)
    exchange = [row for row in tables["exchange"].rows if row["rate"] and row["rate"] > 0]
    rates = DollarRates([record_of(DollarExchangeRate, row) for row in exchange])

    def faults(row: Row) -> Iterator[Fault]:
        holder = _holder(row, machines)
        gpu = gpus.get(holder["gpu"]) if holder else None
        if not (gpu and holder and holder["gpus"] and row["price"] and row["price"] > 0):
            return
        price = rates.dollars(row["price"], row["currency"], first_day(row["observed"]))
        if price is None:
            yield "exchange-rate", "currency", msg("error.no-exchange-rate", currency=row["currency"], day=row["observed"])
        elif reason := implausible_price(float(gpu["tdp_watts"] or 0), price / float(holder["gpus"])):
            why = msg(f"quarantine.{reason}")
            yield "price-bounds", "price", msg("finding.price-bounds", price=row["price"], currency=row["currency"], why=why)

    return table_findings(tables, "prices", faults)


def jumps(tables: Tables) -> list[Finding]:
    """Return findings for prices of an offer more than three times the one before, or less than a third of it."""
    findings = {}
    for history in _offers(tables).values():
        for before, after in pairwise(history):
            if before["price"] and after["price"] and before["price"] > 0 and after["price"] > 0:
                ratio = after["price"] / before["price"]
                if max(ratio, 1 / ratio) > (MAX_SPOT_JUMP if after["term"] == "spot" else MAX_JUMP):
                    detail = msg("finding.price-jump", before=before["price"], after=after["price"], day=before["observed"])
                    findings[id(after)] = _finding(after, "price-jump", "price", detail)
    return list(findings.values())


def places(tables: Tables) -> list[Finding]:
    """Return findings for list prices more than three times off the median of the provider's other regions (a wrong currency)."""
    machines: dict[tuple[str | None, ...], list[Row]] = defaultdict(list)
    for row in tables["prices"].rows:
        if row["term"] != "spot" and row["price"] and row["price"] > 0:
            names = ("provider", "instance", "term", "payment", "currency", "includes")
            machines[tuple(row[name] for name in names)].append(row)
    findings = []
    for rows in machines.values():
        for row in rows:
            others = [other["price"] for other in rows if other is not row for _ in other["regions"]]
            usual = median(others) if len(others) >= MIN_PRICES else row["price"]
            if not usual / MAX_JUMP <= row["price"] <= usual * MAX_JUMP:
                detail = msg("finding.price-elsewhere", price=row["price"], usual=usual)
                findings.append(_finding(row, "price-jump", "price", detail))
    return findings


def spots(tables: Tables) -> list[Finding]:
    """Return findings for spot prices above the on-demand price of the same day."""
    offers = _offers(tables)
    findings = {}
    for (provider, instance, region, term, _, currency, includes), history in offers.items():
        if term != "spot":
            continue
        on_demand = offers.get((provider, instance, region, "on-demand", None, currency, includes), [])
        for spot in history:
            listed = next((row for row in reversed(on_demand) if row["observed"] <= spot["observed"]), None)
            if listed and spot["price"] and listed["price"] and spot["price"] > listed["price"] * ROUNDING:
                detail = msg("finding.spot-above", spot=spot["price"], listed=listed["price"])
                findings[id(spot)] = _finding(spot, "spot-above-on-demand", "price", detail)
    return list(findings.values())


def shares(tables: Tables) -> list[Finding]:
    """Return findings for prices per GPU far from other providers': a whole machine's price taken per GPU, or the reverse."""
    machines = _machines(tables)
    prices_of: dict[tuple[str, str], list[tuple[Row, Decimal, Decimal]]] = defaultdict(list)
    for row in tables["prices"].rows:
        holder = _holder(row, machines)
        if holder and holder["gpus"] and row["price"] and row["term"] == "on-demand" and row["currency"] in ("USD", "EUR"):
            prices_of[row["provider"], holder["gpu"]].append((row, holder["gpus"], row["price"] / holder["gpus"]))
    medians: dict[str, dict[str, Decimal]] = defaultdict(dict)
    for (provider, gpu), rows in prices_of.items():
        medians[gpu][provider] = median(share for _, _, share in rows)
    findings = []
    for (provider, gpu), rows in prices_of.items():
        others = [price for other, price in medians[gpu].items() if other != provider]
        for row, gpus, share in rows:
            siblings = [price for one, _, price in rows if gpus > 1 and one["instance"] != row["instance"] and _overlap(one, row)]
            around, ratio = (siblings, SIBLING_RATIO) if siblings else (others, PROVIDER_RATIO if gpus > 1 else SINGLE_GPU_RATIO)
            if len(around) < (1 if siblings else MIN_PRICES):
                continue
            low, high = min(around), max(around)
            if not low * ratio[0] <= share <= high * ratio[1]:
                detail = msg("finding.price-per-gpu", share=round(share, 4), low=round(low, 4), high=round(high, 4))
                findings.append(_finding(row, "price-per-gpu", "price", detail))
    return findings


def rules(tables: Tables) -> list[Finding]:
    """Return findings for discount rules outside 0 to 1, and for exchange rates and latencies that are not positive."""
    return [
        *table_findings(tables, "discounts", _discount),
        *table_findings(tables, "exchange", partial(_not_positive, column="rate")),
        *table_findings(tables, "latencies", partial(_not_positive, column="milliseconds")),
    ]


def _discount(row: Row) -> Iterator[Fault]:
    steps = [Decimal(step) if re.fullmatch(r"[0-9.]+", step) else Decimal(0) for step in row["steps"]]
    shares = [share for share in (row["share"], *steps) if share is not None]
    if any(not 0 < share <= 1 for share in shares) or (row["share"] is None) != bool(steps):
        value = row["share"] or row["steps"]
        yield "implausible", "share", msg("finding.implausible", value=value, low=msg("word.above-zero"), high=1)


def _not_positive(row: Row, column: str) -> Iterator[Fault]:
    if row[column] is not None and row[column] <= 0:
        yield "implausible", column, msg("finding.implausible", value=row[column], low=msg("word.above-zero"), high="")


def _machines(tables: Tables) -> dict[tuple[str, str], Row]:
    return {(row["provider"], row["instance"]): row for row in tables["instances"].rows}


def _holder(row: Row, machines: dict[tuple[str, str], Row]) -> Row | None:
    """Return the row that names the GPU and its count for a price: the price's own row or its machine's; None if neither does."""
    return row if row["gpu"] else machines.get((row["provider"], row["instance"]))


def _offers(tables: Tables) -> dict[tuple[str | None, ...], list[Row]]:
    """Return the price rows of each offer (machine, region, term), oldest first."""
    offers: dict[tuple[str | None, ...], list[Row]] = defaultdict(list)
    for row in tables["prices"].rows:
        for region in row["regions"]:
            key = (row["provider"], row["instance"], region, row["term"], row["payment"], row["currency"], row["includes"])
            offers[key].append(row)
    for history in offers.values():
        history.sort(key=lambda row: row["observed"] or "")
    return offers


def _overlap(a: Row, b: Row) -> bool:
    """Whether two price rows cover a common region and day and the same hardware (GPU with or without host)."""
    if not set(a["regions"]) & set(b["regions"]) or a["includes"] != b["includes"]:
        return False
    begin: str = max(a["observed"], b["observed"])
    end: str = min(a["last_observed"] or a["observed"], b["last_observed"] or b["observed"])
    return begin <= end


def _finding(row: Row, check: str, column: str, detail: Message) -> Finding:
    return Finding("prices", row_key("prices", row), check, column, detail)
