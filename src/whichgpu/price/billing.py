"""Billing rules of providers, from tables with sources: granularity, minimum, and charges for disks, egress and hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from functools import cache
from pathlib import Path

import msgspec

from whichgpu.base.bundled_data import data_rows

FOLDER = Path(__file__).parent / "data"
ANY = "*"


class Billing(msgspec.Struct, frozen=True):
    """Billing rule in seconds: time is rounded up to a multiple of `granularity`, and at least `minimum` is billed."""

    granularity: float
    minimum: float
    sources: tuple[str, ...]
    assumed: bool = False  # True if no billing rule of the provider is known.


def billing_on(provider: str, day: date, machine: str = "") -> Billing:
    """Return the billing rule of a machine on a day; if unknown, whole hours, which never underestimate the cost.

    >>> billing_on("oci", date(2026, 1, 1), "BM.GPU.H100.8").minimum, billing_on("oci", date(2026, 1, 1), "VM.GPU3.1").minimum
    (3600.0, 60.0)

    >>> billing_on("aws", date(2017, 10, 1)).granularity, billing_on("aws", date(2017, 10, 2)).granularity
    (3600.0, 1.0)
    """
    own = [row for row in _table("billing") if row["provider"] == provider and machine.startswith(row["machines"])]
    rows = [row for row in own if row["first"] <= day.isoformat()]
    any_row = next(row for row in _table("billing") if row["provider"] == ANY)
    row = max(rows, key=lambda row: (row["machines"], row["first"])) if rows else any_row
    sources = tuple(row["sources"].split(";")) if row["sources"] else ()
    return Billing(float(row["granularity_s"]), float(row["minimum_s"]), sources, row is any_row)


@cache
def billing_prefixes(provider: str) -> tuple[str, ...]:
    """Return the name prefixes of a provider's machines that have billing rules of their own."""
    return tuple(row["machines"] for row in _table("billing") if row["provider"] == provider and row["machines"])


def extras(provider: str) -> Mapping[str, float]:
    """Return charges besides the machine in US dollars: `disk` per GB and month, `egress` per GB, `host-vcpu` per hour.

    If the provider publishes no price for disks or egress, the usual one (row `*` of the table) is assumed.
    """
    return {row["what"]: float(row["price"]) for name in (ANY, provider) for row in _table("extras") if row["provider"] == name}


def extras_sources(provider: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the ids of the documents behind the named extra charges of a provider."""
    values = {row["what"]: row["sources"] for name in (ANY, provider) for row in _table("extras") if row["provider"] == name}
    return tuple(values[what] for what in names if values.get(what))


def assumed_extras(provider: str, names: Sequence[str]) -> bool:
    """Return whether any of the named extra charges (disk, egress) of a provider is assumed rather than published."""
    values = {row["what"]: row["basis"] for name in (ANY, provider) for row in _table("extras") if row["provider"] == name}
    return any(values.get(what) == "assumed" for what in names)


@cache
def _table(name: str) -> tuple[dict[str, str], ...]:
    return data_rows(FOLDER / f"{name}.csv")
