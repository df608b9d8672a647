"""Reading files others may have made: regular files only, and no more of them than makes sense."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_regular_file(path: Path, most: int) -> bytes:
    """The bytes of a regular file of at most `most` bytes; anything else is an OSError, and nothing is waited for."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if found.st_size > most:
            raise OSError(errno.EFBIG, f"larger than {most >> 20} MiB", str(path))
        return file.read(most)


def user_folder(variable: str, usual: str) -> Path | None:
    """A folder of the user's own by the XDG rules; None where there is no home to put it in."""
    named = os.environ.get(variable)
    try:
        folder = Path(named) if named else Path("~").expanduser() / usual
    except RuntimeError:  # no home directory
        return None
    return folder if folder.is_absolute() else None


def user_path(text: str | os.PathLike[str]) -> Path:
    """A path as typed, with ~ read as the home directory where there is one."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)
