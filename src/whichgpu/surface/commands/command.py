"""A command: the request it takes, the verb that answers it, and how the answer is shown. Every surface asks these."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Any, TypeVar

from whichgpu.api.request.catalog import DataRequest
from whichgpu.api.request.field import Field, fields_of, flag_of, names_of
from whichgpu.api.request.read import given, read
from whichgpu.base.dates import parse_as_known, parse_as_of
from whichgpu.base.errors import UsageError
from whichgpu.base.files import user_path
from whichgpu.base.messages import msg
from whichgpu.base.names import unknown_word
from whichgpu.surface.commands.session import Session

Request = dict[str, Any]
Show = Callable[[Session, Any], "int | None"]
Shows = TypeVar("Shows", bound=Show)
DATA = tuple(DataRequest.__annotations__)
# Command -> module that declares it.
MODULES = {
    "gpus": "gpus",
    "instances": "instances",
    "cpus": "hosts",
    "regions": "hosts",
    "offers": "offers",
    "compare": "compare",
    "models": "models",
    "engines": "engines",
    "fit": "fit",
    "estimate": "estimate",
    "recommend": "recommend",
    "plan": "plan",
    "buy": "buy",
    "doctor": "doctor",
    "measure": "measure",
    "catalog status": "catalog",
    "catalog check": "catalog",
    "catalog sources": "catalog",
    "catalog history": "price_history",
    "catalog diff": "price_history",
}


@dataclass(slots=True, eq=False)
class Command:
    """What is asked and how the answer is shown; `undated` is the hint of one that `as_of` means nothing to."""

    name: str
    request: type
    ask: Callable[[Session, Request], Any]
    show: Show
    has_examples: bool = False
    undated: str | None = None

    @property
    def fields(self) -> Mapping[str, Field]:
        """Its fields by name, those about the data last."""
        declared = fields_of(self.request)
        own = {name: field for name, field in declared.items() if name not in DATA}
        return own | {name: declared[name] for name in DATA}

    def shows(self, function: Shows) -> Shows:
        """Decorate the function that shows this command's answers; they need not come from the command line."""
        self.show = function
        return function

    def display(self, session: Session, request: Mapping[str, Any]) -> Request:
        """The fields that say how an answer is printed, read."""
        return read(self.request, request, session.spell, [name for name, field in self.fields.items() if field.is_display])

    def answer(self, session: Session, request: Mapping[str, Any]) -> Any:
        """The answer to a request as it was given: its fields by any of their names; which data it asks goes to the session."""
        stated = given(self.request, request)
        if missing := next((name for name, field in self.fields.items() if field.required and name not in stated), None):
            raise UsageError("missing-field", msg("error.missing-field", name=missing), msg("hint.missing-parameter"))
        return self.ask(session, dated(self, session, stated))


_DECLARED: dict[str, Command] = {}


def command(name: str, request: type, has_examples: bool = False, undated: str | None = None) -> Callable[[Any], Command]:
    """Declare a command by the function that asks it."""

    def declare(function: Callable[[Session, Request], Any]) -> Command:
        made = Command(name, request, function, _shown_nowhere, has_examples, undated)
        _DECLARED[name] = made
        return made

    return declare


def _shown_nowhere(session: Session, answer: Any) -> int | None:
    raise NotImplementedError(type(answer).__name__, session.command)


@cache
def command_named(name: str) -> Command:
    """The command of that name, loaded when first asked for."""
    importlib.import_module(f"whichgpu.surface.commands.{MODULES[name]}")
    return _DECLARED[name]


def dated(command: Command, session: Session, request: Mapping[str, Any]) -> Request:
    """The request without the fields about data, which the session takes."""
    rest = {name: value for name, value in request.items() if name not in DATA}
    if (as_of := request.get("as_of")) is not None:
        if command.undated is not None:
            raise UsageError("no-as-of", msg("error.no-as-of", command=command.name), msg(command.undated))
        session.as_of = parse_as_of(_day(as_of), session.today)
    if (known := request.get("catalog_as_known")) is not None:
        session.as_known = parse_as_known(_day(known), session.today)
    if (folder := request.get("catalog")) is not None:
        session.catalog_folder = user_path(folder)
    session.asked = rest | command.display(session, rest)
    return rest


def _day(value: Any) -> str:
    return value.isoformat()[:10] if isinstance(value, date) else str(value)


def value_text(field: Field | None, value: Any) -> str:
    """A value as text: a number with the base unit its field is measured in."""
    unit = getattr(field.kind, "unit", "") if field is not None else ""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value}{unit}" if unit and is_number else str(value)


def command_line(name: str, request: Mapping[str, Any]) -> list[str]:
    """The words of the command line that asks the same, without `whichgpu`: flags, then arguments after `--`."""
    fields = names_of(command_named(name).request)
    words, arguments = list[str](), list[str]()
    for key, value in request.items():
        if value is None or value is False or value in ((), ""):
            if value is False and fields[key].has_negative:
                words.append(fields[key].flag.replace("--", "--no-", 1))
            continue
        field = fields.get(key)
        texts = [value_text(field, one) for one in (value if isinstance(value, list | tuple) else (value,))]
        if field is not None and field.argument:
            arguments += texts
        elif value is True:
            words.append(flag_of(key))
        else:
            words.append(f"{flag_of(key)}={','.join(texts)}")
    return [*name.split(), *words, *(["--", *arguments] if arguments else [])]


def read_flags(command: Command, words: Sequence[str]) -> Request:
    """The request of a command line already split into words: arguments in order, `--flag value`, `--flag=value`, switches."""
    by_flag = {flag: field for field in command.fields.values() if not field.argument for flag in field.flags}
    places = iter([field for field in command.fields.values() if field.argument])
    found: Request = {}
    rest = list(words)
    while rest:
        flag, equals, text = rest.pop(0).partition("=")
        if not flag.startswith("--"):
            field = next(places, None)
            if field is None:
                raise UsageError("usage", msg("error.no-flag", text=flag), msg("hint.flags"))
            found[field.name] = f"{flag}{equals}{text}"
            continue
        field, negated = by_flag.get(flag), by_flag.get(flag.replace("--no-", "--", 1))
        if field is None and negated is not None and negated.has_negative:
            found[negated.name] = False
        elif field is None:
            raise unknown_word("option", flag, sorted(by_flag))
        elif field.is_switch:
            found[field.name] = True
        elif equals or rest:
            found[field.name] = text if equals else rest.pop(0)
        else:
            raise UsageError("missing-value", msg("error.missing-value", name=flag), msg("hint.flags"))
    return found
