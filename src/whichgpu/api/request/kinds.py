"""Parsers of request fields beyond those of a workload: words of a list, names, quantities, ranges, pairs, paths."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from numbers import Integral, Rational, Real
from os import PathLike, fspath
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from whichgpu.base.errors import UsageError
from whichgpu.base.files import user_path
from whichgpu.base.kinds import InvalidValue, SingleValue
from whichgpu.base.messages import msg
from whichgpu.base.money import Money
from whichgpu.base.names import squash, unknown_word

COLLECTION_TYPES = (list, tuple, set, frozenset)
MAX_NAME_LENGTH = 200  # Maximum number of characters in a name.
Choices = Sequence[str] | Callable[[], Sequence[str]]


class Words(SingleValue, msgspec.Struct, frozen=True):
    """Parser of one or several words of a fixed list, ignoring case and dashes; the error for an unknown word has suggestions."""

    what: str  # kind of word, which selects the error message `error.unknown-<what>`
    choices: Choices
    many: bool = False
    synonyms: tuple[tuple[str, str], ...] = ()  # other words, each with the one of the list that it means

    def read(self, value: Any) -> Any:
        if self.many:
            words = value if isinstance(value, COLLECTION_TYPES) else str(value).split(",")
            return tuple(self._word(str(word).strip()) for word in words)
        return self._word(str(value))

    def read_text(self, text: str) -> Any:
        return self.read(text)

    def _word(self, word: str) -> str:
        words = tuple(self.choices() if callable(self.choices) else self.choices)
        for other, candidate in (*((one, one) for one in words), *self.synonyms):
            if squash(other) == squash(word):
                return candidate
        raise unknown_word(self.what, word, words)


class Names(SingleValue, msgspec.Struct, frozen=True):
    """Parser of one name, or of several as a list or separated by commas."""

    complete: str = ""  # list used for shell completion: gpus, instances, providers, models or engines
    many: bool = True
    is_exact: bool = False  # whether a name of several GPUs is refused

    def read(self, value: Any) -> Any:
        if not self.many:
            return _text(value)
        texts = [_text(one) for one in value] if isinstance(value, COLLECTION_TYPES) else [_text(value)]
        names = tuple(part.strip() for text in texts for part in text.split(",") if part.strip())
        if not names:  # An empty name matches nothing.
            raise InvalidValue(msg("wants.text", longest=MAX_NAME_LENGTH))
        return names

    def read_text(self, text: str) -> Any:
        return self.read(text)


class Parsed(SingleValue, msgspec.Struct, frozen=True):
    """Parser that applies the function `parse` to a text; a value without a unit is taken to be in `unit`."""

    parse: Callable[[str], Any]
    unit: str = ""  # unit of plain numbers: B, B/s, s
    whole: bool = False  # whether only whole numbers are accepted

    def read(self, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            return self.parse(_text(value))
        return self.parse(_number(value) + self.unit)

    def read_text(self, text: str) -> Any:
        return self.parse(text)


class Quantity(SingleValue, msgspec.Struct, frozen=True):
    """Parser that leaves an amount as text, to be checked by the API function; a plain number gets `unit` appended."""

    unit: str

    def read(self, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            return _text(value)
        return _number(value) + self.unit

    def read_text(self, text: str) -> str:
        return text


class Span(SingleValue, msgspec.Struct, frozen=True):
    """Parser of a number or a range of numbers: 8, 1..8, or a pair."""

    takes_list: ClassVar[bool] = True
    parse: Callable[[str], tuple[float, float]]

    def read(self, value: Any) -> tuple[float, float]:
        if isinstance(value, list | tuple) and len(value) == 2:
            return self.parse("..".join(_text(one) for one in value))
        return self.parse(_text(value))

    def read_text(self, text: str) -> tuple[float, float]:
        return self.parse(text)


class Pairs(SingleValue, msgspec.Struct, frozen=True):
    """Parser of names with values (`KRW=1190`, `512:0.3` or a mapping) into comma-separated text."""

    takes_mapping: ClassVar[bool] = True
    sign: str = "="

    def read(self, value: Any) -> str:
        if isinstance(value, Mapping):
            return ",".join(f"{key}{self.sign}{_text(item)}" for key, item in value.items())
        if isinstance(value, COLLECTION_TYPES):
            raise InvalidValue(msg("wants.one-value"))
        return _text(value)

    def read_text(self, text: str) -> str:
        return text


class Numbers(SingleValue, msgspec.Struct, frozen=True):
    """Parser of several numbers (a list, or text with commas) into comma-separated text."""

    many: bool = True

    def read(self, value: Any) -> str:
        return ",".join(_text(one) for one in value) if isinstance(value, COLLECTION_TYPES) else _text(value)

    def read_text(self, text: str) -> str:
        return text


class Share(SingleValue, msgspec.Struct, frozen=True):
    """Parser of a number without a unit, such as a fraction."""

    def read(self, value: Any) -> float:
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError) as problem:
            raise InvalidValue(msg("wants.page-number")) from problem

    def read_text(self, text: str) -> float:
        return self.read(text)


class Plain(SingleValue):
    """Parser that returns text unchanged; a date or an amount of money is written out as text."""

    def read(self, value: Any) -> str:
        return _text(value)

    def read_text(self, text: str) -> str:
        return text


class File(SingleValue):
    """Parser of the path of a file on the user's machine."""

    def read(self, value: Any) -> Path:
        return user_path(fspath(value) if isinstance(value, PathLike) else _text(value))

    def read_text(self, text: str) -> Path:
        return user_path(text)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, date):
        return value.isoformat()[:10]
    if isinstance(value, Money):
        return f"{value.amount:f}{value.currency.lower()}"
    if isinstance(value, (*COLLECTION_TYPES, Mapping)):
        raise InvalidValue(msg("wants.one-value"))
    if isinstance(value, PathLike):
        return str(fspath(value))
    return str(value)


def _number(value: float | Decimal) -> str:
    """Return a number as text without an exponent, as the parsers of units need it."""
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return str(value)
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    text = f"{exact:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def python_number(value: Any) -> Any:
    """Return NumPy scalars, fractions and decimals as Python numbers; other values unchanged.

    >>> from fractions import Fraction
    >>> python_number(Fraction(5, 2)), python_number(Decimal("0.05")), python_number(Decimal(5)), python_number("5/s")
    (2.5, 0.05, 5, '5/s')
    """
    if isinstance(value, bool | str) or type(value) in (int, float):
        return value
    if isinstance(value, Decimal) and value.is_finite():
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if isinstance(value, Rational) else float(str(value))  # A float32 of 0.1 becomes 0.1.
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        return python_number(value.item())
    return value


def _in_json(value: Any) -> Any:
    """Return a NumPy, fraction or decimal number as a Python number for JSON; raise TypeError for any other value."""
    parsed = python_number(value)
    if parsed is value:
        raise TypeError(type(value).__name__)
    return parsed


def config_text(value: Mapping[Any, Any]) -> str:
    """Return a model's config as JSON text; raise a usage error if it contains a value that JSON does not support."""
    try:
        return json.dumps(value, default=_in_json)
    except (TypeError, ValueError, RecursionError) as problem:
        what = str(problem)[:80] if isinstance(problem, TypeError) else type(problem).__name__
        raise UsageError("bad-config", msg("error.config-beyond-json", what=what), msg("hint.config-beyond-json")) from problem
