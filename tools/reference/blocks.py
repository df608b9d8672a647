"""Code blocks of Markdown files, and the commands in them.

A comment right above a block says how it is to be treated: `<!-- not run: why -->`, `<!-- exit: 0, 1 -->` for commands
that may find nothing, `<!-- long -->` for what takes many seconds, `<!-- output: 12 -->` for a block that shows what the
one before it prints.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import msgspec

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>```+) *(?P<language>[\w.+-]*)(?P<more>[^`\n]*)$")
_COMMENT = re.compile(r"^ *<!-- *(.*?) *-->$")
_TITLE = re.compile(r'title="([^"]+)"')
TOOL = ("whichgpu", "./whichgpu")


class Block(msgspec.Struct, frozen=True):
    """A code block: its file and first line, language, text, title, and the comment above it."""

    path: Path
    line: int
    language: str
    text: str
    title: str = ""
    remark: str = ""

    @property
    def is_run(self) -> bool:
        """Whether nothing says it is not to be run."""
        return not self.remark.startswith("not run:")

    @property
    def is_long(self) -> bool:
        """Whether it takes too long for every change."""
        return self.remark.startswith("long")

    @property
    def codes(self) -> tuple[int, ...]:
        """Exit codes its commands may have."""
        told = re.search(r"exit: ([\d, ]+)", self.remark)
        return tuple(int(part) for part in told[1].split(",")) if told else (0,)

    @property
    def shows(self) -> int:
        """Lines of output it shows; 0 where it shows none."""
        told = re.fullmatch(r"output: (\d+)", self.remark)
        return int(told[1]) if told else 0

    def commands(self) -> Iterator[list[str]]:
        """Words of each command of a shell block: lines that go on are joined, comments left out."""
        for line in self.text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            while words:
                end = next((place for place, word in enumerate(words) if word.endswith(";") or word in ("&&", "|")), len(words))
                last = words[end].rstrip(";") if end < len(words) and words[end] not in ("&&", "|") else ""
                yield [*words[:end], last] if last else words[:end]
                words = words[end + 1 :]


def blocks(path: Path) -> list[Block]:
    """All code blocks of a file."""
    found, remark = [], ""
    lines = path.read_text(encoding="utf-8").splitlines()
    place = 0
    while place < len(lines):
        if not (opening := _FENCE.match(lines[place])):
            told = _COMMENT.match(lines[place])
            remark = told[1] if told else remark if not lines[place].strip() else ""
            place += 1
            continue
        end = next(n for n in range(place + 1, len(lines)) if lines[n].strip() == opening["fence"])
        inside = "\n".join(line.removeprefix(opening["indent"]) for line in lines[place + 1 : end])
        title = _TITLE.search(opening["more"])
        found.append(Block(path, place + 1, opening["language"], inside, title[1] if title else "", remark))
        place, remark = end + 1, ""
    return found
