"""Parts of a page: its state (all of it in the URL), the command with the same answer, and the values of its template.

    @view("gpus", GpusRequest, extra={"dtype": Field(Plain())}, defaults={"dtype": "bf16"})
    def gpus(page: Page) -> PageContent: ...

The state has every field of the page's requests that a web client may set, and the page's extra fields: True or False for a
switch, a tuple of texts for a field that takes several (repeated, or with commas between), else a text. A parameter may also
have one of a field's other names (`in`, `tpot`). Unknown parameters are reported on the page and refused in its other formats.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec.structs import replace

from whichgpu.api.request.field import Field, fields_of
from whichgpu.api.request.kinds import Names, Plain
from whichgpu.api.request.read import read_field
from whichgpu.base.errors import UsageError, WhichGpuError
from whichgpu.base.kinds import InvalidValue, Whole
from whichgpu.base.messages import Language
from whichgpu.base.names import unknown_word
from whichgpu.surface.tables import Rows
from whichgpu.surface.web.command_replies import catalog
from whichgpu.surface.web.model_guard import is_path_like, permitted_draft, permitted_model
from whichgpu.surface.web.query import LANGUAGE_PARAMETER, query_pairs
from whichgpu.surface.web.reader_language import language_in, with_language
from whichgpu.surface.web.rest.endpoints import parameter_name
from whichgpu.surface.web.views import PAGES, START
from whichgpu.workload.field_errors import combine_errors, invalid_field
from whichgpu.workload.models import built_in_member
from whichgpu.workload.spelling import ALIASES

State = dict[str, Any]
SENTENCE = "q"  # Field with the plain sentence that led to a page.
MAX_SENTENCE = 400  # Characters of a sentence that are read (assumed).
NO_PAGE_FIELDS = ("catalog_as_known", "evidence")  # Fields of requests that pages do not offer.


class View(msgspec.Struct, frozen=True):
    """Declaration of a page: its requests, the fields of its form, their defaults, and the function that returns its content."""

    name: str
    requests: tuple[type, ...]
    fields: Mapping[str, Field]
    defaults: State
    show: Callable[[Page], PageContent]
    subject: str = ""  # Field whose value is part of the path, such as the GPU of `/gpu/t4`.


class Page(msgspec.Struct, frozen=True):
    """One HTTP request for a page: its state, the reader's language, and the query of its URL."""

    view: View
    state: State
    language: Language
    query: str = ""
    hurry: bool = False  # Whether parts that take long to compute may be left out.
    files: Mapping[str, str] = {}  # Paths of files that the client has uploaded, by field; a URL cannot name them.
    progress: Callable[[float], None] | None = None  # Called with the share of the work that is done.
    problem: WhichGpuError | None = None  # Why there is no answer, if that is known before the page is made.
    problems: Mapping[str, WhichGpuError] = {}  # Errors of fields with an invalid text, by name.

    def check(self) -> None:
        """Raise the problem of the request, if it has one: invalid texts in fields, or an answer that took too long."""
        if self.problem is not None:
            raise self.problem
        if self.problems:
            raise combine_errors(self.problems)

    @property
    def name(self) -> str:
        """Return the name of the page, which is its path."""
        return self.view.name

    def url(self, always: str = "", /, **changes: Any) -> str:
        """Return the URL of this page with some fields changed; None leaves one out, and `always` has its value in any case."""
        return with_language(address(self.view, self.state | changes, always=always), language_in(self.query))

    def other_format(self, ending: str) -> str:
        """Return the URL of this page with the same field values as .json, .csv, .md or .html."""
        return with_language(address(self.view, self.state, f".{ending}"), language_in(self.query))

    def chart_url(self, chart: str, ending: str = "svg") -> str:
        """Return the URL of a chart of this page as SVG, as PNG, or of its values as CSV (`values.csv`)."""
        return with_language(address(self.view, self.state, f"/{chart}.{ending}"), language_in(self.query))

    def number(self, name: str, high: int) -> int:
        """Return the whole number in a field, limited to the range from 1 to `high`."""
        try:
            return max(1, min(Whole(0).read_text(self.state[name]), high))
        except InvalidValue as invalid:
            raise invalid_field(name, self.state[name], invalid) from invalid

    def request(self, kind: type, *without: str) -> dict[str, Any]:
        """Return the values that this page's form gives to the fields of a request type, by field name; `without` are left out.

        Commands take all of them; verbs take the day from their context instead of `as_of`.
        """
        texts = {}
        for name, declared in page_fields(kind).items():
            value = self.state[parameter_name(declared)]
            is_given = value not in (None, (), "") and (value is not False or declared.has_negative)
            if is_given and name not in without:
                texts[name] = value
        return texts


class PageContent(msgspec.Struct, frozen=True):
    """Content of a web page: template values, charts, and the command with the same answer.

    `command` is the command with the same answer, and its request: it is shown as a line to copy, and answers the .json, .csv and
    .md formats. A page without such a command has a `document` and a `table` (header, rows) instead.
    `location` is the URL to which a browser is sent instead, if it is set.
    `charts` are Vega-Lite specs by name, drawn in the browser or, without JavaScript, at `<page>/<chart>.svg`.
    """

    template: str
    context: Mapping[str, Any]
    command: tuple[str, Mapping[str, Any]] | None = None
    charts: Mapping[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    document: Any = None
    table: tuple[Sequence[str], Rows] | None = None
    status: int = 200
    location: str = ""


_DECLARED: dict[str, View] = {}


def view(
    name: str, *requests: type, extra: Mapping[str, Field] | None = None, defaults: State | None = None, subject: str = ""
) -> Callable[[Callable[[Page], PageContent]], Callable[[Page], PageContent]]:
    """Declare a page with the fields of `requests` and its `extra` fields; the value of the field `subject` is in its path."""
    fields = {parameter_name(one): one for kind in requests for one in page_fields(kind).values()}
    fields |= {name: replace(one, name=name) for name, one in (extra or {}).items()}
    if not subject:  # A sentence leads to any page but that of one GPU, model or instance.
        fields[SENTENCE] = Field(Plain(), name=SENTENCE)

    def declare(show: Callable[[Page], PageContent]) -> Callable[[Page], PageContent]:
        switches = {name: False for name, one in fields.items() if one.is_switch and not one.has_negative}
        empty = {name: () if one.is_list else switches.get(name) for name, one in fields.items()}
        _DECLARED[name] = View(name, requests, fields, empty | (defaults or {}), show, subject)
        return show

    return declare


@cache
def view_named(name: str) -> View:
    """Return the page of that name, loading its module on first use."""
    if name not in PAGES:
        raise unknown_word("page", name[:80], PAGES)
    importlib.import_module(f"whichgpu.surface.web.views.{name}")
    return _DECLARED[name]


@cache
def page_fields(request: type) -> Mapping[str, Field]:
    """Return the fields of a request that a web client may set on a page, its arguments first."""
    fields = {name: one for name, one in fields_of(request).items() if not one.is_local and name not in NO_PAGE_FIELDS}
    return dict(sorted(fields.items(), key=lambda item: not item[1].argument))


def read_state(view: View, query: str, subject: str | None = None) -> State:
    """Return the values of a page's fields that a URL sets, defaults for the others; `subject` is what its path names."""
    state, problems = state_and_problems(view, query, subject)
    if problems:
        raise combine_errors(problems)
    return state


def state_and_problems(view: View, query: str, subject: str | None = None) -> tuple[State, dict[str, WhichGpuError]]:
    """Return the values of a page's fields, and the errors of invalid ones by name, which have their text or their default."""
    if subject is not None and not view.subject:
        raise unknown_word("page", f"{view.name}/{subject}"[:80], PAGES)
    state, problems = dict(view.defaults), dict[str, WhichGpuError]()
    texts_by_name = _texts_by_name(query) | ({} if subject is None else {view.subject: [subject]})
    for name, texts in texts_by_name.items():
        if name in view.fields and (texts := [text for text in texts if text.strip()]):
            try:
                state[name] = _read(name, view.fields[name], texts)
                if name == "model" and not isinstance(view.fields[name].kind, Names):  # A filter of rows loads no model.
                    member = None if is_path_like(state[name]) else built_in_member(state[name], catalog())
                    state[name] = permitted_model(member or state[name], catalog())  # 70b means a model of that size.
                if name == "speculative":
                    state[name] = permitted_draft(state[name], catalog())
            except WhichGpuError as error:
                problems[name] = error
    return state, problems


def unknown_parameters(view: View, query: str) -> tuple[str, ...]:
    """Return the parameters of a query that the page does not have, each once."""
    return tuple(name[:80] for name in _texts_by_name(query) if name not in view.fields and name != LANGUAGE_PARAMETER)


def without_invalid(view: View, query: str) -> tuple[str, State] | None:
    """Return the one parameter without which a query can be parsed, and the state without it; None if there is none."""
    try:
        texts = _texts_by_name(query)
    except UsageError:
        return None
    for name in texts:
        try:
            return name, read_state(view, urlencode({key: value for key, value in texts.items() if key != name}, doseq=True))
        except WhichGpuError:
            continue
    return None


def address(view: View, state: State, ending: str = "", always: str = "") -> str:
    """Return the URL of a page with these field values: only those that differ from the defaults, and the one named `always`.

    `ending` comes after the path, such as `.json`.
    """
    path = "" if view.name == START and not ending else view.name
    if view.subject:
        path += f"/{quote(str(state[view.subject]), safe='')}"
    different = [name for name in view.fields if (state[name] != view.defaults[name] or name == always) and name != view.subject]
    changed = {name: state[name] for name in different if state[name] is not None}
    texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in changed.items()}
    query = urlencode(texts, doseq=True)
    return f"/{path}{ending}?{query}" if query else f"/{path}{ending}"


def _texts_by_name(query: str) -> dict[str, list[str]]:
    """Return the texts of each parameter of a URL's query, by the main name of its field."""
    texts: dict[str, list[str]] = {}
    for name, value in query_pairs(query):
        name = name.replace("-", "_")
        texts.setdefault(ALIASES.get(name, name), []).append(value)
    return texts


def _read(name: str, field: Field, texts: Sequence[str]) -> Any:
    if field.is_list:
        return tuple(part.strip() for text in texts for part in text.split(",") if part.strip())
    text = texts[-1].strip()
    if not field.is_switch:
        return text
    try:
        return read_field(field, text)
    except InvalidValue as invalid:
        raise invalid_field(name, text, invalid) from invalid
