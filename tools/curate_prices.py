"""Build catalog/data/prices.csv from public price histories and hand-typed prices.

    PYTHONPATH=src:tools python tools/curate_prices.py ../shared/evidence/prices

The observations of an offer become intervals of one price: merged if they agree to 0.2% (the finer digits stay), dropped if a
better source contradicts them. Intervals that differ in region alone share a row. The script prints the observations left out and
the disagreements between sources; every row names its sources, best first.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

from msgspec.structs import replace
from prices.clouds import Clouds
from prices.observations import Observation, finer, same, table

from whichgpu.base.dates import last_day
from whichgpu.catalog.schema import DATA_DIR, schema

RECORDED = "2026-11-15"
STATED = Path(__file__).parent / "prices" / "stated.csv"
# Best first: announcements of providers (not listed), then their data, then collections.
SOURCE_RANKS = (
    "karpenter-aws-prices",
    "karpenter-azure-prices",
    "vantage-ec2instances",
    "skypilot-catalog",
    "skypilot-gcp-sum",
    "tsaol-aws-gpu",
    "fullstack-cloud-gpus",
)


def rank(source: str) -> int:
    """Rank of a source; 0 is best: prices typed from an announcement or a post."""
    return SOURCE_RANKS.index(source) + 1 if source in SOURCE_RANKS else 0


def typed_prices() -> Iterator[Observation]:
    """Yield prices typed from announcements and posts."""
    for row in table(STATED):
        cells = {
            name: row[name] for name in ("provider", "instance", "term", "payment", "ended", "source", "currency", "includes")
        }
        for region in row["regions"].split(";"):
            yield Observation(
                region=region, price=Decimal(row["price"]), first=row["first"], last=row["last"] or row["first"], **cells
            )


def merge_observations(offers: Iterable[Observation], disagreements: list[tuple[Observation, Observation]]) -> list[Observation]:
    """Price intervals of an offer, oldest first; if two sources contradict each other on a day, the better one counts."""
    settled: list[Observation] = []
    for observation in sorted(offers, key=lambda observation: (observation.first, rank(observation.source.partition(";")[0]))):
        before = settled[-1] if settled else None
        if before is None:
            settled.append(observation)
        elif before.ended and observation.first >= before.ended and observation.source == "tsaol-aws-gpu":
            continue  # AWS's price list contains withdrawn instances.
        elif same(before.price, observation.price):
            settled[-1] = merge(before, observation)
        elif observation.first <= before.last and observation.term != "spot":
            disagreements.append((before, observation))
            if rank(observation.source) < rank(before.source.partition(";")[0]):
                settled[-1] = replace(before, last=max(before.first, yesterday(observation.first)))
                settled.append(observation)
        else:
            settled.append(observation)
    return settled


def merge(a: Observation, b: Observation) -> Observation:
    """Merge two observations of one price."""
    sources = sorted(dict.fromkeys((*a.source.split(";"), *b.source.split(";"))), key=rank)
    last = max(a.last, b.last)
    gone = [one.ended for one in (a, b) if one.ended > last]  # An earlier end does not count: it was listed again.
    price = Decimal(finer(f"{a.price:f}", f"{b.price:f}"))
    return replace(a, price=price, last=last, ended=min(gone, default=""), source=";".join(sources))


def yesterday(day: str) -> str:
    """Return the day before."""
    return (date.fromisoformat(day) - timedelta(days=1)).isoformat()


def without_overtaken(observations: list[Observation]) -> Iterator[Observation]:
    """Drop prices without a region from the day the instance has prices by region."""
    begins: dict[tuple[str, str], str] = {}
    for one in observations:
        if one.region != "any":
            place = (one.provider, one.instance)
            begins[place] = min(begins.get(place, one.first), one.first)
    for one in observations:
        start = begins.get((one.provider, one.instance))
        if one.region != "any" or start is None:
            yield one
        elif one.first < start:
            yield replace(one, last=min(one.last, start), ended=start)


def while_rented(
    listed: Iterable[Observation], machines: dict[tuple[str, str], dict[str, str]], clouds: Clouds
) -> Iterator[Observation]:
    """End prices when the instance is withdrawn, since lists keep withdrawn instances."""
    for one in listed:
        machine = machines.get((one.provider, one.instance))
        if machine is None or not machine["last_seen"]:
            yield one
            continue
        last = last_day(machine["last_seen"]).isoformat()
        if one.first > last:
            clouds.left[f"{one.provider}: after the machine was withdrawn"] += 1
        elif one.last <= last:
            yield replace(one, ended=one.ended or tomorrow(last))
        else:
            days = [day for day in clouds.sky.days(one.provider) if one.first <= day <= last]
            yield replace(one, last=max(days, default=one.first), ended=tomorrow(last))


def tomorrow(day: str) -> str:
    """Return the day after."""
    return (date.fromisoformat(day) + timedelta(days=1)).isoformat()


def with_ends(settled: list[Observation]) -> Iterator[Observation]:
    """End reserved prices when the on-demand offer ends."""
    ends: dict[tuple[str, str, str], str] = {}
    for one in settled:
        if one.term == "on-demand":
            place = (one.provider, one.instance, one.region)
            ends[place] = one.ended  # The last one counts, since they are in order of time.
    for one in settled:
        end = ends.get((one.provider, one.instance, one.region), "")
        yield replace(one, ended=end) if end > one.last and not one.ended and one.term != "on-demand" else one


def rows(settled: Iterable[Observation]) -> list[dict[str, str]]:
    """Rows of the table: intervals that differ in region alone are one row."""
    by_price: dict[Observation, list[str]] = defaultdict(list)
    for interval in settled:
        by_price[replace(interval, region="")].append(interval.region)
    table_rows = []
    for interval, regions in by_price.items():
        price = f"{interval.price.normalize():f}"
        table_rows.append(
            {
                "provider": interval.provider,
                "instance": interval.instance,
                "regions": ";".join(sorted(set(regions))),
                "gpu": interval.gpu,
                "gpus": interval.gpus,
                "term": interval.term,
                "payment": interval.payment,
                "price": price,
                "currency": interval.currency,
                "includes": interval.includes,
                "observed": interval.first,
                "last_observed": "" if interval.last == interval.first else interval.last,
                "ended": interval.ended,
                "sources": interval.source,
                "recorded": RECORDED,
            }
        )
    order = ("provider", "instance", "term", "payment", "regions", "observed")
    return sorted(table_rows, key=lambda row: tuple(row[name] for name in order))


def main() -> None:
    """Write the table and report what was left out."""
    machines = {(row["provider"], row["instance"]): row for row in table(DATA_DIR / "instances.csv")}
    for row in list(machines.values()):
        machines |= {(row["provider"], alias): row for alias in row["aliases"].split(";") if alias}
    regions = {(row["provider"], row["region"]) for row in table(DATA_DIR / "regions.csv")}
    clouds = Clouds(Path(sys.argv[1]), machines, regions)
    listed = [*typed_prices(), *clouds.all()]
    listed = [replace(one, instance=machines[one.provider, one.instance]["instance"]) if not one.gpu else one for one in listed]
    offers: dict[tuple[str, ...], list[Observation]] = defaultdict(list)
    for one in without_overtaken(list(while_rented(listed, machines, clouds))):
        offers[one.offer].append(one)
    disagreements: list[tuple[Observation, Observation]] = []
    settled = [run for group in offers.values() for run in merge_observations(group, disagreements)]
    table_rows = rows(with_ends(settled))
    with (DATA_DIR / "prices.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(schema()["prices"]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(table_rows)
    clouds.left["runpod: price and spot price in each other's column, put right"] = clouds.sky.swapped
    report(table_rows, clouds.left, disagreements)


def report(table_rows: list[dict[str, str]], left: Counter[str], disagreements: list[tuple[Observation, Observation]]) -> None:
    """Print the counts of rows, of what was left out, and all disagreements."""
    print(f"{len(table_rows)} rows, {sum(len(row['regions'].split(';')) for row in table_rows)} prices of offers")
    for column in ("provider", "term"):
        print(" ", dict(Counter(row[column] for row in table_rows).most_common()))
    print("left out:", *(f"\n  {n:6} {why}" for why, n in left.most_common()))
    print(f"{len(disagreements)} disagreements:")
    for before, after in disagreements:
        offer = "/".join(part for part in before.offer if part)
        print(f"  {offer}: {before.price} ({before.source}, {before.first}) or {after.price} ({after.source}, {after.first})")


if __name__ == "__main__":
    main()
