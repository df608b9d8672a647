"""Results that outlive a run: one small file each, named by what it is the result of.

A file is written beside its place and moved there, so that there is a whole one or none; what it holds is checked by its sum when
it is read, and one that does not check is set aside and counted as missing.
"""

from __future__ import annotations

import contextlib
import os
from array import array
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from whichgpu.base.files import read_regular_file, user_folder
from whichgpu.base.version import __version__

FORM = 1  # of the files
LARGEST = 64 << 20  # bytes of one result
ASIDE = ".damaged"


@dataclass(frozen=True, slots=True)
class ResultCache:
    """Where results of a sweep are kept. `kind` is what one is: the type it is read back as.

    `stamp` names all that decides a result beside its item and seed: data files, for one. Results of another version of this
    program are never taken for its own.
    """

    folder: Path
    kind: Any
    stamp: str = ""

    def name(self, function: str, item: object, seed: int) -> str:
        """What the result of a function is known by."""
        return content_hash([FORM, __version__, self.stamp, function, seed, item])

    def path(self, name: str) -> Path:
        """Its file."""
        return self.folder / name[:2] / f"{name}.json"

    def write(self, name: str, result: Any) -> None:
        """Keep a result; ValueError where it would not come back the same."""
        import msgspec

        text = msgspec.json.encode(result)
        if not self._survives(text, result):
            raise ValueError(f"a result of {type(result).__name__} does not come back the same as {self.kind}")
        place = self.path(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        beside = place.with_name(f".{place.name}.{os.getpid()}")
        try:
            with beside.open("wb") as file:
                file.write(_sum(name, text).encode() + b"\n" + text + b"\n")
                file.flush()
                os.fsync(file.fileno())
            beside.replace(place)
        finally:
            beside.unlink(missing_ok=True)

    def _survives(self, text: bytes, result: Any) -> bool:
        import msgspec

        try:
            return bool(msgspec.json.decode(text, type=self.kind) == result)
        except msgspec.MsgspecError:
            return False

    def read(self, name: str) -> tuple[bool, Any]:
        """Whether there is a sound result, and it; a damaged file is set aside."""
        import msgspec

        place = self.path(name)
        try:
            sum_, _, text = read_regular_file(place, LARGEST).partition(b"\n")
        except OSError:
            return False, None
        text = text.removesuffix(b"\n")
        try:
            if sum_.decode("ascii", "replace") != _sum(name, text):
                raise ValueError
            return True, msgspec.json.decode(text, type=self.kind)
        except (ValueError, msgspec.MsgspecError):
            with contextlib.suppress(OSError):  # read-only: it is computed anew and stays where it is
                place.replace(place.with_suffix(ASIDE))
            return False, None


def content_hash(value: object) -> str:
    """A name for a value made of numbers, words, tuples, mappings and records: equal values have equal names.

    >>> content_hash([1, "a", (2.5,)]) == content_hash([1, "a", [2.5]]), content_hash([1]) == content_hash([2])
    (True, False)
    """
    import msgspec

    return sha256(msgspec.json.encode(value, order="sorted", enc_hook=_long)).hexdigest()


def _long(value: object) -> object:
    """Long rows of numbers by the sum of their bytes; other objects by what they hold."""
    if isinstance(value, array):
        return [value.typecode, len(value), sha256(value.tobytes()).hexdigest()]
    names = getattr(type(value), "__slots__", ())
    if names:
        return [type(value).__qualname__, *(getattr(value, name) for name in names)]
    raise TypeError(f"{type(value).__name__} cannot name a result")


def sweeps_folder() -> Path | None:
    """Where sweeps are kept by default: in the user's cache; None where there is no home."""
    folder = user_folder("XDG_CACHE_HOME", ".cache")
    return folder / "whichgpu" / "sweeps" if folder else None


def _sum(name: str, text: bytes) -> str:
    return sha256(name.encode() + b"\n" + text).hexdigest()
