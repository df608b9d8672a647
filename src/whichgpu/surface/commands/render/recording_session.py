"""A session that records what a command would print: sentences, tables and rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from whichgpu.base.codec import Cell
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.messages import Message
from whichgpu.surface.cells import chosen_columns, flat_rows, heading
from whichgpu.surface.commands.session import Session


class RecordedTable(msgspec.Struct, frozen=True):
    """Heading and rows of a printed table, as text."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class RecordingSession(Session):
    """Session that records output: `parts` has sentences and tables in order, `rows` the cells of the first table."""

    parts: list[str | RecordedTable] = msgspec.field(default_factory=list)
    rows: list[dict[str, Any]] = msgspec.field(default_factory=list)

    def note(self, text: str) -> None:
        self.parts.append(text)

    def show(self, answer: object, rows: Sequence[object], default: Sequence[str], headline: Message | None = None) -> None:
        """Record the rows of an answer instead of printing them, as text or, for CSV, as cells."""
        if self.format == "json":
            self.emit(answer)
            return
        if headline:
            self.say(headline)
        if self.format == "csv":
            self._keep(flat_rows(rows, exact=False))
            return
        cells = flat_rows(rows)
        names = chosen_columns(None, cells, default, self.language)
        self.table([heading(name, self.language) for name in names], [self.words(row, names) for row in cells])

    def table(self, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        if self.format == "csv":
            self._keep([dict(zip(header, row, strict=True)) for row in rows])  # type: ignore[arg-type]
        texts = tuple(tuple("" if cell is None else str(cell) for cell in row) for row in rows)
        self.parts.append(RecordedTable(tuple(header), texts))

    def table_of_columns(self, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        self.table(header, rows)

    def fail(self, error: WhichGpuError) -> int:
        self.say(error.message)
        if error.hint:
            self.say(error.hint)
        return error.exit_code

    def _keep(self, rows: list[dict[str, Cell]]) -> None:
        self.rows = self.rows or rows
