"""The error catalogue of the OpenAPI document: every kind of error with its HTTP status and sentence."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whichgpu.base.bundled_data import data_rows
from whichgpu.base.messages import Language
from whichgpu.surface.web.field_names import with_field_names

TABLE = Path(__file__).with_name("error_kinds.csv")  # Written by tools/digests from the code that raises errors.


def example_errors(language: Language) -> Mapping[str, Mapping[str, Any]]:
    """Return an example of every kind of error by HTTP status and kind; names in braces are filled in."""
    by_status: dict[str, dict[str, Any]] = {}
    for row in data_rows(TABLE):
        examples = by_status.setdefault(row["status"], {})
        examples[row["kind"]] = {"value": _document(row["kind"], _sentence(row["messages"].split(), language))}
    return by_status


def error_kinds() -> tuple[str, ...]:
    """Return every kind of error, sorted."""
    return tuple(sorted({row["kind"] for row in data_rows(TABLE)}))


def _sentence(ids: list[str], language: Language) -> str:
    """Return the first sentence of a kind with its placeholders as they are."""
    id = next((id for id in ids if id in language), None)
    return with_field_names(language.text(id).replace("!r}", "}")) if id else ""


def _document(kind: str, message: str) -> dict[str, Any]:
    return {"ok": False, "error": {"kind": kind, "message": message, "hint": None, "choices": []}}
