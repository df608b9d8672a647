"""Tools of the Model Context Protocol server: their schemas and short answers, without the protocol itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from whichgpu.base.messages import Language
from whichgpu.surface.web.command_replies import internal_error
from whichgpu.surface.web.rest.endpoints import BY_PATH
from whichgpu.surface.web.rest.openapi import body_schema
from whichgpu.surface.web.worker_answers import rest

NAMES = ("gpus", "offers", "fit", "estimate", "compare", "recommend", "plan")
MAX_ROWS = 20  # Rows in one answer, unless the request sets a limit.
# Fields left out of answers: long lists of which a person would draw a chart.
LONG_FIELDS = frozenset("pareto curve terms levels timeline alone hints columns program designs policies memory_parts".split())


class ToolAnswer(msgspec.Struct, frozen=True):
    """A tool's answer as a JSON document, and whether it is an error."""

    document: dict[str, Any]
    is_error: bool


def input_schema(name: str, language: Language) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments: the fields of its request that name no file of this machine."""
    return body_schema(BY_PATH[name], language)


def description(name: str, language: Language) -> str:
    """Return what a tool answers, from the help of its command."""
    return language.text(f"command.{name}.short")


def answer(name: str, arguments: Mapping[str, Any], language: Language) -> ToolAnswer:
    """Return a tool's short answer; an error has a message, a hint and choices, and never a traceback."""
    endpoint = BY_PATH[name]
    values = {"limit": MAX_ROWS, **arguments} if endpoint.rows else dict(arguments)
    try:
        reply = rest({"endpoint": name, "body": json.dumps(values).encode() if values else b""}, language, None)
    except Exception as problem:
        reply = internal_error(problem, language)
    document = json.loads(reply.body)
    if reply.status != 200:
        return ToolAnswer(document, True)
    return ToolAnswer({field: _short(value) for field, value in document.items() if field not in LONG_FIELDS}, False)


def _short(value: Any) -> Any:
    return value[:MAX_ROWS] if isinstance(value, list) else value
