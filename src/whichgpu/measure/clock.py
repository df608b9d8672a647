"""The system clock, with pauses that the user can end by the Enter key at a terminal."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from datetime import UTC, datetime


class SystemClock:
    """Clock of the watch loop that uses system time; with `listening`, the Enter key ends a pause."""

    def __init__(self, listening: bool = False) -> None:
        self._keyboard = _keyboard() if listening else None

    def now(self) -> float:
        return time.monotonic()

    def date(self) -> datetime:
        """Return date and time in UTC, since readings of several machines are compared."""
        return datetime.now(UTC)

    def pause(self, seconds: float) -> bool:
        if self._keyboard is None or not _in_front(self._keyboard):
            time.sleep(max(0.0, seconds))
            return False
        ready, _, _ = select.select([self._keyboard], [], [], max(0.0, seconds))
        if not ready:
            return False
        if os.read(self._keyboard, 4096):
            return True
        self._keyboard = None  # The terminal was closed, so no key is read from now on.
        return False


def _keyboard() -> int | None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return sys.stdin.fileno() if sys.stdin.isatty() else None
    return None


def _in_front(descriptor: int) -> bool:
    """Whether this process may read the terminal; a background process would be stopped."""
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except (OSError, AttributeError):
        return False
