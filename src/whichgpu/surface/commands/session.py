"""State of one run of the command line (language, output, data requested), and how it prints answers and errors."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from whichgpu.base.codec import Cell, to_json
from whichgpu.base.errors import UnknownName, WhichGpuError
from whichgpu.base.lru import LruCache
from whichgpu.base.messages import Language, Message, code_of, languages, msg
from whichgpu.base.text_width import terminal_lines
from whichgpu.surface import tables
from whichgpu.surface.cells import cell_text, chosen_columns, flat_rows, heading
from whichgpu.surface.commands.render.file_output import is_script, joined_files
from whichgpu.surface.commands.render.output import silence
from whichgpu.surface.documents import document, error_document

if TYPE_CHECKING:
    from whichgpu.api.context import Context
    from whichgpu.catalog.store import Catalog

FIRST_COLUMN, OTHER_COLUMN = 28, 18  # Column widths in characters of a table whose rows are facts.
TERMINAL_SIZE = (80, 24)  # Columns and lines of a terminal that does not state its size.
MAX_CATALOGS = 4  # Catalogs cached by one process: today's and the last few of other days.
Columns = Sequence[tuple[str, Callable[[Any], object]]]  # Id of the heading, and the function that returns the cell of a row.


class Session(msgspec.Struct):
    """State of one command run. `format` is json, csv, markdown, tsv or table; None means a table on a terminal, else TSV."""

    language: Language
    format: str | None = None
    columns: str | None = None
    catalog_folder: Path | None = None
    config_named: str | None = None
    command: tuple[str, ...] = ()
    as_of: date | None = None
    as_known: date | int | None = None
    today: date = msgspec.field(default_factory=date.today)
    out: TextIO = msgspec.field(default_factory=lambda: sys.stdout)
    err: TextIO = msgspec.field(default_factory=lambda: sys.stderr)
    request: Mapping[str, Any] = msgspec.field(default_factory=dict)  # empty if an answer is displayed without its request
    catalogs: LruCache[Catalog] | None = None  # catalogs shared by the sessions of one process
    progress: Callable[[float], None] | None = None  # called with the share of the work that is done
    spell: Callable[[str], str] = str  # returns the name of a field for error messages, such as its flag

    def context(self, progress: Callable[[str, float], None] | None = None) -> Context:
        """Return the catalog, day and progress callback that the API's functions take besides a request."""
        from whichgpu.api.context import Context

        return Context(self.catalog, self.as_of, self.today, self.spell, progress, wants_remedies=self.format == "json")

    @property
    def catalog(self) -> Catalog:
        """Return the catalog of this run: the bundled one or the user's folder, as known now or at an earlier day."""
        from whichgpu.catalog.store import Catalog  # Imported here: it is slow to load and not needed for help.

        key = (self.catalog_folder, self.as_known)
        return self.catalogs.get(key, lambda: Catalog(*key)) if self.catalogs else Catalog(*key)

    @property
    def has_names(self) -> bool:
        """Whether rows were requested by name; True for an answer displayed without its request."""
        return bool(self.request.get("names", True))

    @property
    def is_terminal_table(self) -> bool:
        """Whether answers are printed as tables on a terminal."""
        return self.format in (None, "table") and self.out.isatty()

    def say(self, message: Message) -> None:
        """Print a message in the reader's language on stderr, unless the format is JSON."""
        self.note(self.language.render(message))

    def note(self, text: str) -> None:
        """Print a text that is already in the reader's language on stderr, on a terminal within its width."""
        if self.format != "json":
            self._print_error(*self.text_lines(text))

    def text_lines(self, text: str) -> list[str]:
        """Return a text as the lines that stderr gets: within the width of a terminal, elsewhere as it is."""
        return terminal_lines(text, terminal_width()) if self.err.isatty() else [text]

    def _print_error(self, *lines: str) -> None:
        try:
            print(*lines, sep="\n", file=self.err, flush=True)
        except (OSError, ValueError):  # Stderr is closed; stdout must still be written.
            silence(self.err)

    def emit(self, document: object) -> None:
        """Print the whole answer as one JSON document."""
        self.out.write(to_json(document))

    def show(self, answer: object, rows: Sequence[object], default: Sequence[str], headline: Message | None = None) -> None:
        """Print the whole answer as JSON, or its rows with the default columns; the headline goes to stderr."""
        if self.format == "json" and self.columns is None:
            self.emit(answer)
            return
        cells = flat_rows(rows)
        names = chosen_columns(self.columns, cells, () if self.format == "csv" else default, self.language)
        if headline:
            self.say(headline)
        if self.format == "json":  # Columns are checked, but JSON has all fields.
            self.emit(answer)
            return
        if self.format == "csv":
            tables.write_csv(self.out, names, [[row[name] for name in names] for row in cells])
            return
        self.table([heading(name, self.language) for name in names], [self.words(row, names) for row in cells])

    def show_one(self, answer: object, row: object, headline: Message, extra: Sequence[tuple[str, str]] = ()) -> None:
        """Print an answer about one row with a line per fact, in formats for people."""
        if self.format in ("json", "csv") or self.columns:
            self.show(answer, [row], (), headline)
            return
        self.say(headline)
        cells = flat_rows([row])[0]
        facts = [(heading(name, self.language), cell_text(name, value, self.language)) for name, value in cells.items()]
        header = [self.language.text("column.fact"), self.language.text("column.value")]
        self.table(header, [fact for fact in (*facts, *extra) if fact[1]])

    def show_data(self, answer: object, rows: Sequence[object], headline: Message | None = None) -> bool:
        """Print an answer that contains messages for programs (JSON, CSV, chosen columns); return False for other formats."""
        if self.format == "json":
            self.emit(document(answer, self.language))
        elif self.format == "csv" or self.columns:
            self.show(answer, [document(row, self.language) for row in rows], (), headline)
        else:
            return False
        return True

    def show_columns(
        self, answer: object, rows: Sequence[Any], prefix: str, columns: Columns, headline: Message | None = None
    ) -> None:
        """Print rows through the given columns, whose heading ids begin with `prefix`; programs get every field."""
        if self.format in ("json", "csv") or self.columns:
            self.show(answer, rows, (), headline)
            return
        if headline:
            self.say(headline)
        header = [self.language.text(f"{prefix}{name}") for name, _ in columns]
        self.table(header, [[cell(row) for _, cell in columns] for row in rows])

    def show_files(self, files: Mapping[str, str]) -> bool:
        """Print the files that an answer has for a target in place of its tables; return False if it has none."""
        if not files or self.format in ("json", "csv") or self.columns:
            return False
        if is_script(files):
            self.say(msg("emit.several", n=len(files), first=next(iter(files))))
        else:
            self.note("\n".join(f"# {name}" for name in files))
        self.out.write(joined_files(files))
        return True

    def table(self, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a table of text in the session's format: terminal table, TSV, CSV or Markdown."""
        form = "table" if self.is_terminal_table else self.format or "tsv"
        if form in ("markdown", "table"):  # Programs get numbers without the language's separators.
            rows = [[self.language.localize(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
        tables.WRITERS[form](self.out, header, rows)

    def table_of_columns(self, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a wide table; on a terminal in groups of columns that fit, repeating the first."""
        if not self.is_terminal_table:
            self.table(header, rows)
            return
        room = max(1, (terminal_width() - FIRST_COLUMN) // OTHER_COLUMN)
        for start in range(1, len(header), room):
            stop = start + room
            self.table([header[0], *header[start:stop]], [[row[0], *row[start:stop]] for row in rows])

    def fail(self, error: WhichGpuError) -> int:
        """Print an error and return its exit code."""
        reply = error_document(error, self.language)
        if self.format == "json":
            import json

            self.out.write(json.dumps(reply, indent=2, ensure_ascii=False) + "\n")
        else:
            message, hint = reply["error"]["message"], reply["error"]["hint"]
            for word, colour, text in (("word.error", "31", message), ("word.hint", "36", hint)):
                if text:
                    label = self.language.text(word)
                    first, *others = self.text_lines(f"{label}: {text}")
                    self._print_error(self._in_colour(label, colour) + first.removeprefix(label), *others)
        return error.exit_code

    def _in_colour(self, word: str, colour: str) -> str:
        plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb" or not self.err.isatty()
        return word if plain else f"\033[1;{colour}m{word}\033[0m"

    def words(self, row: Mapping[str, Cell], names: Sequence[str]) -> list[str]:
        """Return the named cells of a table row as text with their units."""
        return [cell_text(name, row[name], self.language) for name in names]


def terminal_width() -> int:
    """Return the columns of the terminal; 80 if it does not state them."""
    return shutil.get_terminal_size(TERMINAL_SIZE).columns or TERMINAL_SIZE[0]


def language_code(name: str) -> str:
    """Return the code of a language that a user names; raise `UnknownName` if there is no such language."""
    code = code_of(name)
    if code is None:
        hint = msg("hint.choices", choices=languages())
        raise UnknownName("unknown-language", msg("error.unknown-language", name=name[:40]), hint, languages())
    return code
