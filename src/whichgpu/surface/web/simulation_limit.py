"""Limit on the requests that one answer simulates; a job may simulate more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichgpu.base.errors import UsageError
from whichgpu.base.kinds import InvalidValue, Whole
from whichgpu.base.messages import msg

MAX_REQUESTS = 50_000  # 4 s on one core, measured on 2026-11-17 with llama-3.1-8b at 5 requests/s.
MAX_TOKENS = 25_000_000  # Output tokens of all requests together.


def check_simulation(request: Mapping[str, Any]) -> None:
    """Raise `UsageError` if a request would simulate more requests or tokens than an answer has time for."""
    count = _number(request.get("count"))
    tokens = count * _number(request.get("seq_out"))
    if count > MAX_REQUESTS or tokens > MAX_TOKENS:
        limit = min(MAX_REQUESTS, MAX_TOKENS * count // max(tokens, 1))
        message = msg("error.long-simulation", count=f"{count:,}", limit=f"{limit:,}")
        raise UsageError("long-simulation", message, msg("hint.long-simulation"))


def _number(value: Any) -> int:
    """Return a whole number from text or JSON; 0 if there is none, since the command itself reports what is invalid."""
    try:
        return int(Whole(0).read_text(str(value))) if value is not None else 0
    except InvalidValue:
        return 0
