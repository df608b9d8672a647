"""Table cells, headings and columns: the ending of a field's name decides its unit, so that new fields need no code here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whichgpu.base.codec import Cell, columns, flat
from whichgpu.base.messages import SOURCE_LANGUAGE, Language, english
from whichgpu.base.names import unknown_word
from whichgpu.base.numerals import Numeral
from whichgpu.base.units import GB, format_bandwidth, format_flops, format_memory, significant

SENTENCES = ("quirks", "what", "note", "city")  # Fields whose text has translations.


def cell_text(name: str, value: Cell, language: Language) -> str:
    """Return a table cell's value as text with the unit that its field's name implies; empty for None."""
    if value is None or value == "":
        return ""
    last = name.rpartition(".")[2]
    if isinstance(value, bool):
        return language.text("word.yes" if value else "word.no")
    if last == "fits":
        return language.text(f"verdict.{value}")
    if last == "tier":
        return language.text(f"tier.{value}")
    if last in SENTENCES and isinstance(value, str) and language.code != SOURCE_LANGUAGE:
        return " ".join(map(language.fact, _sentences(value)))
    if isinstance(value, str):
        return value.replace(".;", ". ").replace(";", ", ")
    if name.startswith("throughput.") and not isinstance(value, str):
        return significant(value)
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
    """Split the text of a table cell into its sentences, which are translated one by one."""
    parts = cell.split(".;")
    return [f"{part}." for part in parts[:-1]] + parts[-1:]


def heading(name: str, language: Language) -> str:
    """Return the heading of a field in the reader's language; without one, the field's name."""
    id = f"field.{name}"
    return language.text(id) if id in language else name


def field_by_heading(text: str | None, row_type: type, language: Language) -> str | None:
    """Return the name of a field given by name or heading (`power` is tdp_watts), with the minus of a descending order kept."""
    if text is None:
        return None
    minus = "-" if text.startswith("-") else ""
    return minus + _by_heading(text.removeprefix("-"), columns(row_type), language).removeprefix("peaks.")


def with_sort_field(request: Mapping[str, Any], row_type: type, language: Language) -> dict[str, Any]:
    """Return a request whose `sort`, if given by a column heading, is the field's own name; speed indices have no headings."""
    sort = request.get("sort")
    if not isinstance(sort, str) or sort.lstrip("-").startswith("relative."):
        return dict(request)
    return {**request, "sort": field_by_heading(sort, row_type, language)}


def _by_heading(text: str, fields: Sequence[str], language: Language) -> str:
    name = text.strip().replace("-", "_")
    if name in fields:
        return name
    title_text = _bare(text)
    headings = ((heading(field, speech), field) for speech in (language, english()) for field in fields)
    return next((field for title, field in headings if title_text and _bare(title) == title_text), name)


def _bare(title: str) -> str:
    """Return the letters and digits of a heading, casefolded, for comparison."""
    return "".join(letter for letter in title.casefold() if letter.isalnum() or letter == "+")


def flat_rows(values: Sequence[object], exact: bool = True) -> list[dict[str, Cell]]:
    """Return rows of an answer as flat dicts (`a.b` for nested fields) that all have the same columns."""
    rows = [flat(value, exact) for value in values]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return [{name: row.get(name) for name in names} for row in rows]


def chosen_columns(columns: str | None, rows: list[dict[str, Cell]], default: Sequence[str], language: Language) -> list[str]:
    """Return the columns to display: the default ones, all, or those the user names (`peaks` means all of `peaks.*`)."""
    fields = list(rows[0]) if rows else []
    if columns is None:
        return [name for name in default if name in fields] or fields
    if columns == "all":
        return fields
    names: list[str] = []
    for part in (_by_heading(part, fields, language) for part in columns.split(",")):
        matches = [name for name in fields if name in (part, f"peaks.{part}") or name.startswith(f"{part}.")]
        if not matches:
            raise unknown_word("field", part, fields)
        names += [name for name in matches if name not in names]
    return names
