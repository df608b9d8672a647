"""Longest context that a launched server accepts, the same rule for every command."""

from __future__ import annotations

import msgspec

HEADROOM = 2  # times the tokens of a request: a chat grows, and its template adds tokens (assumed)
STEP = 1024  # Tokens of which a context is a multiple unless a limit decides.


class ServedContext(msgspec.Struct, frozen=True):
    """Tokens of the longest sequence that a server accepts, and a sentence that says why."""

    tokens: int
    reason: str


def served_context(needed: int, model_limit: int | None, cache_limit: int | None) -> ServedContext:
    """Return twice the tokens of a request, or what the model allows or the KV cache holds (`cache_limit`) if that is less.

    It is never less than a request needs.

    >>> [served_context(*one).tokens for one in ((2304, 131_072, 90_112), (3000, 4096, None), (2304, 0, 3072), (9000, 4096, 0))]
    [5120, 4096, 3072, 9000]
    """
    roomy = -(-HEADROOM * needed // STEP) * STEP
    limits = {
        f"{HEADROOM} times the {needed} of a request": roomy,
        f"the model's own limit; a request has {needed}": model_limit or roomy,
        f"what the KV cache holds; a request has {needed}": cache_limit or roomy,
    }
    reason, tokens = min(limits.items(), key=lambda item: item[1])
    if tokens < needed:
        reason, tokens = "as many as a request has", needed
    return ServedContext(tokens, f"Context: {tokens} tokens, {reason}.")
