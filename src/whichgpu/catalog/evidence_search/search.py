"""Search of measurements by words and filters, newest first, whole runs before single operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from whichgpu.base.names import squash
from whichgpu.catalog.engines.registry import engine_ids, engine_synonyms
from whichgpu.catalog.evidence import evidence_sources
from whichgpu.catalog.evidence_search.index import NUMBER_COLUMNS, WORD_COLUMNS, EvidenceIndex, evidence_index

# Columns that the words of a query are looked up in, ignoring punctuation; in those of many distinct texts it counts.
SEARCHED = ("source", "gpu", "task", "model", "family", "engine", "precision", "layout")
SEARCHED_EXACTLY = ("details", "date", "path")
LABELS = {"seconds": "measured"}  # Fields of an evidence row whose column has another name in the index.
# Fields by which rows can be sorted.
SORTABLE = (
    *(LABELS.get(name, name) for name in NUMBER_COLUMNS if name != "row"),
    *(name for name in WORD_COLUMNS if name != "kind"),
)


class EvidenceFilter(msgspec.Struct, frozen=True):
    """Constraints on measurements: words that all occur in a row, and the values of its columns; empty is no constraint.

    `gpu` are ids; `model` matches names that contain it.
    """

    words: tuple[str, ...] = ()
    gpu: frozenset[str] = frozenset()
    engine: frozenset[str] = frozenset()
    model: tuple[str, ...] = ()
    task: frozenset[str] = frozenset()
    precision: frozenset[str] = frozenset()
    source: frozenset[str] = frozenset()

    def conditions(self, index: EvidenceIndex, gpu_names: Mapping[str, str]) -> dict[str, np.ndarray]:
        """Return for each constraint that is set which rows meet it, by the name of its field."""
        masks: dict[str, np.ndarray] = {}
        for word in self.words:
            masks["words"] = masks.get("words", True) & rows_with_word(index, word, gpu_names)
        for name in ("gpu", "task", "precision", "source"):
            if accepted := getattr(self, name):
                masks[name] = _where(index, name, accepted.__contains__)
        if self.engine:
            masks["engine"] = _where(index, "engine", lambda text: engine_of(text) in self.engine)
        if self.model:
            names = [squash(name) for name in self.model]
            masks["model"] = _where(index, "model", lambda text: any(name in squash(text) for name in names))
        return masks


class EvidenceMatches(msgspec.Struct, frozen=True, eq=False):
    """Rows that a search found, in order, and how many rows each constraint alone would leave."""

    rows: np.ndarray
    alone: Mapping[str, int]


def search_evidence(filters: EvidenceFilter, gpu_names: Mapping[str, str], sort: str | None = None) -> EvidenceMatches:
    """Return the rows of the evidence table that meet all constraints; `gpu_names` are names of GPUs by id."""
    index = evidence_index()
    masks = filters.conditions(index, gpu_names)
    matching = np.ones(len(index.operators), dtype=bool)
    for mask in masks.values():
        matching &= mask
    rows = np.flatnonzero(matching)
    order = _order(index, rows, sort) if sort else np.lexsort((-index.numbers("year")[rows].astype(int), index.operators[rows]))
    return EvidenceMatches(rows[order], {name: int(mask.sum()) for name, mask in masks.items()})


def rows_with_word(index: EvidenceIndex, word: str, gpu_names: Mapping[str, str]) -> np.ndarray:
    """Return for each row whether one of its texts contains a word, ignoring case; a source's publisher counts as its text."""
    key, exact = squash(word), word.lower()
    publishers = evidence_sources()
    names: Mapping[str, Callable[[str], str]] = {
        "gpu": lambda id: f"{id} {gpu_names.get(id, '')}",
        "source": lambda id: f"{id} {publishers[id].publisher}" if id in publishers else id,
    }
    matches = np.zeros(len(index.operators), dtype=bool)
    for name in SEARCHED:
        label = names.get(name, str)
        matches |= _where(index, name, lambda text, label=label: bool(key) and key in squash(label(text)))  # type: ignore[misc]
    for name in SEARCHED_EXACTLY:
        matches |= _where(index, name, lambda text: exact in text.lower())
    return matches


def engine_of(text: str) -> str:
    """Return the id of the engine that a row's software names, such as `trtllm 1.3.0rc20`; the text itself if it is none.

    >>> engine_of("trtllm 1.3.0rc20 torch_flow"), engine_of("vllm"), engine_of("deepep")
    ('tensorrt-llm', 'vllm', 'deepep')
    """
    first = text.partition(" ")[0].lower()
    return first if first in engine_ids() else engine_synonyms().get(squash(first), first)


def distinct(name: str) -> tuple[str, ...]:
    """Return the distinct words of a column of the evidence table, sorted."""
    return tuple(sorted(word for word in evidence_index().words(name).words if word))


def _where(index: EvidenceIndex, name: str, test: Callable[[str], bool]) -> np.ndarray:
    column = index.words(name)
    return column.rows_where([test(word) for word in column.words])


def _order(index: EvidenceIndex, rows: np.ndarray, sort: str) -> Sequence[int] | np.ndarray:
    """Return the order of rows by a field, descending with a leading minus; rows without a value come last."""
    name = sort.lstrip("-")
    column = next((stored for stored, label in LABELS.items() if label == name), name)
    if column in NUMBER_COLUMNS:
        values = index.numbers(column)[rows].astype(float)
        lacks = values == 0
    else:
        words = index.words(column)
        ranks = np.argsort(np.argsort(np.array([word.lower() for word in words.words])))
        values, lacks = ranks[words.codes[rows]].astype(float), np.array([not word for word in words.words])[words.codes[rows]]
    return np.lexsort((-values if sort.startswith("-") else values, lacks))
