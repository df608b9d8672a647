"""Rows of a table by their very names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from whichgpu.base.names import squash

T = TypeVar("T")
Names = Callable[[T], tuple[str, ...]]
MOST_KEPT = 32  # tables whose names are remembered


@dataclass(frozen=True, slots=True)
class _Index:
    """Rows by each of their names, as it stands and without blanks and punctuation; an empty name is none."""

    rows: object  # held, so that their identity stays theirs
    typed: Mapping[str, tuple[Any, ...]]
    joined: Mapping[str, tuple[Any, ...]]


_KNOWN: dict[int, _Index] = {}


def exact_matches(rows: Iterable[T], name: str, names: Names[T]) -> tuple[T, ...]:
    """Rows of that very name; only where there are none, those that differ in blanks and punctuation (us-east1, us-east-1)."""
    index = _known(rows, names) if isinstance(rows, tuple) else _indexed(rows, names)
    return index.typed.get(name.strip().lower(), ()) or index.joined.get(squash(name), ())


def _known(rows: tuple[T, ...], names: Names[T]) -> _Index:
    """The index of these very rows, made once."""
    if id(rows) not in _KNOWN:
        if len(_KNOWN) >= MOST_KEPT:
            _KNOWN.clear()
        _KNOWN[id(rows)] = _indexed(rows, names)
    return _KNOWN[id(rows)]


def _indexed(rows: Iterable[T], names: Names[T]) -> _Index:
    typed: dict[str, dict[int, T]] = {}
    joined: dict[str, dict[int, T]] = {}
    for place, row in enumerate(rows):
        for text in names(row):
            typed.setdefault(text.lower(), {})[place] = row
            joined.setdefault(squash(text), {})[place] = row
    both = ({name: tuple(found.values()) for name, found in by.items() if name} for by in (typed, joined))
    return _Index(rows, *both)
