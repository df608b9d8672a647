"""A workload as a config file describes it."""

from __future__ import annotations

from typing import Any

import msgspec

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg


class ConfigWorkload(msgspec.Struct, frozen=True):
    """A workload read from a config file: the tool it is written for, request fields, scheduler limits, and what was not read.

    `context` is the longest sequence of a server in tokens. `unread` are options and keys that no field has; most of them
    change neither memory nor speed.
    """

    tool: str
    fields: dict[str, Any]
    context: int | None = None
    max_sequences: int | None = None
    max_batched_tokens: int | None = None
    memory_share: float | None = None
    unread: tuple[str, ...] = ()


def unreadable(name: str, why: str) -> UsageError:
    """Return the error for a file that describes no workload."""
    return UsageError(
        "bad-workload-file", msg("error.bad-workload-file", name=name[:80], why=why[:200]), msg("hint.bad-workload-file")
    )
