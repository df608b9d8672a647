"""Answers kept, within a bound of bytes; and those being computed, so that the same question asked twice is computed once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any

Answer = dict[str, Any]
OVERHEAD = 1024  # bytes an entry costs beside its body
KEPT_STATUSES = (200, 400, 404, 422)  # faults of ours and of the moment are asked again


@dataclass(slots=True)
class _Asked:
    """A question on its way, and how many wait for it."""

    task: asyncio.Task[Answer]
    waiting: int = 0


class Answers:
    """The least recently asked go first."""

    def __init__(self, most_bytes: int, most_entries: int) -> None:
        self._most_bytes, self._most_entries = most_bytes, most_entries
        self._kept: OrderedDict[Hashable, Answer] = OrderedDict()
        self._asked: dict[Hashable, _Asked] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable) -> Answer | None:
        """A kept answer."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    async def answer(self, key: Hashable, compute: Callable[[], Awaitable[Answer]]) -> Answer:
        """The kept answer, the one being computed, or a new one. Whoever leaves does not take it from the others."""
        if (found := self.get(key)) is not None:
            return found
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = _Asked(asyncio.ensure_future(self._computed(key, compute)))
        asked.waiting += 1
        try:
            return await asyncio.shield(asked.task)
        finally:
            asked.waiting -= 1
            if not asked.waiting and not asked.task.done():  # nobody waits: leave the line; what a worker has begun it finishes
                self._asked.pop(key, None)  # whoever asks from now on asks anew
                asked.task.cancel()

    async def _computed(self, key: Hashable, compute: Callable[[], Awaitable[Answer]]) -> Answer:
        try:
            answer = await compute()
            self.keep(key, answer)
            return answer
        finally:
            known = self._asked.get(key)
            if known is not None and known.task is asyncio.current_task():
                del self._asked[key]

    def keep(self, key: Hashable, answer: Answer) -> None:
        """Have it ready for whoever asks next, unless it is a fault or too large."""
        if answer["status"] not in KEPT_STATUSES:
            return
        size = len(answer["body"]) + len(repr(key)) + OVERHEAD
        if size > self._most_bytes // 8:
            return
        self._drop(key)
        answer["kept_bytes"] = size
        self._kept[key] = answer
        self.bytes += size
        while self.bytes > self._most_bytes or len(self._kept) > self._most_entries:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: Hashable) -> None:
        if (old := self._kept.pop(key, None)) is not None:
            self.bytes -= old["kept_bytes"]
