"""Columns of the evidence table in a compact file, `data/evidence_index.bin`, which is read in milliseconds.

`tools/digests` writes it from the table. A column of words is stored as its distinct words and a number per row.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path

import msgspec
import numpy as np

from whichgpu.base.bundled_data import read_data

INDEX = Path(__file__).parent.parent / "data" / "evidence_index.bin"
WORD_COLUMNS = (
    "source", "gpu", "kind", "task", "model", "family", "structure", "engine", "precision", "layout", "details", "date", "path",
)  # fmt: skip
# Columns of whole numbers (0 where the row has none), and the measured seconds.
NUMBER_COLUMNS = {
    "row": "u4",
    "gpus": "u4",
    "year": "u2",
    "batch": "u4",
    "seq_in": "u4",
    "seq_out": "u4",
    "image": "u2",
    "parameters": "f4",
    "seconds": "f4",
}
OPERATOR = "operator"  # Task of the rows that measured a single operator or kernel.
COMPRESSION = 9  # Level of zlib: the smallest file.


class StoredColumn(msgspec.Struct, frozen=True, array_like=True):
    """A column as stored: its distinct words (one per line; empty for numbers) and its items, both compressed."""

    words: bytes
    items: bytes
    dtype: str


class StoredIndex(msgspec.Struct, frozen=True):
    """The file's content: the SHA-256 of the evidence table it was made from, and its columns by name."""

    table: str
    columns: Mapping[str, StoredColumn]


class WordColumn(msgspec.Struct, frozen=True, eq=False):
    """A column of words: the distinct words, and for each row the place of its word among them."""

    words: tuple[str, ...]
    codes: np.ndarray

    def rows_where(self, matches: Sequence[bool]) -> np.ndarray:
        """Return for each row whether its word is one of those that match; `matches` has one item per distinct word."""
        return np.asarray(np.array(matches, dtype=bool)[self.codes])

    def of(self, row: int) -> str:
        """Return the word of one row."""
        return self.words[int(self.codes[row])]


class EvidenceIndex:
    """The columns of the evidence table, each decompressed when it is first used."""

    def __init__(self, stored: StoredIndex) -> None:
        self.table_digest = stored.table
        self._stored = stored.columns
        self._words: dict[str, WordColumn] = {}
        self._numbers: dict[str, np.ndarray] = {}

    @property
    def is_complete(self) -> bool:
        """Whether the file has all columns that this release reads."""
        return self._stored.keys() == {*WORD_COLUMNS, *NUMBER_COLUMNS}

    def words(self, name: str) -> WordColumn:
        """Return a column of words."""
        if name not in self._words:
            stored = self._stored[name]
            self._words[name] = WordColumn(read_words(stored), read_items(stored))
        return self._words[name]

    def numbers(self, name: str) -> np.ndarray:
        """Return a column of numbers; 0 where a row has none."""
        if name not in self._numbers:
            self._numbers[name] = read_items(self._stored[name])
        return self._numbers[name]

    def number(self, name: str, row: int) -> int | None:
        """Return a row's number in a column of whole numbers, None if it has none."""
        return int(self.numbers(name)[row]) or None

    def software(self, row: int) -> str:
        """Return the engine of a row with its version, or else its year."""
        engine, year = self.words("engine").of(row), self.number("year", row)
        has_version = " " in engine
        return engine if has_version or not year else f"{engine} {year}".strip()

    @cached_property
    def operators(self) -> np.ndarray:
        """For each row, whether it measured a single operator rather than a whole step or run."""
        tasks = self.words("task")
        return tasks.rows_where([word == OPERATOR for word in tasks.words])


def read_items(stored: StoredColumn) -> np.ndarray:
    """Return the numbers of a stored column, or the places of its words."""
    return np.frombuffer(zlib.decompress(stored.items), dtype=np.dtype(stored.dtype).newbyteorder("<"))


def read_words(stored: StoredColumn) -> tuple[str, ...]:
    """Return the distinct words of a stored column."""
    return tuple(zlib.decompress(stored.words).decode("utf-8").split("\n"))


@cache
def evidence_index() -> EvidenceIndex:
    """Return the index of the bundled evidence table."""
    return EvidenceIndex(msgspec.msgpack.decode(read_data(INDEX), type=StoredIndex))


def index_bytes(table_digest: str, columns: Mapping[str, Sequence[str] | Sequence[float]]) -> bytes:
    """Encode columns (texts of WORD_COLUMNS, numbers of NUMBER_COLUMNS) as the content of the index file."""
    stored = {name: stored_words(columns[name]) for name in WORD_COLUMNS}  # type: ignore[arg-type]
    stored |= {name: stored_numbers(columns[name], dtype) for name, dtype in NUMBER_COLUMNS.items()}
    return msgspec.msgpack.encode(StoredIndex(table_digest, stored))


def stored_numbers(numbers: object, dtype: str) -> StoredColumn:
    """Encode numbers as a column of a NumPy type."""
    items = np.asarray(numbers, dtype=np.dtype(dtype).newbyteorder("<"))
    return StoredColumn(b"", zlib.compress(items.tobytes(), COMPRESSION), dtype)


def stored_words(texts: Sequence[str]) -> StoredColumn:
    """Encode texts as a column: the distinct ones, and the place of each among them."""
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    dtype = "u1" if len(places) <= 256 else "u2" if len(places) <= 65536 else "u4"
    codes = np.array([places[text] for text in texts], dtype=np.dtype(dtype).newbyteorder("<"))
    joined = "\n".join(places).encode("utf-8")
    return StoredColumn(zlib.compress(joined, COMPRESSION), zlib.compress(codes.tobytes(), COMPRESSION), dtype)
