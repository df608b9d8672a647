"""Conversion of answers to JSON documents: messages in the reader's language, bytes as integers, unchanged field names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from whichgpu.base.errors import InvalidFields, NoAnswer, WhichGpuError
from whichgpu.base.figure import Figure
from whichgpu.base.messages import Language, Message


def document(value: object, language: Language) -> Any:
    """Return an answer as dicts, lists and scalars for JSON, with messages in a language."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Message):
        return language.render(value)
    if isinstance(value, Figure):
        return _figure(value)
    if isinstance(value, msgspec.Struct):
        return {name: document(getattr(value, name), language) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {name: document(item, language) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [document(item, language) for item in value]
    return value


def without_blanks(reply: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return a JSON document without those of the named fields that are None."""
    return {name: value for name, value in reply.items() if name not in names or value is not None}


def error_body(error: WhichGpuError, language: Language) -> dict[str, Any]:
    """Return the body that every error has: kind, message, hint, choices; that of several invalid fields has each in `fields`."""
    hint = language.render(error.hint) if error.hint else None
    body: dict[str, Any] = {
        "kind": error.kind,
        "message": language.render(error.message),
        "hint": hint,
        "choices": list(error.choices),
    }
    if isinstance(error, InvalidFields):
        body["fields"] = {name: error_body(one, language) for name, one in error.fields.items()}
    return body


def error_document(error: WhichGpuError, language: Language) -> dict[str, Any]:
    """Return the reply to a failed request; it has `rejected` and `relaxation` if the request was valid but nothing matched."""
    reply: dict[str, Any] = {"ok": False, "error": error_body(error, language)}
    if isinstance(error, NoAnswer) and error.rejected is not None:
        reply |= {"rejected": dict(error.rejected), "relaxation": error.relaxation}
    return reply


def _figure(figure: Figure) -> dict[str, Any]:
    numbers = {name: getattr(figure, name) for name in ("value", "low", "high")}
    if figure.unit == "byte":
        numbers = {name: round(number) for name, number in numbers.items()}
    return numbers | {"unit": figure.unit, "basis": figure.basis, "sources": list(figure.sources)}
