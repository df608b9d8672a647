"""Allocations and frees of tensors in order, and the caching allocator's peaks for given sizes.

The allocator's two pools are independent, so each is replayed on its own; allocated bytes are summed over both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from whichgpu.estimate.allocator import GRANULARITY, SMALL_SIZE, Event, Replay, replay_pool, segment_size

Array = np.ndarray[Any, Any]
ALLOCATE = -1  # An allocation; any other number in a sequence frees the allocation with that number.
SMALL_UNITS = SMALL_SIZE // GRANULARITY
MAX_INT64_SUM = 1 << 44  # bytes: larger sums use Python's integers, since products with counts could overflow 64 bits


class AllocationSequence:
    """Allocations and frees in order, without sizes: each move is ALLOCATE or the number of the allocation to free."""

    __slots__ = ("_allocates", "_labels", "_names", "_until", "_when", "_who")

    def __init__(self, moves: Sequence[int], labels: Sequence[str]) -> None:
        """Prepare replays of `moves`; `labels` is each allocation's part of memory. A second free of one tensor is ignored."""
        unique_moves = _without_repeated_frees(np.asarray(moves, dtype=np.int64), len(labels))
        allocates = unique_moves < 0
        frees = np.flatnonzero(~allocates)
        until = np.full(len(labels), len(unique_moves))
        until[unique_moves[frees]] = frees
        self._allocates = allocates
        self._when, self._until = np.flatnonzero(allocates), until
        self._who = np.where(allocates, np.cumsum(allocates) - 1, unique_moves)
        self._names = tuple(dict.fromkeys(labels))
        places = {name: place for place, name in enumerate(self._names)}
        self._labels = np.array([places[label] for label in labels], dtype=np.int64)

    def replay(self, sizes: Array, pools: bool = True) -> Replay:
        """Return the allocator's peak bytes for allocations of these `sizes` in bytes; reserved bytes only with `pools`."""
        if not len(self._who):
            return Replay(0, 0)
        units = np.maximum(-(-sizes // GRANULARITY), 1)
        small = (units <= SMALL_UNITS).astype(bool)
        bits = (2 * (int(units.sum()) + len(units) * segment_size(SMALL_SIZE + 1))).bit_length()
        units_taken, reserved = units.copy(), 0
        for in_pool, min_remainder in ((small, 1), (~small, SMALL_UNITS + 1)) if pools else ():
            moves = in_pool[self._who]
            who = self._who[moves]
            codes = np.where(self._allocates[moves], units[who], 1 - np.cumsum(in_pool)[who])
            pool_taken, pool_reserved = replay_pool(codes.tolist(), min_remainder, bits)
            units_taken[in_pool] = pool_taken
            reserved += pool_reserved
        # Segments are never returned, so the bytes reserved at the end are the peak.
        changes = units_taken[self._who]
        allocated = np.cumsum(np.where(self._allocates, changes, -changes))
        peak = int(np.argmax(allocated))
        return Replay(int(allocated[peak]) * GRANULARITY, reserved * GRANULARITY, self._holdings(units, peak), peak)

    def _holdings(self, units: Array, peak: int) -> dict[str, int]:
        """Return the bytes by label of all tensors live right after move number `peak`, ordered by each label's oldest tensor."""
        live = (self._when <= peak) & (self._until > peak)
        labels, live_units = self._labels[live], units[live]
        order = dict.fromkeys(labels.tolist())
        return {self._names[label]: int(live_units[labels == label].sum()) * GRANULARITY for label in order}


def _without_repeated_frees(moves: Array, allocations: int) -> Array:
    frees = np.flatnonzero(moves >= 0)
    first = np.full(allocations, -1)
    first[moves[frees[::-1]]] = frees[::-1]
    repeated = frees[first[moves[frees]] != frees]
    return np.delete(moves, repeated) if len(repeated) else moves


def exact_sizes(sizes: Sequence[int]) -> Array:
    """Return the sizes as an array whose dtype is wide enough that any sum of them is exact."""
    return np.array(sizes, dtype=np.int64 if sum(sizes) < MAX_INT64_SUM else object)


def replay_events(events: Iterable[Event], labels: Mapping[int, str] | None = None) -> Replay:
    """Replay events through an empty allocator and return its peaks; `labels` maps allocation ids to parts of memory.

    >>> from whichgpu.estimate.allocator import MIB
    >>> found = replay_events([(1, 3 * MIB), (2, 600), (1, -3 * MIB)])
    >>> found.peak_allocated == 3 * MIB + 1024, found.peak_reserved == 22 * MIB
    (True, True)
    """
    moves: list[int] = []
    sizes: list[int] = []
    names: list[str] = []
    places: list[int] = []  # indices of the events that became moves; frees of unallocated ids are skipped
    alive: dict[int, int] = {}
    for place, (id, size) in enumerate(events):
        if size > 0:
            alive[id] = len(sizes)
            moves.append(ALLOCATE)
            sizes.append(size)
            names.append((labels or {}).get(id, "other"))
        elif id in alive:
            moves.append(alive.pop(id))
        else:
            continue
        places.append(place)
    result = AllocationSequence(moves, names).replay(exact_sizes(sizes))
    return replace(result, peak_event=places[result.peak_event]) if places else result
