"""What was worked out a moment ago, kept in memory: so many of it, the least recently used given up first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class LruCache(Generic[Value]):
    """Values by key.

    >>> recent = LruCache[int](most=2)
    >>> [recent.get(key, lambda key=key: 10 * key) for key in (1, 2, 1, 3)], recent.known(2)
    ([10, 20, 10, 30], None)
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, Value] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key, made where it is not there."""
        if key not in self._values:
            value = make()
            self.put(key, value)
            return value
        self._values.move_to_end(key)
        return self._values[key]

    def put(self, key: Hashable, value: Value) -> None:
        """A value made elsewhere, the most recently used one now."""
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._most:
            self._values.popitem(last=False)

    def known(self, key: Hashable) -> Value | None:
        """The value of a key, where it is there."""
        return self._values.get(key)
