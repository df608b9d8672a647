"""Lines of a file or of standard input, one at a time and within bounds, so that none takes much memory or never ends."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from typing import BinaryIO

from whichgpu.api.workloads.remarks import MAX_LINE_BYTES
from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg

PASSED_OVER = 64 * MAX_LINE_BYTES  # bytes of one line after which no end of it is to be expected
TOGETHER = 1000  # lines of a file taken at a time
IN_VAIN = 10_000  # lines after which no request is to be expected where none was met


def opened(source: str) -> BinaryIO:
    """The file of that name; `-` is standard input."""
    if source == "-":
        if sys.stdin is None:  # closed by whoever started this
            message = msg("error.requests-unreadable", name="-", why=os.strerror(errno.EBADF))
            raise UsageError("requests-unreadable", message, msg("hint.request"))
        return open(sys.stdin.fileno(), "rb", closefd=False) if _has_descriptor() else sys.stdin.buffer
    try:
        return open(source, "rb")
    except OSError as problem:
        message = msg("error.requests-unreadable", name=source, why=problem.strerror or str(problem))
        raise UsageError("requests-unreadable", message, msg("hint.request")) from problem


def together(stream: BinaryIO) -> int:
    """Lines to take at a time: many of a file, which is there; of a pipe each as it comes."""
    try:
        return TOGETHER if stat.S_ISREG(os.fstat(stream.fileno()).st_mode) else 1
    except (OSError, ValueError, AttributeError):
        return 1


def _has_descriptor() -> bool:
    try:
        return sys.stdin.fileno() >= 0
    except (OSError, ValueError, AttributeError):
        return False


class Lines:
    """Lines of a stream; of one too long only the beginning, which is enough to refuse it.

    Gives up on what cannot be requests: a line without end, or where lines may go on for ever, none counted as `answered`.
    """

    def __init__(self, stream: BinaryIO, source: str) -> None:
        self.answered = 0
        self._stream, self._source, self._finite = stream, source, together(stream) > 1

    def __iter__(self) -> Iterator[bytes]:
        number = 0
        while line := self._stream.readline(MAX_LINE_BYTES + 2):
            number += 1
            yield line
            self._pass_over(line, number)
            if number >= IN_VAIN and not (self.answered or self._finite):
                message = msg("error.requests-in-vain", name=self._source, n=number)
                raise UsageError("no-requests", message, msg("hint.request"))

    def _pass_over(self, line: bytes, number: int) -> None:
        """Read on to the end of a line too long."""
        passed = 0
        while len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            passed += len(line)
            if passed > PASSED_OVER:
                message = msg("error.line-endless", name=self._source, line=number, most=f"{PASSED_OVER >> 20} MiB")
                raise UsageError("line-endless", message, msg("hint.request"))
            line = self._stream.readline(MAX_LINE_BYTES + 2)
