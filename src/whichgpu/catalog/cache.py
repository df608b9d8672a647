"""Records built from tables, kept in the user's cache directory until a table or the code changes.

The tables stay the truth: a cache that is missing, stale, damaged or not writable only costs the time to build anew.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

import msgspec

from whichgpu.base.version import __version__

T = TypeVar("T")


def cached(name: str, kind: type[T], files: Sequence[Path], build: Callable[[], tuple[T, ...]]) -> tuple[T, ...]:
    """What `build` gives, from the cache where these files have not changed since."""
    folder = _folder()
    path = folder / f"{name}-{_stamp(files)}.msgpack"
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=tuple[kind, ...])  # type: ignore[valid-type]
    except (OSError, msgspec.DecodeError):
        records = build()
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_bytes(msgspec.msgpack.encode(records))
        for old in folder.glob(f"{name}-*.msgpack"):
            old.unlink(missing_ok=True)
        fresh.replace(path)
    return records


def _folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path("~/.cache").expanduser()) / "whichgpu"


def _stamp(files: Sequence[Path]) -> str:
    """Names this very state of the tables and of the code that reads them."""
    code = sorted(Path(__file__).parent.glob("*.py"))
    stats = [(str(path), stat.st_mtime_ns, stat.st_size) for path in (*files, *code) for stat in [_stat(path)]]
    return blake2b(repr((__version__, stats)).encode(), digest_size=10).hexdigest()


def _stat(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError:  # the build will say what is wrong with it
        return os.stat(path.parent)
