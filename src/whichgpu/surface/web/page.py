"""What a page is made of: its state (all of it in the URL), the command that asks the same, and what its template shows.

    @view("gpus", State)
    def gpus(page: Page[State]) -> Shown: ...

`State` is a frozen dataclass whose fields all have defaults: `str | None`, `str`, `int | None`, `float | None`, `bool`, or
`tuple[str, ...]` (the parameter may be repeated, or hold several with commas between). A parameter may also be called
as the command line's short flag is (`in`, `tpot`). One no field is called after is told on the page and refused by its twins;
one that cannot be read is an error in the one shape errors have.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Generic, TypeVar, get_type_hints
from urllib.parse import parse_qsl, urlencode

from whichgpu.base.errors import UsageError, WhichGpuError
from whichgpu.base.kinds import FALSE, TRUE
from whichgpu.base.messages import Language, msg
from whichgpu.base.names import unknown_word
from whichgpu.catalog.store import Catalog
from whichgpu.surface.tables import Rows
from whichgpu.surface.web.command_replies import catalog as kept_catalog
from whichgpu.surface.web.model_guard import permitted
from whichgpu.surface.web.reader_language import PARAMETER, kept, named_in
from whichgpu.surface.web.views import PAGES
from whichgpu.workload.spelling import ALIASES

S = TypeVar("S")
MOST_PARAMETERS = 200


@dataclass(frozen=True, slots=True)
class Page(Generic[S]):
    """One request of a page: its state, the reader's language, and what was asked as it stands in the URL."""

    name: str
    state: S
    language: Language
    query: str = ""

    @property
    def named_language(self) -> str | None:
        """The language its address names, which every address on it names, too; None where the browser chose."""
        return named_in(self.query)

    @property
    def catalog(self) -> Catalog:
        """The catalog, read once by this process: much faster to ask than a new one."""
        return kept_catalog()

    def url(self, **changes: Any) -> str:
        """This page with some of its state changed (None leaves a field out): the same names as the fields."""
        return kept(address(self.name, self.state, **changes), self.named_language)

    def twin(self, ending: str) -> str:
        """This very state as .json, .csv or .md."""
        return kept(address(f"{self.name}.{ending}", self.state), self.named_language)


@dataclass(frozen=True, slots=True)
class Shown:
    """What a view gives back.

    `command` is the command that answers the same and its request: it is shown as a line to copy, and the .json, .csv and .md
    twins are its answer. A page that no command answers gives a `document` and a `table` (header, rows) instead.
    `charts` are Vega-Lite specs by name, drawn in the browser from the page and, without JavaScript, at `<page>/<chart>.svg`.
    """

    template: str
    context: Mapping[str, Any]
    command: tuple[str, Mapping[str, Any]] | None = None
    charts: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    document: Any = None
    table: tuple[Sequence[str], Rows] | None = None
    status: int = 200


@dataclass(frozen=True, slots=True)
class View:
    """A page as declared."""

    name: str
    state: type[Any]
    show: Callable[[Any], Shown]


_DECLARED: dict[str, View] = {}


def view(name: str, state: type[S]) -> Callable[[Callable[[Page[S]], Shown]], Callable[[Page[S]], Shown]]:
    """Declare a page."""

    def declare(show: Callable[[Page[S]], Shown]) -> Callable[[Page[S]], Shown]:
        _DECLARED[name] = View(name, state, show)
        return show

    return declare


@cache
def view_named(name: str) -> View:
    """The page of that name, loaded when first asked for."""
    if name not in PAGES:
        raise unknown_word("page", name[:80], tuple(PAGES))
    importlib.import_module(f"whichgpu.surface.web.views.{PAGES[name]}")
    return _DECLARED[name]


def read_state(kind: type[S], query: str) -> S:
    """The state a URL's query spells."""
    pairs = _pairs(query)
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for name in hints:
        given = [value for key, value in pairs if key == name and value.strip()]
        if given:
            values[name] = _read(name, hints[name], given)
        if name == "model" and given:
            values[name] = permitted(values[name], kept_catalog())
    return kind(**values)


def unknown_names(kind: type[Any], query: str) -> tuple[str, ...]:
    """Parameters of a query that the page does not have, each once."""
    known = {*get_type_hints(kind), PARAMETER}
    return tuple(dict.fromkeys(name[:80] for name, _ in _pairs(query) if name not in known))


def mended(kind: type[S], query: str) -> tuple[str, S] | None:
    """The one parameter without which a query can be read, and the state it then spells; None where that is not so."""
    try:
        pairs = _pairs(query)
    except UsageError:
        return None
    for name in dict.fromkeys(name for name, _ in pairs):
        try:
            return name, read_state(kind, urlencode([pair for pair in pairs if pair[0] != name]))
        except WhichGpuError:
            continue
    return None


def _pairs(query: str) -> list[tuple[str, str]]:
    """Names and values, short names as the fields they stand for."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=MOST_PARAMETERS, errors="strict")
    except ValueError as problem:  # too many, or bytes that are no UTF-8
        raise UsageError("bad-query", msg("error.bad-query"), msg("hint.bad-query", n=MOST_PARAMETERS)) from problem
    plain = [(name.replace("-", "_"), value) for name, value in pairs]
    return [(ALIASES.get(name, name), value) for name, value in plain]


def address(name: str, state: object, **changes: Any) -> str:
    """The URL of a state, with only what differs from its defaults."""
    pairs: list[tuple[str, str]] = []
    for known in fields(state):  # type: ignore[arg-type]
        value = changes[known.name] if known.name in changes else getattr(state, known.name)
        usual = getattr(type(state)(), known.name)
        if value is None or (value == usual and known.name not in changes):
            continue
        pairs += [(known.name, part) for part in ([_text(value)] if not isinstance(value, tuple) else map(_text, value))]
    return f"/{name}" + (f"?{urlencode(pairs)}" if pairs else "")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _read(name: str, hint: Any, given: list[str]) -> Any:
    if hint == tuple[str, ...]:
        return tuple(part.strip() for value in given for part in value.split(",") if part.strip())
    text = given[-1].strip()
    try:
        if hint in (int, int | None):
            return int(text)
        if hint in (float, float | None):
            return float(text)
    except ValueError:
        raise _bad(name, text, "wants.page-number") from None
    if hint is bool:
        if text.lower() not in (*TRUE, *FALSE):
            raise _bad(name, text, "wants.flag")
        return text.lower() in TRUE
    return text


def _bad(name: str, text: str, wants: str) -> UsageError:
    shown = repr(text if len(text) <= 60 else text[:57] + "…")
    hint = msg("hint.bad-field", name=name, wants=msg(wants))
    return UsageError("bad-field", msg("error.bad-field", name=name, value=shown), hint)
