"""Messages to users: an id and values here, the sentences in the gettext catalogs `locale/<language>.po` (the msgid is our id).

`tools/translations` lists missing translations. Sentences are not concatenated: values are inserted by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property
from gettext import c2py
from pathlib import Path

import msgspec

from whichgpu.base.numerals import Numeral, is_decimal, is_quantity, localize_numbers
from whichgpu.base.po import PoCatalog

LOCALE_DIR = Path(__file__).parent / "locale"
FACTS_DIR = LOCALE_DIR / "facts"
SOURCE_LANGUAGE = "en"

MAX_VALUE_CHARS = 2000  # Values in a message are cut to this length.
# Placeholders in which a bare decimal is a number, not a version or a compute capability.
NUMBERS = frozenset(
    "rate speed times percentile price power loss before after notice warm_up outage most amount seconds vcpus".split()
)
VERBATIM = frozenset({"text", "value", "given", "command", "version"})  # Placeholders for what a user typed or is to type.

# Units that are words; a unit comes before any other unit that it ends in, so that the longer one is matched.
_RATES = ("output-tokens", "input-tokens", "tokens", "samples", "denoising-steps", "pictures", "videos", "requests")
UNITS = {f"{unit}/s".replace("-", " "): f"unit.{name}-rate" for name in _RATES for unit in (name, name.removesuffix("s"))}
# Placeholders whose number chooses the plural form; if a message has several, the first in this list decides.
COUNTS = tuple(
    "models tp n rate count more years gpus part vcpus speed batch reruns hours months have found cells now considered".split()
)

Value = object  # A value is a text, a number, a Message or a tuple of them.


class Message(msgspec.Struct, frozen=True):
    """A message not yet in any language: an id and the values inserted into its sentence."""

    id: str
    values: Mapping[str, Value] = msgspec.field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.id, tuple(sorted((k, repr(v)) for k, v in self.values.items()))))

    def __str__(self) -> str:
        return current_language().render(self)


class Fact(str):
    """An English sentence from a catalog table, translated in `locale/facts/<language>.po`."""

    __slots__ = ()


def msg(id: str, /, **values: Value) -> Message:
    """Return a message with an id and the values to insert; it becomes a sentence when a language renders it."""
    return Message(id, values)


class Language:
    """All message sentences of one language, with English for those it lacks."""

    def __init__(self, code: str, texts: Mapping[str, tuple[str, ...]], plural: str, fallback: Language | None = None):
        self.code = code
        self._texts = texts
        self._plural = plural
        self._fallback = fallback

    def __contains__(self, id: str) -> bool:
        return id in self._texts or (self._fallback is not None and id in self._fallback)

    def ids(self) -> frozenset[str]:
        """Return all message ids that this language has a sentence for."""
        return frozenset(self._texts)

    def text(self, id: str, /, **values: Value) -> str:
        """Return the sentence of `id` with its values; the first of `COUNTS` among them chooses the plural form."""
        forms = self._texts.get(id)
        if forms is None:
            return self._fallback.text(id, **values) if self._fallback else id
        index = self._plural_index(_count(values)) if len(forms) > 1 else 0
        if not values:  # A sentence without values has no placeholders, so the braces of a JSON example are printed as they are.
            return forms[index]
        return forms[index].format_map({name: self._render_value(value, name) for name, value in values.items()})

    def render(self, message: Message) -> str:
        """Return the sentence of a message in this language."""
        return self.text(message.id, **message.values)

    def cell(self, id: str, /, **values: str | None) -> Numeral:
        """Return the sentence of `id` for a table cell; its numbers are localized at display only."""
        return Numeral(self.text(id).format_map(values))

    def listed(self, items: Iterable[Value]) -> str:
        """Return items joined with this language's list separator."""
        return self._separator.join(str(self._render_value(item)) for item in items)

    def localize(self, text: str) -> str:
        """Return a quantity with this language's separators and unit words; any other text unchanged."""
        if self.code == SOURCE_LANGUAGE or not (isinstance(text, Numeral) or text in UNITS or is_quantity(text)):
            return text
        unit = next((unit for unit in UNITS if unit in text), None)
        localized = localize_numbers(text, self.marks)
        return localized.replace(unit, self.text(UNITS[unit])) if unit else localized

    def fact(self, text: str) -> str:
        """Return a sentence from a catalog table in this language, or unchanged if it has no translation."""
        return self._facts.get(text, (text,))[0]

    @cached_property
    def _plural_index(self) -> Callable[[int], int]:
        """Return the function that chooses the index of the plural form for a number in this language."""
        return c2py(self._plural)

    @cached_property
    def _facts(self) -> Mapping[str, tuple[str, ...]]:
        path = FACTS_DIR / f"{self.code}.po"
        return PoCatalog(path.read_text(encoding="utf-8")) if path.exists() else {}

    @cached_property
    def _separator(self) -> str:
        return self.text("list.separator")

    @cached_property
    def marks(self) -> str:
        """Return the decimal and thousands separators of this language, in that order."""
        return self.text("number.marks")

    def _render_value(self, value: Value, placeholder: str = "") -> object:
        if isinstance(value, Message):
            return self.render(value)
        if isinstance(value, tuple | list):
            return self.listed(value)
        if isinstance(value, Numeral):
            return self.localize(value)
        if isinstance(value, Fact):
            return self.fact(value)
        if not isinstance(value, str):
            return value
        text = printable(value)
        if placeholder in VERBATIM:
            return text
        return self.localize(Numeral(text) if placeholder in NUMBERS and is_decimal(text) else text)


def _count(values: Mapping[str, Value]) -> int:
    """Return the number that chooses the plural form; a formatted number is singular only if it is "1"."""
    count = next((values[name] for name in COUNTS if name in values), 1)
    if isinstance(count, int):
        return count
    return 1 if count in ("1", 1.0) else 2


def printable(text: str) -> str:
    """Return a text from outside (a user, a file) with control characters escaped and its length limited."""
    shortened = text if len(text) <= MAX_VALUE_CHARS else text[:MAX_VALUE_CHARS] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in shortened)


@cache
def languages() -> tuple[str, ...]:
    """Return the codes of the languages that have message sentences."""
    return tuple(sorted(path.stem for path in LOCALE_DIR.glob("*.po")))


def code_of(text: str) -> str | None:
    """Return the language code of a locale or browser setting, or None if that language is not available.

    >>> code_of("en-GB"), code_of("EN_us.UTF-8"), code_of("C"), code_of("tlh")
    ('en', 'en', None, None)
    """
    short = re.split(r"[-_.@]", text.strip().lower(), maxsplit=1)[0]
    return short if short in languages() else None


@cache
def language(code: str) -> Language:
    """Return the sentences of a language by its code (`ko-KR` and `ko_KR.UTF-8` mean `ko`); English if it is not available."""
    short = code_of(code) or SOURCE_LANGUAGE
    if short == SOURCE_LANGUAGE and code != SOURCE_LANGUAGE:
        return english()
    texts = PoCatalog((LOCALE_DIR / f"{short}.po").read_text(encoding="utf-8"))
    return Language(short, texts, texts.plural, None if short == SOURCE_LANGUAGE else english())


@cache
def english() -> Language:
    """Return English, the source language, which has a sentence for every id."""
    return language(SOURCE_LANGUAGE)


_current_code = [SOURCE_LANGUAGE]  # Language of the Python library; the command line and the web server choose one per reader.


def current_language() -> Language:
    """Return the language in which messages and errors are converted to text."""
    return language(_current_code[0])


def set_current_language(code: str) -> None:
    """Set the language in which messages and errors are converted to text."""
    _current_code[0] = code
