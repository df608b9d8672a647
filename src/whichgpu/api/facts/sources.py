"""The verb `sources`: every document behind the numbers, the rows it supports, and when they were checked."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from whichgpu.base.errors import NoAnswer
from whichgpu.base.messages import msg
from whichgpu.base.names import squash, unknown_word
from whichgpu.catalog.schema import schema
from whichgpu.catalog.status import CatalogStatus, TableStatus, catalog_status
from whichgpu.catalog.store import Catalog
from whichgpu.catalog.tables import read_table
from whichgpu.estimate.time.accuracy_pairs import accuracy_pairs

COLUMNS = ("source", "sources")
MEASURED = "pairs"  # The table of measured steps, which is stored with the time model.


class SourceRow(msgspec.Struct, frozen=True):
    """A document: who published it and when, the day it was read here, and how many rows of each table cite it."""

    id: str
    title: str
    publisher: str
    url: str
    published: str | None
    read: str | None
    recorded: str
    rows: int
    tables: Mapping[str, int]
    checked: str | None  # newest day on which one of those rows was checked


class SourcesAnswer(msgspec.Struct, frozen=True):
    """Source documents that match a request, and the status of every table of the catalog."""

    sources: tuple[SourceRow, ...]
    tables: tuple[TableStatus, ...]
    digest: str
    prices_seen: str | None  # newest day on which a price of the bundled catalog was seen


def sources(
    text: str | None = None, table: str | None = None, sort: str = "-rows", catalog: Catalog | None = None
) -> SourcesAnswer:
    """Return the sources whose title, publisher or id has the words of `text`, or that a table cites."""
    catalog = catalog or Catalog()
    uses, last_seen, newest = _uses(catalog.folder)
    tables = sorted({name for counted in uses.values() for name in counted})
    if table is not None and table not in tables:
        raise unknown_word("table", table, tables)
    words = [squash(word) for word in (text or "").split()]
    rows = [
        SourceRow(
            one.id, one.title, one.publisher, one.url, one.published, one.read, one.recorded,
            uses[one.id].total(), dict(uses[one.id].most_common()), last_seen.get(one.id),
        )
        for one in catalog.sources.values()
        if (table is None or table in uses[one.id])
        and all(word in squash(f"{one.id} {one.title} {one.publisher} {one.url}") for word in words)
    ]  # fmt: skip
    if not rows:
        raise NoAnswer("no-source", msg("error.no-source", n=len(catalog.sources)), msg("hint.loosen"))
    key = sort.lstrip("-")
    if key not in SourceRow.__struct_fields__ or key == "tables":
        raise unknown_word("field", key, [name for name in SourceRow.__struct_fields__ if name != "tables"])
    present = [row for row in rows if getattr(row, key) is not None]
    ordered = sorted(present, key=lambda row: getattr(row, key), reverse=sort.startswith("-"))
    status = _status(catalog.folder)
    rest = [row for row in rows if getattr(row, key) is None]
    return SourcesAnswer((*ordered, *rest), status.tables, status.digest, newest)


@cache
def _status(folder: Path) -> CatalogStatus:
    return catalog_status(Catalog(folder), bundled=True)


@cache
def _uses(folder: Path) -> tuple[dict[str, Counter[str]], dict[str, str], str | None]:
    """Return rows per table that cite each source, the newest day each source was checked, and the newest day of a price."""
    uses: dict[str, Counter[str]] = defaultdict(Counter)
    last_seen: dict[str, str] = {}
    newest: str | None = None
    for name, fields in schema().items():
        column = next((column for column in COLUMNS if column in fields), None)
        if column is None:
            continue
        for row in read_table(folder, name).rows:
            cited = row[column]
            day = str(row.get("checked") or row.get("last_observed") or row.get("observed") or "")
            newest = max(newest or "", day) if name == "prices" else newest
            for id in (cited,) if isinstance(cited, str) else cited or ():
                uses[id][name] += 1
                last_seen[id] = max(last_seen.get(id, ""), day)
    for pair in accuracy_pairs():
        uses[pair.source][MEASURED] += 1
    return uses, {id: day for id, day in last_seen.items() if day}, newest
