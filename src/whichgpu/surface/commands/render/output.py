"""Standard output with two exceptions of its own for failed writes: the reader is gone, or nothing can be written."""

from __future__ import annotations

import contextlib
import os
from typing import Any, TextIO


class ReaderGone(Exception):
    """Raised if the process that reads standard output has closed the pipe."""


class CannotWrite(Exception):
    """Raised if writing to standard output fails, for example on a full disk."""


class Output:
    """A wrapper around an output stream that raises `ReaderGone` or `CannotWrite` if a write fails."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as problem:
            raise write_error(problem) from problem

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as problem:
            raise write_error(problem) from problem


def write_error(problem: OSError) -> Exception:
    """Return the exception for a failed write: `ReaderGone` if the pipe was closed, else `CannotWrite`."""
    return ReaderGone() if isinstance(problem, BrokenPipeError) else CannotWrite(problem.strerror or str(problem))


def silence(stream: TextIO) -> None:
    """Redirect a stream to the null device, so that the interpreter does not report its unwritten buffer at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
