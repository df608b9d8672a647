"""Disk cache of results: one small file each, named by a hash of the function, its argument and its seed.

A file is written under a temporary name and renamed, so it is complete or absent. Reading verifies its checksum; a damaged file
is renamed and counts as missing.
"""

from __future__ import annotations

import contextlib
from array import array
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from whichgpu.base.files import read_regular_file, user_folder, write_atomically
from whichgpu.base.version import __version__

FILE_FORMAT = 1  # Version of the file layout; files of another version are not used.
MAX_RESULT_BYTES = 64 << 20  # Larger files are not read (assumed; a result takes a few KiB).
DAMAGED_SUFFIX = ".damaged"


class ResultCache(msgspec.Struct, frozen=True):
    """Folder of cached results of a sweep (one function over many items); `kind` is the type a result is read back as.

    `stamp` identifies what else decides a result, such as data files. Results of another version of this program are not used.
    """

    folder: Path
    kind: Any
    stamp: str = ""

    def name(self, function: str, item: object, seed: int) -> str:
        """Return the hash that identifies the result of a function for an item and a seed."""
        return content_hash([FILE_FORMAT, __version__, self.stamp, function, seed, item])

    def path(self, name: str) -> Path:
        """Return the path of the file that stores the result with that hash."""
        return self.folder / name[:2] / f"{name}.json"

    def write(self, name: str, result: Any) -> None:
        """Store a result; raise ValueError if reading it back would give another value."""
        import msgspec

        text = msgspec.json.encode(result)
        try:
            reads_back = msgspec.json.decode(text, type=self.kind) == result
        except msgspec.MsgspecError:
            reads_back = False
        if not reads_back:
            raise ValueError(f"a result of {type(result).__name__} does not come back the same as {self.kind}")
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, _checksum(name, text).encode() + b"\n" + text + b"\n")

    def read(self, name: str) -> tuple[bool, Any]:
        """Return whether there is a valid cached result, and that result; a damaged file is renamed."""
        import msgspec

        path = self.path(name)
        try:
            checksum, _, text = read_regular_file(path, MAX_RESULT_BYTES).partition(b"\n")
        except OSError:
            return False, None
        text = text.removesuffix(b"\n")
        try:
            if checksum.decode("ascii", "replace") != _checksum(name, text):
                raise ValueError
            return True, msgspec.json.decode(text, type=self.kind)
        except (ValueError, msgspec.MsgspecError):
            with contextlib.suppress(OSError):  # A read-only folder keeps the damaged file; the result is computed again.
                path.replace(path.with_suffix(DAMAGED_SUFFIX))
            return False, None


def content_hash(value: object) -> str:
    """SHA-256 of a value made of numbers, texts, tuples, mappings and records: equal values have equal hashes.

    >>> content_hash([1, "a", (2.5,)]) == content_hash([1, "a", [2.5]]), content_hash([1]) == content_hash([2])
    (True, False)
    """
    import msgspec

    return sha256(msgspec.json.encode(value, order="sorted", enc_hook=_hashable)).hexdigest()


def _hashable(value: object) -> object:
    """Return a value that can be hashed: an array becomes the hash of its bytes, an object its slots."""
    if isinstance(value, array):
        return [value.typecode, len(value), sha256(value.tobytes()).hexdigest()]
    names = getattr(type(value), "__slots__", ())
    if names:
        return [type(value).__qualname__, *(getattr(value, name) for name in names)]
    raise TypeError(f"{type(value).__name__} cannot name a result")


def sweeps_folder() -> Path | None:
    """Return the default cache folder for results of sweeps (one function over many items); None without a home directory."""
    folder = user_folder("XDG_CACHE_HOME", ".cache")
    return folder / "whichgpu" / "sweeps" if folder else None


def _checksum(name: str, text: bytes) -> str:
    return sha256(name.encode() + b"\n" + text).hexdigest()
