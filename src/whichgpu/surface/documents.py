"""Answers as JSON documents: messages in the reader's language, bytes as whole numbers, field names as everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from whichgpu.base.errors import NoAnswer, WhichGpuError
from whichgpu.base.figure import Figure
from whichgpu.base.messages import Language, Message


def document(value: object, language: Language) -> Any:
    """Dicts, lists and scalars of an answer."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Message):
        return language.render(value)
    if isinstance(value, Figure):
        return _figure(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: document(getattr(value, field.name), language) for field in fields(value)}
    if isinstance(value, Mapping):
        return {name: document(item, language) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [document(item, language) for item in value]
    return value


def without_blanks(reply: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The reply less those of the named fields that have no value."""
    return {name: value for name, value in reply.items() if name not in names or value is not None}


def error_body(error: WhichGpuError, language: Language) -> dict[str, Any]:
    """An error in the one shape errors have."""
    hint = language.render(error.hint) if error.hint else None
    return {"kind": error.kind, "message": language.render(error.message), "hint": hint, "choices": list(error.choices)}


def error_document(error: WhichGpuError, language: Language) -> dict[str, Any]:
    """The whole reply of a question that failed; `rejected` and `relaxation` where the question was valid and looked into."""
    reply: dict[str, Any] = {"ok": False, "error": error_body(error, language)}
    if isinstance(error, NoAnswer) and error.rejected is not None:
        reply |= {"rejected": dict(error.rejected), "relaxation": error.relaxation}
    return reply


def _figure(figure: Figure) -> dict[str, Any]:
    numbers: tuple[float, ...] = (figure.value, figure.low, figure.high)
    if figure.unit == "byte":
        numbers = tuple(round(number) for number in numbers)
    names = ("value", "low", "high")
    rest = {"unit": figure.unit, "basis": figure.basis, "sources": list(figure.sources)}
    return dict(zip(names, numbers, strict=True)) | rest
