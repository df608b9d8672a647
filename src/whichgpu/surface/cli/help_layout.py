"""Help laid out by terminal cells: click counts characters, but Chinese and Korean ones are two cells wide."""

from __future__ import annotations

from collections.abc import Iterable

import click

from whichgpu.base.text_width import cell_width, pad, wrap


class HelpFormatter(click.HelpFormatter):
    """Click's help formatter with widths in terminal cells; the result is the same as click's for one-cell characters."""

    def write_text(self, text: str) -> None:
        if cell_width(text) == len(text):
            super().write_text(text)
            return
        before = " " * self.current_indent
        for number, paragraph in enumerate(text.split("\n\n")):
            self.write("\n" if number else "")
            self.write("\n".join(wrap(paragraph, max(self.width, 11), before, before)) + "\n")

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        rows = list(rows)
        if all(cell_width(name + text) == len(name + text) for name, text in rows):
            super().write_dl(rows, col_max, col_spacing)
            return
        before = " " * self.current_indent
        column = min(max((cell_width(name) for name, _ in rows), default=0), col_max) + col_spacing
        after = " " * (column + self.current_indent)
        for name, text in rows:
            if not text:
                self.write(f"{before}{name}\n")
                continue
            fits = cell_width(name) <= column - col_spacing
            self.write(before + pad(name, column) if fits else f"{before}{name}\n{after}")
            room = max(self.width - column - 2, 10)
            self.write(f"\n{after}".join(wrap(text, room)) + "\n")


class WideContext(click.Context):
    """A click context that formats help with `HelpFormatter`."""

    formatter_class = HelpFormatter
