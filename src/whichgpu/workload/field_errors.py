"""Errors for request fields whose values cannot be parsed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from whichgpu.base.errors import InvalidFields, UsageError, WhichGpuError
from whichgpu.base.kinds import InvalidValue
from whichgpu.base.messages import Message, msg


def invalid_field(name: str, value: Any, problem: InvalidValue) -> UsageError:
    """Return the error for a request field whose value cannot be parsed, with what is accepted."""
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    text = repr(value) if not isinstance(value, bool) and value is not None else str(value).lower()
    message = msg("error.bad-field", name=name, value=text if len(text) <= 60 else text[:57] + "…")
    if problem.problem:
        message = msg("error.bad-field-because", name=name, why=problem.problem)
    return UsageError("bad-field", message, msg("hint.bad-field", name=name, wants=problem.expected), problem.choices)


def combine_errors(problems: Mapping[str, WhichGpuError]) -> WhichGpuError:
    """Return one error that reports the invalid fields of a request, by name; a single one is returned as it is."""
    if len(problems) == 1:
        return next(iter(problems.values()))
    message = _join_messages(problem.message for problem in problems.values())
    hints = dict.fromkeys(problem.hint for problem in problems.values() if problem.hint)
    choices = tuple(dict.fromkeys(choice for problem in problems.values() for choice in problem.choices))
    hint = _join_messages(hints) if hints else None
    return InvalidFields("bad-request", msg("error.several", n=len(problems), what=message), hint, choices, dict(problems))


def _join_messages(messages: Iterable[Message]) -> Message:
    first, *rest = messages
    for message in rest:
        first = msg("list.and-then", first=first, then=message)
    return first
