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


def cells(text: str) -> int:
    """Cells a text takes.

    >>> cells("GPU"), cells("그래픽"), cells("显卡 8x"), cells("bộ nhớ")
    (3, 6, 7, 6)
    """
    if text.isascii():
        return len(text)
    return sum(0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1 for one in text)


def padded(text: str, size: int) -> str:
    """A text with blanks after it up to so many cells.

    >>> padded("显卡", 6) + "|"
    '显卡  |'
    """
    return text + " " * (size - cells(text))


def cut(text: str, size: int) -> str:
    """The beginning of a text that fits into so many cells.

    >>> cut("显卡 T4", 3), cut("T4", 3)
    ('显', 'T4')
    """
    taken = 0
    for place, one in enumerate(text):
        taken += cells(one)
        if taken > size:
            return text[:place]
    return text


def wrapped(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Lines of a text no wider than so many cells, `first` and `rest` before them; words are kept whole where they fit.

    >>> wrapped("每个GPU的内存，含已用。", 12)
    ['每个GPU的内', '存，含已用。']
    """
    lines, line, used = [], first, cells(first)
    blank, empty = "", True
    for piece in _pieces(text, max(1, width - max(cells(first), cells(rest)))):
        if piece.isspace():
            blank = " "
            continue
        size = cells(blank) + cells(piece)
        if not empty and used + size > width:
            lines.append(line)
            line, used, blank, empty = rest, cells(rest), "", True
            size = cells(piece)
        line += ("" if empty else blank) + piece
        used += size if not empty else cells(piece)
        blank, empty = "", False
    return [*lines, line] if not empty else lines


def _pieces(text: str, most: int) -> Iterator[str]:
    """What is kept together, and words too long for a line in parts."""
    for piece in _PIECE.findall(text):
        while cells(piece) > most:
            part = cut(piece, most) or piece[0]
            yield part
            piece = piece[len(part) :]
        if piece:
            yield piece
