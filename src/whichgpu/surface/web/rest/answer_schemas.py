"""JSON schemas of answers, derived from the types that commands return."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Collection, Mapping
from datetime import date
from decimal import Decimal
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from whichgpu.base.codec import is_record
from whichgpu.base.messages import Message
from whichgpu.surface.commands.command import Command

Schema = dict[str, Any]
SCALARS: dict[type, Schema] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    type(None): {"type": "null"},
    **{kind: {"type": "string"} for kind in (str, Decimal, date, Path, Message)},
}


@cache
def names_for_types(module: str) -> dict[str, Any]:
    """Return the objects that a module imports only for type checkers, by name, to resolve its annotations."""
    names: dict[str, Any] = {}
    for node in ast.walk(ast.parse(inspect.getsource(import_module(module)))):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for line in node.body:
                if isinstance(line, ast.ImportFrom) and line.module:
                    names |= {one.asname or one.name: getattr(import_module(line.module), one.name) for one in line.names}
    return names


class AnswerSchemas:
    """Builds JSON schemas of commands' answers; `components` collects the schemas of the records in them, by name."""

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}

    def of(self, command: Command) -> Schema:
        """Return the schema of a command's answer; further fields are allowed."""
        source = command.answer_source
        return self._schema(get_type_hints(source, localns=names_for_types(source.__module__)).get("return", Any))

    def _schema(self, hint: Any) -> Schema:
        origin = get_origin(hint)
        if hint in SCALARS:
            return SCALARS[hint]
        if origin in (Union, types.UnionType):
            return {"anyOf": [self._schema(one) for one in get_args(hint)]}
        if origin is Literal:
            return {"enum": list(get_args(hint))}
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self._schema(get_args(hint)[1])}
        if isinstance(origin, type) and issubclass(origin, Collection):
            items = [one for one in get_args(hint) if one is not Ellipsis]
            alike = len(items) == 1 or Ellipsis in get_args(hint)
            kinds = [self._schema(one) for one in items]
            return {"type": "array", "items": kinds[0] if items and alike else {"anyOf": kinds} if kinds else {}}
        if is_record(hint):
            return self._record(hint)
        return {}

    def _record(self, kind: type[msgspec.Struct]) -> Schema:
        name = kind.__name__
        if name not in self.components:
            self.components[name] = {}  # The entry is set first, since a record may contain others of its type.
            hints = get_type_hints(kind, localns=names_for_types(kind.__module__))
            properties = {name: self._schema(hints[name]) for name in kind.__struct_fields__}
            about = (kind.__doc__ or "").partition("\n")[0]
            self.components[name] = {"type": "object", "description": about, "properties": properties}
        return {"$ref": f"#/components/schemas/{name}"}
