"""Births and deaths of tensors in the order they happen, each with the part of memory it belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from whichgpu.estimate.allocation_sequence import ALLOCATE, AllocationSequence, exact_sizes
from whichgpu.estimate.allocator import Replay


@dataclass(frozen=True, slots=True)
class LogSegment:
    """A part of a ledger that can be written again: its first tensors are `outside`, born elsewhere, the others its own."""

    outside: int
    moves: tuple[int, ...]
    sizes: tuple[int, ...]
    labels: tuple[str, ...]


class AllocationLog:
    """What a program allocates and frees, for the replay of the caching allocator."""

    def __init__(self) -> None:
        self._moves: list[int] = []
        self._sizes: list[int] = []
        self._labels: list[str] = []

    def new(self, size: int, label: str) -> int:
        """A tensor is born; gives its number."""
        self._moves.append(ALLOCATE)
        self._sizes.append(max(1, size))
        self._labels.append(label)
        return len(self._sizes) - 1

    def free(self, number: int) -> None:
        """It dies."""
        self._moves.append(number)

    def free_all(self, numbers: Iterable[int]) -> None:
        """They die in order."""
        self._moves += numbers

    def passage(self, outside: int) -> LogSegment:
        """All there is but its first so many tensors, which count as born elsewhere."""
        return LogSegment(outside, tuple(self._moves[outside:]), tuple(self._sizes[outside:]), tuple(self._labels[outside:]))

    def write(self, passage: LogSegment, outside: Sequence[int]) -> list[int]:
        """A passage again, with these for the tensors from outside; gives the numbers here of all its tensors."""
        first = len(self._sizes)
        here = [*outside, *range(first, first + len(passage.sizes))]
        self._sizes += passage.sizes
        self._labels += passage.labels
        self._moves += [ALLOCATE if move == ALLOCATE else here[move] for move in passage.moves]
        return here

    def replay(self, pools: bool = True) -> Replay:
        """What the caching allocator holds at its fullest; without `pools` only what is allocated from it."""
        return AllocationSequence(self._moves, self._labels).replay(exact_sizes(self._sizes), pools)
