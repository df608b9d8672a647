"""The idle rule: warn after a time limit, then count down and run the user's command if one is given.

Time counts toward the limit only between readings in which all GPUs are idle. A reading with a busy GPU resets the time
and stops a countdown; a failed reading does neither, and never causes the command to run.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

IdleEvent = Literal["idle", "countdown", "cancelled-busy", "cancelled-user", "run"]


class IdleRule(msgspec.Struct, frozen=True):
    """Warn after `limit` idle seconds and again after each further `limit`; with a command, then count down `countdown`."""

    limit: float | None
    countdown: float = 60.0
    command: bool = False


class IdleState(msgspec.Struct, frozen=True):
    """State of the idle rule: seconds for which all GPUs were idle, warnings given, seconds left of a countdown."""

    idle: float = 0.0
    warnings: int = 0
    left: float | None = None
    done: bool = False


def advance_idle_rule(
    watch: IdleState, rule: IdleRule, seconds: float, idle: bool | None, cancelled: bool = False
) -> tuple[IdleState, tuple[IdleEvent, ...]]:
    """Return the idle rule's state after `seconds` and a reading (`idle`: None if unknown), and the events to report."""
    if watch.done:
        return watch, ()
    if cancelled and watch.left is not None:
        return IdleState(), ("cancelled-user",)
    if idle is False:
        return IdleState(), ("cancelled-busy",) if watch.left is not None else ()
    if idle is None:
        return watch, ()
    watch = replace(watch, idle=watch.idle + max(0.0, seconds))
    if rule.limit is None:
        return watch, ()
    if watch.left is not None:
        left = watch.left - max(0.0, seconds)
        return (replace(watch, left=0.0, done=True), ("run",)) if left <= 0 else (replace(watch, left=left), ())
    if watch.idle < rule.limit * (watch.warnings + 1):
        return watch, ()
    watch = replace(watch, warnings=int(watch.idle // rule.limit) if rule.limit else watch.warnings + 1)
    if rule.command:
        return replace(watch, left=rule.countdown), ("idle", "countdown")
    return watch, ("idle",)
