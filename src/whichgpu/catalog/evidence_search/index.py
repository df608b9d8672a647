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
    "source", "gpu", "kind", "task", "model", "family", "engine", "precision", "layout", "details", "date", "path",
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

    def words(self, name: str) -> WordColumn:
        """Return a column of words."""
        if name not in self._words:
            stored = self._stored[name]
            texts = zlib.decompress(stored.words).decode("utf-8").split("\n")
            self._words[name] = WordColumn(tuple(texts), _items(stored))
        return self._words[name]

    def numbers(self, name: str) -> np.ndarray:
        """Return a column of numbers; 0 where a row has none."""
        if name not in self._numbers:
            self._numbers[name] = _items(self._stored[name])
        return self._numbers[name]

    def number(self, name: str, row: int) -> int | None:
        """Return a row's number in a column of whole numbers, None if it has none."""
        return int(self.numbers(name)[row]) or None

    @cached_property
    def operators(self) -> np.ndarray:
        """For each row, whether it measured a single operator rather than a whole step or run."""
        tasks = self.words("task")
        return tasks.rows_where([word == OPERATOR for word in tasks.words])


def _items(stored: StoredColumn) -> np.ndarray:
    return np.frombuffer(zlib.decompress(stored.items), dtype=np.dtype(stored.dtype).newbyteorder("<"))


@cache
def evidence_index() -> EvidenceIndex:
    """Return the index of the bundled evidence table."""
    return EvidenceIndex(msgspec.msgpack.decode(read_data(INDEX), type=StoredIndex))


def index_bytes(table_digest: str, columns: Mapping[str, Sequence[str] | Sequence[float]]) -> bytes:
    """Encode columns (texts of WORD_COLUMNS, numbers of NUMBER_COLUMNS) as the content of the index file."""
    stored = {name: _stored_words(columns[name]) for name in WORD_COLUMNS}  # type: ignore[arg-type]
    for name, dtype in NUMBER_COLUMNS.items():
        items = np.asarray(columns[name], dtype=np.dtype(dtype).newbyteorder("<"))
        stored[name] = StoredColumn(b"", zlib.compress(items.tobytes(), COMPRESSION), dtype)
    return msgspec.msgpack.encode(StoredIndex(table_digest, stored))


def _stored_words(texts: Sequence[str]) -> StoredColumn:
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    dtype = "u1" if len(places) <= 256 else "u2" if len(places) <= 65536 else "u4"
    codes = np.array([places[text] for text in texts], dtype=np.dtype(dtype).newbyteorder("<"))
    joined = "\n".join(places).encode("utf-8")
    return StoredColumn(zlib.compress(joined, COMPRESSION), zlib.compress(codes.tobytes(), COMPRESSION), dtype)
