"""Catalog tables as typed rows, with a finding for every invalid cell."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from operator import getitem
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from whichgpu.base.dates import is_date
from whichgpu.base.errors import DataError
from whichgpu.base.messages import Message, msg
from whichgpu.catalog.csvfile import read_cells
from whichgpu.catalog.engines.files import FOLDER as ENGINES
from whichgpu.catalog.engines.files import engine_cells, record_files
from whichgpu.catalog.schema import SchemaField, key_of, schema

T = TypeVar("T")
Row = dict[str, Any]


class Finding(msgspec.Struct, frozen=True):
    """A fault that a data check found: table, row key, check, column and a message."""

    table: str
    key: str
    check: str
    column: str
    detail: Message


Fault = tuple[str, str, Message]  # What is wrong in a row: name of the check, column and message.


class Table(msgspec.Struct):
    """Typed rows of one catalog file and the findings about its cells."""

    name: str
    path: Path
    rows: list[Row]
    findings: list[Finding] = msgspec.field(default_factory=list)

    def trusted_rows(self) -> list[Row]:
        """Return the table's rows if all cells are valid; else raise a DataError that names the first finding."""
        if not self.findings:
            return self.rows
        first = self.findings[0]
        raise bad_data_error(str(self.path), first.key, first.column, first.detail)


Tables = Mapping[str, Table]


def table_findings(tables: Tables, name: str, faults: Callable[[Row], Iterable[Fault]]) -> list[Finding]:
    """Return a finding for each fault that `faults` yields for the rows of a catalog table."""
    return [Finding(name, row_key(name, row), *fault) for row in tables[name].rows for fault in faults(row)]


def bad_data_error(path: str, key: str, column: str, detail: Message) -> DataError:
    """Return the error for an invalid cell of a data file: its file, row key, column and what is wrong."""
    return DataError("bad-data", msg("error.bad-data", path=path, key=key, column=column, detail=detail), msg("hint.data"))


def record_of(kind: type[T], row: Row, **computed: Any) -> T:
    """Build a record of a type from a table row: fields from the columns of the same name, except the `computed` ones."""
    plain = {name: row[name] for name in kind.__struct_fields__ if name not in computed}  # type: ignore[attr-defined]
    return kind(**plain, **computed)


def row_key(table: str, row: Row) -> str:
    """Return the key of a catalog table's row as text, such as `aws/p3.2xlarge`."""
    return "/".join(_text(row.get(column)) for column in key_of(table))


def table_files(folder: Path, name: str) -> list[Path]:
    """Return the files that a table is read from: one, or one per engine for the engines table."""
    return record_files(folder) if name == ENGINES else [folder / f"{name}.csv"]


def read_table(folder: Path, name: str) -> Table:
    """Read a catalog table by its schema; invalid cells become findings, a malformed file raises an error."""
    fields = schema()[name]
    path = folder / (name if name == ENGINES else f"{name}.csv")
    header, lines = engine_cells(folder, fields) if name == ENGINES else read_cells(path)
    missing = [column for column in fields if column not in header]
    unknown = [column for column in header if column not in fields]
    if missing or unknown or len(set(header)) != len(header):
        faults = [msg("why.column-lacking", column=column) for column in missing]
        faults += [msg("why.column-unknown", column=column) for column in unknown]
        why = msg("why.line", line=1, why=tuple(faults) or msg("why.column-twice"))
        message = msg("error.malformed-data", path=str(path), why=why)
        raise DataError("malformed-data", message, msg("hint.data"))
    specs = [fields[column] for column in header]
    memos = [_Memo(_reader(spec), FAULT if spec.required else () if spec.many else None) for spec in specs]
    rows = [dict(zip(header, map(getitem, memos, cells), strict=True)) for _, cells in lines]
    table = Table(name, path, rows)
    if any(value is FAULT for memo in memos for value in memo.values()):
        for row, (_, cells) in zip(rows, lines, strict=True):
            _report_faults(table, row, dict(zip(header, cells, strict=True)))
    return table


FAULT = object()  # Marks an invalid cell in a row until it is reported.


class _Memo(dict[str, Any]):
    """Cache of parsed table cells: tables repeat values, so most cells cost one look-up."""

    def __init__(self, read: Callable[[str], Any], empty: Any) -> None:
        self._read = read
        self._empty = empty

    def __missing__(self, cell: str) -> Any:
        try:
            value = self._read(cell) if cell else self._empty
        except ValueError:
            value = FAULT
        self[cell] = value
        return value


def _report_faults(table: Table, row: Row, cells: dict[str, str]) -> None:
    """Add a finding for each invalid cell of a table row and empty the cell."""
    faults = [schema()[table.name][column] for column, value in row.items() if value is FAULT]
    if not faults:
        return
    row.update({spec.column: () if spec.many else None for spec in faults})
    key = row_key(table.name, row)
    for spec in faults:
        cell = cells[spec.column]
        check = "type" if cell else "no-source" if spec.column == "sources" else "required"
        detail = msg(f"finding.{check}", cell=cell, type=spec.type) if cell else msg(f"finding.{check}")
        table.findings.append(Finding(table.name, key, check, spec.column, detail))


def _reader(spec: SchemaField) -> Callable[[str], Any]:
    if spec.type in _READERS:
        return _READERS[spec.type]
    if spec.many:
        return _list
    if spec.choices:
        return _choice(frozenset(spec.choices))
    return _plain


def _plain(cell: str) -> str:
    if cell != cell.strip():
        raise ValueError(cell)
    return cell


def _matching(pattern: str, convert: Callable[[str], Any] = str) -> Callable[[str], Any]:
    """Return a parser of table cells that must match a regular expression as a whole, then `convert` the text."""
    whole = re.compile(pattern)

    def read(cell: str) -> Any:
        if not whole.fullmatch(cell):
            raise ValueError(cell)
        return convert(cell)

    return read


_integer = _matching("[0-9]{1,13}", int)  # A larger integer would not fit into 64 bits once scaled to base units.


def _date(cell: str) -> str:
    if not is_date(cell):
        raise ValueError(cell)
    return cell


def _list(cell: str) -> tuple[str, ...]:
    items = tuple(cell.split(";"))
    if any(not item or item != item.strip() for item in items):
        raise ValueError(cell)
    return items


def _integers(cell: str) -> tuple[int, ...]:
    return tuple(map(_integer, _list(cell)))


def _choice(allowed: frozenset[str]) -> Callable[[str], str]:
    def read(cell: str) -> str:
        if cell not in allowed:
            raise ValueError(cell)
        return cell

    return read


_READERS: dict[str, Callable[[str], Any]] = {
    "id": _matching("[a-z0-9][a-z0-9._+-]*"),
    "integer": _integer,
    "integers": _integers,
    "number": _matching(r"-?[0-9]{1,7}(\.[0-9]{1,12})?", Decimal),
    "date": _date,
    "capability": _matching(r"[0-9]{1,2}\.[0-9]"),
}


def _text(value: object) -> str:
    return ";".join(value) if isinstance(value, tuple) else "" if value is None else str(value)
