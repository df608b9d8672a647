"""Births and deaths of tensors in order, whatever their sizes, and what the caching allocator holds for given sizes.

The two pools of the allocator never meet, so each runs its own share of the course; what is allocated when is a sum over both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from whichgpu.estimate.allocator import GRANULARITY, SMALL_SIZE, Event, Replay, replay_pool, segment_size

Array = np.ndarray[Any, Any]
ALLOCATE = -1  # any other number is the death of the birth so numbered
SMALL_UNITS = SMALL_SIZE // GRANULARITY
MAX_INT64_SUM = 1 << 44  # sums below it fit a machine word thousands of times over; larger ones are made in Python's own numbers


class AllocationSequence:
    """Moves in order: BIRTH, or the number of the birth that ends. One course serves every batch: only the sizes change."""

    __slots__ = ("_births", "_labels", "_names", "_until", "_when", "_who")

    def __init__(self, moves: Sequence[int], labels: Sequence[str]) -> None:
        """`labels` say what each birth is for. Of a tensor's deaths the first counts."""
        given = _first_deaths(np.asarray(moves, dtype=np.int64), len(labels))
        born = given < 0
        deaths = np.flatnonzero(~born)
        until = np.full(len(labels), len(given))
        until[given[deaths]] = deaths
        self._births = born
        self._when, self._until = np.flatnonzero(born), until
        self._who = np.where(born, np.cumsum(born) - 1, given)
        self._names = tuple(dict.fromkeys(labels))
        places = {name: place for place, name in enumerate(self._names)}
        self._labels = np.array([places[label] for label in labels], dtype=np.int64)

    def replay(self, sizes: Array, pools: bool = True) -> Replay:
        """Peaks where the births are of these bytes (`whole_numbers`); without `pools` as if nothing were ever split or kept."""
        if not len(self._who):
            return Replay(0, 0)
        units = np.maximum(-(-sizes // GRANULARITY), 1)
        small = (units <= SMALL_UNITS).astype(bool)
        bits = (2 * (int(units.sum()) + len(units) * segment_size(SMALL_SIZE + 1))).bit_length()
        taken, reserved = units.copy(), 0
        for chosen, least in ((small, 1), (~small, SMALL_UNITS + 1)) if pools else ():
            mine = chosen[self._who]
            who = self._who[mine]
            codes = np.where(self._births[mine], units[who], 1 - np.cumsum(chosen)[who])
            took, held = replay_pool(codes.tolist(), least, bits)
            taken[chosen] = took
            reserved += held
        # Segments are never given back, so what is reserved at the end is the peak.
        changes = taken[self._who]
        allocated = np.cumsum(np.where(self._births, changes, -changes))
        peak = int(np.argmax(allocated))
        return Replay(int(allocated[peak]) * GRANULARITY, reserved * GRANULARITY, self._holdings(units, peak), peak)

    def _holdings(self, units: Array, peak: int) -> dict[str, int]:
        """Bytes by label of what lives after a move, the label of the oldest first."""
        alive = (self._when <= peak) & (self._until > peak)
        labels, held = self._labels[alive], units[alive]
        order = dict.fromkeys(labels.tolist())
        return {self._names[label]: int(held[labels == label].sum()) * GRANULARITY for label in order}


def _first_deaths(moves: Array, births: int) -> Array:
    """The moves less any death of what is dead already."""
    deaths = np.flatnonzero(moves >= 0)
    first = np.full(births, -1)
    first[moves[deaths[::-1]]] = deaths[::-1]
    again = deaths[first[moves[deaths]] != deaths]
    return np.delete(moves, again) if len(again) else moves


def exact_sizes(sizes: Sequence[int]) -> Array:
    """Sizes as an array that holds any sum of them."""
    return np.array(sizes, dtype=np.int64 if sum(sizes) < MAX_INT64_SUM else object)


def replay_events(events: Iterable[Event], labels: Mapping[int, str] | None = None) -> Replay:
    """Follow `events` through an empty allocator; `labels` say what each id is for.

    >>> from whichgpu.estimate.allocator import MIB
    >>> found = replay_events([(1, 3 * MIB), (2, 600), (1, -3 * MIB)])
    >>> found.peak_allocated == 3 * MIB + 1024, found.peak_reserved == 22 * MIB
    (True, True)
    """
    moves: list[int] = []
    sizes: list[int] = []
    names: list[str] = []
    places: list[int] = []  # of the events that are moves: the death of what does not live is none
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
    found = AllocationSequence(moves, names).replay(exact_sizes(sizes))
    return replace(found, peak_event=places[found.peak_event]) if places else found
