"""The small tables this room reads: names of GPUs by cloud, units sources get wrong, faults known, content known to be old."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path

from whichgpu.catalog.csvfile import read_cells

FOLDER = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True)
class NameRule:
    """Which variant a cloud means by a name. Empty conditions hold for all.

    `gpu` is a variant's id, or `=`: the group `name` of a pattern names it. `gpus` is how many GPUs one counted unit is:
    a number, or `n/2`: the group `n` counts them by halves (TPU cores).
    """

    provider: str
    accelerator: re.Pattern[str] | None  # the whole of the source's word
    instance: re.Pattern[str] | None  # somewhere in the instance's name
    memory_gib: int | None
    gpu: str
    gpus: str
    why: str


@dataclass(frozen=True, slots=True)
class Fault:
    """A price a source is known to state wrongly: refused, and the reader told why."""

    source: str
    provider: str
    instance: re.Pattern[str]
    accelerator: re.Pattern[str]
    term: str
    price: Decimal | None  # this very price of the machine
    below: Decimal | None  # per GPU and hour
    above: Decimal | None
    why: str


def rows(name: str) -> list[dict[str, str]]:
    """Rows of one table of this room."""
    header, lines = read_cells(FOLDER / f"{name}.csv")
    return [dict(zip(header, cells, strict=True)) for _, cells in lines]


@cache
def name_rules() -> tuple[NameRule, ...]:
    """Rules for names, those for one cloud before those for all, in the table's order."""
    rules = [
        NameRule(
            row["provider"],
            _pattern(row["accelerator"]),
            _pattern(row["instance"]),
            int(row["memory_gib"]) if row["memory_gib"] else None,
            row["gpu"],
            row["gpus"],
            row["why"],
        )
        for row in rows("names")
    ]
    return tuple(sorted(rules, key=lambda rule: not rule.provider))


@cache
def upstreams() -> dict[tuple[str, str], str]:
    """The provider whose machine a marketplace resells, by marketplace and the prefix it uses."""
    return {(row["provider"], row["prefix"]): row["upstream"] for row in rows("upstreams")}


@cache
def memory_units() -> dict[tuple[str, str], str]:
    """What a source's memory field holds for a provider: `mib` of one GPU, `gb` of one GPU, or `total` MiB of all."""
    return {(row["source"], row["provider"]): row["holds"] for row in rows("memory")}


@cache
def faults() -> tuple[Fault, ...]:
    """Prices known to be stated wrongly."""
    return tuple(
        Fault(
            row["source"],
            row["provider"],
            re.compile(row["instance"], re.IGNORECASE),
            re.compile(row["accelerator"], re.IGNORECASE),
            row["term"],
            Decimal(row["price"]) if row["price"] else None,
            Decimal(row["below"]) if row["below"] else None,
            Decimal(row["above"]) if row["above"] else None,
            row["why"],
        )
        for row in rows("faults")
    )


@cache
def provider_names() -> dict[tuple[str, str], str]:
    """Our id of a provider by a source's name for it, where they differ."""
    return {(row["source"], row["name"]): row["provider"] for row in rows("providers")}


@cache
def published_since() -> dict[str, str]:
    """The day content was first published, by the SHA-256 of the content: a file may be served for years unchanged."""
    return {row["sha256"]: row["since"] for row in rows("published")}


def _pattern(text: str) -> re.Pattern[str] | None:
    return re.compile(text, re.IGNORECASE) if text else None
