"""How providers count what is used: the smallest unit billed, the least, and what else they charge for. Tables with sources."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "data"
ANY = "*"


@dataclass(frozen=True, slots=True)
class Billing:
    """Seconds: what is billed comes in steps of `granularity`, and is never less than `minimum`."""

    granularity: float
    minimum: float
    sources: tuple[str, ...]


def billing_on(provider: str, day: date) -> Billing:
    """How a provider billed on a day; whole hours where nothing is known of it, which is the most it can be.

    >>> billing_on("aws", date(2017, 10, 1)).granularity, billing_on("aws", date(2017, 10, 2)).granularity
    (3600.0, 1.0)
    """
    rows = [row for row in _table("billing") if row["provider"] == provider and row["first"] <= day.isoformat()]
    row = rows[-1] if rows else next(row for row in _table("billing") if row["provider"] == ANY)
    sources = tuple(row["sources"].split(";")) if row["sources"] else ()
    return Billing(float(row["granularity_s"]), float(row["minimum_s"]), sources)


def extras(provider: str) -> Mapping[str, float]:
    """What a provider charges beside the machine, in US dollars: `disk` a GB and month, `egress` a GB, `host-vcpu` an hour.

    Where nothing could be read of it, what is usual (`*`) is taken for disks and egress.
    """
    return {row["what"]: float(row["price"]) for name in (ANY, provider) for row in _table("extras") if row["provider"] == name}


def extras_sources(provider: str, names: Sequence[str]) -> tuple[str, ...]:
    """The documents behind some of them."""
    told = {row["what"]: row["sources"] for name in (ANY, provider) for row in _table("extras") if row["provider"] == name}
    return tuple(told[what] for what in names if told.get(what))


def assumed_extras(provider: str, names: Sequence[str]) -> bool:
    """Whether some of them are only what is usual."""
    told = {row["what"]: row["basis"] for name in (ANY, provider) for row in _table("extras") if row["provider"] == name}
    return any(told.get(what) == "assumed" for what in names)


@cache
def _table(name: str) -> tuple[dict[str, str], ...]:
    with (FOLDER / f"{name}.csv").open(newline="", encoding="utf-8") as stream:
        return tuple(csv.DictReader(stream))
