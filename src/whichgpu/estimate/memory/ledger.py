"""Births and deaths of tensors in the order they happen, each with the part of memory it belongs to."""

from __future__ import annotations

from collections.abc import Iterable

from whichgpu.estimate.allocator import Event, Replay, replay


class Ledger:
    """What a program allocates and frees, for the replay of the caching allocator."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.labels: dict[int, str] = {}
        self._sizes: dict[int, int] = {}

    def new(self, size: int, label: str) -> int:
        """A tensor is born; gives its id."""
        id = len(self._sizes) + 1
        self._sizes[id] = max(1, size)
        self.labels[id] = label
        self.events.append((id, self._sizes[id]))
        return id

    def free(self, id: int) -> None:
        """It dies."""
        self.events.append((id, -self._sizes[id]))

    def free_all(self, ids: Iterable[int]) -> None:
        """They die in order."""
        for id in ids:
            self.free(id)

    def replay(self) -> Replay:
        """What the caching allocator holds at its fullest."""
        return replay(self.events, self.labels)
