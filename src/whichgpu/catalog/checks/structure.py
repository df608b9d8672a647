"""Checks of every table: unique keys, valid references, no dates in the future."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from functools import partial

from whichgpu.base.dates import first_day, last_day
from whichgpu.base.messages import msg
from whichgpu.catalog.schema import SchemaField, schema
from whichgpu.catalog.tables import Fault, Finding, Row, Tables, row_key, table_findings

Ranges = Mapping[str, tuple[int, int]]  # Type: lowest and highest plausible value by column name.


def keys(tables: Tables) -> list[Finding]:
    """Return findings for rows of a catalog table that have the same key."""
    findings = []
    for table in tables.values():
        earlier: set[str] = set()
        for row in table.rows:
            key = row_key(table.name, row)
            if key in earlier:
                findings.append(Finding(table.name, key, "duplicate-key", "", msg("finding.duplicate-key")))
            earlier.add(key)
    return findings


def references(tables: Tables) -> list[Finding]:
    """Return findings for cells of catalog tables that refer to rows that do not exist."""
    ids = {name: {row.get("id") for row in table.rows} for name, table in tables.items()}

    def faults(row: Row, fields: list[SchemaField]) -> Iterator[Fault]:
        for field in fields:
            other = field.refers_to or ""
            for id in _referred_ids(row, field):
                if id not in ids[other]:
                    detail = msg("finding.unknown-reference", id=id, table=other)
                    yield f"unknown-{other.removesuffix('s')}", field.column, detail

    fields = {name: [field for field in schema()[name].values() if field.refers_to] for name in tables}
    return [finding for name in tables for finding in table_findings(tables, name, partial(faults, fields=fields[name]))]


def dates(tables: Tables, today: date) -> list[Finding]:
    """Return findings for catalog rows with dates in the future, and for rows checked before they were recorded."""

    def faults(row: Row, columns: list[str]) -> Iterator[Fault]:
        for column in columns:
            if row[column] and first_day(row[column]) > today:
                yield "future-date", column, msg("finding.future-date", date=row[column])
        recorded, checked = row.get("recorded"), row.get("checked")
        if recorded and checked and last_day(checked) < first_day(recorded):
            yield "checked-before", "checked", msg("finding.checked-before", checked=checked, recorded=recorded)

    columns = {name: [field.column for field in schema()[name].values() if field.type == "date"] for name in tables}
    return [finding for name in tables for finding in table_findings(tables, name, partial(faults, columns=columns[name]))]


def filled(tables: Tables) -> list[Finding]:
    """Return findings for empty catalog tables; the table of explanations may be empty."""
    empty = [name for name, table in tables.items() if not table.rows and name != "explained"]
    return [Finding(name, "", "empty-table", "", msg("finding.empty-table")) for name in empty]


def addresses(tables: Tables) -> list[Finding]:
    """Return findings for URLs in catalog tables that are neither web addresses nor pages of this project under docs/."""
    return table_findings(tables, "sources", _address) + table_findings(tables, "providers", _address)


def _address(row: Row) -> Iterator[Fault]:
    if row["url"] and not row["url"].startswith(("https://", "http://", "docs/")):
        yield "address", "url", msg("finding.address", url=row["url"])


def out_of_range(row: Row, ranges: Ranges) -> Iterator[Fault]:
    """Yield a fault for each cell of a table row outside the plausible range of its column."""
    for column, (low, high) in ranges.items():
        if row[column] is not None and not low <= row[column] <= high:
            yield "implausible", column, msg("finding.implausible", value=row[column], low=low, high=high)


def _referred_ids(row: Row, field: SchemaField) -> tuple[str, ...]:
    value = row[field.column]
    if value is None:
        return ()
    return value if isinstance(value, tuple) else (value,)
