"""Size, age and digest of the catalog."""

from __future__ import annotations

import hashlib

import msgspec

from whichgpu.catalog.schema import schema
from whichgpu.catalog.store import Catalog
from whichgpu.catalog.tables import read_table, table_files


class TableStatus(msgspec.Struct, frozen=True):
    """Row count of one catalog table, with the days its rows were last changed and checked."""

    table: str
    rows: int
    recorded: str | None  # newest day a row was recorded
    checked_oldest: str | None
    checked_newest: str | None


class CatalogStatus(msgspec.Struct, frozen=True):
    """Status of the catalog: all tables, their folder and the digest of their bytes."""

    folder: str
    bundled: bool
    digest: str
    tables: tuple[TableStatus, ...]


def catalog_status(catalog: Catalog, bundled: bool) -> CatalogStatus:
    """Return the size, age and digest of every catalog table, after reading all of them."""
    digest = hashlib.sha256()
    tables = []
    for name in schema():
        table = read_table(catalog.folder, name)
        for path in table_files(catalog.folder, name):
            digest.update(name.encode() + b"\0" + path.read_bytes())
        checked = sorted(row["checked"] for row in table.rows if row.get("checked"))
        recorded = sorted(row["recorded"] for row in table.rows if row.get("recorded"))
        newest = recorded[-1] if recorded else None
        tables.append(TableStatus(name, len(table.rows), newest, *((checked[0], checked[-1]) if checked else (None, None))))
    return CatalogStatus(str(catalog.folder), bundled, digest.hexdigest()[:16], tuple(tables))
