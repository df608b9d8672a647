"""Meaning of the parts of instance names: `p3dn.24xlarge`, `Standard_NC24ads_A100_v4`, `BM.GPU.H100.8`."""

from __future__ import annotations

import re

import msgspec

from whichgpu.catalog.host import Instance
from whichgpu.catalog.store import Catalog
from whichgpu.catalog.tables import Row

# Naming scheme of each provider as a regular expression; the table `name_parts` has the meaning of each of its groups.
PATTERNS: dict[str, re.Pattern[str]] = {
    "aws": re.compile(
        r"(?P<series>[a-z]+(?:-[a-z]+)?)(?P<generation>\d)(?P<letters>[a-z]*)(?:-(?P<word>[a-z0-9]+))?\.(?P<size>[\w-]+)"
    ),
    "gcp": re.compile(r"(?P<series>[a-z]+\d[a-z]*)-(?P<word>[a-z]+)-(?P<size>\d+[a-z]?)"),
    "azure": re.compile(
        r"(?:Standard_)?(?P<series>N[A-Z])(?P<size>\d+)(?P<letters>[a-z]*)(?:_(?P<word>[A-Za-z0-9]+?))?(?:_(?P<version>v\d+))?"
    ),
    "oci": re.compile(
        r"(?P<series>VM|BM)\.(?P<word>GPU)(?P<generation>\d)?\.?(?P<gpu>[A-Z]+[A-Z0-9]*(?:-v\d)?)?\.?(?P<size>\d+)"
    ),
}


class NamePart(msgspec.Struct, frozen=True):
    """A part of a cloud instance's name, its kind, and its meaning (None if unknown)."""

    part: str
    kind: str
    meaning: str | None
    sources: tuple[str, ...]


def explain_name(catalog: Catalog, row: Instance) -> tuple[NamePart, ...]:
    """Return the parts of an instance's name with their meaning, in order; () if the provider has no known naming scheme."""
    pattern = PATTERNS.get(row.provider)
    match = pattern.fullmatch(row.instance) if pattern else None
    if match is None:
        return ()
    parts_by_kind = match.groupdict()
    series = (parts_by_kind["series"] or "") + (parts_by_kind.get("generation") or "")
    parts: list[NamePart] = []
    for kind in sorted((kind for kind in parts_by_kind if parts_by_kind[kind]), key=match.start):
        pieces = parts_by_kind[kind] if kind == "letters" else (parts_by_kind[kind],)
        parts += [_explained(catalog, row.provider, _KINDS.get(kind, "word"), kind, piece, series) for piece in pieces]
    return tuple(parts)


_KINDS = {"series": "series", "generation": "word", "letters": "letter", "size": "size"}


def _explained(catalog: Catalog, provider: str, table_kind: str, kind: str, part: str, series: str) -> NamePart:
    rows = [row for row in catalog.name_parts if row["provider"] == provider and row["kind"] == table_kind]
    shapes = {part.lower(), f"-{part.lower()}", re.sub(r"\d+", "<n>", part.lower())}
    if kind == "generation":
        shapes.add("<generation>")
    fitting = [row for row in rows if row["part"].lower() in shapes and _applies(row, series)]
    fitting.sort(key=lambda row: (not row["applies_to"], "<" in row["part"]))
    best = fitting[0] if fitting else None
    return NamePart(part, kind, best["meaning"] if best else None, best["sources"] if best else ())


def _applies(row: Row, series: str) -> bool:
    return not row["applies_to"] or series.lower() in {name.lower() for name in row["applies_to"]}
