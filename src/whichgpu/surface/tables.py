"""Writers of tables as text: for a terminal, for a pipe (TSV), as CSV and as Markdown."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TextIO

from whichgpu.base.codec import csv_cell
from whichgpu.base.text_width import cell_width, wrap

if TYPE_CHECKING:
    from rich.console import Console

_FIGURE = re.compile(r"-?\d(?!\d* ?x )")  # The beginning of a cell that is a figure; `8x H100` and `2 x tp 4` are none.
Rows = Sequence[Sequence[object]]
MAX_TITLE_LINES = 3  # Lines of a column's title in a compact table.
MIN_COLUMN_WIDTH = 11  # If columns would be narrower than this (characters), rows are printed as blocks.
COLUMN_GAP = 3  # Characters between two columns of a table on a terminal; its two edges have one each.
COMPACT_GAP = 2  # Characters between two columns of a compact table, which has no edges.
MIN_NAME_WIDTH = 8  # Columns of text are narrowed to this many characters before columns of figures are.
SHORT_CELL = 12  # Cells of at most this many characters, such as a figure with its unit, are kept on one line where they fit.


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
    padding, gap = ((0, 1, 0, 0), COMPACT_GAP) if compact else ((0, 1), COLUMN_GAP)
    header = _narrow(header, rows) if compact else header
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, padding=padding, show_edge=not compact)
    widths = column_widths(header, rows, console.width - gap * len(header) + 1)
    for title, is_right, width in zip(header, right_aligned(len(header), rows), widths, strict=True):
        table.add_column(title, justify="right" if is_right else "left", overflow="fold", width=width)
    for row in rows:
        cells = zip((str(cell) if cell != "" else "–" for cell in row), widths, strict=True)
        table.add_row(*(Text("\n".join(wrap(cell, width))) for cell, width in cells))
    console.print(table)


def _narrow(header: Sequence[str], rows: Rows) -> list[str]:
    """Return the titles of columns on up to three lines, so that most are no wider than the cells below them."""
    widths = []
    for place, title in enumerate(header):
        cells = max((cell_width(str(row[place])) for row in rows), default=0)
        widths.append(max(cells, cell_width(title) // MAX_TITLE_LINES + 2, *map(cell_width, title.split())))
    return ["\n".join(wrap(title, width)) for title, width in zip(header, widths, strict=True)]


def column_widths(header: Sequence[str], rows: Rows, room: int) -> list[int]:
    """Return widths of columns that are `room` characters in all, or less where no cell needs more; words are broken last.

    >>> column_widths(["id", "licence"], [["qwen3-235b-a22b", "apache-2.0 or a licence of their own"]], 40)
    [15, 25]
    >>> column_widths(["id", "licence"], [["qwen3-235b-a22b", "tongyi-qianwen-license-agreement"]], 40)
    [15, 25]
    """
    columns = [[line for row in (header, *rows) for line in str(row[place]).split("\n")] for place in range(len(header))]
    whole = [max(map(cell_width, cells)) for cells in columns]
    widths = [max(map(_unbroken_width, cells)) for cells in columns]
    texts = [place for place, is_figure in enumerate(right_aligned(len(header), rows)) if not is_figure]
    while sum(widths) > max(room, len(widths)):
        names = [place for place in texts if widths[place] > MIN_NAME_WIDTH]  # Names have hyphens to break at, figures none.
        widths[max(names or range(len(widths)), key=lambda place: widths[place])] -= 1
    while sum(widths) < min(room, sum(whole)):
        narrow = [place for place, width in enumerate(widths) if width < whole[place]]
        widths[min(narrow, key=lambda place: widths[place])] += 1
    return widths


def _unbroken_width(cell: str) -> int:
    """Return the width of a short cell, else of the longest word of a cell."""
    whole = cell_width(cell)
    return whole if whole <= SHORT_CELL else max(map(cell_width, cell.split()), default=0)


def _write_stacked(console: Console, header: Sequence[str], rows: Rows) -> None:
    """Write each row of a table as a block of lines, one per column, for narrow terminals."""
    for row in rows:
        for title, cell in zip(header, row, strict=True):
            if cell != "":
                console.print(f"{title}: {cell}", markup=False, soft_wrap=True)
        console.print()


def right_aligned(width: int, rows: Rows) -> list[bool]:
    """Whether each of `width` columns is right-aligned: all its cells begin with a number, none with a count of GPUs."""
    columns = [[str(row[place]) for row in rows if row[place] != ""] for place in range(width)]
    return [bool(cells) and all(_FIGURE.match(cell) for cell in cells) for cells in columns]


def text_of(write: Callable[[TextIO, Sequence[str], Rows], None], header: Sequence[str], rows: Rows) -> str:
    """Return the text of a table that `write`, one of the writers of this module, produces."""
    stream = io.StringIO()
    write(stream, header, rows)
    return stream.getvalue()


# Writers by the name of their format.
WRITERS = {"markdown": write_markdown, "csv": write_csv, "tsv": write_tsv, "table": write_terminal}
