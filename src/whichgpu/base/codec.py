"""Conversion of values to JSON and to flat rows of CSV cells; field names are those of the records."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import cache
from typing import Any, TypeGuard, cast, get_args, get_type_hints

import msgspec

Cell = str | int | float | bool | None
# Beginnings of cells that a spreadsheet runs as a formula (OWASP, CSV injection).
FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")
_MARKUP = re.compile("[<>&\u2028\u2029]")  # Characters that end a script element, or a line in old scripts.
_SIGNED_NUMBER = re.compile(r"[+-]?[\d.,]*\d(?:[eE][+-]?\d+)?\s?[%A-Za-zµ/]*|-+")


def plain(value: object) -> Any:
    """Convert a value to nested dicts, lists and scalars for JSON; Decimals and dates become strings."""
    return msgspec.to_builtins(value, enc_hook=_text)


def to_json(value: object) -> str:
    """Return a value as one indented JSON document, ending in a newline."""
    return msgspec.json.format(_encoded(value), indent=2).decode() + "\n"


def to_json_line(value: object) -> str:
    """Return a value as a JSON document on one line, for streams of answers."""
    return _encoded(value).decode() + "\n"


def script_json(value: object) -> str:
    """Return a value as JSON that may be inside a script element of a page: no text of it can end the element.

    >>> script_json({"name": "</script>&"})
    '{"name":"\\\\u003c/script\\\\u003e\\\\u0026"}'
    """
    return _MARKUP.sub(lambda match: f"\\u{ord(match[0]):04x}", _encoded(value).decode())


def csv_cell(cell: object) -> object:
    """Return a cell for CSV: None is empty, and text that a spreadsheet would run as a formula begins with an apostrophe.

    >>> [csv_cell(cell) for cell in ("=1+2", "@name", "-1+2", "-1.5%", "+3", -2, "A100", None)]
    ["'=1+2", "'@name", "'-1+2", '-1.5%', '+3', -2, 'A100', '']
    """
    if isinstance(cell, str) and cell.startswith(FORMULA_SIGNS) and not _SIGNED_NUMBER.fullmatch(cell):
        return "'" + cell
    return "" if cell is None else cell


def text_of_csv_cell(cell: str) -> str:
    """Return the text of which `csv_cell` made a cell.

    >>> text_of_csv_cell("'=1+2"), text_of_csv_cell("'s")
    ('=1+2', "'s")
    """
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA_SIGNS) else cell


def _encoded(value: object) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=_text)
    except UnicodeEncodeError:  # A file name inside is not UTF-8, or a text has half of a surrogate pair.
        return msgspec.json.encode(_escape_surrogates(plain(value)))


def _text(value: object) -> str:
    if isinstance(value, str):  # A subclass of str, such as `Numeral`, becomes a plain str.
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _escape_surrogates(value: Any) -> Any:
    """Return a nested value with characters that UTF-8 cannot encode replaced by their escapes."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_escape_surrogates(key): _escape_surrogates(item) for key, item in value.items()}
    return [_escape_surrogates(item) for item in value] if isinstance(value, list | tuple) else value


def flat(value: object, exact: bool = True) -> dict[str, Cell]:
    """Return a value as one flat row of CSV cells: nested names joined by dots, lists by semicolons.

    Decimals are texts, or numbers if not `exact`. A record has all columns of its type, so that they do not depend on the rows.

    >>> flat({"link": {"kind": "nvlink"}, "supports": ["bf16", "fp8"]})
    {'link.kind': 'nvlink', 'supports': 'bf16;fp8'}
    """
    cells: dict[str, Cell] = {}
    _flatten("", plain(value) if exact else msgspec.to_builtins(value, builtin_types=(Decimal,)), cells)
    return {name: cells.get(name) for name in columns(type(value))} if isinstance(value, msgspec.Struct) else cells


@cache
def columns(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the flat column names of a record type; a mapping's keys are listed in `_mapping_keys` of the type."""
    hints = get_type_hints(kind)
    names: list[str] = []
    for field in kind.__struct_fields__:
        inner = next((part for part in (hints[field], *get_args(hints[field])) if is_record(part)), None)
        if keys := getattr(kind, "_mapping_keys", {}).get(field):
            names += [f"{field}.{key}" for key in keys]
        elif inner is not None:
            names += [f"{field}.{name}" for name in columns(inner)]
        else:
            names.append(field)
    return tuple(names)


def is_record(kind: object) -> TypeGuard[type[msgspec.Struct]]:
    """Whether a type is that of a record (a msgspec struct)."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _flatten(name: str, value: object, cells: dict[str, Cell]) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _flatten(f"{name}.{key}" if name else str(key), item, cells)
    elif isinstance(value, list | tuple):
        cells[name] = ";".join(str(item) for item in value)
    else:
        cells[name] = float(value) if isinstance(value, Decimal) else cast("Cell", value)
