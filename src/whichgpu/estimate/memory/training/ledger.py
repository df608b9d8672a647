"""Births and deaths of tensors in the order they happen, each with the part of memory it belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from whichgpu.estimate.allocator import Replay
from whichgpu.estimate.course import BIRTH, Course, whole_numbers


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a ledger that can be written again: its first tensors are `outside`, born elsewhere, the others its own."""

    outside: int
    moves: tuple[int, ...]
    sizes: tuple[int, ...]
    labels: tuple[str, ...]


class Ledger:
    """What a program allocates and frees, for the replay of the caching allocator."""

    def __init__(self) -> None:
        self._moves: list[int] = []
        self._sizes: list[int] = []
        self._labels: list[str] = []

    def new(self, size: int, label: str) -> int:
        """A tensor is born; gives its number."""
        self._moves.append(BIRTH)
        self._sizes.append(max(1, size))
        self._labels.append(label)
        return len(self._sizes) - 1

    def free(self, number: int) -> None:
        """It dies."""
        self._moves.append(number)

    def free_all(self, numbers: Iterable[int]) -> None:
        """They die in order."""
        self._moves += numbers

    def passage(self, outside: int) -> Passage:
        """All there is but its first so many tensors, which count as born elsewhere."""
        return Passage(outside, tuple(self._moves[outside:]), tuple(self._sizes[outside:]), tuple(self._labels[outside:]))

    def write(self, passage: Passage, outside: Sequence[int]) -> list[int]:
        """A passage again, with these for the tensors from outside; gives the numbers here of all its tensors."""
        first = len(self._sizes)
        here = [*outside, *range(first, first + len(passage.sizes))]
        self._sizes += passage.sizes
        self._labels += passage.labels
        self._moves += [BIRTH if move == BIRTH else here[move] for move in passage.moves]
        return here

    def replay(self, pools: bool = True) -> Replay:
        """What the caching allocator holds at its fullest; without `pools` only what is allocated from it."""
        return Course(self._moves, self._labels).replay(whole_numbers(self._sizes), pools)
