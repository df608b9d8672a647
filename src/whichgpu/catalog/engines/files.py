"""Files `engines/<id>.csv` of a data folder: each line has one value with its unit, source and first year."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from whichgpu.catalog.csvfile import Line, read_cells

FOLDER = "engines"


class RecordLine(NamedTuple):
    """One line of an engine's CSV file; `since` is the first year of the value, empty if it always applied."""

    field: str
    since: str
    value: str
    unit: str
    source: str
    note: str


def record_files(folder: Path) -> list[Path]:
    """Return the paths of the engine records, `engines/<id>.csv`, in a data folder."""
    return sorted((folder / FOLDER).glob("*.csv"))


def read_record(path: Path) -> tuple[RecordLine, ...]:
    """Return the lines of one engine's CSV file, each with one value, its unit, source and first year."""
    _, lines = read_cells(path, RecordLine._fields)
    return tuple(RecordLine(*cells) for _, cells in lines)


def read_records(folder: Path) -> dict[str, tuple[RecordLine, ...]]:
    """Return the lines of all records by engine, in display order; raise if there is none."""
    records = {path.stem: read_record(path) for path in record_files(folder)}
    if not records:
        read_cells(folder / FOLDER)  # Reading the empty folder raises an error with the reason.
    return dict(sorted(records.items(), key=lambda item: (len(value_of(item[1], "order")), value_of(item[1], "order"))))


def engine_cells(folder: Path, columns: Collection[str]) -> tuple[list[str], list[Line]]:
    """Return the facts of all engines as a table: its header, and one row of cells per engine with these columns."""
    records = read_records(folder).items()
    return [*columns], [
        (place, [id if column == "id" else value_of(lines, column) for column in columns])
        for place, (id, lines) in enumerate(records, 1)
    ]


def value_of(lines: Sequence[RecordLine], field: str) -> str:
    """Return the first value of a field in an engine's lines; empty if they have none."""
    return next((line.value for line in lines if line.field == field), "")
