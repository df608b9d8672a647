"""Blocks of prompts that stay in the cache after their request is done, for those that begin alike."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class PrefixCache:
    """The blocks of one engine, least recently used first. A block is known by a number that stands for all before it too.

    Requests that run hold their blocks once each, so sharing saves reading here, not memory; what runs is the most recently
    used, so what goes first when room is short is in nobody's hands.
    """

    __slots__ = ("_known", "_most", "_tokens")

    def __init__(self, cache_tokens: int, tokens: int) -> None:
        self._known: OrderedDict[int, None] = OrderedDict()
        self._tokens, self._most = tokens, max(1, cache_tokens // tokens)

    def found(self, hashes: Sequence[int], most: int) -> int:
        """Tokens at the beginning of a prompt that need not be read; the last token always is.

        >>> prefixes = PrefixCache(4096, 512)
        >>> prefixes.keep([1, 2, 3])
        >>> prefixes.found([1, 2, 4], 1500), prefixes.found([4, 1], 1500), prefixes.found([1], 511)
        (1024, 0, 511)
        """
        known, hits = self._known, 0
        for one in hashes:
            if one not in known:
                break
            known.move_to_end(one)
            hits += 1
        return min(hits * self._tokens, most)

    def keep(self, hashes: Sequence[int]) -> None:
        """Blocks of a prompt that was read; the oldest go where there is no room."""
        known = self._known
        for one in hashes:
            known[one] = None
            known.move_to_end(one)
        while len(known) > self._most:
            known.popitem(last=False)

    def clear(self) -> None:
        """Forget all: the memory has gone."""
        self._known.clear()
