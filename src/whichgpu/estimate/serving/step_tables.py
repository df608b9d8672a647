"""Step times tabulated once, so that a simulator looks them up in a microsecond.

A step's time is taken as a sum: products of all its rows, the attention of the prompts' chunks, the attention of the tokens
of others. That is how the step model makes it for engines that capture graphs; the tables hold the three apart.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

Array = np.ndarray
DENSE = 16  # batches up to this are each asked for; beyond, every few percent
RATIO = 2**0.25
TILE, FINE = 128, 4096  # tokens: queries of one block of attention; up to where each is looked at


class StepTimes(Protocol):
    """What step times are made from: `estimate.group.steps.GroupSteps`."""

    def decode(self, batch: ArrayLike, context: ArrayLike) -> Array:
        """One token of each of `batch` sequences at a mean `context`."""

    def mixed(self, tokens: ArrayLike, context: ArrayLike, batch: ArrayLike, decode_context: ArrayLike) -> Array:
        """A chunk of a prompt beside one token of each of `batch` sequences."""


@dataclass(frozen=True, slots=True)
class TableSizes:
    """The most a table is asked for."""

    batch: int
    tokens: int
    context: int


class StepQueries:
    """Every step that tables of a size are made from, to be asked for in two calls.

    With `fine`, products are asked for at full tiles of so many rows and next to them only, attention, which grows more smoothly,
    at powers of two, and the rest is read off lines. Steps of 90 servers were 0.08% (decode) to 0.4% (chunks) off on average.
    """

    def __init__(self, sizes: TableSizes, stages: int = 1, fine: int = 0) -> None:
        self._batches, self._every = octaves(sizes.batch) if fine else batch_grid(sizes.batch), np.arange(1, sizes.batch + 1)
        last = max(6, int(np.ceil(np.log2(max(2, sizes.context)))))
        powers = np.unique([*range(5, last, 2 if fine else 1), last])
        self._contexts = np.concatenate([[1.0], 2.0**powers])
        self._reaches = np.concatenate([[0.0], self._contexts[1:]])
        self._chunks = coarse(tiled(sizes.tokens)) if fine else tiled(sizes.tokens)
        self._among = np.concatenate([[0.0], self._batches])
        self._all_rows = np.arange(1, int(self._chunks[-1]) + sizes.batch + 1)
        self._alone, self._rows = _tiles(self._every, fine), _tiles(self._all_rows, fine)
        column, own = self._chunks[:, None], self._chunks / 2
        looked = _flat((self._batches * stages)[:, None], self._contexts[None, :])
        self.decode = _joined(looked, _flat(self._alone * stages, 1.0))
        self._cut = len(looked[0])
        asked = (
            _flat(self._rows, 0.0, 0.0, 1.0),
            _flat(column, 0.0, (self._among * stages)[None, :], 1.0),
            _flat(column, self._reaches[None, :], 0.0, 1.0),
            _flat(self._chunks, own, 0.0, 1.0),  # a prompt's own attention once more
        )
        self.mixed = _joined(*asked)
        self._cuts = np.cumsum([len(one[0]) for one in asked])[:-1]

    def answered(self, decode: Array, mixed: Array) -> dict[str, Any]:
        """What tables hold, from the answers to both calls."""
        looked, tokens = decode[: self._cut].reshape(len(self._batches), -1), decode[self._cut :]
        rows, both, ahead, own = np.split(mixed, self._cuts)
        rows = np.interp(self._all_rows, self._rows, rows) if len(rows) < len(self._all_rows) else rows
        tokens = np.interp(self._every, self._alone, tokens) if len(tokens) < len(self._every) else tokens
        alone = rows[(self._chunks[:, None] + self._among[None, :]).astype(int) - 1]
        beside = _between(np.arange(len(self._every) + 1), self._among, both.reshape(alone.shape) - alone)
        looking = _between(self._every, self._batches, (looked - looked[:, :1]).T).T
        plain = rows[self._chunks.astype(int) - 1]
        return {
            "_contexts": self._contexts.tolist(),
            "_reaches": self._reaches.tolist(),
            "_chunks": self._chunks.tolist(),
            "_tokens": [0.0, *tokens.tolist()],
            "_rows": [0.0, *rows.tolist()],
            "_looking": LazyRows(np.concatenate([looking[:1], looking])),  # none has nothing to look at
            "_beside": LazyRows(beside),
            "_ahead": LazyRows(ahead.reshape(len(plain), -1) - plain[:, None]),
            "_longer": ((own - plain) / (self._chunks / 2)).tolist(),
        }


class LazyRows(dict[int, list[float]]):
    """Rows of an array by their number, each made a list when it is first asked for: simulations ask for few, again and again."""

    def __init__(self, array: Array) -> None:
        super().__init__()
        self._array = array

    def __missing__(self, place: int) -> list[float]:
        row: list[float] = self._array[place].tolist()
        self[place] = row
        return row

    def scaled(self, factor: float) -> LazyRows:
        """The same with every value so many times as large."""
        return LazyRows(self._array * factor)


class StepTables:
    """Seconds of steps of one lane: a copy of the model, or one of the batches in flight of a pipeline.

    Products go in leaps as tiles fill, so they are kept for every number of rows; attention grows smoothly. Arguments beyond
    the tables' ends are extended along the last line.
    """

    __slots__ = ("_ahead", "_beside", "_chunks", "_contexts", "_longer", "_looking", "_reaches", "_rows", "_tokens")
    _contexts: list[float]
    _reaches: list[float]
    _chunks: list[float]
    _tokens: list[float]
    _rows: list[float]
    _looking: LazyRows
    _beside: LazyRows
    _ahead: LazyRows
    _longer: list[float]

    def __init__(self, steps: StepTimes, sizes: TableSizes, stages: int = 1) -> None:
        asked = StepQueries(sizes, stages)
        self._hold(asked.answered(steps.decode(*asked.decode), steps.mixed(*asked.mixed)))

    @staticmethod
    def holding(answers: Mapping[str, Any]) -> StepTables:
        """Of answers to `StepQueries` somebody else has asked."""
        one = StepTables.__new__(StepTables)
        one._hold(answers)
        return one

    def _hold(self, answers: Mapping[str, Any]) -> None:
        for name, values in answers.items():
            setattr(self, name, values)

    def scaled(self, factor: float) -> StepTables:
        """The same with every step so many times as long."""
        other = StepTables.__new__(StepTables)
        other._contexts, other._reaches, other._chunks = self._contexts, self._reaches, self._chunks
        for name in ("_looking", "_beside", "_ahead"):
            setattr(other, name, getattr(self, name).scaled(factor))
        for name in ("_tokens", "_rows", "_longer"):
            setattr(other, name, [factor * one for one in getattr(self, name)])
        return other

    def decode(self, batch: int, context: float) -> float:
        """Seconds of one token of each of `batch` sequences at a mean `context`."""
        return self._tokens[batch] + _line(self._contexts, self._looking[batch], context)

    def run(self, batch: int, context: float, turns: int) -> tuple[float, float]:
        """Seconds of the first and the last of so many decode steps in a row, from a mean `context` on."""
        contexts, values, base = self._contexts, self._looking[batch], self._tokens[batch]
        place = bisect_right(contexts, context) - 1
        if not 0 <= place < len(contexts) - 1 or context + turns - 1 >= contexts[place + 1]:
            return self.decode(batch, context), self.decode(batch, context + turns - 1)
        low, start = contexts[place], values[place]
        rise, width = values[place + 1] - start, contexts[place + 1] - low
        first = base + (start + rise * (context - low) / width)
        return first, base + (start + rise * (context + turns - 1 - low) / width) if turns > 1 else first

    def mixed(self, tokens: int, reach: float, batch: int, context: float) -> float:
        """Seconds of chunks of `tokens` tokens in all beside one token of each of `batch` sequences.

        `reach` is how many tokens before it a token of the chunks sees on average, less half the chunks': 0 for one whole
        prompt, the tokens in the cache for a later chunk, negative for several short prompts, which do not see one another.
        """
        told = self._rows[tokens + batch]
        if not batch and not reach:
            return told
        place, share = _place(self._chunks, tokens)
        if batch:
            below, above = self._beside[place][batch], self._beside[place + 1][batch]
            told += below + (above - below) * share + _line(self._contexts, self._looking[batch], context)
        if not reach:
            return told
        if reach < 0.0:
            below, above = self._longer[place], self._longer[place + 1]
            return told + reach * (below + (above - below) * share)
        below = _line(self._reaches, self._ahead[place], reach)
        above = _line(self._reaches, self._ahead[place + 1], reach)
        return told + below + (above - below) * share

    def reading(self, tokens: int) -> Callable[[int, float], float]:
        """`mixed` of one whole prompt of so many tokens, by the others' number and context: looked up once for many."""
        place, share = _place(self._chunks, tokens)
        rows, low, high, contexts, looking = (
            self._rows,
            self._beside[place],
            self._beside[place + 1],
            self._contexts,
            self._looking,
        )

        def seconds(batch: int, context: float) -> float:
            if not batch:
                return rows[tokens]
            below = low[batch]
            return rows[tokens + batch] + (below + (high[batch] - below) * share + _line(contexts, looking[batch], context))

        return seconds


def batch_grid(most: int) -> Array:
    """Whole numbers from 1 to `most`: each at first, then every few percent.

    >>> batch_grid(40).astype(int).tolist()
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 24, 29, 35, 40]
    """
    found = [float(one) for one in range(1, min(most, DENSE) + 1)]
    while found[-1] < most:
        found.append(min(float(most), np.ceil(found[-1] * RATIO)))
    return np.array(found)


def octaves(most: int) -> Array:
    """Powers of two up to `most`, and `most` itself.

    >>> octaves(40).astype(int).tolist()
    [1, 2, 4, 8, 16, 32, 40]
    """
    return np.unique(np.append(2.0 ** np.arange(max(1, most).bit_length()), most))


def tiled(most: int) -> Array:
    """Whole numbers from 1 to at least `most` between which attention goes smoothly: it leaps where a tile of queries is full.

    >>> tiled(300).astype(int).tolist()
    [1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128, 129, 181, 256, 257, 362]
    """
    smooth = np.round(2.0 ** np.arange(0, np.log2(max(2, most)) + 0.5, 0.5))
    edges = np.concatenate([np.arange(TILE, min(most, FINE) + 1, TILE), np.arange(FINE, most + 1, 4 * TILE)])
    return np.unique(np.concatenate([smooth, edges, edges[edges < most] + 1]))


def _tiles(numbers: Array, fine: int) -> Array:
    """Of whole numbers from 1 on: those of a grid, those at full tiles and next to them; all where tiles are not given.

    >>> _tiles(np.arange(1, 301), 64).astype(int).tolist()[15:]
    [16, 20, 24, 29, 35, 42, 50, 60, 64, 65, 72, 86, 103, 123, 128, 129, 147, 175, 192, 193, 209, 249, 256, 257, 297, 300]
    """
    if not fine or len(numbers) < 4 * fine:
        return numbers
    edges = np.arange(fine, numbers[-1] + 1, fine)
    return np.unique(np.concatenate([batch_grid(int(numbers[-1])), edges, edges + 1]).clip(numbers[0], numbers[-1]))


def _between(at: Array, places: Array, rows: Array) -> Array:
    """Each row of values at `places` read off its lines at `at`."""
    after = np.clip(np.searchsorted(places, at), 1, len(places) - 1) if len(places) > 1 else np.zeros(len(at), dtype=int)
    before = np.maximum(after - 1, 0)
    width = places[after] - places[before]
    share = np.clip((at - places[before]) / np.where(width > 0, width, 1.0), 0.0, 1.0)
    told: Array = rows[:, before] + (rows[:, after] - rows[:, before]) * share
    return told


def _flat(*values: ArrayLike) -> tuple[Array, ...]:
    """Values that broadcast, each as one row."""
    return tuple(one.ravel() for one in np.broadcast_arrays(*(np.asarray(value, dtype=float) for value in values)))


def _joined(*asked: tuple[Array, ...]) -> tuple[Array, ...]:
    """Several calls' arguments as one call's."""
    return tuple(np.concatenate(column) for column in zip(*asked, strict=True))


def coarse(chunks: Array) -> Array:
    """Of these, those about a power of two apart.

    >>> coarse(tiled(300)).astype(int).tolist()
    [1, 2, 4, 8, 16, 32, 64, 128, 256, 362]
    """
    steps = np.log2(chunks)
    places = np.searchsorted(steps, np.arange(0.0, steps[-1]) - 1e-9)
    found: Array = chunks[np.unique(np.append(places, len(steps) - 1))]
    return found


def _place(places: Sequence[float], at: float) -> tuple[int, float]:
    """Between which two of the places something lies, and how far along."""
    place = min(max(bisect_right(places, at) - 1, 0), len(places) - 2)
    low = places[place]
    return place, (at - low) / (places[place + 1] - low)


def _line(places: Sequence[float], values: Sequence[float], at: float) -> float:
    """A value read off a line of points."""
    place = bisect_right(places, at) - 1
    last = len(places) - 2
    if place > last:
        place = last
    elif place < 0:
        place = 0
    low = places[place]
    start = values[place]
    return start + (values[place + 1] - start) * (at - low) / (places[place + 1] - low)
