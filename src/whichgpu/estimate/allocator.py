"""Replay of PyTorch's CUDA caching allocator for a sequence of allocations and frees.

The rules are those of `c10/cuda/CUDACachingAllocator.cpp` (PyTorch 2.x, default settings): sizes round up to 512 bytes; requests
up to 1 MiB come from 2 MiB segments, those below 10 MiB from 20 MiB segments, larger ones get their own segment rounded up to
2 MiB; the smallest free block that is large enough is used and split if at least 512 bytes (small pool) or more than 1 MiB (large
pool) remain; free neighbours in a segment merge; segments are never returned to the driver.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping

import msgspec

MIB = 1024 * 1024  # bytes
GRANULARITY = 512  # bytes: every request is rounded up to a multiple of this (PyTorch's CUDA caching allocator)
SMALL_SIZE = MIB  # bytes: the largest request served from the small pool
SMALL_SEGMENT = 2 * MIB  # bytes taken from the driver for requests of the small pool
LARGE_SEGMENT = 20 * MIB  # bytes taken from the driver for larger requests below MIN_OWN_SEGMENT
MIN_OWN_SEGMENT = 10 * MIB  # bytes: the smallest request that gets a segment of its own
SEGMENT_GRANULARITY = 2 * MIB  # bytes: a segment of its own is rounded up to a multiple of this

Event = tuple[int, int]  # (id, bytes): positive allocates, negative frees that id


class Replay(msgspec.Struct, frozen=True):
    """Peak bytes that the allocator allocates and reserves; `breakdown`: allocated bytes by label (weights, …) at the peak."""

    peak_allocated: int
    peak_reserved: int
    breakdown: Mapping[str, int] = msgspec.field(default_factory=dict)
    peak_event: int = 0  # index of the event at the peak


def round_size(size: int) -> int:
    """Return the bytes that the allocator hands out for a request of `size` bytes.

    >>> round_size(1), round_size(512), round_size(513)
    (512, 512, 1024)
    """
    return max(GRANULARITY, -(-size // GRANULARITY) * GRANULARITY)


def segment_size(size: int) -> int:
    """Return the bytes taken from the driver for a (rounded) request if no free block is large enough.

    >>> [segment_size(size) // MIB for size in (512, MIB, MIB + 512, 10 * MIB, 21 * MIB)]
    [2, 2, 20, 10, 22]
    """
    if size <= SMALL_SIZE:
        return SMALL_SEGMENT
    if size < MIN_OWN_SEGMENT:
        return LARGE_SEGMENT
    return -(-size // SEGMENT_GRANULARITY) * SEGMENT_GRANULARITY


def replay_pool(codes: Iterable[int], min_remainder: int, bits: int) -> tuple[list[int], int]:
    """Return the units that each allocation of one pool takes, and the units the pool reserves; a unit is 512 bytes.

    A code above 0 allocates that many units; a code of 0 or below frees allocation number `-code`. A block is split if
    at least `min_remainder` units remain. Any address fits in `bits` bits.
    """
    free: list[int] = []  # sorted keys of free blocks: size and address in one number
    sizes: dict[int, int] = {}  # units of free blocks by start address
    starts: dict[int, int] = {}  # start addresses of free blocks by end address
    places: list[int] = []
    units_taken: list[int] = []
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
                unused += 2 * size  # A gap between the addresses of segments keeps them from merging.
                reserved += size
            left = size - code
            if left >= min_remainder:
                rest = start + code
                sizes[rest] = left
                starts[start + size] = rest
                insort(free, left << bits | rest)
                size = code
            else:
                starts.pop(start + size, None)
            places.append(start)
            units_taken.append(size)
            continue
        start = places[-code]
        end = start + units_taken[-code]
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
    return units_taken, reserved
