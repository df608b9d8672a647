"""The relaxation of a question without an answer as a request, which is answered before it is proposed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from whichgpu.base.errors import WhichGpuError
from whichgpu.base.messages import Message
from whichgpu.base.records import field_defaults
from whichgpu.catalog.select import parse_span
from whichgpu.decide.question import Question
from whichgpu.decide.reproduce import reproduce, request_fields
from whichgpu.decide.requirements import Requirements
from whichgpu.workload.spelling import DEFAULTS, ParsedWorkload
from whichgpu.workload.workload import KINDS

REQUIREMENTS = field_defaults(Requirements)
MAX_TRIALS = 3  # Most relaxations that are tried as a request.
# Fields that a relaxation with a new value changes, by the end of its message id.
CHANGED_FIELDS = {"budget": "budget", "deadline": "deadline", "gpus": "gpus", "power": "max_power", "precision": "precision"}


def relaxed_request(
    question: Question, messages: Sequence[Message], is_answered: Callable[[Question], bool]
) -> Mapping[str, Any] | None:
    """Return the first relaxation whose request is answered: changed fields, the whole request, its command; None if none is."""
    for change in [change for message in messages if (change := changed_fields(message))][:MAX_TRIALS]:
        try:
            relaxed = with_changes(question, change)
        except WhichGpuError:
            continue
        if is_answered(relaxed):
            return {"change": change, "request": request_fields(relaxed), "command": reproduce(relaxed).command}
    return None


def changed_fields(message: Message) -> dict[str, Any]:
    """Return the request fields that a relaxation changes, None for one that it drops; empty if it has no single value."""
    kind, values = message.id.removeprefix("relax."), message.values
    if kind in CHANGED_FIELDS:
        return {CHANGED_FIELDS[kind]: values["value"]}
    if kind == "both":
        parts = [changed_fields(one) for one in (values["one"], values["other"]) if isinstance(one, Message)]
        return {name: value for part in parts for name, value in part.items()} if all(parts) else {}
    if kind == "latency":
        flags: Any = values["flags"]
        pairs = [str(flag).removeprefix("--").split(" ", 1) for flag in flags]
        return {f"{name}_max": text for name, text in pairs}
    if kind == "without":
        return {str(values["flag"]).removeprefix("--").replace("-", "_"): None}
    fixed: dict[str, dict[str, Any]] = {
        "without-layout": {"parallel": None},
        "spot-service": {"term": "spot"},
        "quality": {"quality": "any"},
        "seller": {"sellers": "any"},
    }
    return {"rate": values["rate"]} if kind == "copies" else fixed.get(kind, {})


def with_changes(question: Question, change: Mapping[str, Any]) -> Question:
    """Return the question with request fields changed to texts as on the command line, or dropped if they are None."""
    query, workload, stated = question.query, question.spelled.workload, set(question.spelled.user_fields)
    for name, text in change.items():
        if name in REQUIREMENTS:
            value = REQUIREMENTS[name] if text is None else parse_span(text) if name == "gpus" else text
            query = replace(query, **{name: value})
        else:
            workload = replace(workload, **{name: DEFAULTS[name] if text is None else KINDS[name].read_text(text)})
            stated = stated - {name} if text is None else stated | {name}
    return replace(question, query=query, spelled=ParsedWorkload(workload, frozenset(stated)))
