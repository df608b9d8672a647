"""Decimal and thousands separators of a language, for sentences and tables that people read; data and commands keep English ones.

Numbers are formatted the English way (`1,234.5 GiB`); a language's `number.marks` are its decimal and thousands separators. They
are applied at display to `Numeral` texts and to texts that are only numbers with units. Versions, compute capabilities and flag
values stay as they are, although they look like numbers.
"""

from __future__ import annotations

import re
from functools import cache

ENGLISH_MARKS = ".,"
_MARK = re.compile(r"(?<=\d)[.,](?=\d)")
_NUMBER = r"[-+±~]?\d+(?:,\d{3})*(?:\.\d+)?"
_UNIT = (
    r"(?:[KMGTP]i?B(?:/s)?|[TGP]?(?:FLOP|OP)/s|[MG]bit/s|[MG]Hz|k?Wh?|°C|[mµn]?s|min|[hdBM]|[A-Z]{3}(?:/(?:h|month))?|"
    r"(?:(?:input|output) )?(?:tokens?|samples?|requests?|images?)(?:/s)?|/(?:s|h|month)|%|x)(?![\w.])"
)
_GROUPED = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_DECIMAL = re.compile(r"-?\d+\.\d+")
_HAS_UNIT = re.compile(r"[A-Za-z%°µ]")


class Numeral(str):
    """A formatted number with its unit, a range or a list of them, with English separators."""

    __slots__ = ()


def localize_numbers(text: str, marks: str) -> str:
    """Return a text of numbers with these decimal and thousands separators; any other text unchanged.

    >>> [localize_numbers(text, ",.") for text in ("1,234.5 GiB", "12.3 USD (1.5/h)", Numeral("1.2–3.4"))]
    ['1.234,5 GiB', '12,3 USD (1,5/h)', '1,2–3,4']
    >>> [localize_numbers(text, ",.") for text in ("8.0", "CUDA 12.4", "llama-3.1-8b", "1.5GiB")]
    ['8.0', 'CUDA 12.4', 'llama-3.1-8b', '1.5GiB']
    """
    if marks == ENGLISH_MARKS or not (isinstance(text, Numeral) or is_quantity(text)):
        return text
    return _MARK.sub(lambda match: marks[ENGLISH_MARKS.index(match[0])], text)


def is_decimal(text: str) -> bool:
    """Whether a text is a bare decimal such as `2.5`, which may also be a version."""
    return _DECIMAL.fullmatch(text) is not None


@cache
def _quantity_pattern() -> re.Pattern[str]:
    """Return the regular expression of numbers with units; compiled at first use, since English texts do not need it."""
    return re.compile(rf" *(?:{_NUMBER}|\()(?:{_NUMBER}|(?<![A-Za-z]){_UNIT}|[ ()/–,]|\.\.)*")


def is_quantity(text: str) -> bool:
    """Whether a text is only numbers and units."""
    if _GROUPED.fullmatch(text):
        return True
    separated = " " in text.strip() or text.endswith(("%", "x"))  # `1.5h`, without a space, is a flag's value.
    return separated and bool(_HAS_UNIT.search(text) and _quantity_pattern().fullmatch(text))
