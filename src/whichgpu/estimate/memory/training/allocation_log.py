"""Log of tensor allocations and frees in order, each with the part of memory it belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from whichgpu.estimate.allocation_sequence import ALLOCATE, AllocationSequence, exact_sizes
from whichgpu.estimate.allocator import Replay


class LogSegment(msgspec.Struct, frozen=True):
    """A reusable part of a log; tensors numbered below `outside` are allocated before it, all others inside it."""

    outside: int
    moves: tuple[int, ...]
    sizes: tuple[int, ...]
    labels: tuple[str, ...]


class AllocationLog:
    """Allocations and frees of a program, for the replay of the caching allocator."""

    def __init__(self) -> None:
        self._moves: list[int] = []
        self._sizes: list[int] = []
        self._labels: list[str] = []

    def new(self, size: int, label: str) -> int:
        """Log the allocation of a tensor and return its number."""
        self._moves.append(ALLOCATE)
        self._sizes.append(max(1, size))
        self._labels.append(label)
        return len(self._sizes) - 1

    def new_all(self, sizes: Iterable[int], label: str) -> list[int]:
        """Log the allocation of several tensors and return their numbers."""
        first = len(self._sizes)
        self._sizes += [max(1, size) for size in sizes]
        numbers = range(first, len(self._sizes))
        self._moves += [ALLOCATE] * len(numbers)
        self._labels += [label] * len(numbers)
        return [*numbers]

    def free(self, number: int) -> None:
        """Log the free of a tensor."""
        self._moves.append(number)

    def free_all(self, numbers: Iterable[int]) -> None:
        """Log the frees of several tensors in order."""
        self._moves += numbers

    def segment(self, outside: int) -> LogSegment:
        """Return the whole log as a segment; its first `outside` tensors are allocated by the log it is written to."""
        return LogSegment(outside, tuple(self._moves[outside:]), tuple(self._sizes[outside:]), tuple(self._labels[outside:]))

    def write(self, segment: LogSegment, outside: Sequence[int]) -> list[int]:
        """Append a segment, given the numbers of `outside` tensors it uses; return the numbers of all its tensors here."""
        first = len(self._sizes)
        numbers = [*outside, *range(first, first + len(segment.sizes))]
        self._sizes += segment.sizes
        self._labels += segment.labels
        self._moves += [ALLOCATE if move == ALLOCATE else numbers[move] for move in segment.moves]
        return numbers

    def replay(self, pools: bool = True) -> Replay:
        """Replay the log through the caching allocator and return its peaks; without `pools` reserved bytes are not computed."""
        return AllocationSequence(self._moves, self._labels).replay(exact_sizes(self._sizes), pools)
