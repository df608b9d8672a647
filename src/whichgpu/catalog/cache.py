"""Disk cache of records built from tables, valid until a table or the code changes.

A cache that is missing, stale, damaged or not writable costs only the time to rebuild.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar
from zlib import crc32

import msgspec

from whichgpu.base.files import read_regular_file, user_folder, write_atomically
from whichgpu.base.version import __version__

T = TypeVar("T")
MAX_BYTES = 64 << 20  # Largest size of one cache file; those written are far smaller (set by judgement).
CHECKSUM_BYTES = 4  # Size of a CRC-32.
SCHEMA = Path(__file__).parent / "data" / "fields.csv"


def load_or_build(name: str, kind: type[T], files: Sequence[Path], build: Callable[[], tuple[T, ...]]) -> tuple[T, ...]:
    """Return the cached result of `build`, or build and cache it if one of the files has changed."""
    folder = user_folder("XDG_CACHE_HOME", ".cache")
    if folder is None:
        return build()
    path = folder / "whichgpu" / f"{name}-{_digest(files)}.msgpack"
    try:
        return msgspec.msgpack.decode(_verified(read_regular_file(path, MAX_BYTES)), type=tuple[kind, ...])  # type: ignore[valid-type]
    except (OSError, ValueError, msgspec.DecodeError):
        records = build()
    with contextlib.suppress(OSError, OverflowError):
        path.parent.mkdir(parents=True, exist_ok=True)
        content = msgspec.msgpack.encode(records)
        write_atomically(path, _checksum(content) + content)
        for old in path.parent.glob(f"{name}-*.msgpack"):
            if old != path:
                old.unlink(missing_ok=True)
    return records


def _verified(file: bytes) -> memoryview:
    """Return the content of a cache file; raise ValueError if its checksum does not match."""
    content = memoryview(file)[CHECKSUM_BYTES:]
    if file[:CHECKSUM_BYTES] != _checksum(content):
        raise ValueError("damaged")
    return content


def _checksum(content: bytes | memoryview) -> bytes:
    """Return the CRC-32 of the content; it detects damage, not attacks, since who can write the cache can write the tables."""
    return crc32(content).to_bytes(CHECKSUM_BYTES, "big")


def _digest(files: Sequence[Path]) -> str:
    """Return a digest of the table files and of the code that reads them, which changes if either does."""
    digest = blake2b(_code_digest(), digest_size=16)
    for path in (*files, SCHEMA):
        digest.update(_length_and_content(path))
    return digest.hexdigest()


@cache
def _code_digest() -> bytes:
    """Return a digest of this package's code, which cannot change while it runs."""
    packages = (Path(__file__).parent, Path(__file__).parent.parent / "base")
    digest = blake2b(__version__.encode(), digest_size=16)
    for path in (path for package in packages for path in sorted(package.glob("*.py"))):
        digest.update(_length_and_content(path))
    return digest.digest()


def _length_and_content(path: Path) -> bytes:
    try:
        content = read_regular_file(path, MAX_BYTES)
    except OSError:  # If a file cannot be read, the build reports why.
        content = b"unreadable"
    return len(content).to_bytes(8, "big") + content
