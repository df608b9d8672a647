"""Width of texts in terminal cells: Hangul and Chinese characters take two, combining marks none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from unicodedata import combining, east_asian_width

# A line may break before or after these characters without a space, but never before a closing one.
_LOOSE = r"[　-〿㐀-鿿豈-﫿＀-￯]"
_CLOSING = "、。，．：；！？）】」』》〉…"
_OPENING = "（【「『《〈"
_FIRST_LOOSE = "\u3000"  # Texts whose characters all come before it break at spaces alone.
_SPACED = re.compile(r"\s+|\S+")
# A shell command that ends a line, after a colon or from its beginning; the spaces of its quoted words are no places to break.
_COMMAND = re.compile(r"(?:^|(?<=: ))(?:\./)?(?:whichgpu|vllm|python3?|trtllm-serve|llama-server|ollama|torchrun) .*$")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_QUOTED_SPACE = "\0"
MIN_HEAD = 3  # Fewest characters of a word before a break at a hyphen.
_CONTINUED = " \\"  # A shell joins a line that ends so with the next.


def cell_width(text: str) -> int:
    """Return the number of terminal cells a text takes.

    >>> cell_width("GPU"), cell_width("그래픽"), cell_width("显卡 8x"), cell_width("bộ nhớ")
    (3, 6, 7, 6)
    """
    if text.isascii():
        return len(text)
    return sum(0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1 for one in text)


def pad(text: str, size: int) -> str:
    """Return a text padded with spaces to `size` terminal cells.

    >>> pad("显卡", 6) + "|"
    '显卡  |'
    """
    return text + " " * (size - cell_width(text))


def truncate(text: str, size: int) -> str:
    """Return the longest beginning of a text that fits into `size` terminal cells.

    >>> truncate("显卡 T4", 3), truncate("T4", 3)
    ('显', 'T4')
    """
    width = 0
    for index, character in enumerate(text):
        width += cell_width(character)
        if width > size:
            return text[:index]
    return text


def terminal_lines(text: str, width: int) -> list[str]:
    """Return a text as lines of whole words within `width` terminal cells; a command broken into lines can be pasted as they are.

    >>> terminal_lines("reproduce: whichgpu fit qwen3-8b --gpu 'RTX 4090'", 36)
    ['reproduce: whichgpu fit qwen3-8b \\\\', "  --gpu 'RTX 4090'"]
    """
    return [part for line in text.split("\n") for part in _fitted(line, width)]


def _fitted(line: str, width: int) -> list[str]:
    """Return one line as lines of whole words, continued ones two cells further in."""
    if cell_width(line) <= width:
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    if not (command := _COMMAND.search(line)):
        return wrap(line, width, indent, indent + "  ")
    quoted = _QUOTED.sub(lambda part: part[0].replace(" ", _QUOTED_SPACE), command[0])
    lines = wrap(line[: command.start()] + quoted, width - len(_CONTINUED), indent, indent + "  ")
    first = next(index for index, part in enumerate(lines) if command[0].split()[0] in part)
    ends = [_CONTINUED if first <= index < len(lines) - 1 else "" for index in range(len(lines))]
    return [part.replace(_QUOTED_SPACE, " ") + end for part, end in zip(lines, ends, strict=True)]


def wrap(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Return a text as lines of at most `width` terminal cells, `first` before the first and `rest` before the others.

    >>> wrap("每个GPU的内存，含已用。", 12)
    ['每个GPU的内', '存，含已用。']
    """
    lines, line = [], first
    blank, empty = "", True
    for piece in _pieces(text, max(1, width - max(cell_width(first), cell_width(rest)))):
        if piece.isspace():
            blank = " "
            continue
        if not empty and cell_width(line + blank + piece) > width:
            lines.append(line)
            line, empty = rest, True
        line += piece if empty else blank + piece
        blank, empty = "", False
    return [*lines, line] if not empty else lines


@cache
def _loose_pattern() -> re.Pattern[str]:
    """Return the regular expression of words, spaces and single Chinese characters; compiled (8 ms) only when needed."""
    return re.compile(rf"\s+|[{_OPENING}]*{_LOOSE}[{_CLOSING}]*|(?:(?!{_LOOSE})\S)+[{_CLOSING}]*")


def _pieces(text: str, max_width: int) -> Iterator[str]:
    """Yield the words and spaces of a text in order, with words wider than `max_width` cells split, but no URLs."""
    pattern = _SPACED if max(text, default="") < _FIRST_LOOSE else _loose_pattern()
    for piece in pattern.findall(text):
        while cell_width(piece) > max_width and "://" not in piece and _QUOTED_SPACE not in piece:
            part = _head(piece, max_width)
            yield part
            piece = piece[len(part) :]
        if piece:
            yield piece


def _head(word: str, width: int) -> str:
    """Return the beginning of a word that is to fill a line: up to its last hyphen or the like, else as much as fits.

    >>> _head("gpu-rtx6000_1gpu-24vcpu", 20), _head("standardpreemptible", 12)
    ('gpu-rtx6000_1gpu-', 'standardpree')
    """
    part = truncate(word, width) or word[0]
    joint = max(part.rfind(mark) for mark in "-_/,:=") + 1
    return part[:joint] if joint >= MIN_HEAD else part
