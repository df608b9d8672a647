"""Rows of the published results as written in the file."""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec


class Published(msgspec.Struct, frozen=True):
    """One row: text as published, numbers in numeric columns."""

    line: int
    source: str
    path: str
    date: str
    gpu: str
    gpus: int
    task: str
    framework: str
    model: str
    precision: str
    batch: int | None
    seq_in: int | None
    seq_out: int | None
    metric: str
    value: float
    notes: str
    trust: str

    @property
    def states_all(self) -> bool:
        """Whether the row itself states model, precision and batch."""
        return bool(self.model and self.precision and self.batch)

    def noted(self, pattern: str) -> str:
        """The first group of `pattern` in the notes, or ""."""
        match = re.search(pattern, self.notes)
        return match.group(1).strip() if match else ""


def _integer(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def read_published(file: Path) -> list[Published]:
    """All rows of calibration.csv; `line` is the line in the file, the header being line 1."""
    with file.open(newline="") as stream:
        return [published_row(line, fields) for line, fields in enumerate(csv.DictReader(stream), start=2)]


def published_row(line: int, fields: dict[str, str]) -> Published:
    """A row from its cells by column; `line` is its line in the file."""
    return Published(
        line=line,
        source=fields["source"],
        path=fields["source_path"],
        date=fields["date"],
        gpu=fields["gpu"],
        gpus=int(fields["n_gpus"] or 0),  # 0 if not printed
        task=fields["task"],
        framework=fields["framework"],
        model=fields["model"],
        precision=fields["precision"],
        batch=_integer(fields["batch"]),
        seq_in=_integer(fields["seq_in"]),
        seq_out=_integer(fields["seq_out"]),
        metric=fields["metric"],
        value=float(fields["value"]),
        notes=fields["notes"],
        trust=fields["trust"],
    )


def numbered_rows(folder: Path, names: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows of CSV files, packed by gzip or not, each with its line in the file."""
    for name in names:
        raw = (folder / name).read_bytes()
        text = (gzip.decompress(raw) if name.endswith(".gz") else raw).decode("utf-8")
        yield from enumerate(csv.DictReader(io.StringIO(text, newline="")), start=2)
