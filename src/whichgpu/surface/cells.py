"""Fields as people read them: each by its name's ending, so that a new field of a known kind needs nothing here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whichgpu.base.codec import Cell, columns, flat
from whichgpu.base.messages import SOURCE_LANGUAGE, Language, english
from whichgpu.base.names import unknown_word
from whichgpu.base.numerals import Numeral
from whichgpu.base.units import GB, format_bandwidth, format_flops, format_memory, significant

SENTENCES = (
    "quirks",
    "what",
    "note",
    "city",
)  # cells that are sentences, or names each language has its own for


def human(name: str, value: Cell, language: Language) -> str:
    """A cell in words and units; empty where there is no value."""
    if value is None or value == "":
        return ""
    last = name.rpartition(".")[2]
    if isinstance(value, bool):
        return language.text("word.yes" if value else "word.no")
    if last == "fits":
        return language.text(f"verdict.{value}")
    if last in SENTENCES and isinstance(value, str) and language.code != SOURCE_LANGUAGE:
        return " ".join(map(language.fact, _sentences(value)))
    if isinstance(value, str):
        return value.replace(".;", ". ").replace(";", ", ")
    if name.startswith("relative."):
        return f"{significant(value)}x"
    if name.startswith("peaks."):
        return format_flops(int(value)).replace("FLOP", "OP") if last.startswith("int") else format_flops(int(value))
    if last.endswith("parameters"):
        return f"{significant(value / 10**9, 4)} B" if value >= 10**9 else f"{significant(value / 10**6, 4)} M"
    if last in ("needed", "usable", "headroom"):
        return ("-" if value < 0 else "") + format_memory(int(abs(value)))
    if last == "local_disk_bytes":
        return f"{significant(value / GB, 4)} GB"
    if last.endswith("bytes"):
        return format_memory(int(value))
    if last.endswith("bandwidth"):
        return format_bandwidth(int(value))
    if last.endswith("_hz"):
        return f"{value / 10**6:,.0f} MHz"
    if last.endswith("_watts"):
        return f"{significant(value, 4)} W"
    if last.endswith("_gbps"):
        return f"{significant(value, 4)} Gbit/s"
    if last.endswith("_bits"):
        return f"{value} bit"
    if last in ("latitude", "longitude"):
        return Numeral(f"{value:.2f}")
    return Numeral(f"{value:g}") if isinstance(value, float) else str(value)


def _sentences(cell: str) -> list[str]:
    """The sentences a cell holds one after the other."""
    parts = cell.split(".;")
    return [f"{part}." for part in parts[:-1]] + parts[-1:]


def label(name: str, language: Language) -> str:
    """The heading of a field in the reader's language; its own name where there is none."""
    id = f"field.{name}"
    return language.text(id) if id in language else name


def field_named(text: str | None, kind: type, language: Language) -> str | None:
    """A field by its own name or by its heading (`power` is tdp_watts), with the minus of a sort order kept."""
    if text is None:
        return None
    minus = "-" if text.startswith("-") else ""
    return minus + _by_heading(text.removeprefix("-"), columns(kind), language).removeprefix("peaks.")


def sorted_by(request: Mapping[str, Any], kind: type, language: Language, apart: str = "") -> dict[str, Any]:
    """A request whose `sort` is a field's own name, where it was given by its heading; one that starts with `apart` stays."""
    sort = request.get("sort")
    if not isinstance(sort, str) or (apart and sort.lstrip("-").startswith(apart)):
        return dict(request)
    return {**request, "sort": field_named(sort, kind, language)}


def _by_heading(text: str, known: Sequence[str], language: Language) -> str:
    name = text.strip().replace("-", "_")
    if name in known:
        return name
    wanted = _bare(text)
    headings = ((label(field, speech), field) for speech in (language, english()) for field in known)
    return next((field for heading, field in headings if wanted and _bare(heading) == wanted), name)


def _bare(heading: str) -> str:
    """A heading without case, blanks and punctuation, in any script."""
    return "".join(letter for letter in heading.casefold() if letter.isalnum() or letter == "+")


def flat_rows(values: Sequence[object], exact: bool = True) -> list[dict[str, Cell]]:
    """Rows with one set of columns: what one of them has, all have."""
    rows = [flat(value, exact) for value in values]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return [{name: row.get(name) for name in names} for row in rows]


def chosen(wanted: str | None, rows: list[dict[str, Cell]], usual: Sequence[str], language: Language) -> list[str]:
    """Columns to show: the usual ones, all, or those the user names (`peaks` stands for all of `peaks.*`)."""
    known = list(rows[0]) if rows else []
    if wanted is None:
        return [name for name in usual if name in known] or known
    if wanted == "all":
        return known
    names: list[str] = []
    for part in (_by_heading(part, known, language) for part in wanted.split(",")):
        found = [name for name in known if name in (part, f"peaks.{part}") or name.startswith(f"{part}.")]
        if not found:
            raise unknown_word("field", part, known)
        names += [name for name in found if name not in names]
    return names
