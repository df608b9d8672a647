"""A command asked from Python: keywords are the fields of its request, and the answer comes back as a value.

No config file changes what a call means.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from whichgpu.api.request.kinds import SEVERAL, config_text
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.kinds import InvalidValue
from whichgpu.base.messages import english, msg
from whichgpu.surface.commands.command import Command, command_named
from whichgpu.surface.commands.session import Catalogs, Session
from whichgpu.workload.field_errors import invalid_field

_catalogs = Catalogs()


def asked(name: str, arguments: Sequence[object] = (), options: Mapping[str, Any] | None = None) -> Any:
    """The answer of a command (`gpus`, `catalog history`) to arguments and options by their names; None asks nothing."""
    found = command_named(name)
    session = Session(english(), format="json", out=io.StringIO(), err=io.StringIO(), catalogs=_catalogs)
    session.command = tuple(name.split())
    try:
        request = {name: _config(value) for name, value in {**_placed(found, arguments), **(options or {})}.items()}
        _refuse_texts(found, request)
        return found.answer(session, request)
    except WhichGpuError as problem:
        raise noted(problem) from problem.__cause__


def noted(error: WhichGpuError) -> WhichGpuError:
    """With its hint where a traceback shows it."""
    if error.hint is not None:
        error.add_note(f"{english().text('word.hint')}: {english().render(error.hint)}")
    return error


def _config(value: Any) -> Any:
    """A model's config with numbers of every kind as JSON's own; an error of ours where it holds what JSON cannot."""
    if isinstance(value, list):
        return [_config(one) for one in value]
    return json.loads(config_text(value)) if isinstance(value, Mapping) and all(isinstance(key, str) for key in value) else value


def _refuse_texts(found: Command, request: Mapping[str, Any]) -> None:
    """Python has truth values of its own: a text for one is a mistake."""
    for name, value in request.items():
        field = found.fields.get(name)
        if field is not None and field.is_switch and isinstance(value, str):
            raise invalid_field(name, value, InvalidValue(msg("wants.flag")))


def _placed(found: Command, arguments: Sequence[object]) -> dict[str, Any]:
    """Positional arguments by the names of their fields; the last field takes all that are left where it takes several."""
    places = [field for field in found.fields.values() if field.argument]
    placed: dict[str, Any] = {}
    for place, field in enumerate(places):
        if field.is_list:
            if names := [one for value in arguments[place:] for one in _flat(value)]:
                placed[field.name] = names
            break
        if place < len(arguments) and arguments[place] is not None:
            placed[field.name] = arguments[place]
    return placed


def _flat(value: object) -> Iterator[object]:
    if isinstance(value, SEVERAL):
        for one in value:
            yield from _flat(one)
    elif value is not None:
        yield value
