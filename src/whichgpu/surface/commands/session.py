"""What one run of the command line knows: language, terminal or pipe, today; and how it prints answers and errors."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from whichgpu.base.codec import Cell, to_json
from whichgpu.base.errors import UnknownName, WhichGpuError
from whichgpu.base.messages import Language, Message, code_of, language, languages, msg
from whichgpu.surface import tables
from whichgpu.surface.cells import chosen, flat_rows, human, label
from whichgpu.surface.commands.render.output import silence
from whichgpu.surface.documents import error_document

if TYPE_CHECKING:
    from whichgpu.api.context import Context
    from whichgpu.catalog.store import Catalog

FIRST_COLUMN, OTHER_COLUMN = 28, 18  # characters, where facts stand in rows
MOST_CATALOGS = 4


class Catalogs(dict[object, "Catalog"]):
    """Catalogs read by one process: the one of today and the last few of other days."""

    def __setitem__(self, key: object, catalog: Catalog) -> None:
        if len(self) >= MOST_CATALOGS:
            self.clear()
        super().__setitem__(key, catalog)


@dataclass(slots=True)
class Session:
    """One run. `format` is json, csv, markdown, tsv or table; None means: a table on a terminal, else TSV."""

    language: Language
    format: str | None = None
    columns: str | None = None
    catalog_folder: Path | None = None
    config_named: str | None = None
    command: tuple[str, ...] = ()
    as_of: date | None = None
    as_known: date | int | None = None
    today: date = field(default_factory=date.today)
    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    asked: Mapping[str, Any] = field(default_factory=dict)  # the command's own flags; none where an answer is shown alone
    catalogs: MutableMapping[object, Catalog] | None = None  # kept from answer to answer by who gives many
    progress: Callable[[float], None] | None = None  # how much of a long answer is done, where somebody follows it
    spell: Callable[[str], str] = str  # names a field in errors: as it is, or as the flag that was typed

    def context(self, progress: Callable[[str, float], None] | None = None) -> Context:
        """What a verb is asked with."""
        from whichgpu.api.context import Context

        return Context(self.catalog, self.as_of, self.today, self.spell, progress, wants_remedies=self.format == "json")

    @property
    def catalog(self) -> Catalog:
        """The catalog this run asks: the bundled one or the user's folder, as known now or then."""
        from whichgpu.catalog.store import Catalog  # help does without it, and it takes longer to load than all the rest

        key = (self.catalog_folder, self.as_known)
        if self.catalogs is None:
            return Catalog(*key)
        if key not in self.catalogs:
            self.catalogs[key] = Catalog(*key)
        return self.catalogs[key]

    @property
    def named(self) -> bool:
        """Whether something was asked for by name; an answer shown alone is taken to be what was meant."""
        return bool(self.asked.get("names", True))

    @property
    def for_eyes(self) -> bool:
        """Whether the answer is a table on a terminal."""
        return self.format in (None, "table") and self.out.isatty()

    def say(self, message: Message) -> None:
        """Words go to stderr; JSON readers get none."""
        self.note(self.language.render(message))

    def note(self, text: str) -> None:
        """A line already in the reader's language."""
        if self.format != "json":
            self._tell(text)

    def _tell(self, line: str) -> None:
        try:
            print(line, file=self.err, flush=True)
        except (OSError, ValueError):  # nobody is listening; the data on stdout go out all the same
            silence(self.err)

    def emit(self, document: object) -> None:
        """The whole answer as one JSON document on stdout."""
        self.out.write(to_json(document))

    def show(self, answer: object, rows: Sequence[object], usual: Sequence[str], headline: Message | None = None) -> None:
        """An answer of many rows: the whole of it as JSON, its rows otherwise; the sentence before it goes to stderr."""
        cells = flat_rows(rows)
        names = chosen(self.columns, cells, () if self.format == "csv" else usual, self.language)
        if headline:
            self.say(headline)
        if self.format == "json":
            self.emit(answer)
            return
        if self.format == "csv":
            tables.write_csv(self.out, names, [[row[name] for name in names] for row in cells])
            return
        self.table([label(name, self.language) for name in names], [self.words(row, names) for row in cells])

    def show_one(self, answer: object, row: object, headline: Message, extra: Sequence[tuple[str, str]] = ()) -> None:
        """An answer about one thing: every fact on a line of its own, in the formats meant for reading."""
        if self.format in ("json", "csv") or self.columns:
            self.show(answer, [row], (), headline)
            return
        self.say(headline)
        cells = flat_rows([row])[0]
        facts = [(label(name, self.language), human(name, value, self.language)) for name, value in cells.items()]
        header = [self.language.text("column.fact"), self.language.text("column.value")]
        self.table(header, [fact for fact in (*facts, *extra) if fact[1]])

    def table(self, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Rows of words in the format in force."""
        form = "table" if self.for_eyes else self.format or "tsv"
        if form in ("markdown", "table"):  # what programs read keeps its numbers as they are
            rows = [[self.language.localize(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
        if form == "markdown":
            tables.write_markdown(self.out, header, rows)
        elif form == "csv":
            tables.write_csv(self.out, header, rows)
        elif form == "tsv":
            tables.write_tsv(self.out, header, rows)
        else:
            right = [tables.is_numeric([row[index] for row in rows]) for index in range(len(header))]
            tables.write_terminal(self.out, header, rows, right)

    def table_of_columns(self, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """A table that grows sideways: on a terminal in groups of columns that fit, the first repeated."""
        if not self.for_eyes:
            self.table(header, rows)
            return
        room = max(1, (shutil.get_terminal_size().columns - FIRST_COLUMN) // OTHER_COLUMN)
        for start in range(1, len(header), room):
            stop = start + room
            self.table([header[0], *header[start:stop]], [[row[0], *row[start:stop]] for row in rows])

    def fail(self, error: WhichGpuError) -> int:
        """Print an error in the one shape errors have, and return its exit code."""
        reply = error_document(error, self.language)
        if self.format == "json":
            self.out.write(json.dumps(reply, indent=2, ensure_ascii=False) + "\n")
        else:
            message, hint = reply["error"]["message"], reply["error"]["hint"]
            for word, colour, text in (("word.error", "31", message), ("word.hint", "36", hint)):
                if text:
                    self._tell(f"{self._coloured(self.language.text(word), colour)}: {text}")
        return error.exit_code

    def _coloured(self, word: str, colour: str) -> str:
        plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb" or not self.err.isatty()
        return word if plain else f"\033[1;{colour}m{word}\033[0m"

    def words(self, row: Mapping[str, Cell], names: Sequence[str]) -> list[str]:
        """Cells as people read them."""
        return [human(name, row[name], self.language) for name in names]


def chosen_language(named: str) -> Language:
    """The language a user names, which must be one there is."""
    code = code_of(named)
    if code is None:
        choices = languages()
        raise UnknownName(
            "unknown-language", msg("error.unknown-language", name=named), msg("hint.choices", choices=choices), choices
        )
    return language(code)
