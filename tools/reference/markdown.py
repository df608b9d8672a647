"""Markdown out of values: tables, and text that stays text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SPECIAL = re.compile(r"([\\`*{\[<|])")


def text(value: object) -> str:
    """Words that Markdown does not read as its own signs."""
    return _SPECIAL.sub(r"\\\1", " ".join(str(value).split()))


def code(value: object) -> str:
    """A name as code; nothing where there is none. A bar would end a table's cell."""
    word = " ".join(str(value).split()).replace("|", "∣")
    return f"`{word}`" if word else ""


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    lines = [" | ".join(header), " | ".join("---" for _ in header), *(" | ".join(row) for row in rows)]
    return "".join(f"| {line} |\n" for line in lines)


def anchor(*words: str) -> str:
    """An id that stays when a heading's words change."""
    return re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")


def heading(level: int, words: str, id: str) -> str:
    """A heading with an id of its own."""
    return f"\n{'#' * level} {words} {{ #{id} }}\n\n"
