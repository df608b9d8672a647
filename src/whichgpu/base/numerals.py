"""Numbers as a language writes them, in sentences and tables for people; data and commands never pass through here.

Numbers are first written the English way (`1,234.5 GiB`) by whoever knows them; each language says in `number.marks` what it
writes for the decimal point and for the comma between thousands. They are rewritten where they are shown: what is marked as a
`Numeral`, and texts of nothing but numbers and their units. Others stay as they are, though they look like numbers: a version,
a compute capability, a flag's value.
"""

from __future__ import annotations

import re

ENGLISH_MARKS = ".,"
_MARK = re.compile(r"(?<=\d)[.,](?=\d)")
_NUMBER = r"[-+±~]?\d+(?:,\d{3})*(?:\.\d+)?"
_UNIT = (
    r"(?:[KMGTP]i?B(?:/s)?|[TGP]?(?:FLOP|OP)/s|[MG]bit/s|[MG]Hz|k?Wh?|°C|[mµn]?s|min|[hdBM]|[A-Z]{3}(?:/(?:h|month))?|"
    r"(?:(?:input|output) )?(?:tokens?|samples?|requests?|images?)(?:/s)?|/(?:s|h|month)|%|x)(?![\w.])"
)
_QUANTITY = re.compile(rf" *(?:{_NUMBER}|\()(?:{_NUMBER}|(?<![A-Za-z]){_UNIT}|[ ()/–,]|\.\.)*")
_GROUPED = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_DECIMAL = re.compile(r"-?\d+\.\d+")
_HAS_UNIT = re.compile(r"[A-Za-z%°µ]")


class Numeral(str):
    """A number for people with its unit, a range or a few of them, written the English way."""

    __slots__ = ()


def localize_numbers(text: str, marks: str) -> str:
    """A text with these marks for the decimal point and between thousands, where it is one of numbers.

    >>> [localize_numbers(text, ",.") for text in ("1,234.5 GiB", "12.3 USD (1.5/h)", Numeral("1.2–3.4"))]
    ['1.234,5 GiB', '12,3 USD (1,5/h)', '1,2–3,4']
    >>> [localize_numbers(text, ",.") for text in ("8.0", "CUDA 12.4", "llama-3.1-8b", "1.5GiB")]
    ['8.0', 'CUDA 12.4', 'llama-3.1-8b', '1.5GiB']
    """
    if marks == ENGLISH_MARKS or not (isinstance(text, Numeral) or is_quantity(text)):
        return text
    return _MARK.sub(lambda match: marks[ENGLISH_MARKS.index(match[0])], text)


def is_decimal(text: str) -> bool:
    """Whether a text is a number alone: `2.5`, which may as well be a version."""
    return _DECIMAL.fullmatch(text) is not None


def is_quantity(text: str) -> bool:
    """Whether a text is of nothing but numbers and their units."""
    if _GROUPED.fullmatch(text):
        return True
    apart = " " in text.strip() or text.endswith(("%", "x"))  # `1.5h` is how a flag's value is written
    return apart and bool(_HAS_UNIT.search(text) and _QUANTITY.fullmatch(text))
