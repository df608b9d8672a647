"""Types of request values ("kinds"): each parses a text (flags, URLs) or a typed value (Python, JSON, TOML) and writes it back.

A kind raises `InvalidValue` with what is accepted; the reader of the request adds the field's name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import msgspec

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Message, msg

MAX_COUNT = 10**9  # Assumed upper limit of batches, sequence lengths and GPU counts.
MIN_NUMBER = 1e-9  # Assumed lower limit of rates, shares and durations.
_WHOLE_NUMBER = re.compile(r"[0-9]{1,19}")
_NUMBER = re.compile(r"[0-9]{1,19}(?:\.[0-9]{1,40})?(?:e[+-]?[0-9]{1,3})?", re.IGNORECASE)
_SCALES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}
TRUE, FALSE = ("true", "yes", "1", "on"), ("false", "no", "0", "off")


class InvalidValue(Exception):
    """Error: a value that a request field cannot take, with what is accepted, the nearest choices, and perhaps the problem."""

    def __init__(self, expected: Message, choices: tuple[str, ...] = (), problem: Message | None = None) -> None:
        super().__init__(expected)
        self.expected, self.choices, self.problem = expected, choices, problem


class ValueKind(Protocol):
    """How the value of one request field is parsed and written."""

    def read(self, value: Any) -> Any:
        """Parse a field's typed value from Python, JSON or TOML."""

    def read_text(self, text: str) -> Any:
        """Parse a field's text from a flag or URL."""

    def write_text(self, value: Any) -> str:
        """Return a text, as on a command line, that parses to the same value."""

    def write(self, value: Any) -> Any:
        """Return the value of a field as JSON writes it."""


class SingleValue:
    """Base class of field kinds whose value is one number, text or boolean, the same in JSON as in Python."""

    takes_list: ClassVar[bool] = False
    takes_mapping: ClassVar[bool] = False

    def write(self, value: Any) -> Any:
        return value

    def write_text(self, value: Any) -> str:
        return str(value)


class Whole(SingleValue, msgspec.Struct, frozen=True):
    """Kind of a request field that is a whole number within bounds; with `scales`, texts may be 300B, 15T or 2e9."""

    low: int = 1
    high: int = MAX_COUNT
    scales: bool = False

    def read(self, value: Any) -> int:
        if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not self.low <= value <= self.high:
            raise InvalidValue(msg("wants.whole", low=self.low, high=f"{self.high:,}"))
        return value

    def read_text(self, text: str) -> int:
        digits, scale = text.strip().replace(",", "").replace("_", ""), 1
        if self.scales and digits[-1:].lower() in _SCALES:
            digits, scale = digits[:-1], _SCALES[digits[-1:].lower()]
        if (scale > 1 or (self.scales and "e" in digits.lower())) and _NUMBER.fullmatch(digits):
            whole = _WHOLE_NUMBER.fullmatch(digits)
            return self.read(int(digits) * scale if whole else float(digits) * scale)
        return self.read(int(digits) if _WHOLE_NUMBER.fullmatch(digits) else None)


class Number(SingleValue, msgspec.Struct, frozen=True):
    """Kind of a request field that is a number above zero; if the kind has a unit, a text must state one.

    With `is_unit_optional`, a typed number without a unit is in the kind's unit.
    """

    wants: str = "wants.number"
    high: float = 1e12
    unit: str = ""
    parse: Callable[[str], float] | None = None
    is_unit_optional: bool = False

    def read(self, value: Any) -> float:
        if isinstance(value, str) and self.unit:
            return self._read_with_unit(value)
        if isinstance(value, float) and 0 < value < MIN_NUMBER:
            raise InvalidValue(msg("wants.at-least", low=f"{MIN_NUMBER:g}{self.unit}"))
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= self.high:
            large = not isinstance(value, bool) and isinstance(value, int | float) and value > self.high and self.unit
            raise InvalidValue(msg("wants.at-most", high=f"{self.high:,.0f}{self.unit}") if large else self._expected)
        return float(value)

    @property
    def _expected(self) -> Message:
        return msg(self.wants, high=f"{self.high:g}")

    def read_text(self, text: str) -> float:
        if self.is_unit_optional and _NUMBER.fullmatch(text.strip()):
            return self.read(float(text))
        return self._read_with_unit(text)

    def _read_with_unit(self, text: str) -> float:
        bare = text.strip().removesuffix(self.unit) if self.unit else text.strip()
        if (bare != text.strip() or not self.unit) and _NUMBER.fullmatch(bare):  # Already in the base unit.
            return self.read(float(bare))
        if self.unit and _NUMBER.fullmatch(bare):
            raise InvalidValue(self._expected, (f"{bare}{self.unit}",), msg("wants.unit-missing", value=bare))
        try:
            return self.read(self.parse(text)) if self.parse else self.read(None)
        except UsageError as problem:
            raise InvalidValue(self._expected) from problem

    def write_text(self, value: float) -> str:
        return f"{value!r}{self.unit}"


class ShareValue(SingleValue):
    """Kind of a request field that is a share from 0 to 1."""

    def read(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise InvalidValue(msg("wants.share"))
        return float(value)

    def read_text(self, text: str) -> float:
        bare = text.strip()
        return self.read(float(bare) if _NUMBER.fullmatch(bare) else None)

    def write_text(self, value: float) -> str:
        return repr(value)


class Flag(SingleValue):
    """Kind of a request field that is true or false."""

    def read(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise InvalidValue(msg("wants.flag"))
        return value

    def read_text(self, text: str) -> bool:
        word = text.strip().lower()
        return self.read(True if word in TRUE else False if word in FALSE else None)

    def write_text(self, value: bool) -> str:
        return "true" if value else "false"


class Text(SingleValue, msgspec.Struct, frozen=True):
    """Kind of a request field that is a printable text of limited length."""

    max_length: int = 4096

    def read(self, value: Any) -> str:
        if not isinstance(value, str) or not value.strip() or len(value) > self.max_length or not value.isprintable():
            raise InvalidValue(msg("wants.text", longest=self.max_length))
        return value.strip()

    def read_text(self, text: str) -> str:
        return self.read(text)
