"""The languages the reference is written in.

What the program itself says (help, errors) comes from its own catalog by id. What only the reference says (meanings of fields
and keys, headings, what records are) is called by its English, as facts are, and is in `words/<language>.po`.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from whichgpu.base.messages import SOURCE_LANGUAGE, Language, language, languages
from whichgpu.base.po import PoCatalog

WORDS = Path(__file__).parent / "words"
HOME = "reference"


class Tongue:
    """One language: its words, and which of those it was asked for it lacks."""

    def __init__(self, code: str = SOURCE_LANGUAGE) -> None:
        self.code = code
        self.asked: dict[str, None] = {}  # sentences of the reference, in the order they were asked for
        self.lacking: dict[str, None] = {}  # sentences and ids told in English for want of its own

    @property
    def is_source(self) -> bool:
        """Whether it is the language all others are made from."""
        return self.code == SOURCE_LANGUAGE

    @property
    def folder(self) -> str:
        """Where its pages are below docs/."""
        return HOME if self.is_source else f"{HOME}/{self.code}"

    @property
    def up(self) -> str:
        """The way from its pages to docs/."""
        return "../" * (self.folder.count("/") + 1)

    @cached_property
    def language(self) -> Language:
        """The program's own sentences in it."""
        return language(self.code)

    @cached_property
    def _words(self) -> PoCatalog:
        path = WORDS / f"{self.code}.po"
        return PoCatalog(path.read_text(encoding="utf-8") if path.exists() else "")

    def __contains__(self, id: str) -> bool:
        return id in self.language

    def text(self, id: str) -> str:
        """A sentence of the program."""
        if id not in self.language.ids():
            self.lacking[id] = None
        return self.language.text(id)

    def say(self, words: str, /, **values: object) -> str:
        """A sentence of the reference, its holes filled; without values braces stand for themselves."""
        if not words:
            return ""
        self.asked[words] = None
        said = words
        if not self.is_source:
            said = self._words.get(words, ("",))[0]
            if not said:
                self.lacking[words] = None
                said = words
        return said.format_map(values) if values else said


def tongues() -> list[Tongue]:
    """All of them, the source first."""
    return [Tongue(code) for code in sorted(languages(), key=lambda code: (code != SOURCE_LANGUAGE, code))]
