"""Checks of architecture constants: each has a source or is marked as assumed, and targets exist."""

from __future__ import annotations

from collections.abc import Iterator

from whichgpu.base.messages import msg
from whichgpu.catalog.tables import Fault, Finding, Row, Tables, table_findings

NO_CONSTANTS = ("id", "parent", "assumed", "note", "sources", "recorded", "checked")
INSTRUCTIONS = ("dp4a", "mma", "wgmma", "tcgen05", "tma", "multimem")


def architectures(tables: Tables) -> list[Finding]:
    """Return findings for GPU architecture constants without source or `assumed` mark, and for rows with an unknown target."""
    targets = {row["id"] for row in tables["targets"].rows}
    return table_findings(tables, "architectures", lambda row: (*_sources(row), *_words(row, targets)))


def _sources(row: Row) -> Iterator[Fault]:
    filled = [column for column, cell in row.items() if column not in NO_CONSTANTS and cell not in (None, ())]
    unsourced = [column for column in filled if column not in row["assumed"]]
    if unsourced and not row["sources"]:
        yield "no-source", unsourced[0], msg("finding.no-source")
    for column in row["assumed"]:
        if column not in filled:
            yield "unknown-word", "assumed", msg("finding.unknown-word", word=column)
    if row["assumed"] and not row["note"]:
        yield "required", "note", msg("finding.required")


def _words(row: Row, targets: set[str]) -> Iterator[Fault]:
    for word in row["instructions"]:
        if word not in INSTRUCTIONS:
            yield "unknown-word", "instructions", msg("finding.unknown-word", word=word)
    if row["parent"] and row["id"] not in targets:
        yield "unknown-target", "id", msg("finding.unknown-reference", id=row["id"], table="targets")
    if row["kin_segment"] and not row["kin"]:
        yield "required", "kin", msg("finding.required")
