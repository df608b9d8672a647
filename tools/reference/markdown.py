"""Markdown from values: tables, code and escaped text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SPECIAL = re.compile(r"([\\`*{\[<|])")


def text(value: object) -> str:
    """Text with Markdown's special characters escaped."""
    return _SPECIAL.sub(r"\\\1", " ".join(str(value).split()))


def code(value: object) -> str:
    """A name as code, or "" if empty; a bar is escaped, since it would end a table's cell."""
    word = " ".join(str(value).split()).replace("|", "∣")
    return f"`{word}`" if word else ""


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    lines = [" | ".join(header), " | ".join("---" for _ in header), *(" | ".join(row) for row in rows)]
    return "".join(f"| {line} |\n" for line in lines)


def anchor(*words: str) -> str:
    """An id from words that does not change with the heading's text."""
    return re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")


def heading(level: int, words: str, id: str) -> str:
    """A heading with its own id."""
    return f"\n{'#' * level} {words} {{ #{id} }}\n\n"
