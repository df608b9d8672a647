"""Columns of each table with type, unit and meaning, read from `data/fields.csv`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from whichgpu.catalog.csvfile import read_cells

DATA_DIR = Path(__file__).parent / "data"

KEYS: dict[str, tuple[str, ...]] = {
    "instances": ("provider", "instance"),
    "regions": ("provider", "region"),
    "explained": ("table", "key", "check", "column"),
    "name_parts": ("provider", "kind", "part", "applies_to"),
    "prices": ("provider", "instance", "regions", "gpus", "term", "payment", "includes", "currency", "observed"),
    "exchange": ("currency", "date"),
    "repositories": ("model",),
    "latencies": ("city", "provider", "region", "observed"),
}


class SchemaField(msgspec.Struct, frozen=True):
    """A column of a catalog table: its type, unit and meaning."""

    table: str
    column: str
    type: str
    unit: str
    required: bool
    meaning: str

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the allowed values of a `choice:` column."""
        return tuple(self.type.removeprefix("choice:").split("|")) if self.type.startswith("choice:") else ()

    @property
    def refers_to(self) -> str | None:
        """Return the table that a `ref:` or `refs:` column refers to; None for other columns."""
        kind, _, table = self.type.partition(":")
        return table if kind in ("ref", "refs") else None

    @property
    def many(self) -> bool:
        """Whether a cell of the column holds a list."""
        return self.type in ("list", "integers") or self.type.startswith("refs:")


@cache
def schema() -> dict[str, dict[str, SchemaField]]:
    """Return the fields by table and column; always of the bundled schema, whatever data folder the user names."""
    _, rows = read_cells(DATA_DIR / "fields.csv")
    tables: dict[str, dict[str, SchemaField]] = {}
    for _, (table, column, type_, unit, required, meaning) in rows:
        tables.setdefault(table, {})[column] = SchemaField(table, column, type_, unit, required == "yes", meaning)
    return tables


def key_of(table: str) -> tuple[str, ...]:
    """Return the columns of a catalog table that together identify a row."""
    return KEYS.get(table, ("id",))
