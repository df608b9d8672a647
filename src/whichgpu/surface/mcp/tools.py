"""Tools of the Model Context Protocol server: their schemas and short answers, without the protocol itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from whichgpu.base.messages import Language
from whichgpu.surface.web.command_replies import NO_ANSWER, error_reply, internal_error
from whichgpu.surface.web.rest.endpoints import BY_PATH
from whichgpu.surface.web.rest.openapi import body_schema
from whichgpu.surface.web.worker_answers import rest

NAMES = ("gpus", "offers", "fit", "estimate", "compare", "recommend", "plan", "explain", "evidence")
MAX_ROWS = 20  # Rows in one answer, unless the request sets a limit.
# Fields left out of answers: long lists of which a person would draw a chart.
LONG_FIELDS = frozenset("pareto curve terms levels timeline alone hints columns program designs policies memory_parts".split())


class ToolAnswer(msgspec.Struct, frozen=True):
    """A tool's answer as a JSON document, and whether it is an error; 'nothing fits' is an answer."""

    document: dict[str, Any]
    is_error: bool


def input_schema(name: str, language: Language) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments: the fields of its request that name no file of this machine."""
    return body_schema(BY_PATH[name], language)


def description(name: str, language: Language) -> str:
    """Return what a tool answers, from the help of its command."""
    return language.text(f"command.{name}.help")


def answer(name: str, arguments: Mapping[str, Any], language: Language) -> ToolAnswer:
    """Return a tool's short answer; an error has a message, a hint and choices, and never a traceback."""
    values = {"limit": MAX_ROWS, **arguments} if BY_PATH[name].rows else arguments
    reply = whole_answer(name, values, language)
    if reply.is_error:
        return reply
    limit = values.get("limit", MAX_ROWS)
    rows = limit if isinstance(limit, int) else MAX_ROWS
    short = {field: _short(value, rows) for field, value in reply.document.items() if field not in LONG_FIELDS}
    return ToolAnswer(short, False)


def whole_answer(name: str, arguments: Mapping[str, Any], language: Language) -> ToolAnswer:
    """Return the whole answer of a REST endpoint to its arguments, or the error."""
    try:
        body = msgspec.json.encode(arguments) if arguments else b""
        reply = rest({"endpoint": name, "body": body}, language, None)
    except Exception as problem:
        reply = error_reply(internal_error(problem), language)
    return ToolAnswer(msgspec.json.decode(reply.body), reply.status not in (200, NO_ANSWER))


def _short(value: Any, rows: int) -> Any:
    return value[:rows] if isinstance(value, list) else value
