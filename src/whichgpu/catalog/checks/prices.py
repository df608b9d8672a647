"""Checks of prices: none is nothing, none leaps, none is of one GPU where the whole machine is meant."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import pairwise
from statistics import median

from whichgpu.base.dates import first_day, last_day
from whichgpu.base.messages import Message, msg
from whichgpu.catalog.currency import DollarRates
from whichgpu.catalog.pricing import ANY_REGION, build_exchange, implausible_price
from whichgpu.catalog.tables import Finding, Row, Table, row_key

Tables = Mapping[str, Table]
Fault = tuple[str, str, Message]

LARGEST_JUMP = {"spot": Decimal(12)}  # spot prices do leap; any other that leaps so far is another price
USUAL_JUMP = Decimal(3)
ROUNDING = Decimal("1.001")  # the two may be told to different digits
# What one of several GPUs costs lies so near what it costs in the provider's other machines, and so near what others ask for it.
SIBLINGS = (Decimal("0.65"), Decimal("1.6"))
OTHERS = (Decimal("0.3"), Decimal("3.3"))
HOSTS = (Decimal("0.12"), Decimal(8))  # of a machine with one GPU, whose host may be many times as large
ENOUGH = 3  # other providers, before theirs count


def plain(tables: Tables) -> list[Finding]:
    """A price is above nothing, in a currency, of a machine and a place that exist, and seen last after it was seen first."""
    machines = {(row["provider"], row["instance"]) for row in tables["instances"].rows}
    places = {(row["provider"], row["region"]) for row in tables["regions"].rows}
    found = []
    for row in tables["prices"].rows:
        found += [_finding(row, *fault) for fault in _plain(row, machines, places)]
    return found


def _plain(row: Row, machines: set[tuple[str, str]], places: set[tuple[str, str]]) -> Iterator[Fault]:
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
    """A GPU hour costs no less than its electricity and no more than anybody asks, in US dollars of the day."""
    gpus = {row["id"]: row for row in tables["gpus"].rows}
    machines = {(row["provider"], row["instance"]): row for row in tables["instances"].rows}
    rates = DollarRates([build_exchange(row) for row in tables["exchange"].rows if row["rate"] and row["rate"] > 0])
    found = []
    for row in tables["prices"].rows:
        holder = row if row["gpu"] else machines.get((row["provider"], row["instance"]))
        gpu = gpus.get(holder["gpu"]) if holder else None
        if not (gpu and holder and holder["gpus"] and row["price"] and row["price"] > 0):
            continue
        price = rates.dollars(row["price"], row["currency"], first_day(row["observed"]))
        if price is None:
            detail = msg("error.no-exchange-rate", currency=row["currency"], day=row["observed"])
            found.append(_finding(row, "exchange-rate", "currency", detail))
        elif reason := implausible_price(float(gpu["tdp_watts"] or 0), price / float(holder["gpus"])):
            detail = msg("finding.price-bounds", price=row["price"], currency=row["currency"], why=msg(f"quarantine.{reason}"))
            found.append(_finding(row, "price-bounds", "price", detail))
    return found


def jumps(tables: Tables) -> list[Finding]:
    """No price of an offer is more than three times the one before it, or less than a third."""
    found = {}
    for runs in _offers(tables).values():
        for before, after in pairwise(runs):
            if before["price"] and after["price"] and before["price"] > 0 and after["price"] > 0:
                ratio = after["price"] / before["price"]
                if max(ratio, 1 / ratio) > LARGEST_JUMP.get(after["term"], USUAL_JUMP):
                    detail = msg("finding.price-jump", before=before["price"], after=after["price"], day=before["observed"])
                    found[id(after)] = _finding(after, "price-jump", "price", detail)
    return list(found.values())


def places(tables: Tables) -> list[Finding]:
    """No list price of a machine is three times the usual one in the provider's other regions: dollars, not yuan."""
    machines: dict[tuple[str | None, ...], list[Row]] = defaultdict(list)
    for row in tables["prices"].rows:
        if row["term"] != "spot" and row["price"] and row["price"] > 0:
            names = ("provider", "instance", "term", "payment", "currency", "includes")
            machines[tuple(row[name] for name in names)].append(row)
    found = []
    for rows in machines.values():
        for row in rows:
            others = [other["price"] for other in rows if other is not row for _ in other["regions"]]
            usual = median(others) if len(others) >= ENOUGH else row["price"]
            if not usual / USUAL_JUMP <= row["price"] <= usual * USUAL_JUMP:
                detail = msg("finding.price-elsewhere", price=row["price"], usual=usual)
                found.append(_finding(row, "price-jump", "price", detail))
    return found


def spots(tables: Tables) -> list[Finding]:
    """Spot is never dearer than on demand on the same day."""
    offers = _offers(tables)
    found = {}
    for (provider, instance, region, term, _, currency, includes), runs in offers.items():
        if term != "spot":
            continue
        listed = offers.get((provider, instance, region, "on-demand", None, currency, includes), [])
        for run in runs:
            held = next((row for row in reversed(listed) if row["observed"] <= run["observed"]), None)
            if held and run["price"] and held["price"] and run["price"] > held["price"] * ROUNDING:
                detail = msg("finding.spot-above", spot=run["price"], listed=held["price"])
                found[id(run)] = _finding(run, "spot-above-on-demand", "price", detail)
    return list(found.values())


def shares(tables: Tables) -> list[Finding]:
    """What a GPU costs in one machine is near what it costs in others: neither a total taken for a share nor the reverse."""
    machines = {(row["provider"], row["instance"]): row for row in tables["instances"].rows}
    known: dict[tuple[str, str], list[tuple[Row, Decimal, Decimal]]] = defaultdict(list)
    for row in tables["prices"].rows:
        holder = row if row["gpu"] else machines.get((row["provider"], row["instance"]))
        if holder and holder["gpus"] and row["price"] and row["term"] == "on-demand" and row["currency"] in ("USD", "EUR"):
            known[row["provider"], holder["gpu"]].append((row, holder["gpus"], row["price"] / holder["gpus"]))
    elsewhere: dict[str, dict[str, Decimal]] = defaultdict(dict)
    for (provider, gpu), rows in known.items():
        elsewhere[gpu][provider] = median(share for _, _, share in rows)
    found = []
    for (provider, gpu), rows in known.items():
        others = [price for other, price in elsewhere[gpu].items() if other != provider]
        for row, gpus, share in rows:
            siblings = [
                price for one, _, price in rows if gpus > 1 and one["instance"] != row["instance"] and _together(one, row)
            ]
            around, bounds = (siblings, SIBLINGS) if siblings else (others, OTHERS if gpus > 1 else HOSTS)
            if len(around) >= (1 if siblings else ENOUGH) and not _within(share, around, bounds):
                detail = msg(
                    "finding.price-per-gpu", share=round(share, 4), low=round(min(around), 4), high=round(max(around), 4)
                )
                found.append(_finding(row, "price-per-gpu", "price", detail))
    return found


def rules(tables: Tables) -> list[Finding]:
    """Discounts leave something to pay, rates are above nothing, and round trips start where a region is."""
    found = []
    for row in tables["discounts"].rows:
        steps = [Decimal(step) if re.fullmatch(r"[0-9.]+", step) else Decimal(0) for step in row["steps"]]
        if any(not 0 < share <= 1 for share in [row["share"], *steps] if share is not None) or (row["share"] is None) != bool(
            steps
        ):
            detail = msg("finding.implausible", value=row["share"] or row["steps"], low=msg("word.above-zero"), high=1)
            found.append(Finding("discounts", row["id"], "implausible", "share", detail))
    for table, column in (("exchange", "rate"), ("latencies", "milliseconds")):
        for row in tables[table].rows:
            if row[column] is not None and row[column] <= 0:
                detail = msg("finding.implausible", value=row[column], low=msg("word.above-zero"), high="")
                found.append(Finding(table, row_key(table, row), "implausible", column, detail))
    return found


def _offers(tables: Tables) -> dict[tuple[str | None, ...], list[Row]]:
    """The rows of each offer, in time."""
    offers: dict[tuple[str | None, ...], list[Row]] = defaultdict(list)
    for row in tables["prices"].rows:
        for region in row["regions"]:
            key = (row["provider"], row["instance"], region, row["term"], row["payment"], row["currency"], row["includes"])
            offers[key].append(row)
    for runs in offers.values():
        runs.sort(key=lambda row: row["observed"] or "")
    return offers


def _together(a: Row, b: Row) -> bool:
    """Whether two prices held in one region at one time and include the same."""
    if not set(a["regions"]) & set(b["regions"]) or a["includes"] != b["includes"]:
        return False
    begun: str = max(a["observed"], b["observed"])
    over: str = min(a["last_observed"] or a["observed"], b["last_observed"] or b["observed"])
    return begun <= over


def _within(share: Decimal, around: Iterable[Decimal], bounds: tuple[Decimal, Decimal]) -> bool:
    values = list(around)
    return min(values) * bounds[0] <= share <= max(values) * bounds[1]


def _finding(row: Row, check: str, column: str, detail: Message) -> Finding:
    return Finding("prices", row_key("prices", row), check, column, detail)
