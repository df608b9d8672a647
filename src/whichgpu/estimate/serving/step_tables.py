"""Tables of step times, from which a simulator reads the time of a step in a microsecond.

A step's time on the device is a sum: GEMMs over all its rows, attention of the prefill chunks, and attention of the decode
tokens. The tables store the three separately, and the host's time by rows and sequences, if it works while the device does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from whichgpu.estimate.time.combine import OVERLAP_SHARPNESS

Array = np.ndarray
DENSE_BATCHES = 16  # batch sizes up to this are all evaluated; beyond, each is GRID_RATIO times the one before
GRID_RATIO = 2**0.25  # ratio of neighbouring batch sizes, four per doubling (assumed)
TILE, FINE_TOKENS = 128, 4096  # queries per attention tile; tokens up to which every tile edge is evaluated


NEGLIGIBLE_HOST = 0.04  # share of the device's seconds below which the host's lengthen a step by less than a billionth


class StepTimes(Protocol):
    """Interface of a source of step times in seconds, such as `estimate.group.engine_steps.EngineSteps`.

    Times come in one row, or in three: of the device, of host work that overlaps it, and of work that overlaps neither.
    """

    def decode(self, batch: ArrayLike, context: ArrayLike) -> Array:
        """Return the seconds to decode one token of each of `batch` sequences at a mean `context` in tokens."""

    def mixed(self, tokens: ArrayLike, context: ArrayLike, batch: ArrayLike, decode_context: ArrayLike) -> Array:
        """Return the seconds of a step with a prefill chunk and one decode token of each of `batch` sequences."""


class TableSizes(NamedTuple):
    """Largest batch, prefill tokens and context for which step times are tabulated."""

    batch: int
    tokens: int
    context: int


class StepQueries:
    """Steps to time for `StepTables`; `decode` and `mixed` are the arguments of the two calls that time them all.

    With `tile`, GEMMs are evaluated only at multiples of its rows and next to them, attention at powers of two, and the rest
    is interpolated. Steps of 90 servers were then 0.08% (decode) to 0.4% (chunks) off on average.
    """

    def __init__(self, sizes: TableSizes, stages: int = 1, tile: int = 0) -> None:
        self._batches = octaves(sizes.batch) if tile else batch_grid(sizes.batch)
        self._every_batch = np.arange(1, sizes.batch + 1)
        last = max(6, int(np.ceil(np.log2(max(2, sizes.context)))))
        powers = _distinct([*range(5, last, 2 if tile else 1), last])
        self._contexts = np.concatenate([[1.0], 2.0**powers])
        self._reaches = np.concatenate([[0.0], self._contexts[1:]])
        self._chunks = coarse(tiled(sizes.tokens)) if tile else tiled(sizes.tokens)
        self._decode_batches = np.concatenate([[0.0], self._batches])
        self._every_row = np.arange(1, int(self._chunks[-1]) + sizes.batch + 1)
        self._tokens, self._rows = _tile_edges(self._every_batch, tile), _tile_edges(self._every_row, tile)
        column = self._chunks[:, None]
        attention = _flat((self._batches * stages)[:, None], self._contexts[None, :])
        self.decode = _joined(attention, _flat(self._tokens * stages, 1.0))
        self._decode_split = len(attention[0])
        queries = (
            _flat(self._rows, 0.0, 0.0, 1.0),
            _flat(column, 0.0, (self._decode_batches * stages)[None, :], 1.0),
            _flat(column, self._reaches[None, :], 0.0, 1.0),
            _flat(self._chunks, self._chunks / 2, 0.0, 1.0),  # These steps give attention per token of reach.
        )
        self.mixed = _joined(*queries)
        self._mixed_splits = np.cumsum([len(one[0]) for one in queries])[:-1]

    def table_values(self, decode: Array, mixed: Array) -> dict[str, Any]:
        """Return the attributes of `StepTables`, computed from the seconds of both queries."""
        host: dict[str, Any] = {"_host_tokens": [], "_host_rows": [], "_host_mixed": [], "_serial": []}
        if decode.ndim > 1:
            (decode, *decode_host), (mixed, *mixed_host) = decode, mixed
            if not (decode_host[0].any() or mixed_host[0].any()):
                decode, mixed = decode + decode_host[1], mixed + mixed_host[1]
            else:
                by_batch = [np.interp(self._every_batch, self._tokens, row[self._decode_split :]) for row in decode_host]
                by_rows = np.interp(self._every_row, self._rows, mixed_host[0][: self._mixed_splits[0]])
                by_tokens = by_batch[0] - by_rows[0]
                # Outside CUDA graphs the host launches decode attention as well: the first and the last chunk with the smallest
                # batch show it. Steps are outside graphs beyond some size, or mixed steps at any size.
                batch, columns = int(self._decode_batches[1]), len(self._decode_batches)
                both = mixed_host[0][self._mixed_splits[0] : self._mixed_splits[1]][[1, 1 - columns]] - by_tokens[batch - 1]
                shortest, launched = np.maximum(0.0, both).tolist()
                outside = (by_rows > 0.0) | (shortest > by_rows[batch])
                host = {
                    "_host_tokens": [0.0, *by_tokens.tolist()],
                    "_host_rows": [0.0, *by_rows.tolist()],
                    "_host_mixed": [0.0, *np.where(outside, launched, 0.0).tolist()],
                    "_serial": [float(mixed_host[1][0]), *by_batch[1].tolist()],
                }
        attention, tokens = np.split(decode, [self._decode_split])
        attention = attention.reshape(len(self._batches), -1)
        rows, decode_part, ahead, own = np.split(mixed, self._mixed_splits)
        rows = np.interp(self._every_row, self._rows, rows) if len(rows) < len(self._every_row) else rows
        tokens = np.interp(self._every_batch, self._tokens, tokens) if len(tokens) < len(self._every_batch) else tokens
        gemms = rows[(self._chunks[:, None] + self._decode_batches[None, :]).astype(int) - 1]
        decode_part = _interpolated(
            np.arange(len(self._every_batch) + 1), self._decode_batches, decode_part.reshape(gemms.shape) - gemms
        )
        attention = _interpolated(self._every_batch, self._batches, (attention - attention[:, :1]).T).T
        chunks = rows[self._chunks.astype(int) - 1]
        return {
            "_contexts": self._contexts.tolist(),
            "_reaches": self._reaches.tolist(),
            "_chunks": self._chunks.tolist(),
            "_tokens": [0.0, *tokens.tolist()],
            "_rows": [0.0, *rows.tolist()],
            "_attention": LazyRows(np.concatenate([attention[:1], attention])),  # The row of batch 0 is never used.
            "_decode_part": LazyRows(decode_part),
            "_ahead": LazyRows(ahead.reshape(len(chunks), -1) - chunks[:, None]),
            "_own": ((own - chunks) / (self._chunks / 2)).tolist(),
            **host,
        }


class LazyRows(dict[int, list[float]]):
    """Rows of an array by index, each converted to a list on first use: simulations use few rows many times."""

    def __init__(self, array: Array) -> None:
        super().__init__()
        self._array = array

    def __missing__(self, index: int) -> list[float]:
        row: list[float] = self._array[index].tolist()
        self[index] = row
        return row

    def scaled(self, factor: float) -> LazyRows:
        """Return the rows with every value multiplied by `factor`."""
        return LazyRows(self._array * factor)


class StepTables:
    """Tables of the seconds of a replica's steps, by batch, prefill tokens and context.

    GEMM times jump as tiles fill, so every number of rows has an entry; attention grows smoothly and is interpolated.
    Arguments beyond the tables' ends are extrapolated.
    """

    # The disk cache names a result by a hash over the values of these slots.
    __slots__ = (
        "_ahead",
        "_attention",
        "_chunks",
        "_contexts",
        "_decode_part",
        "_host_mixed",
        "_host_rows",
        "_host_tokens",
        "_own",
        "_reaches",
        "_rows",
        "_serial",
        "_tokens",
    )  # fmt: skip
    _contexts: list[float]  # mean contexts in tokens at which decode attention is tabulated
    _reaches: list[float]  # numbers of earlier tokens attended to (see `mixed`) at which prefill attention is tabulated
    _chunks: list[float]  # prefill tokens per step at which attention is tabulated
    _tokens: list[float]  # seconds of a decode step at context 1, by batch
    _rows: list[float]  # seconds of a step without cached tokens, by rows
    _attention: LazyRows  # seconds of decode attention, by batch and context
    _decode_part: (
        LazyRows  # seconds that decode tokens of context 1 add to a mixed step beyond its GEMMs (`_rows`), by chunk and batch
    )
    _ahead: LazyRows  # seconds of a chunk's attention to cached tokens, by chunk and reach
    _own: list[float]  # seconds of a chunk's attention per token of reach, by chunk
    _host_rows: list[float]  # host seconds of a step without decode tokens, by rows; empty if the device never waits for the host
    _host_mixed: list[float]  # as `_host_rows`, of a step with decode tokens
    _host_tokens: list[float]  # further host seconds with decode tokens, by batch
    _serial: list[float]  # seconds that overlap neither device nor host work, by batch

    def __init__(self, steps: StepTimes, sizes: TableSizes, stages: int = 1) -> None:
        queries = StepQueries(sizes, stages)
        self._set(queries.table_values(steps.decode(*queries.decode), steps.mixed(*queries.mixed)))

    @staticmethod
    def from_values(values: Mapping[str, Any]) -> StepTables:
        """Build tables from the values that `StepQueries.table_values` returns."""
        tables = StepTables.__new__(StepTables)
        tables._set(values)
        return tables

    def _set(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, value)

    def scaled(self, factor: float) -> StepTables:
        """Return the tables with the seconds of every step multiplied by `factor`."""
        values = {name: getattr(self, name) for name in self.__slots__}
        values |= {name: values[name].scaled(factor) for name in ("_attention", "_decode_part", "_ahead")}
        lists = ("_tokens", "_rows", "_own", "_host_rows", "_host_mixed", "_host_tokens", "_serial")
        values |= {name: [factor * one for one in values[name]] for name in lists}
        return StepTables.from_values(values)

    def decode(self, batch: int, context: float) -> float:
        """Return the seconds to decode one token of each of `batch` sequences at a mean `context` in tokens."""
        seconds = self._tokens[batch] + _interpolate(self._contexts, self._attention[batch], context)
        if not self._host_rows:
            return seconds
        return _overlapped_with_host(seconds, self._host_rows[1] + self._host_tokens[batch]) + self._serial[batch]

    def run(self, batch: int, context: float, turns: int) -> tuple[float, float]:
        """Return the seconds of the first and the last of `turns` decode steps in a row, starting at a mean `context`."""
        contexts, values, base = self._contexts, self._attention[batch], self._tokens[batch]
        index = bisect_right(contexts, context) - 1
        if not 0 <= index < len(contexts) - 1 or context + turns - 1 >= contexts[index + 1]:
            return self.decode(batch, context), self.decode(batch, context + turns - 1)
        low, start = contexts[index], values[index]
        rise, width = values[index + 1] - start, contexts[index + 1] - low
        first = base + (start + rise * (context - low) / width)
        last = base + (start + rise * (context + turns - 1 - low) / width) if turns > 1 else first
        if not self._host_rows:
            return first, last
        host, serial = self._host_rows[1] + self._host_tokens[batch], self._serial[batch]
        if host < NEGLIGIBLE_HOST * first and host < NEGLIGIBLE_HOST * last:
            return first + serial, last + serial
        return _overlapped_with_host(first, host) + serial, _overlapped_with_host(last, host) + serial

    def mixed(self, tokens: int, reach: float, batch: int, context: float) -> float:
        """Return the seconds of a step with `tokens` prefill tokens in all and one decode token of each of `batch` sequences.

        `reach` is the mean number of earlier tokens a chunk's token attends to, less half the chunks' tokens: 0 for one whole
        prompt, the cached tokens for a later chunk, negative for several short prompts, which do not attend to one another.
        """
        rows = tokens + batch
        seconds = self._rows[rows]
        if batch or reach:
            index, share = _locate(self._chunks, tokens)
            if batch:
                below, above = self._decode_part[index][batch], self._decode_part[index + 1][batch]
                seconds += below + (above - below) * share + _interpolate(self._contexts, self._attention[batch], context)
            if reach < 0.0:
                below, above = self._own[index], self._own[index + 1]
                seconds += reach * (below + (above - below) * share)
            elif reach:
                below = _interpolate(self._reaches, self._ahead[index], reach)
                above = _interpolate(self._reaches, self._ahead[index + 1], reach)
                seconds = seconds + below + (above - below) * share
        if not self._host_rows:
            return seconds
        host = (self._host_mixed if batch else self._host_rows)[rows] + self._host_tokens[batch]
        return _overlapped_with_host(seconds, host) + self._serial[batch]


def _overlapped_with_host(seconds: float, host: float) -> float:
    """Return the seconds of a step that takes `seconds` on the device while the host works for `host` seconds."""
    if host < NEGLIGIBLE_HOST * seconds:
        return seconds
    return float((seconds**OVERLAP_SHARPNESS + host**OVERLAP_SHARPNESS) ** (1.0 / OVERLAP_SHARPNESS))


def batch_grid(largest: int) -> Array:
    """Return whole numbers from 1 to `largest`: every number at first, then steps of a few percent.

    >>> batch_grid(40).astype(int).tolist()
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 24, 29, 35, 40]
    """
    sizes = [float(one) for one in range(1, min(largest, DENSE_BATCHES) + 1)]
    while sizes[-1] < largest:
        sizes.append(min(float(largest), np.ceil(sizes[-1] * GRID_RATIO)))
    return np.array(sizes)


def octaves(largest: int) -> Array:
    """Return the powers of two up to `largest`, and `largest` itself.

    >>> octaves(40).astype(int).tolist()
    [1, 2, 4, 8, 16, 32, 40]
    """
    return _distinct(np.append(2.0 ** np.arange(max(1, largest).bit_length()), largest))


def tiled(largest: int) -> Array:
    """Return whole numbers from 1 to at least `largest` between which attention time is smooth: it jumps at full query tiles.

    >>> tiled(300).astype(int).tolist()
    [1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128, 129, 181, 256, 257, 362]
    """
    smooth = np.round(2.0 ** np.arange(0, np.log2(max(2, largest)) + 0.5, 0.5))
    fine, wide = np.arange(TILE, min(largest, FINE_TOKENS) + 1, TILE), np.arange(FINE_TOKENS, largest + 1, 4 * TILE)
    edges = np.concatenate([fine, wide])
    return _distinct(np.concatenate([smooth, edges, edges[edges < largest] + 1]))


def coarse(chunks: Array) -> Array:
    """Return some of these ascending numbers, each about twice the one before.

    >>> coarse(tiled(300)).astype(int).tolist()
    [1, 2, 4, 8, 16, 32, 64, 128, 256, 362]
    """
    logs = np.log2(chunks)
    indices = np.searchsorted(logs, np.arange(0.0, logs[-1]) - 1e-9)
    numbers: Array = chunks[_distinct(np.append(indices, len(logs) - 1))]
    return numbers


def _tile_edges(numbers: Array, tile: int) -> Array:
    """Return a subset of consecutive numbers: a grid, full tiles and the numbers next to them; all if `tile` is 0.

    >>> _tile_edges(np.arange(1, 301), 64).astype(int).tolist()[15:]
    [16, 20, 24, 29, 35, 42, 50, 60, 64, 65, 72, 86, 103, 123, 128, 129, 147, 175, 192, 193, 209, 249, 256, 257, 297, 300]
    """
    if not tile or len(numbers) < 4 * tile:
        return numbers
    edges = np.arange(tile, numbers[-1] + 1, tile)
    return _distinct(np.concatenate([batch_grid(int(numbers[-1])), edges, edges + 1]).clip(numbers[0], numbers[-1]))


def _interpolated(at: Array, points: Array, rows: Array) -> Array:
    """Interpolate every row, whose values are given at `points`, at the positions `at`."""
    after = np.clip(np.searchsorted(points, at), 1, len(points) - 1) if len(points) > 1 else np.zeros(len(at), dtype=int)
    before = np.maximum(after - 1, 0)
    width = points[after] - points[before]
    share = np.clip((at - points[before]) / np.where(width > 0, width, 1.0), 0.0, 1.0)
    values: Array = rows[:, before] + (rows[:, after] - rows[:, before]) * share
    return values


def _flat(*values: ArrayLike) -> tuple[Array, ...]:
    """Broadcast the values to a common shape and flatten each to one row."""
    return tuple(one.ravel() for one in np.broadcast_arrays(*(np.asarray(value, dtype=float) for value in values)))


def _joined(*queries: tuple[Array, ...]) -> tuple[Array, ...]:
    """Concatenate the arguments of several calls so that one call evaluates them all."""
    return tuple(np.concatenate(column) for column in zip(*queries, strict=True))


def _locate(points: Sequence[float], at: float) -> tuple[int, float]:
    """Return the index of the interval of `points` that contains `at`, and the share of the interval before `at`."""
    index = min(max(bisect_right(points, at) - 1, 0), len(points) - 2)
    low = points[index]
    return index, (at - low) / (points[index + 1] - low)


def _interpolate(points: Sequence[float], values: Sequence[float], at: float) -> float:
    """Return the interpolated value at `at`; `_locate` is inlined because every simulated step calls this."""
    index = bisect_right(points, at) - 1
    last = len(points) - 2
    if index > last:
        index = last
    elif index < 0:
        index = 0
    low = points[index]
    start = values[index]
    return start + (values[index + 1] - start) * (at - low) / (points[index + 1] - low)


def _distinct(values: Array | list[int]) -> Array:
    """Return the distinct values in ascending order; `np.unique` would import numpy.ma, which takes 15 ms."""
    return np.array(sorted(set(np.asarray(values).tolist())))
