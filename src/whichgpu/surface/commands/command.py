"""A command: the request it takes, the verb that answers it, and the function that displays the answer."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import cache
from typing import Any, TypeVar

import msgspec

from whichgpu.api.context import Context
from whichgpu.api.request.catalog import DataRequest
from whichgpu.api.request.field import Field, fields_of, flag_of, names_of
from whichgpu.api.request.read import present_fields, read
from whichgpu.base.dates import parse_as_known, parse_as_of
from whichgpu.base.errors import UsageError
from whichgpu.base.files import user_path
from whichgpu.base.messages import Language, msg
from whichgpu.base.names import unknown_word
from whichgpu.surface.cells import with_sort_field
from whichgpu.surface.commands.session import Session

Request = dict[str, Any]
Verb = Callable[[Any, Context], Any]
Ask = Callable[[Session, Request], Any]
Show = Callable[[Session, Any], "int | None"]
ShowFunction = TypeVar("ShowFunction", bound=Show)
DATA = tuple(DataRequest.__annotations__)  # Fields that every request has: the catalog and the day.
# Modules of this package that declare a command of another name.
MODULES = {
    "explain": "configs.explain", "check": "configs.check",
    "accuracy": "evidence", "instances": "hosts", "cpus": "hosts", "regions": "hosts",
    "catalog status": "catalog", "catalog check": "catalog", "catalog sources": "catalog",
    "catalog history": "price_history", "catalog diff": "price_history",
}  # fmt: skip


class Command(msgspec.Struct, frozen=True, eq=False):
    """Declaration of a command: the request it takes, the API function that answers it, and the function that prints answers.

    `answer_source` is the function whose return annotation names the type of its answer. `undated` is the hint in the error for
    `as_of`, if the command has no dates. `chart` is the `module.function` of `surface.charts` that draws its `--plot`.
    `row_type` is the type of its rows, whose fields `sort` may name by their headings.
    """

    name: str
    request: type
    run: Ask
    answer_source: Callable[..., Any]
    show: Show
    has_examples: bool
    undated: str | None
    chart: str
    row_type: type | None

    @property
    def fields(self) -> Mapping[str, Field]:
        """Return the command's fields by name, those about the data (such as the day) last."""
        declared = fields_of(self.request)
        own = {name: field for name, field in declared.items() if name not in DATA}
        return own | {name: declared[name] for name in DATA}

    def ask(self, session: Session, request: Request) -> Any:
        """Answer a request and write the chart and report it asks for; a file that cannot be written raises before any work."""
        from whichgpu.surface.charts.chart_file import check_chart_file, write_chart

        path = str(request["plot"]) if "plot" in request else None
        if path is not None:
            check_chart_file(path)
        report = str(request["report"]) if "report" in request else None
        if report is not None:
            from whichgpu.surface.report.report_file import check_report_file

            check_report_file(report)
        if self.row_type is not None:
            request = with_sort_field(request, self.row_type, session.language)
        try:
            answer = self.run(session, request)
        except UsageError as error:
            from whichgpu.api.request.invalid_fields import with_all_fields  # Imported here: valid requests do not need it.

            raise with_all_fields(error, self.request, request, session.context()) from error
        if path:
            write_chart(self.draw(answer, session.language), path)
        if report:
            from whichgpu.surface.report.page import write_page

            write_page(self, session, request, answer, report)
        return answer

    def words(self, request: Mapping[str, Any]) -> list[str]:
        """Return the words of the command line that makes a request, without `whichgpu`."""
        return command_line(self.name, request)

    def draw(self, answer: Any, language: Language) -> dict[str, Any]:
        """Return the Vega-Lite spec of the chart that `--plot` draws of an answer."""
        module, _, function = self.chart.partition(".")
        return dict(getattr(importlib.import_module(f"whichgpu.surface.charts.{module}"), function)(answer, language))

    def display(self, session: Session, request: Mapping[str, Any]) -> Request:
        """Return the parsed fields that decide how an answer is printed."""
        return read(self.request, request, session.spell, [name for name, field in self.fields.items() if field.is_display])

    def answer(self, session: Session, request: Mapping[str, Any]) -> Any:
        """Answer a request that may use any name of a field; fields about the data are set on the session."""
        stated = present_fields(self.request, request)
        if missing := next((name for name, field in self.fields.items() if field.required and name not in stated), None):
            raise UsageError("missing-field", msg("error.missing-field", name=missing), msg("hint.missing-parameter"))
        return self.ask(session, _take_data_fields(self, session, stated))


_DECLARED: dict[str, Command] = {}


def command(
    name: str,
    request: type,
    verb: Verb | None = None,
    ask: Ask | None = None,
    has_examples: bool = True,
    undated: str | None = None,
    chart: str = "",
    row_type: type | None = None,
) -> Callable[[ShowFunction], ShowFunction]:
    """Declare a command: a decorator for the function that displays its answers.

    The answer comes from a `verb`, or from `ask` if it needs the whole session and not only its context.
    """

    def run(session: Session, request: Request) -> Any:
        assert verb is not None
        return verb(request, session.context())

    def declare(show: ShowFunction) -> ShowFunction:
        source = ask or verb
        assert source is not None
        _DECLARED[name] = Command(name, request, ask or run, source, show, has_examples, undated, chart, row_type)
        return show

    return declare


@cache
def command_named(name: str) -> Command:
    """Return the command of that name, loading its module on first use."""
    importlib.import_module(f"whichgpu.surface.commands.{MODULES.get(name, name)}")
    return _DECLARED[name]


def _take_data_fields(command: Command, session: Session, request: Mapping[str, Any]) -> Request:
    """Set the catalog and the day of a request on the session, and return the other fields."""
    rest = {name: value for name, value in request.items() if name not in DATA}
    if (as_of := request.get("as_of")) is not None:
        if command.undated is not None:
            raise UsageError("no-as-of", msg("error.no-as-of", command=command.name), msg(command.undated))
        session.as_of = parse_as_of(_day(as_of), session.today)
    if (as_known := request.get("catalog_as_known")) is not None:
        session.as_known = parse_as_known(_day(as_known), session.today)
    if (folder := request.get("catalog")) is not None:
        session.catalog_folder = user_path(folder)
    session.request = rest | command.display(session, rest)
    return rest


def _day(value: Any) -> str:
    return value.isoformat()[:10] if isinstance(value, date) else str(value)


def value_text(field: Field | None, value: Any) -> str:
    """Return a request field's value as command-line text; a number gets the base unit of its field."""
    unit = getattr(field.kind, "unit", "") if field is not None else ""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value}{unit}" if unit and is_number else str(value)


def command_line(name: str, request: Mapping[str, Any]) -> list[str]:
    """Return the words of the equivalent command line without `whichgpu`: flags, then arguments after `--`."""
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
    """Read the request of a split command line: arguments in order, `--flag value`, `--flag=value`, switches."""
    by_flag = {flag: field for field in command.fields.values() if not field.argument for flag in field.flags}
    places = iter([field for field in command.fields.values() if field.argument])
    request: Request = {}
    rest = list(words)
    while rest:
        flag, equals, text = rest.pop(0).partition("=")
        if not flag.startswith("--"):
            field = next(places, None)
            if field is None:
                raise UsageError("usage", msg("error.no-flag", text=flag), msg("hint.flags"))
            request[field.name] = f"{flag}{equals}{text}"
            continue
        field, negated = by_flag.get(flag), by_flag.get(flag.replace("--no-", "--", 1))
        if field is None and negated is not None and negated.has_negative:
            request[negated.name] = False
        elif field is None:
            raise unknown_word("option", flag, sorted(by_flag))
        elif field.is_switch:
            request[field.name] = True
        elif equals or rest:
            request[field.name] = text if equals else rest.pop(0)
        else:
            raise UsageError("missing-value", msg("error.missing-value", name=flag), msg("hint.flags"))
    return request
