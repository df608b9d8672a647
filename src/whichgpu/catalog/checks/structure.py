"""Checks any table must pass: unique keys, references that exist, dates that have come."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from whichgpu.base.dates import first_day, last_day
from whichgpu.base.messages import msg
from whichgpu.catalog.schema import Field, schema
from whichgpu.catalog.tables import Finding, Row, Table, row_key

Tables = Mapping[str, Table]


def keys(tables: Tables) -> list[Finding]:
    """No two rows of a table bear one key."""
    found = []
    for table in tables.values():
        seen: set[str] = set()
        for row in table.rows:
            key = row_key(table.name, row)
            if key in seen:
                found.append(Finding(table.name, key, "duplicate-key", "", msg("finding.duplicate-key")))
            seen.add(key)
    return found


def references(tables: Tables) -> list[Finding]:
    """What a row points at exists."""
    ids = {name: {row.get("id") for row in table.rows} for name, table in tables.items()}
    found = []
    for name, table in tables.items():
        columns = [field for field in schema()[name].values() if field.refers_to]
        for row in table.rows:
            for field in columns:
                for id in _pointed(row, field):
                    if id not in ids[field.refers_to or ""]:
                        detail = msg("finding.unknown-reference", id=id, table=field.refers_to or "")
                        check = f"unknown-{(field.refers_to or '').removesuffix('s')}"
                        found.append(Finding(name, row_key(name, row), check, field.column, detail))
    return found


def dates(tables: Tables, today: date) -> list[Finding]:
    """No date lies in the future, and none was checked before it was recorded."""
    found = []
    for name, table in tables.items():
        columns = [field.column for field in schema()[name].values() if field.type == "date"]
        for row in table.rows:
            for column in columns:
                if row[column] and first_day(row[column]) > today:
                    detail = msg("finding.future-date", date=row[column])
                    found.append(Finding(name, row_key(name, row), "future-date", column, detail))
            recorded, checked = row.get("recorded"), row.get("checked")
            if recorded and checked and last_day(checked) < first_day(recorded):
                detail = msg("finding.checked-before", checked=checked, recorded=recorded)
                found.append(Finding(name, row_key(name, row), "checked-before", "checked", detail))
    return found


def filled(tables: Tables) -> list[Finding]:
    """No table but that of explanations is empty."""
    empty = [name for name, table in tables.items() if not table.rows and name != "explained"]
    return [Finding(name, "", "empty-table", "", msg("finding.empty-table")) for name in empty]


def addresses(tables: Tables) -> list[Finding]:
    """Addresses are web addresses, or pages of our own under docs/ for what we measured ourselves."""
    return [
        Finding(name, row_key(name, row), "address", "url", msg("finding.address", url=row["url"]))
        for name in ("sources", "providers")
        for row in tables[name].rows
        if row["url"] and not row["url"].startswith(("https://", "http://", "docs/"))
    ]


def _pointed(row: Row, field: Field) -> tuple[str, ...]:
    value = row[field.column]
    if value is None:
        return ()
    return value if isinstance(value, tuple) else (value,)
