"""Strict JSON parser for untrusted text: rejects duplicate keys, NaN, deep nesting and very long numbers."""

from __future__ import annotations

import json
from typing import Any

MAX_DIGITS = 400  # Longest whole number accepted (set by judgement); a float has at most 309 digits before the point.
MAX_NESTING = 64  # Largest nesting accepted (set by judgement); a config.json has three or four levels.


def read_object(text: str) -> dict[str, Any]:
    """Parse a text to a JSON object; raise ValueError with the reason if it is anything else."""
    try:
        document = json.loads(text, object_pairs_hook=_once, parse_constant=_refuse, parse_int=_whole)
    except RecursionError as problem:
        raise ValueError("nested too deeply") from problem
    if not isinstance(document, dict):
        raise ValueError(f"an object is wanted, not {type(document).__name__}")
    if _depth(document) > MAX_NESTING:
        raise ValueError("nested too deeply")
    return document


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is given twice")
    return fields


def _whole(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits")
    return int(digits)


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no number")


def _depth(value: Any) -> int:
    """Return the levels of nesting of a value, counted without recursion."""
    level, deepest = [value], 0
    while level := [inner for item in level if isinstance(item, dict | list) for inner in _inside(item)]:
        deepest += 1
        if deepest > MAX_NESTING:
            break
    return deepest


def _inside(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value
