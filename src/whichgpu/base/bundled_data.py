"""Bundled data as it was released: `SHA256SUMS` lists every file of it, and what is read is held against that.

In a checkout tables are there to be changed, so nothing is refused there; `catalog check` names what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

PACKAGE = Path(__file__).parent.parent
SUMS = PACKAGE / "SHA256SUMS"
NO_DATA = (".py", ".pyc")
T = TypeVar("T")


def read_data(path: Path) -> bytes:
    """The bytes of a bundled file; a DataError that names it where it is not as it was released. OSError as usual."""
    content = path.read_bytes()
    check_data(path, content)
    return content


def data_rows(path: Path) -> tuple[dict[str, str], ...]:
    """The rows of a bundled CSV table, all cells as text."""
    from csv import DictReader
    from io import StringIO

    return tuple(DictReader(StringIO(read_data(path).decode("utf-8"), newline="")))


def parse_record(kind: type[T], row: Mapping[str, str], **made: Any) -> T:
    """A row as a dataclass: cells by the type of their field, an empty number as 0; `made` are fields of no single cell."""
    return kind(**{one.name: READERS[one.type](row[one.name]) for one in fields(kind) if one.name not in made}, **made)  # type: ignore[arg-type]


READERS: Mapping[Any, Callable[[str], Any]] = {
    "str": str,
    "int": lambda cell: int(cell or 0),
    "float": lambda cell: float(cell or 0),
    "float | None": lambda cell: float(cell) if cell else None,
    "bool": lambda cell: cell == "yes",
    "bool | None": {"yes": True, "no": False}.get,
    "tuple[str, ...]": lambda cell: tuple(cell.split(";")) if cell else (),
}


def check_data(path: Path, content: bytes) -> None:
    """Refuse content that is not what was released under that path; files of others are no matter of ours."""
    if running_from_checkout() or PACKAGE not in path.parents or released_digests().get(_name(path)) == digest(content):
        return
    from whichgpu.base.errors import DataError
    from whichgpu.base.messages import msg

    raise DataError("altered-data", msg("error.altered-data", path=str(path)), msg("hint.altered-data"))


def altered_files() -> tuple[str, ...]:
    """Names of bundled files that differ from what was released, are missing or were added."""
    found = {_name(path): path for path in data_files()}
    stated = released_digests()
    changed = [name for name, path in found.items() if stated.get(name) != digest(path.read_bytes())]
    return tuple(sorted({*changed, *(stated.keys() - found.keys())}))


@cache
def released_digests() -> Mapping[str, str]:
    """Digests by name, as the file states them; none where it cannot be read."""
    try:
        lines = SUMS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return {}
    return {name: told for told, _, name in (line.partition("  ") for line in lines)}


def checksum_lines() -> str:
    """What `SHA256SUMS` should hold; `sha256sum -c` reads it, too."""
    return "".join(f"{digest(path.read_bytes())}  {_name(path)}\n" for path in data_files())


def data_files() -> Iterator[Path]:
    """Every bundled file that is no code, in order of their names."""
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix not in NO_DATA and path != SUMS and path.is_file():
            yield path


@cache
def running_from_checkout() -> bool:
    """Whether this runs from the project's own tree."""
    return (PACKAGE.parent.parent / "pyproject.toml").is_file()


def digest(content: bytes) -> str:
    """SHA-256, as text."""
    from hashlib import sha256  # here, since help and completion read no data and start faster without it

    return sha256(content).hexdigest()


def _name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()
