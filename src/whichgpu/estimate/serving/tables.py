"""Step times tabulated once, so that a simulator looks them up in a microsecond.

A step's time is taken as a sum: products of all its rows, the attention of the prompts' chunks, the attention of the tokens
of others. That is how the step model makes it for engines that capture graphs; the tables hold the three apart.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

Array = np.ndarray
DENSE = 16  # batches up to this are each asked for; beyond, every few percent
RATIO = 2**0.25
TILE, FINE = 128, 4096  # tokens: queries of one block of attention; up to where each is looked at


class Steps(Protocol):
    """What step times are made from: `estimate.group.steps.GroupSteps`."""

    def decode(self, batch: ArrayLike, context: ArrayLike) -> Array:
        """One token of each of `batch` sequences at a mean `context`."""

    def mixed(self, tokens: ArrayLike, context: ArrayLike, batch: ArrayLike, decode_context: ArrayLike) -> Array:
        """A chunk of a prompt beside one token of each of `batch` sequences."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The most a table is asked for."""

    batch: int
    tokens: int
    context: int


class StepTables:
    """Seconds of steps of one lane: a copy of the model, or one of the batches in flight of a pipeline.

    Products go in leaps as tiles fill, so they are kept for every number of rows; attention grows smoothly. Arguments beyond
    the tables' ends are extended along the last line.
    """

    __slots__ = ("_ahead", "_beside", "_chunks", "_contexts", "_longer", "_looking", "_reaches", "_rows", "_tokens")

    def __init__(self, steps: Steps, sizes: Sizes, stages: int = 1) -> None:
        batches, every = grid(sizes.batch), np.arange(1, sizes.batch + 1)
        contexts = np.concatenate([[1.0], 2.0 ** np.arange(5, max(7, np.ceil(np.log2(max(2, sizes.context))) + 1))])
        chunks = tiled(sizes.tokens)
        looked = steps.decode((batches * stages)[:, None], contexts[None, :])
        looking = np.stack([np.interp(every, batches, column) for column in (looked - looked[:, :1]).T], axis=1)
        tokens = steps.decode(every * stages, 1.0)
        rows = steps.mixed(np.arange(1, sizes.tokens + sizes.batch + 1), 0.0, 0.0, 1.0)
        among = np.concatenate([[0.0], batches])
        both = steps.mixed(chunks[:, None], 0.0, (among * stages)[None, :], 1.0)
        alone = steps.mixed(chunks[:, None] + among[None, :], 0.0, 0.0, 1.0)
        beside = np.stack([np.interp(np.arange(sizes.batch + 1), among, row) for row in both - alone])
        reaches = np.concatenate([[0.0], contexts[1:]])
        plain = alone[:, :1]
        ahead = steps.mixed(chunks[:, None], reaches[None, :], 0.0, 1.0) - plain
        own = (steps.mixed(chunks, chunks / 2, 0.0, 1.0) - plain[:, 0]) / (chunks / 2)  # a prompt's own attention once more
        self._contexts: list[float] = contexts.tolist()
        self._reaches: list[float] = reaches.tolist()
        self._chunks: list[float] = chunks.tolist()
        self._tokens: list[float] = [0.0, *tokens.tolist()]
        self._rows: list[float] = [0.0, *rows.tolist()]
        self._looking: list[list[float]] = [[], *looking.tolist()]
        self._beside: list[list[float]] = beside.tolist()
        self._ahead: list[list[float]] = ahead.tolist()
        self._longer: list[float] = own.tolist()

    def scaled(self, factor: float) -> StepTables:
        """The same with every step so many times as long."""
        other = StepTables.__new__(StepTables)
        other._contexts, other._reaches, other._chunks = self._contexts, self._reaches, self._chunks
        for name in ("_looking", "_beside", "_ahead"):
            setattr(other, name, [[factor * one for one in row] for row in getattr(self, name)])
        for name in ("_tokens", "_rows", "_longer"):
            setattr(other, name, [factor * one for one in getattr(self, name)])
        return other

    def decode(self, batch: int, context: float) -> float:
        """Seconds of one token of each of `batch` sequences at a mean `context`."""
        return self._tokens[batch] + _line(self._contexts, self._looking[batch], context)

    def mixed(self, tokens: int, reach: float, batch: int, context: float) -> float:
        """Seconds of chunks of `tokens` tokens in all beside one token of each of `batch` sequences.

        `reach` is how many tokens before it a token of the chunks sees on average, less half the chunks': 0 for one whole
        prompt, the tokens in the cache for a later chunk, negative for several short prompts, which do not see one another.
        """
        told = self._rows[tokens + batch]
        if not batch and not reach:
            return told
        places = self._chunks
        place = min(max(bisect_right(places, tokens) - 1, 0), len(places) - 2)
        low = places[place]
        share = (tokens - low) / (places[place + 1] - low)
        if batch:
            below, above = self._beside[place][batch], self._beside[place + 1][batch]
            told += below + (above - below) * share + _line(self._contexts, self._looking[batch], context)
        if reach < 0.0:
            below, above = self._longer[place], self._longer[place + 1]
            return told + reach * (below + (above - below) * share)
        if reach > 0.0:
            below = _line(self._reaches, self._ahead[place], reach)
            above = _line(self._reaches, self._ahead[place + 1], reach)
            told += below + (above - below) * share
        return told


def grid(most: int) -> Array:
    """Whole numbers from 1 to `most`: each at first, then every few percent.

    >>> grid(40).astype(int).tolist()
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 24, 29, 35, 40]
    """
    found = [float(one) for one in range(1, min(most, DENSE) + 1)]
    while found[-1] < most:
        found.append(min(float(most), np.ceil(found[-1] * RATIO)))
    return np.array(found)


def tiled(most: int) -> Array:
    """Whole numbers from 1 to at least `most` between which attention goes smoothly: it leaps where a tile of queries is full.

    >>> tiled(300).astype(int).tolist()
    [1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128, 129, 181, 256, 257, 362]
    """
    smooth = np.round(2.0 ** np.arange(0, np.log2(max(2, most)) + 0.5, 0.5))
    edges = np.concatenate([np.arange(TILE, min(most, FINE) + 1, TILE), np.arange(FINE, most + 1, 4 * TILE)])
    return np.unique(np.concatenate([smooth, edges, edges[edges < most] + 1]))


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
