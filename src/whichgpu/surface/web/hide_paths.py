"""Errors as clients may see them: without the paths of files on the server."""

from __future__ import annotations

from copy import copy
from pathlib import PurePath

from whichgpu.base.errors import WhichGpuError
from whichgpu.base.messages import Message, Value

LOCAL = ("path", "folder")  # the holes of messages that take the path of a file on this machine


def without_paths(error: WhichGpuError) -> WhichGpuError:
    """The same error with file names instead of paths; a hint about a file of the server is left out."""
    shown = copy(error)
    shown.message = _without_paths(error.message)
    if error.hint is not None and _without_paths(error.hint) != error.hint:
        shown.hint = None
    return shown


def _without_paths(message: Message) -> Message:
    return Message(message.id, {name: _value(name, value) for name, value in message.values.items()})


def _value(name: str, value: Value) -> Value:
    if isinstance(value, Message):
        return _without_paths(value)
    if isinstance(value, tuple | list):
        return tuple(_value(name, item) for item in value)
    return PurePath(value).name if name in LOCAL and isinstance(value, str) else value
