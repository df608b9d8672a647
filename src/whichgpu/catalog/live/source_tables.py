"""Tables about sources: GPU names by provider, wrong units, known faults, content known to be old."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import cache
from pathlib import Path

import msgspec

from whichgpu.catalog.csvfile import read_cells
from whichgpu.catalog.tables import record_of

FOLDER = Path(__file__).parent / "data"


class NameRule(msgspec.Struct, frozen=True):
    """Rule that maps a provider's GPU name to a GPU variant of the catalog; empty conditions match all.

    `gpu` is a variant's id, or `=` for the group `name` of a pattern. `gpus` is the number of GPUs per counted unit: a number,
    `n` for the group `n`, or `n/2` for half of it (TPU cores).
    """

    provider: str
    accelerator: re.Pattern[str] | None  # must match the source's whole GPU name
    instance: re.Pattern[str] | None  # must match a part of the instance name
    memory_gib: int | None
    gpu: str
    gpus: str
    why: str


class KnownFault(msgspec.Struct, frozen=True):
    """A price that a source is known to state wrongly, with the reason."""

    source: str
    provider: str
    instance: re.Pattern[str]
    accelerator: re.Pattern[str]
    term: str
    price: Decimal | None  # the wrong price of the instance; None: any
    below: Decimal | None  # prices below this many US dollars per GPU hour are wrong
    above: Decimal | None
    why: str


def rows(name: str) -> list[dict[str, str]]:
    """Return the rows of a table about price sources in `live/data`, all cells as text."""
    header, lines = read_cells(FOLDER / f"{name}.csv")
    return [dict(zip(header, cells, strict=True)) for _, cells in lines]


@cache
def name_rules() -> tuple[NameRule, ...]:
    """Return the rules that map GPU names to variants in table order, those for one provider first."""
    rules = [
        record_of(
            NameRule,
            row,
            accelerator=_pattern(row["accelerator"]),
            instance=_pattern(row["instance"]),
            memory_gib=int(row["memory_gib"]) if row["memory_gib"] else None,
        )
        for row in rows("names")
    ]
    return tuple(sorted(rules, key=lambda rule: not rule.provider))


@cache
def upstreams() -> dict[tuple[str, str], str]:
    """Return the provider whose instances a marketplace resells, by marketplace and prefix of the instance name."""
    return {(row["provider"], row["prefix"]): row["upstream"] for row in rows("upstreams")}


@cache
def memory_units() -> dict[tuple[str, str], str]:
    """Return the unit of a source's memory field by provider: `mib` or `gb` of one GPU, or `total` for MiB of all GPUs."""
    return {(row["source"], row["provider"]): row["holds"] for row in rows("memory")}


@cache
def faults() -> tuple[KnownFault, ...]:
    """Return the prices that sources are known to state wrongly."""
    return tuple(
        record_of(
            KnownFault,
            row,
            **{name: re.compile(row[name], re.IGNORECASE) for name in ("instance", "accelerator")},
            **{name: Decimal(row[name]) if row[name] else None for name in ("price", "below", "above")},
        )
        for row in rows("faults")
    )


@cache
def provider_names() -> dict[tuple[str, str], str]:
    """Return provider ids by (price source, the source's own name of the provider), for those that differ."""
    return {(row["source"], row["name"]): row["provider"] for row in rows("providers")}


@cache
def published_since() -> dict[str, str]:
    """Return the day that a source's content was first published, by its SHA-256: files may stay unchanged for years."""
    return {row["sha256"]: row["since"] for row in rows("published")}


def _pattern(text: str) -> re.Pattern[str] | None:
    return re.compile(text, re.IGNORECASE) if text else None
