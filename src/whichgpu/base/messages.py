"""Every word a user sees has an id here; the words themselves are in `locale/<language>.po`.

The files are ordinary gettext catalogs whose msgid is our id, so translators can use their usual tools; `tools/translations`
tells them what is missing. A sentence is never put together from pieces of others: what goes into one goes in by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from gettext import c2py
from pathlib import Path

from whichgpu.base.numerals import Numeral, is_decimal, is_quantity, localize_numbers
from whichgpu.base.po import PoCatalog

LOCALE_DIR = Path(__file__).parent / "locale"
FACTS_DIR = LOCALE_DIR / "facts"
SOURCE_LANGUAGE = "en"

MAX_VALUE_CHARS = 2000  # characters of one value in a message
# Holes in which a bare decimal is a number, and no version or capability.
NUMBERS = frozenset(
    "rate speed times percentile price power loss before after notice warm_up outage most amount seconds vcpus".split()
)
AS_GIVEN = frozenset({"text", "value", "given", "command", "version"})  # holes for what somebody typed or is to type

# Units that are words, the longer before those they end in.
UNITS = {
    "output tokens/s": "unit.output-tokens-rate",
    "input tokens/s": "unit.input-tokens-rate",
    "tokens/s": "unit.tokens-rate",
    "samples/s": "unit.samples-rate",
    "denoising steps/s": "unit.denoising-steps-rate",
    "denoising step/s": "unit.denoising-steps-rate",
    "requests/s": "unit.requests-rate",
    "output token/s": "unit.output-tokens-rate",
    "input token/s": "unit.input-tokens-rate",
    "token/s": "unit.tokens-rate",
    "sample/s": "unit.samples-rate",
    "request/s": "unit.requests-rate",
}
# Holes whose number chooses among the forms of a sentence that has several: the first of them that it has.
COUNTS = tuple(
    "models tp n rate count more years gpus part vcpus speed batch reruns hours months have found cells now considered".split()
)

Value = object  # a word, a number, a Message or a tuple of them


@dataclass(frozen=True, slots=True)
class Message:
    """What to say, not yet in any language: an id and the values that go into its sentence."""

    id: str
    values: Mapping[str, Value] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.id, tuple(sorted((k, repr(v)) for k, v in self.values.items()))))

    def __str__(self) -> str:
        return current_language().render(self)


class Fact(str):
    """A sentence of a table of facts: English there, and in other languages by itself in `locale/facts/<language>.po`."""

    __slots__ = ()


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
        return id in self._texts or (self._fallback is not None and id in self._fallback)

    def ids(self) -> frozenset[str]:
        """All ids this language has a sentence for."""
        return frozenset(self._texts)

    def text(self, id: str, /, **values: Value) -> str:
        """The sentence of `id`; the first of `COUNTS` among the values chooses among plural forms."""
        forms = self._texts.get(id)
        if forms is None:
            return self._fallback.text(id, **values) if self._fallback else id
        index = self._plural_index(_count(values)) if len(forms) > 1 else 0
        if not values:  # nothing to put in: braces, as in an example of JSON, stand for themselves
            return forms[index]
        return forms[index].format_map({name: self._word(value, name) for name, value in values.items()})

    def render(self, message: Message) -> str:
        """The message as a sentence."""
        return self.text(message.id, **message.values)

    def cell(self, id: str, /, **values: str | None) -> Numeral:
        """The sentence of `id` for a cell of a table: its numbers are rewritten where it is shown, and not for programs."""
        return Numeral(self.text(id).format_map(values))

    def listed(self, items: Iterable[Value]) -> str:
        """Items one after the other, with what this language puts between them."""
        return self._separator.join(str(self._word(item)) for item in items)

    def shown(self, text: str) -> str:
        """A text as this language writes it: numbers with its marks, units of words in its own, all else as it is."""
        if self.code == SOURCE_LANGUAGE or not (isinstance(text, Numeral) or text in UNITS or is_quantity(text)):
            return text
        unit = next((unit for unit in UNITS if unit in text), None)
        said = localize_numbers(text, self.marks)
        return said.replace(unit, self.text(UNITS[unit])) if unit else said

    def fact(self, text: str) -> str:
        """A sentence of a table of facts in this language, or as the table has it."""
        return self._facts.get(text, (text,))[0]

    @cached_property
    def _facts(self) -> Mapping[str, tuple[str, ...]]:
        path = FACTS_DIR / f"{self.code}.po"
        return PoCatalog(path.read_text(encoding="utf-8")) if path.exists() else {}

    @cached_property
    def _separator(self) -> str:
        return self.text("list.separator")

    @cached_property
    def marks(self) -> str:
        """What it writes for the decimal point and between thousands."""
        return self.text("number.marks")

    def _word(self, value: Value, hole: str = "") -> object:
        if isinstance(value, Message):
            return self.render(value)
        if isinstance(value, tuple | list):
            return self.listed(value)
        if isinstance(value, Numeral):
            return self.shown(value)
        if isinstance(value, Fact):
            return self.fact(value)
        if not isinstance(value, str):
            return value
        said = printable(value)
        if hole in AS_GIVEN:
            return said
        return self.shown(Numeral(said) if hole in NUMBERS and is_decimal(said) else said)


def _count(values: Mapping[str, Value]) -> int:
    """How many a sentence is about: a number, or one as people read it, of which only "1" is one."""
    counted = next((values[name] for name in COUNTS if name in values), None)
    if counted is None or isinstance(counted, int):
        return 1 if counted is None else counted
    return 1 if counted in ("1", 1.0) else 2


def printable(text: str) -> str:
    """A text that comes from outside, with what would steer a terminal written out, and not endless."""
    shown = text if len(text) <= MAX_VALUE_CHARS else text[:MAX_VALUE_CHARS] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in shown)


@cache
def languages() -> tuple[str, ...]:
    """Codes of the languages there are."""
    return tuple(sorted(path.stem for path in LOCALE_DIR.glob("*.po")))


def code_of(text: str) -> str | None:
    """The code of the language a locale or a browser names, where there is that language.

    >>> code_of("en-GB"), code_of("EN_us.UTF-8"), code_of("C"), code_of("tlh")
    ('en', 'en', None, None)
    """
    short = re.split(r"[-_.@]", text.strip().lower(), maxsplit=1)[0]
    return short if short in languages() else None


@cache
def language(code: str) -> Language:
    """The language of that code; `ko-KR` and `ko_KR.UTF-8` mean `ko`; English where there is none such."""
    short = code_of(code) or SOURCE_LANGUAGE
    if short == SOURCE_LANGUAGE and code != SOURCE_LANGUAGE:
        return english()
    texts = PoCatalog((LOCALE_DIR / f"{short}.po").read_text(encoding="utf-8"))
    return Language(short, texts, texts.plural, None if short == SOURCE_LANGUAGE else english())


@cache
def english() -> Language:
    """The source language, which has every id."""
    return language(SOURCE_LANGUAGE)


_chosen = [SOURCE_LANGUAGE]  # by whoever uses this as a library; the surfaces choose for each reader


def current_language() -> Language:
    """The language in which messages and errors read as text."""
    return language(_chosen[0])


def set_current_language(code: str) -> None:
    """Choose it."""
    _chosen[0] = code
