"""Look-up of table rows by exact name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from whichgpu.base.lru import LruCache
from whichgpu.base.names import squash

T = TypeVar("T")
Names = Callable[[T], tuple[str, ...]]
Index = dict[str, tuple[Any, ...]]

# Indexes by the `id()` of a tuple of rows; the rows are stored too, so that the id is not reused.
_INDEXES: LruCache[tuple[object, Index, Index]] = LruCache(32)


def exact_matches(rows: Iterable[T], name: str, names: Names[T]) -> tuple[T, ...]:
    """Return rows with exactly that name, or else those that differ in blanks and punctuation only (us-east1, us-east-1)."""

    def build() -> tuple[object, Index, Index]:
        return rows, _index(rows, names, str.lower), _index(rows, names, squash)

    _, typed, squashed = _INDEXES.get(id(rows), build) if isinstance(rows, tuple) else build()
    return typed.get(name.strip().lower(), ()) or squashed.get(squash(name), ())


def _index(rows: Iterable[T], names: Names[T], normalize: Callable[[str], str]) -> Index:
    """Return the table rows by each of their non-empty names, normalised by `normalize`."""
    index: dict[str, dict[int, T]] = {}
    for place, row in enumerate(rows):
        for text in names(row):
            index.setdefault(normalize(text), {})[place] = row
    return {name: tuple(matches.values()) for name, matches in index.items() if name}
