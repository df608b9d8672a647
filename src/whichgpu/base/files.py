"""Reading files that other programs may have made, writing files atomically, and the user's own folders."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_regular_file(path: Path, max_bytes: int) -> bytes:
    """Return the bytes of a regular file; raise OSError for a pipe, a device or a larger file, without blocking."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if status.st_size > max_bytes:
            raise OSError(errno.EFBIG, f"larger than {max_bytes >> 20} MiB", str(path))
        return file.read(max_bytes)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file under a temporary name and rename it, so that it is complete or absent."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    temporary.unlink(missing_ok=True)
    try:
        with temporary.open("xb") as file:  # Mode "x" never overwrites a file or follows a link of another program.
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def user_folder(variable: str, default: str) -> Path | None:
    """Return a folder of the user by the XDG rules, or None if there is no home directory."""
    value = os.environ.get(variable)
    try:
        folder = Path(value) if value else Path("~").expanduser() / default
    except RuntimeError:  # There is no home directory.
        return None
    return folder if folder.is_absolute() else None


def data_folder() -> Path | None:
    """Return the folder of the user's prices and records: WHICHGPU_DATA, or the user's data directory; None without a home."""
    if chosen := os.environ.get("WHICHGPU_DATA"):
        return user_path(chosen)
    usual = user_folder("XDG_DATA_HOME", ".local/share")
    return usual / "whichgpu" if usual else None


def user_path(text: str | os.PathLike[str]) -> Path:
    """Return a path as typed, with ~ expanded if there is a home directory."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)
