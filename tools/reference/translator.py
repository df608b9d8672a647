"""The languages of the reference pages.

Sentences of the program (help, errors) come from its catalog by id. Sentences of the reference alone (meanings of fields and
keys, headings, descriptions of records) have their English as key and are in `words/<language>.po`.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from whichgpu.base.messages import SOURCE_LANGUAGE, Language, language, languages
from whichgpu.base.po import PoCatalog

WORDS = Path(__file__).parent / "words"
HOME = "reference"


class Translator:
    """Translations of one language, with a record of the sentences used and of those it lacks."""

    def __init__(self, code: str = SOURCE_LANGUAGE) -> None:
        self.code = code
        self.used: dict[str, None] = {}  # sentences of the reference, in order of first use
        self.lacking: dict[str, None] = {}  # sentences and ids shown in English for lack of a translation

    @property
    def is_source(self) -> bool:
        """Whether this is English, the language that the others are translated from."""
        return self.code == SOURCE_LANGUAGE

    @property
    def folder(self) -> str:
        """Folder of its pages below docs/."""
        return HOME if self.is_source else f"{HOME}/{self.code}"

    @property
    def up(self) -> str:
        """Relative path from its pages to docs/."""
        return "../" * (self.folder.count("/") + 1)

    @cached_property
    def language(self) -> Language:
        """The program's own sentences in this language."""
        return language(self.code)

    @cached_property
    def _words(self) -> PoCatalog:
        path = WORDS / f"{self.code}.po"
        return PoCatalog(path.read_text(encoding="utf-8") if path.exists() else "")

    def __contains__(self, id: str) -> bool:
        return id in self.language

    def text(self, id: str) -> str:
        """A sentence of the program by its id."""
        if id not in self.language.ids():
            self.lacking[id] = None
        return self.language.text(id)

    def say(self, words: str, /, **values: object) -> str:
        """A sentence of the reference with its placeholders filled; without values, braces are kept."""
        if not words:
            return ""
        self.used[words] = None
        sentence = words
        if not self.is_source:
            sentence = self._words.get(words, ("",))[0]
            if not sentence:
                self.lacking[words] = None
                sentence = words
        return sentence.format_map(values) if values else sentence


def translators() -> list[Translator]:
    """All languages, English first."""
    return [Translator(code) for code in sorted(languages(), key=lambda code: (code != SOURCE_LANGUAGE, code))]
