"""Errors of the model on the evidence: by the shipped fit, and by fits that left out a row's model, its GPU or its source.

The table `data/left_out.bin` is written by `make refit`. Errors are log(estimated / measured); a 90% range is two log factors.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec
import numpy as np

from whichgpu.base.bundled_data import read_data
from whichgpu.catalog.evidence_search.index import (
    EvidenceIndex,
    StoredColumn,
    evidence_index,
    read_items,
    read_words,
    stored_numbers,
    stored_words,
)

LEFT_OUT_FILE = Path(__file__).parent / "data" / "left_out.bin"
FOLDS = ("model", "gpu", "source")  # What a fit left out together with the row.
ROOFLINE = "roofline"  # Column: log error of FLOPs over peak or bytes over bandwidth, operator by operator (one GPU).
HOST = "host"  # Column: log of the host's time over the device's by the shipped fit (one GPU, kernels launched one by one).
COLUMNS = ("fit", *(f"{fold}{end}" for fold in FOLDS for end in ("", "_low", "_high")), ROOFLINE, HOST)
SCALE = 1000  # Logarithms are stored as whole thousandths.
MISSING = -(2**15)  # Stored where there is no value.


class StoredErrors(msgspec.Struct, frozen=True):
    """The file's content: the day of the fit, and its columns by name."""

    date: str
    columns: Mapping[str, StoredColumn]


class LeftOutTable:
    """Log errors of the model by row of the evidence table, NaN where a row has none."""

    def __init__(self, stored: StoredErrors) -> None:
        self.date = stored.date
        self.stored = stored.columns
        self._columns: dict[str, np.ndarray] = {}
        self._places: np.ndarray | None = None

    def column(self, name: str) -> np.ndarray:
        """Return a column (of COLUMNS) with one item per row of the evidence table."""
        if name not in self._columns:
            items = read_items(self.stored[name if name in self.stored else "fit"])
            logs = np.where(items == MISSING, np.nan, items / SCALE)
            logs = np.append(logs if name in self.stored else np.full(len(items), np.nan), np.nan)  # The last: rows without any.
            self._columns[name] = logs[self._place_of_row]
        return self._columns[name]

    def log_errors(self, rows: np.ndarray) -> np.ndarray:
        """Return the log errors of the shipped fit on rows of the evidence table."""
        return np.asarray(self.column("fit")[rows])

    @property
    def _place_of_row(self) -> np.ndarray:
        """For each row of the evidence table its place in this one, -1 if it has none."""
        if self._places is None:
            self._places = _places(evidence_index(), self.stored)
        return self._places


def _places(index: EvidenceIndex, stored: Mapping[str, StoredColumn]) -> np.ndarray:
    """Join the two tables by source and row."""
    sources = index.words("source")
    codes = {source: code for code, source in enumerate(sources.words)}
    own_codes = np.array([codes.get(word, len(codes)) for word in read_words(stored["row_source"])])
    own = (own_codes[read_items(stored["row_source"])].astype(np.int64) << 32) + read_items(stored["row"])
    keys = (sources.codes.astype(np.int64) << 32) + index.numbers("row")
    order = np.argsort(own, kind="stable")
    if not len(order):
        return np.full(len(keys), -1)
    nearest = np.minimum(np.searchsorted(own[order], keys), len(order) - 1)
    return np.where((own[order][nearest] == keys) & ~index.operators, order[nearest], -1)


@cache
def left_out_table() -> LeftOutTable:
    """Return the table of the model's errors on the evidence."""
    return LeftOutTable(msgspec.msgpack.decode(read_data(LEFT_OUT_FILE), type=StoredErrors))


def table_bytes(date: str, sources: list[str], rows: list[int], logs: Mapping[str, np.ndarray]) -> bytes:
    """Encode log errors and ranges (COLUMNS; NaN where there is none) of rows as the content of the table."""
    columns = {"row_source": stored_words(sources), "row": stored_numbers(rows, "u4")}
    for name in COLUMNS:
        scaled = np.clip(np.round(logs[name] * SCALE), MISSING + 1, -MISSING - 1)
        columns[name] = stored_numbers(np.where(np.isfinite(scaled), scaled, MISSING), "i2")
    return msgspec.msgpack.encode(StoredErrors(date, columns))
