"""Records built from tables, kept in the user's cache directory until a table or the code changes.

The tables stay the truth: a cache that is missing, stale, damaged or not writable only costs the time to build anew.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar
from zlib import crc32

import msgspec

from whichgpu.base.files import read_regular_file, user_folder
from whichgpu.base.version import __version__

T = TypeVar("T")
MOST_BYTES = 64 << 20
SUM_BYTES = 4
SCHEMA = Path(__file__).parent / "data" / "fields.csv"


def load_or_build(name: str, kind: type[T], files: Sequence[Path], build: Callable[[], tuple[T, ...]]) -> tuple[T, ...]:
    """What `build` gives, from the cache where these files have not changed since."""
    folder = user_folder("XDG_CACHE_HOME", ".cache")
    if folder is None:
        return build()
    path = folder / "whichgpu" / f"{name}-{_stamp(files)}.msgpack"
    try:
        return msgspec.msgpack.decode(_sound(read_regular_file(path, MOST_BYTES)), type=tuple[kind, ...])  # type: ignore[valid-type]
    except (OSError, ValueError, msgspec.DecodeError):
        records = build()
    with contextlib.suppress(OSError, OverflowError):
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}")
        content = msgspec.msgpack.encode(records)
        fresh.write_bytes(_sum(content) + content)
        for old in path.parent.glob(f"{name}-*.msgpack"):
            old.unlink(missing_ok=True)
        fresh.replace(path)
    return records


def _sound(file: bytes) -> memoryview:
    """What a file of the cache holds; ValueError where a byte of it is not what was written."""
    content = memoryview(file)[SUM_BYTES:]
    if file[:SUM_BYTES] != _sum(content):
        raise ValueError("damaged")
    return content


def _sum(content: bytes | memoryview) -> bytes:
    """A check against accidents, not against people: who can write the cache can write the tables."""
    return crc32(content).to_bytes(SUM_BYTES, "big")


def _stamp(files: Sequence[Path]) -> str:
    """Names this very content of the tables and of the code that reads them."""
    digest = blake2b(_code(), digest_size=16)
    for path in (*files, SCHEMA):
        digest.update(_sized(path))
    return digest.hexdigest()


@cache
def _code() -> bytes:
    """Names the code, which stays the same as long as it runs."""
    rooms = (Path(__file__).parent, Path(__file__).parent.parent / "base")
    digest = blake2b(__version__.encode(), digest_size=16)
    for path in (path for room in rooms for path in sorted(room.glob("*.py"))):
        digest.update(_sized(path))
    return digest.digest()


def _sized(path: Path) -> bytes:
    try:
        content = read_regular_file(path, MOST_BYTES)
    except OSError:  # the build will say what is wrong with it
        content = b"unreadable"
    return len(content).to_bytes(8, "big") + content
