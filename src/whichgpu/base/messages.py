"""Every word a user sees has an id here; the words themselves are in `locale/<language>.po`.

The files are ordinary gettext catalogs whose msgid is our id, so translators can use their usual tools.
They are read directly, with no compile step, since a checkout has to run as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from gettext import c2py
from pathlib import Path

LOCALE_DIR = Path(__file__).parent / "locale"
SOURCE_LANGUAGE = "en"

_ENTRY = re.compile(r'^(msgid|msgstr(?:\[(\d)\])?) (".*")$|^(".*")$', re.MULTILINE)
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "t": "\t"}

LONGEST = 2000  # characters of one value in a message

Value = object  # a word, a number, a Message or a tuple of them


@dataclass(frozen=True, slots=True)
class Message:
    """What to say, not yet in any language: an id and the values that go into its sentence."""

    id: str
    values: Mapping[str, Value] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.id, tuple(sorted((k, str(v)) for k, v in self.values.items()))))


def msg(id: str, /, **values: Value) -> Message:
    """Short for `Message(id, values)`."""
    return Message(id, values)


class Language:
    """One language's sentences, falling back to English where it has none."""

    def __init__(self, code: str, texts: Mapping[str, tuple[str, ...]], plural: str, fallback: Language | None = None):
        self.code = code
        self._texts = texts
        self._plural_index = c2py(plural)
        self._fallback = fallback

    def __contains__(self, id: str) -> bool:
        return id in self._texts

    def ids(self) -> frozenset[str]:
        """All ids this language has a sentence for."""
        return frozenset(self._texts)

    def text(self, id: str, /, **values: Value) -> str:
        """The sentence of `id`; `n` in the values chooses among plural forms."""
        forms = self._texts.get(id)
        if forms is None:
            return self._fallback.text(id, **values) if self._fallback else id
        count = values.get("n")
        index = self._plural_index(count) if isinstance(count, int) and len(forms) > 1 else 0
        if not values:  # nothing to put in: braces, as in an example of JSON, stand for themselves
            return forms[index]
        return forms[index].format_map({name: self._word(value) for name, value in values.items()})

    def render(self, message: Message) -> str:
        """The message as a sentence."""
        return self.text(message.id, **message.values)

    def _word(self, value: Value) -> object:
        if isinstance(value, Message):
            return self.render(value)
        if isinstance(value, tuple | list):
            return ", ".join(str(self._word(item)) for item in value)
        return printable(value) if isinstance(value, str) else value


def printable(text: str) -> str:
    """A text that comes from outside, with what would steer a terminal written out, and not endless."""
    shown = text if len(text) <= LONGEST else text[:LONGEST] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in shown)


@cache
def languages() -> tuple[str, ...]:
    """Codes of the languages there are."""
    return tuple(sorted(path.stem for path in LOCALE_DIR.glob("*.po")))


@cache
def language(code: str) -> Language:
    """The language of that code; `ko-KR` and `ko_KR.UTF-8` mean `ko`; English where there is none such."""
    short = re.split(r"[-_.]", code.strip().lower())[0]
    if short not in languages():
        return english()
    texts, plural = _read(LOCALE_DIR / f"{short}.po")
    return Language(short, texts, plural, None if short == SOURCE_LANGUAGE else english())


@cache
def english() -> Language:
    """The source language, which has every id."""
    return language(SOURCE_LANGUAGE)


def _read(path: Path) -> tuple[dict[str, tuple[str, ...]], str]:
    """Sentences by id, and the plural rule, of a gettext catalog."""
    texts: dict[str, list[str]] = {}
    id, forms = "", [""]
    for keyword, _, quoted, continued in _ENTRY.findall(path.read_text(encoding="utf-8")):
        part = _unquote(quoted or continued)
        if keyword == "msgid":
            id, forms = part, []
        elif keyword:
            forms.append(part)
            texts[id] = forms
        else:  # a line that goes on from the one before; ids never do
            forms[-1] += part
    header = texts.pop("", [""])[0]
    rule = re.search(r"plural=([^;]+);", header)
    return {key: tuple(value) for key, value in texts.items()}, rule[1] if rule else "0"


def _unquote(text: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), text[1:-1])
