"""Standard output, with its two ways of failing told apart from every other error."""

from __future__ import annotations

import contextlib
import os
from typing import Any, TextIO


class ReaderGone(Exception):
    """The reader closed the pipe."""


class CannotWrite(Exception):
    """The disk is full, or the like."""


class Output:
    """A stream that behaves as the one it wraps, but for what it raises."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, or say why not."""
        try:
            return self._stream.write(text)
        except OSError as problem:
            raise write_error(problem) from problem

    def flush(self) -> None:
        """Flush, or say why not."""
        try:
            self._stream.flush()
        except OSError as problem:
            raise write_error(problem) from problem


def write_error(problem: OSError) -> Exception:
    """What a failed write means."""
    return ReaderGone() if isinstance(problem, BrokenPipeError) else CannotWrite(problem.strerror or str(problem))


def silence(stream: TextIO) -> None:
    """What is still buffered can go nowhere; do not let the interpreter complain of it at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
