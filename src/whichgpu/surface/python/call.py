"""Calls of a command from Python: keywords are the fields of its request. No config file changes what a call means."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from whichgpu.api.request.kinds import COLLECTION_TYPES, config_text
from whichgpu.base.errors import WhichGpuError
from whichgpu.base.kinds import InvalidValue
from whichgpu.base.lru import LruCache
from whichgpu.base.messages import english, msg
from whichgpu.catalog.store import Catalog
from whichgpu.surface.commands.command import Command, command_named
from whichgpu.surface.commands.session import MAX_CATALOGS, Session
from whichgpu.workload.field_errors import invalid_field

_catalogs = LruCache[Catalog](MAX_CATALOGS)


def call(name: str, arguments: Sequence[object] = (), options: Mapping[str, Any] | None = None) -> Any:
    """Return the answer of a command (`gpus`, `catalog history`) to arguments and keywords; None means not given."""
    command = command_named(name)
    session = Session(english(), format="json", out=io.StringIO(), err=io.StringIO(), catalogs=_catalogs)
    session.command = tuple(name.split())
    try:
        request = {name: _config(value) for name, value in {**_positional(command, arguments), **(options or {})}.items()}
        _refuse_text_switches(command, request)
        return command.answer(session, request)
    except WhichGpuError as problem:
        raise with_hint(problem) from problem.__cause__


def with_hint(error: WhichGpuError) -> WhichGpuError:
    """Add the hint to an error as a note, which a traceback prints."""
    if error.hint is not None:
        error.add_note(f"{english().text('word.hint')}: {english().render(error.hint)}")
    return error


def _config(value: Any) -> Any:
    """Convert numbers of any type in a model's config to JSON's; raise `UsageError` for a value that JSON does not support."""
    if isinstance(value, list):
        return [_config(one) for one in value]
    return json.loads(config_text(value)) if isinstance(value, Mapping) and all(isinstance(key, str) for key in value) else value


def _refuse_text_switches(command: Command, request: Mapping[str, Any]) -> None:
    """Raise if a switch is given as text: Python callers pass True or False."""
    for name, value in request.items():
        field = command.fields.get(name)
        if field is not None and field.is_switch and isinstance(value, str):
            raise invalid_field(name, value, InvalidValue(msg("wants.flag")))


def _positional(command: Command, arguments: Sequence[object]) -> dict[str, Any]:
    """Return positional arguments by the names of their fields; a field that takes several gets all remaining ones."""
    places = [field for field in command.fields.values() if field.argument]
    values: dict[str, Any] = {}
    for place, field in enumerate(places):
        if field.is_list:
            if names := [one for value in arguments[place:] for one in _flat(value)]:
                values[field.name] = names
            break
        if place < len(arguments) and arguments[place] is not None:
            values[field.name] = arguments[place]
    return values


def _flat(value: object) -> Iterator[object]:
    if isinstance(value, COLLECTION_TYPES):
        for one in value:
            yield from _flat(one)
    elif value is not None:
        yield value
