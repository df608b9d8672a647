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
GRANULARITY = 512
SMALL_SIZE = MIB  # the largest request of the small pool
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
MIN_OWN_SEGMENT = 10 * MIB  # from here on a request gets a segment of its own
SEGMENT_GRANULARITY = 2 * MIB

Event = tuple[int, int]  # (id, bytes): positive is a birth, negative the death of that id


@dataclass(frozen=True, slots=True)
class Replay:
    """Peaks in bytes; `breakdown` is what each label held (rounded as the allocator does) when the allocated bytes peaked."""

    peak_allocated: int
    peak_reserved: int
    breakdown: Mapping[str, int] = field(default_factory=dict)
    peak_event: int = 0  # index of the event that made the peak


def round_size(size: int) -> int:
    """Bytes the allocator hands out for a request.

    >>> round_size(1), round_size(512), round_size(513)
    (512, 512, 1024)
    """
    return max(GRANULARITY, -(-size // GRANULARITY) * GRANULARITY)


def segment_size(size: int) -> int:
    """Bytes asked of the driver when no free block serves a (rounded) request.

    >>> [segment_size(size) // MIB for size in (512, MIB, MIB + 512, 10 * MIB, 21 * MIB)]
    [2, 2, 20, 10, 22]
    """
    if size <= SMALL_SIZE:
        return SMALL_SEGMENT
    if size < MIN_OWN_SEGMENT:
        return LARGE_SEGMENT
    return -(-size // SEGMENT_GRANULARITY) * SEGMENT_GRANULARITY


def replay_pool(codes: Iterable[int], least: int, bits: int) -> tuple[list[int], int]:
    """One pool's births (units of 512 bytes, above 0) and deaths (0 or below: minus the number of the birth) in order.

    Gives the units each birth takes, which may be more than it asks for, and those reserved. What remains of a block is split off
    from `least` units on. `bits` hold any address.
    """
    free: list[int] = []  # sorted: size, then address, as one number
    sizes: dict[int, int] = {}  # of free blocks, by where they start
    starts: dict[int, int] = {}  # of free blocks, by where they end
    places: list[int] = []
    taken: list[int] = []
    mask, unused, reserved = (1 << bits) - 1, 0, 0
    for code in codes:
        if code > 0:
            at = bisect_left(free, code << bits)
            if at < len(free):
                key = free.pop(at)
                start, size = key & mask, key >> bits
                del sizes[start]
            else:
                start, size = unused, segment_size(code * GRANULARITY) // GRANULARITY
                unused += 2 * size  # a gap, so that segments never look adjacent
                reserved += size
            left = size - code
            if left >= least:
                rest = start + code
                sizes[rest] = left
                starts[start + size] = rest
                insort(free, left << bits | rest)
                size = code
            else:
                starts.pop(start + size, None)
            places.append(start)
            taken.append(size)
            continue
        start = places[-code]
        end = start + taken[-code]
        before = starts.pop(start, None)
        if before is not None:
            del free[bisect_left(free, (start - before) << bits | before)]
            start = before
        after = sizes.pop(end, None)
        if after is not None:
            del free[bisect_left(free, after << bits | end)]
            end += after
        sizes[start] = end - start
        starts[end] = start
        insort(free, (end - start) << bits | start)
    return taken, reserved
