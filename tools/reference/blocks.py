"""Code blocks of Markdown files, and the commands in them.

A comment right above a block says how tests treat it: `<!-- not run: why -->`, `<!-- exit: 0, 1 -->` for commands that may
find nothing, `<!-- long -->` for blocks that take many seconds, `<!-- output: 12 -->` for a block that shows the output of the
one before it.
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
        """Whether the block is run by tests."""
        return not self.remark.startswith("not run:")

    @property
    def is_long(self) -> bool:
        """Whether the block takes too long to be run on every change."""
        return self.remark.startswith("long")

    @property
    def codes(self) -> tuple[int, ...]:
        """Exit codes that its commands may have."""
        match = re.search(r"exit: ([\d, ]+)", self.remark)
        return tuple(int(part) for part in match[1].split(",")) if match else (0,)

    @property
    def shows(self) -> int:
        """Number of output lines that it shows; 0 if it is no output."""
        match = re.fullmatch(r"output: (\d+)", self.remark)
        return int(match[1]) if match else 0

    def commands(self) -> Iterator[list[str]]:
        """Words of each command of a shell block: continued lines are joined, comments left out."""
        for line in self.text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            while words:
                end = next((place for place, word in enumerate(words) if word.endswith(";") or word in ("&&", "|")), len(words))
                last = words[end].rstrip(";") if end < len(words) and words[end] not in ("&&", "|") else ""
                yield [*words[:end], last] if last else words[:end]
                words = words[end + 1 :]


def blocks(path: Path) -> list[Block]:
    """All code blocks of a file."""
    results, remark = [], ""
    lines = path.read_text(encoding="utf-8").splitlines()
    place = 0
    while place < len(lines):
        if not (opening := _FENCE.match(lines[place])):
            match = _COMMENT.match(lines[place])
            remark = match[1] if match else remark if not lines[place].strip() else ""
            place += 1
            continue
        end = next(n for n in range(place + 1, len(lines)) if lines[n].strip() == opening["fence"])
        inside = "\n".join(line.removeprefix(opening["indent"]) for line in lines[place + 1 : end])
        title = _TITLE.search(opening["more"])
        results.append(Block(path, place + 1, opening["language"], inside, title[1] if title else "", remark))
        place, remark = end + 1, ""
    return results
