"""In-memory cache that evicts the least recently used value."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class LruCache(Generic[Value]):
    """In-memory cache of values by key, at most `max_size` of them; the least recently used is evicted.

    >>> cache = LruCache[int](max_size=2)
    >>> [cache.get(key, lambda key=key: 10 * key) for key in (1, 2, 1, 3)], cache.peek(2)
    ([10, 20, 10, 30], None)
    """

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._values: OrderedDict[Hashable, Value] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the cached value of a key; if it is missing, `make` it and store it."""
        value = self._values[key] if key in self._values else make()
        self.put(key, value)
        return value

    def put(self, key: Hashable, value: Value) -> None:
        """Store a value in the cache as the most recently used one."""
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._max_size:
            self._values.popitem(last=False)

    def clear(self) -> None:
        """Drop all cached values."""
        self._values.clear()

    def peek(self, key: Hashable) -> Value | None:
        """Return the cached value of a key, or None if it is missing, without counting this as a use."""
        return self._values.get(key)
