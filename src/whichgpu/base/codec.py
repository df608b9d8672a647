"""Values to JSON and to flat rows. Field names are the attributes' own."""

from __future__ import annotations

from typing import Any, cast

import msgspec


def plain(value: object) -> Any:
    """Nested dicts, lists and scalars of a value: Decimals and dates become strings."""
    return msgspec.to_builtins(value)


def to_json(value: object) -> str:
    """One indented JSON document, ending in a newline."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def flat(value: object) -> dict[str, str | int | float | bool | None]:
    """One level of cells for CSV: nested names joined by dots, lists by semicolons.

    >>> flat({"link": {"kind": "nvlink"}, "supports": ["bf16", "fp8"]})
    {'link.kind': 'nvlink', 'supports': 'bf16;fp8'}
    """
    cells: dict[str, str | int | float | bool | None] = {}
    _flatten("", plain(value), cells)
    return cells


def _flatten(name: str, value: object, cells: dict[str, str | int | float | bool | None]) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _flatten(f"{name}.{key}" if name else str(key), item, cells)
    elif isinstance(value, list | tuple):
        cells[name] = ";".join(str(item) for item in value)
    else:
        cells[name] = cast("str | int | float | bool | None", value)
