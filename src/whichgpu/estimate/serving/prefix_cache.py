"""Prefix cache: KV blocks of earlier prompts, reused by requests that begin with the same tokens."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class PrefixCache:
    """LRU cache of block hashes; a hash identifies a block together with all blocks before it.

    In this model every running request has its own blocks, so sharing saves prefill but no memory. Blocks of running requests
    are the most recently used, so no evicted block is in use.
    """

    def __init__(self, cache_tokens: int, block_tokens: int) -> None:
        self._hashes: OrderedDict[int, None] = OrderedDict()
        self._block_tokens, self._max_blocks = block_tokens, max(1, cache_tokens // block_tokens)

    def cached_tokens(self, hashes: Sequence[int], limit: int) -> int:
        """Return the tokens at the start of a prompt that are cached, at most `limit`, since the last token is always computed.

        >>> cache = PrefixCache(4096, 512)
        >>> cache.insert([1, 2, 3])
        >>> cache.cached_tokens([1, 2, 4], 1500), cache.cached_tokens([4, 1], 1500), cache.cached_tokens([1], 511)
        (1024, 0, 511)
        """
        hits = 0
        for one in hashes:
            if one not in self._hashes:
                break
            self._hashes.move_to_end(one)
            hits += 1
        return min(hits * self._block_tokens, limit)

    def insert(self, hashes: Sequence[int]) -> None:
        """Add the blocks of a prompt and evict the least recently used ones beyond the capacity."""
        for one in hashes:
            self._hashes[one] = None
            self._hashes.move_to_end(one)
        while len(self._hashes) > self._max_blocks:
            self._hashes.popitem(last=False)

    def clear(self) -> None:
        """Drop all blocks."""
        self._hashes.clear()
