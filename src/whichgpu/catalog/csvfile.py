"""Strict CSV reader: errors name the file and the line."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path

from whichgpu.base.bundled_data import check_data
from whichgpu.base.errors import DataError
from whichgpu.base.files import read_regular_file
from whichgpu.base.messages import Message, msg

Line = tuple[int, list[str]]

MAX_BYTES = 64 << 20  # Largest file accepted; no table of the catalog is near it.

# Control characters are rejected, since they could steer a terminal or reverse the reading order.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")


def read_cells(path: Path, columns: Sequence[str] = ()) -> tuple[list[str], list[Line]]:
    """Return the header (which must be `columns` if given) and each row's cells with its line number; rows fit the header."""
    try:
        content = read_regular_file(path, MAX_BYTES)
        check_data(path, content)
        text = content.decode("utf-8")
        reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
        header = next(reader, [])
        rows = [(reader.line_num, cells) for cells in reader if cells]
    except OSError as problem:
        raise _error("unreadable-data", path, why=problem.strerror or str(problem)) from problem
    except UnicodeDecodeError as problem:
        raise _error("malformed-data", path, why=msg("why.not-utf8", byte=problem.start)) from problem
    except csv.Error as problem:
        raise _error("malformed-data", path, why=msg("why.line", line=reader.line_num, why=str(problem))) from problem
    if control := _CONTROL.search(text):
        raise _error("malformed-data", path, why=msg("why.control-character", line=text.count("\n", 0, control.start()) + 1))
    if not header:
        raise _error("malformed-data", path, why=msg("why.empty-file"))
    if columns and header != [*columns]:
        raise _error("malformed-data", path, why=msg("why.column-lacking", column=", ".join(columns)))
    for line, cells in rows:
        if len(cells) != len(header):
            raise _error("malformed-data", path, why=msg("why.cells", line=line, cells=len(cells), header=len(header)))
    return header, rows


def _error(kind: str, path: Path, why: str | Message) -> DataError:
    return DataError(kind, msg(f"error.{kind}", path=str(path), why=why), msg("hint.data"))
