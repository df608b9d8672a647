"""A question as the command line and the web page that reproduce it, and as the fields of a request."""

from __future__ import annotations

from shlex import join
from typing import Any
from urllib.parse import urlencode

import msgspec

from whichgpu.decide.question import Question
from whichgpu.workload.spelling import to_argv
from whichgpu.workload.workload import KINDS

PAGE = "/recommend"


class Reproduce(msgspec.Struct, frozen=True):
    """The question as a command line and as the path of a web page, both with the day of the prices (`as_of`)."""

    command: str
    url: str


def reproduce(question: Question) -> Reproduce:
    """Return the command line and the path of the page that ask the same question of the same day."""
    fields = request_fields(question)
    task, model = fields.pop("task"), [name] if (name := fields.pop("model", None)) is not None else []
    prices = [f"--prices={question.overlay}"] if question.overlay else []  # Web pages cannot read local files.
    *words, day = [_flag(name, value) for name, value in fields.items()]
    query = urlencode(
        [("task", task), *(("model", one) for one in model), *((name, _text(value)) for name, value in fields.items())]
    )
    return Reproduce(join(["whichgpu", "recommend", task, *model, *words, *prices, day]), f"{PAGE}?{query}")


def request_fields(question: Question) -> dict[str, Any]:
    """Return the fields of a request that asks the question: texts as flags take them, switches as booleans, the day last."""
    workload, fields = question.spelled.workload, dict[str, Any]()
    for word in to_argv(workload):
        name, equals, text = word.removeprefix("--").partition("=")
        key = name.replace("-", "_")
        fields[key.removeprefix("no_") if not equals else key] = text if equals else not key.startswith("no_")
    fields |= {"task": workload.task, "model": KINDS["model"].write_text(workload.model)}
    if not question.modelled:
        del fields["model"]
    required = {name: True if name == "buy" else text for name, text in question.query.spelled().items()}
    return fields | required | {"as_of": question.day.isoformat()}


def _flag(name: str, value: Any) -> str:
    dashed = name.replace("_", "-")
    return f"--{dashed}={value}" if not isinstance(value, bool) else f"--{dashed}" if value else f"--no-{dashed}"


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
