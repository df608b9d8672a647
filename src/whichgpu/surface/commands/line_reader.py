"""Reader of lines from a file or standard input, one at a time, with limits on length and number."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from threading import Timer
from typing import BinaryIO

from whichgpu.api.workloads.remarks import MAX_LINE_BYTES
from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg

MAX_SKIPPED_BYTES = 64 * MAX_LINE_BYTES  # A line that is too long is skipped up to this size; a longer one is an error.
PIPE_WAIT_SECONDS = 1.0  # Seconds without a writer after which a named pipe is reported (set by judgement).
BATCH_LINES = 1000  # Lines of a file that are answered at a time.
MAX_INVALID_LINES = 10_000  # Reading a pipe stops after this many lines without a valid request.


def open_source(source: str, on_wait: Callable[[], None] = lambda: None) -> BinaryIO:
    """Open the file of that name; `-` is standard input. `on_wait` is called if a named pipe has no writer for a while."""
    if source == "-":
        if sys.stdin is None:  # The parent process closed standard input.
            message = msg("error.requests-unreadable", name="-", why=os.strerror(errno.EBADF))
            raise UsageError("requests-unreadable", message, msg("hint.request"))
        return open(sys.stdin.fileno(), "rb", closefd=False) if _has_descriptor() else sys.stdin.buffer
    timer = Timer(PIPE_WAIT_SECONDS, on_wait)  # Opening a named pipe lasts until another process opens it to write.
    timer.daemon = True
    try:
        timer.start()
        return open(source, "rb")
    except OSError as problem:
        message = msg("error.requests-unreadable", name=source, why=problem.strerror or str(problem))
        raise UsageError("requests-unreadable", message, msg("hint.request")) from problem
    finally:
        timer.cancel()


def batch_size(stream: BinaryIO) -> int:
    """Return how many lines to answer at a time: many of a file, one of a pipe."""
    try:
        return BATCH_LINES if stat.S_ISREG(os.fstat(stream.fileno()).st_mode) else 1
    except (OSError, ValueError, AttributeError):
        return 1


def _has_descriptor() -> bool:
    try:
        return sys.stdin.fileno() >= 0
    except (OSError, ValueError, AttributeError):
        return False


class Lines:
    """Iterator over the lines of a stream; a line that is too long is cut off.

    Raises for a line that never ends, and for a pipe with MAX_INVALID_LINES lines while `answered` (set by the caller) is 0.
    """

    def __init__(self, stream: BinaryIO, source: str) -> None:
        self.answered = 0
        self._stream, self._source, self._is_file = stream, source, batch_size(stream) > 1

    def __iter__(self) -> Iterator[bytes]:
        number = 0
        while line := self._stream.readline(MAX_LINE_BYTES + 2):
            number += 1
            yield line
            self._skip_rest(line, number)
            if number >= MAX_INVALID_LINES and not (self.answered or self._is_file):
                message = msg("error.requests-in-vain", name=self._source, n=number)
                raise UsageError("no-requests", message, msg("hint.request"))

    def _skip_rest(self, line: bytes, number: int) -> None:
        """Skip the rest of a line that is too long."""
        skipped = 0
        while len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            skipped += len(line)
            if skipped > MAX_SKIPPED_BYTES:
                message = msg("error.line-endless", name=self._source, line=number, most=f"{MAX_SKIPPED_BYTES >> 20} MiB")
                raise UsageError("line-endless", message, msg("hint.request"))
            line = self._stream.readline(MAX_LINE_BYTES + 2)
