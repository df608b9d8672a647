"""Bundled data files, checked against the digests in `SHA256SUMS` when they are read.

A checkout accepts changed tables; `catalog check` lists what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from whichgpu.base.records import field_types

PACKAGE = Path(__file__).parent.parent
SUMS = PACKAGE / "SHA256SUMS"
CODE_SUFFIXES = (".py", ".pyc")
T = TypeVar("T", bound=msgspec.Struct)


def read_data(path: Path) -> bytes:
    """Return the bytes of a bundled file; raise DataError if it differs from the release."""
    content = path.read_bytes()
    check_data(path, content)
    return content


def data_rows(path: Path) -> tuple[dict[str, str], ...]:
    """Return the rows of a bundled CSV table, all cells as text."""
    from csv import DictReader
    from io import StringIO

    return tuple(DictReader(StringIO(read_data(path).decode("utf-8"), newline="")))


def parse_record(kind: type[T], row: Mapping[str, str], **computed: Any) -> T:
    """Convert a CSV row to a record, each cell by its field's type (an empty number is 0), and add the `computed` fields."""
    cells = {name: PARSERS[type_](row[name]) for name, type_ in field_types(kind).items() if name not in computed}
    return kind(**cells, **computed)


PARSERS: Mapping[Any, Callable[[str], Any]] = {
    "str": str,
    "int": lambda cell: int(cell or 0),
    "float": lambda cell: float(cell or 0),
    "float | None": lambda cell: float(cell) if cell else None,
    "bool": lambda cell: cell == "yes",
    "bool | None": {"yes": True, "no": False}.get,
    "tuple[str, ...]": lambda cell: tuple(cell.split(";")) if cell else (),
}


def check_data(path: Path, content: bytes) -> None:
    """Raise DataError if the content of a bundled file differs from the release; other files are not checked."""
    if running_from_checkout() or PACKAGE not in path.parents or released_digests().get(_name(path)) == digest(content):
        return
    from whichgpu.base.errors import DataError
    from whichgpu.base.messages import msg

    raise DataError("altered-data", msg("error.altered-data", path=str(path)), msg("hint.altered-data"))


def altered_files() -> tuple[str, ...]:
    """Return the names of bundled data files that differ from the release, are missing or were added."""
    present = {_name(path): path for path in data_files()}
    released = released_digests()
    changed = [name for name, path in present.items() if released.get(name) != digest(path.read_bytes())]
    return tuple(sorted({*changed, *(released.keys() - present.keys())}))


@cache
def released_digests() -> Mapping[str, str]:
    """Return the released SHA-256 digests by file name, read from `SHA256SUMS`; empty if it is unreadable."""
    try:
        lines = SUMS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return {}
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def checksum_lines() -> str:
    """Return what `SHA256SUMS` should contain for the present data files, in the format of `sha256sum -c`."""
    return "".join(f"{digest(path.read_bytes())}  {_name(path)}\n" for path in data_files())


def data_files() -> Iterator[Path]:
    """Yield the path of every bundled data file (all that is not code), sorted by name."""
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix not in CODE_SUFFIXES and path != SUMS and path.is_file():
            yield path


@cache
def running_from_checkout() -> bool:
    """Whether this code runs from a checkout of the project."""
    return (PACKAGE.parent.parent / "pyproject.toml").is_file()


def digest(content: bytes) -> str:
    """Return the SHA-256 of the content as hexadecimal text."""
    from hashlib import sha256  # Imported here: help and completion read no data and start faster without it.

    return sha256(content).hexdigest()


def _name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()
