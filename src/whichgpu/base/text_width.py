"""How wide texts are where characters stand in cells: Hangul and Chinese characters take two, marks above others none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from unicodedata import combining, east_asian_width

# Lines may end after one of these characters, and begin before one, though no blank stands there; never before what closes.
_LOOSE = r"[　-〿㐀-鿿豈-﫿＀-￯]"
_CLOSING = "、。，．：；！？）】」』》〉…"
_OPENING = "（【「『《〈"
_PIECE = re.compile(rf"\s+|[{_OPENING}]*{_LOOSE}[{_CLOSING}]*|(?:(?!{_LOOSE})\S)+[{_CLOSING}]*")


def cell_width(text: str) -> int:
    """Cells a text takes.

    >>> cell_width("GPU"), cell_width("그래픽"), cell_width("显卡 8x"), cell_width("bộ nhớ")
    (3, 6, 7, 6)
    """
    if text.isascii():
        return len(text)
    return sum(0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1 for one in text)


def pad(text: str, size: int) -> str:
    """A text with blanks after it up to so many cells.

    >>> pad("显卡", 6) + "|"
    '显卡  |'
    """
    return text + " " * (size - cell_width(text))


def truncate(text: str, size: int) -> str:
    """The beginning of a text that fits into so many cells.

    >>> truncate("显卡 T4", 3), truncate("T4", 3)
    ('显', 'T4')
    """
    taken = 0
    for place, one in enumerate(text):
        taken += cell_width(one)
        if taken > size:
            return text[:place]
    return text


def wrap(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Lines of a text no wider than so many cells, `first` and `rest` before them; words are kept whole where they fit.

    >>> wrap("每个GPU的内存，含已用。", 12)
    ['每个GPU的内', '存，含已用。']
    """
    lines, line, used = [], first, cell_width(first)
    blank, empty = "", True
    for piece in _pieces(text, max(1, width - max(cell_width(first), cell_width(rest)))):
        if piece.isspace():
            blank = " "
            continue
        size = cell_width(blank) + cell_width(piece)
        if not empty and used + size > width:
            lines.append(line)
            line, used, blank, empty = rest, cell_width(rest), "", True
            size = cell_width(piece)
        line += ("" if empty else blank) + piece
        used += size if not empty else cell_width(piece)
        blank, empty = "", False
    return [*lines, line] if not empty else lines


def _pieces(text: str, most: int) -> Iterator[str]:
    """What is kept together, and words too long for a line in parts."""
    for piece in _PIECE.findall(text):
        while cell_width(piece) > most:
            part = truncate(piece, most) or piece[0]
            yield part
            piece = piece[len(part) :]
        if piece:
            yield piece
