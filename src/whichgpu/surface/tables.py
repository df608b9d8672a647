"""Writers of tables as text: for a terminal, for a pipe (TSV), as CSV and as Markdown."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TextIO

from whichgpu.base.codec import csv_cell
from whichgpu.base.text_width import cell_width, wrap

if TYPE_CHECKING:
    from rich.console import Console

Rows = Sequence[Sequence[object]]
MAX_TITLE_LINES = 3  # Lines of a column's title in a compact table.
MIN_COLUMN_WIDTH = 11  # If columns would be narrower than this (characters), rows are printed as blocks.


def write_csv(stream: TextIO, header: Sequence[str], rows: Rows) -> None:
    """Write a table as CSV (RFC 4180) with plain newlines, no cell of which a spreadsheet runs as a formula."""
    import csv

    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(map(csv_cell, row) for row in rows)


def write_tsv(stream: TextIO, header: Sequence[str], rows: Rows) -> None:
    """Write a table as TSV, one line per row; tabs and line breaks in a cell become blanks."""
    for row in (header, *rows):
        stream.write("\t".join(" ".join(str(cell).split()) if cell != "" else "" for cell in row) + "\n")


def write_markdown(stream: TextIO, header: Sequence[str], rows: Rows) -> None:
    """Write a table in GitHub's Markdown."""
    for index, row in enumerate((header, *rows)):
        stream.write("| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in row) + " |\n")
        if index == 0:
            stream.write("|" + " --- |" * len(header) + "\n")


def write_terminal(stream: TextIO, header: Sequence[str], rows: Rows, compact: bool = False) -> None:
    """Write a table within the terminal's width, wrapping words and truncating nothing; `compact` leaves out its edges."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Rich would otherwise display the table twice in a notebook.
    make_console = partial(Console, file=stream, highlight=False, emoji=False, force_jupyter=False)
    console = make_console()
    if console.width < 1:  # COLUMNS is 0, or the terminal does not state its width.
        console = make_console(width=80)
    if console.width < MIN_COLUMN_WIDTH * len(header):
        _write_stacked(console, header, rows)
        return
    padding = (0, 1, 0, 0) if compact else (0, 1)
    header = _narrow(header, rows) if compact else header
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, padding=padding, show_edge=not compact)
    for title, is_right in zip(header, right_aligned(len(header), rows), strict=True):
        table.add_column(title, justify="right" if is_right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(cell) if cell != "" else "–") for cell in row))
    console.print(table)


def _narrow(header: Sequence[str], rows: Rows) -> list[str]:
    """Return the titles of columns on up to three lines, so that most are no wider than the cells below them."""
    widths = []
    for place, title in enumerate(header):
        cells = max((cell_width(str(row[place])) for row in rows), default=0)
        widths.append(max(cells, cell_width(title) // MAX_TITLE_LINES + 2, *map(cell_width, title.split())))
    return ["\n".join(wrap(title, width)) for title, width in zip(header, widths, strict=True)]


def _write_stacked(console: Console, header: Sequence[str], rows: Rows) -> None:
    """Write each row of a table as a block of lines, one per column, for narrow terminals."""
    for row in rows:
        for title, cell in zip(header, row, strict=True):
            if cell != "":
                console.print(f"{title}: {cell}", markup=False, soft_wrap=True)
        console.print()


def right_aligned(width: int, rows: Rows) -> list[bool]:
    """Whether each of `width` columns is right-aligned: all its non-empty cells begin with a digit."""
    columns = [[str(row[place]) for row in rows if row[place] != ""] for place in range(width)]
    return [bool(cells) and all(cell.lstrip("-")[:1].isdigit() for cell in cells) for cells in columns]


def text_of(write: Callable[[TextIO, Sequence[str], Rows], None], header: Sequence[str], rows: Rows) -> str:
    """Return the text of a table that `write`, one of the writers of this module, produces."""
    stream = io.StringIO()
    write(stream, header, rows)
    return stream.getvalue()


# Writers by the name of their format.
WRITERS = {"markdown": write_markdown, "csv": write_csv, "tsv": write_tsv, "table": write_terminal}
