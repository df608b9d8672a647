"""Remove paths of the server's files from errors and answers."""

from __future__ import annotations

from copy import copy
from pathlib import PurePath
from typing import Any

from msgspec.structs import replace

from whichgpu.api.prices.store import StatusAnswer
from whichgpu.base.errors import InvalidFields, WhichGpuError
from whichgpu.base.messages import Message, Value, msg

PATH_VALUES = ("path", "folder")  # Names of message values that contain paths.


def without_paths(error: WhichGpuError) -> WhichGpuError:
    """Return a copy of an error with file names instead of paths; a hint that contains a path is left out."""
    public = copy(error)
    is_internal = error.kind == "internal"
    public.message = msg("error.internal", what=_exception_name(error)) if is_internal else _without_paths(error.message)
    if error.hint is not None and _without_paths(error.hint) != error.hint:
        public.hint = None
    if isinstance(public, InvalidFields):
        public.fields = {name: without_paths(one) for name, one in public.fields.items()}
    return public


def with_file_name(error: WhichGpuError, path: str, name: str) -> WhichGpuError:
    """Return a copy of an error whose message calls an uploaded file by a name instead of its random one."""
    renamed = copy(error)
    values = error.message.values.items()
    random = PurePath(path).name
    renamed.message = Message(error.message.id, {key: name if value == random else value for key, value in values})
    return renamed


def without_folders(document: Any) -> Any:
    """Return the answer about the catalog's state with the names of its folders instead of their paths; any other as it is."""
    if not isinstance(document, StatusAnswer):
        return document
    live = document.live
    if live is not None and live.store is not None:
        live = replace(live, store=PurePath(live.store).name)
    return replace(document, folder=PurePath(document.folder).name, live=live)


def _exception_name(error: WhichGpuError) -> str:
    """Return the exception's type in an internal error; its text, which may contain a path, is left out."""
    return str(error.message.values.get("what", "")).partition(":")[0]


def _without_paths(message: Message) -> Message:
    return Message(message.id, {name: _value(name, value) for name, value in message.values.items()})


def _value(name: str, value: Value) -> Value:
    if isinstance(value, Message):
        return _without_paths(value)
    if isinstance(value, tuple | list):
        return tuple(_value(name, item) for item in value)
    return PurePath(value).name if name in PATH_VALUES and isinstance(value, str) else value
