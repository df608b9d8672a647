"""A session that keeps what a command would print, as values: sentences, tables, rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from whichgpu.base.codec import Cell
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.messages import Message
from whichgpu.surface.cells import chosen, flat_rows, label
from whichgpu.surface.commands.session import Session


@dataclass(frozen=True, slots=True)
class Table:
    """A table in words."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(slots=True)
class Recording(Session):
    """Nothing is printed but JSON; `told` are the sentences and tables in their order, `rows` the cells of the first table."""

    told: list[str | Table] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Keep a sentence."""
        self.told.append(text)

    def show(self, answer: object, rows: Sequence[object], usual: Sequence[str], headline: Message | None = None) -> None:
        """Keep the rows, as words or as cells."""
        if self.format == "json":
            self.emit(answer)
            return
        if headline:
            self.say(headline)
        if self.format == "csv":
            self._keep(flat_rows(rows, exact=False))
            return
        cells = flat_rows(rows)
        names = chosen(None, cells, usual, self.language)
        self.table([label(name, self.language) for name in names], [self.words(row, names) for row in cells])

    def table(self, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Keep a table."""
        if self.format == "csv":
            self._keep([dict(zip(header, row, strict=True)) for row in rows])  # type: ignore[arg-type]
        texts = tuple(tuple("" if cell is None else str(cell) for cell in row) for row in rows)
        self.told.append(Table(tuple(header), texts))

    def table_of_columns(self, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """As wide as it is."""
        self.table(header, rows)

    def fail(self, error: WhichGpuError) -> int:
        """Keep what is wrong as the sentence it is."""
        self.say(error.message)
        if error.hint:
            self.say(error.hint)
        return error.exit_code

    def _keep(self, rows: list[dict[str, Cell]]) -> None:
        self.rows = self.rows or rows
