"""A replay of PyTorch's CUDA caching allocator: what a sequence of births and deaths makes it hold.

The rules are those of `c10/cuda/CUDACachingAllocator.cpp` (PyTorch 2.x, default settings): sizes round up to 512 bytes; requests
up to 1 MiB are cut from 2 MiB segments, those below 10 MiB from 20 MiB segments, larger ones get a segment of their own rounded
up to 2 MiB; the smallest free block that is large enough is taken; what remains of it stays free if it is at least 512 bytes
(small pool) or more than 1 MiB (large pool); free neighbours within a segment merge; segments are never given back.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

MIB = 1024 * 1024
ROUND = 512
SMALL_SIZE = MIB  # the largest request of the small pool
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
MIN_OWN_SEGMENT = 10 * MIB  # from here on a request gets a segment of its own
ROUND_SEGMENT = 2 * MIB

Event = tuple[int, int]  # (id, bytes): positive is a birth, negative the death of that id


@dataclass(frozen=True, slots=True)
class Replay:
    """Peaks in bytes; `breakdown` is what each label held (rounded as the allocator does) when the allocated bytes peaked."""

    peak_allocated: int
    peak_reserved: int
    breakdown: Mapping[str, int] = field(default_factory=dict)
    peak_event: int = 0  # index of the event that made the peak


def rounded(size: int) -> int:
    """Bytes the allocator hands out for a request.

    >>> rounded(1), rounded(512), rounded(513)
    (512, 512, 1024)
    """
    return max(ROUND, -(-size // ROUND) * ROUND)


def segment_size(size: int) -> int:
    """Bytes asked of the driver when no free block serves a (rounded) request.

    >>> [segment_size(size) // MIB for size in (512, MIB, MIB + 512, 10 * MIB, 21 * MIB)]
    [2, 2, 20, 10, 22]
    """
    if size <= SMALL_SIZE:
        return SMALL_SEGMENT
    if size < MIN_OWN_SEGMENT:
        return LARGE_SEGMENT
    return -(-size // ROUND_SEGMENT) * ROUND_SEGMENT


def replay(events: Iterable[Event], labels: Mapping[int, str] | None = None) -> Replay:
    """Follow `events` through an empty allocator; `labels` say what each id is for.

    >>> found = replay([(1, 3 * MIB), (2, 600), (1, -3 * MIB)])
    >>> found.peak_allocated == 3 * MIB + 1024, found.peak_reserved == 22 * MIB
    (True, True)
    """
    known = list(events)
    allocated = peak = peak_at = 0
    pools = _Pool(ROUND), _Pool(SMALL_SIZE + 1)
    blocks: dict[int, tuple[_Pool, _Block]] = {}
    for index, (id, size) in enumerate(known):
        if size > 0:
            wanted = rounded(size)
            pool = pools[0] if wanted <= SMALL_SIZE else pools[1]
            block = pool.take(wanted)
            blocks[id] = pool, block
            allocated += block.size
            if allocated > peak:
                peak, peak_at = allocated, index
        elif id in blocks:
            pool, block = blocks.pop(id)
            allocated -= block.size
            pool.give(block)
    # Segments are never given back, so what is reserved at the end is the peak.
    reserved = sum(pool.reserved for pool in pools)
    return Replay(peak, reserved, _holdings(known[: peak_at + 1], labels or {}), peak_at)


def _holdings(events: list[Event], labels: Mapping[int, str]) -> dict[str, int]:
    alive: dict[int, int] = {}
    for id, size in events:
        if size > 0:
            alive[id] = rounded(size)
        else:
            alive.pop(id, None)
    held: dict[str, int] = {}
    for id, size in alive.items():
        label = labels.get(id, "other")
        held[label] = held.get(label, 0) + size
    return held


class _Block:
    """A stretch of a segment, with its neighbours."""

    __slots__ = ("address", "after", "before", "free", "size")

    def __init__(self, address: int, size: int, before: _Block | None = None, after: _Block | None = None) -> None:
        self.address, self.size, self.before, self.after, self.free = address, size, before, after, False


class _Pool:
    """Free blocks sorted by size, then address, and what the pool's segments add up to."""

    __slots__ = ("_by_key", "_keys", "_next_address", "_split_from", "reserved")

    def __init__(self, split_from: int) -> None:
        self._keys: list[tuple[int, int]] = []
        self._by_key: dict[tuple[int, int], _Block] = {}
        self._next_address = 0
        self._split_from = split_from
        self.reserved = 0

    def take(self, size: int) -> _Block:
        at = bisect_left(self._keys, (size, -1))
        if at < len(self._keys):
            block = self._by_key.pop(self._keys.pop(at))
            block.free = False
        else:
            whole = segment_size(size)
            block = _Block(self._next_address, whole)
            self._next_address += 2 * whole  # a gap, so that segments never look adjacent
            self.reserved += whole
        left = block.size - size
        if left >= self._split_from:
            rest = _Block(block.address + size, left, block, block.after)
            if block.after is not None:
                block.after.before = rest
            block.after, block.size = rest, size
            self._insert(rest)
        return block

    def give(self, block: _Block) -> None:
        before, after = block.before, block.after
        if before is not None and before.free:
            self._remove(before)
            before.size += block.size
            before.after = after
            if after is not None:
                after.before = before
            block = before
        if after is not None and after.free:
            self._remove(after)
            block.size += after.size
            block.after = after.after
            if after.after is not None:
                after.after.before = block
        self._insert(block)

    def _insert(self, block: _Block) -> None:
        block.free = True
        key = block.size, block.address
        insort(self._keys, key)
        self._by_key[key] = block

    def _remove(self, block: _Block) -> None:
        key = block.size, block.address
        del self._by_key[key]
        del self._keys[bisect_left(self._keys, key)]
        block.free = False
