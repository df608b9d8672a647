"""LRU cache of answers, limited in bytes; equal questions that arrive during a computation wait for the same answer."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

import msgspec

Answer = dict[str, Any]
ENTRY_BYTES = 1024  # Bytes of an entry in addition to its body (assumed).
CACHED_STATUSES = (200, 400, 404, 422)  # Internal and temporary errors are not cached.


class _Pending(msgspec.Struct):
    """The task that computes an answer, and the number of requests that wait for it."""

    task: asyncio.Task[Answer]
    waiting: int = 0


class AnswerCache:
    """LRU cache of workers' answers by question, limited in bytes and entries."""

    def __init__(self, max_bytes: int, max_entries: int) -> None:
        self._max_bytes, self._max_entries = max_bytes, max_entries
        self._cached: OrderedDict[Hashable, Answer] = OrderedDict()
        self._pending: dict[Hashable, _Pending] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._cached)

    def get(self, key: Hashable) -> Answer | None:
        """Return the cached answer to the question of this key, or None."""
        answer = self._cached.get(key)
        if answer is not None:
            self._cached.move_to_end(key)
        return answer

    async def answer(self, key: Hashable, compute: Callable[[], Awaitable[Answer]]) -> Answer:
        """Return the answer from the cache, a computation under way, or a new one, which is cancelled once nobody waits."""
        if (cached := self.get(key)) is not None:
            return cached
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = _Pending(asyncio.ensure_future(self._compute(key, compute)))
        pending.waiting += 1
        try:
            return await asyncio.shield(pending.task)
        finally:
            pending.waiting -= 1
            if (
                not pending.waiting and not pending.task.done()
            ):  # No client waits any more; a worker that has begun still finishes.
                self._pending.pop(key, None)
                pending.task.cancel()

    async def _compute(self, key: Hashable, compute: Callable[[], Awaitable[Answer]]) -> Answer:
        try:
            answer = await compute()
            self.put(key, answer)
            return answer
        finally:
            pending = self._pending.get(key)
            if pending is not None and pending.task is asyncio.current_task():
                del self._pending[key]

    def put(self, key: Hashable, answer: Answer) -> None:
        """Cache an answer unless it is an internal error or too large."""
        if answer["status"] not in CACHED_STATUSES:
            return
        size = len(answer["body"]) + len(repr(key)) + ENTRY_BYTES
        if size > self._max_bytes // 8:
            return
        self._drop(key)
        answer["kept_bytes"] = size
        self._cached[key] = answer
        self.bytes += size
        while self.bytes > self._max_bytes or len(self._cached) > self._max_entries:
            self._drop(next(iter(self._cached)))

    def _drop(self, key: Hashable) -> None:
        if (old := self._cached.pop(key, None)) is not None:
            self.bytes -= old["kept_bytes"]
