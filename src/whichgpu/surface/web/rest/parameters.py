"""From a query or a JSON body to the request of a command: known fields alone, and no model that names a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any
from urllib.parse import parse_qsl

from whichgpu.api.request.field import Field
from whichgpu.api.request.kinds import SEVERAL, Span
from whichgpu.api.request.read import read_field
from whichgpu.base.dates import parse_as_known
from whichgpu.base.errors import UsageError
from whichgpu.base.kinds import InvalidValue
from whichgpu.base.messages import msg
from whichgpu.base.names import unknown_word
from whichgpu.catalog.store import Catalog
from whichgpu.surface.web.command_replies import catalog as kept_catalog
from whichgpu.surface.web.model_guard import permitted
from whichgpu.surface.web.rest.endpoints import MODELS, PAGING, Endpoint, by_any_name, fields, largest_list, shown_name
from whichgpu.workload.field_errors import invalid_field

MAX_PARAMETERS = 200
MAX_CHARACTERS = 100_000  # of one value
AS_KNOWN = "catalog_as_known"

Values = dict[str, list[Any]]


def from_query(query: str) -> Values:
    """Values by name; a parameter that comes again adds to those before."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_PARAMETERS, errors="strict")
    except ValueError as problem:  # too many, or bytes that are no UTF-8
        raise UsageError("bad-query", msg("error.bad-query"), msg("hint.bad-query", n=MAX_PARAMETERS)) from problem
    values: Values = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return values


def from_body(body: bytes) -> Values:
    """Values of a JSON object; null means not given."""
    from whichgpu.workload.model_files.json_text import read_object

    try:
        given = read_object(body.decode("utf-8"))
    except (ValueError, RecursionError) as problem:
        raise UsageError("bad-json", msg("error.bad-json", why=str(problem)[:200]), msg("hint.request")) from problem
    return {name: [value] for name, value in given.items() if value is not None}


def request_of(endpoint: Endpoint, values: Values) -> dict[str, Any]:
    """The request. A parameter the endpoint does not know, or one given twice that takes one value, is refused."""
    known = by_any_name(endpoint)
    catalog = _catalog(values)
    request: dict[str, Any] = {}
    for name, given in values.items():
        field = known.get(name)
        if field is None:
            raise unknown_word("field", name[:80], tuple(fields(endpoint)))
        if endpoint.rows and field.name in PAGING:
            continue
        if field.name in request:
            raise UsageError("given-twice", msg("error.given-twice", name=name), msg("hint.given-twice"))
        request[field.name] = _guarded(field, _value(field, given), catalog)
    if missing := next((name for name, field in fields(endpoint).items() if field.required and field.name not in request), None):
        raise UsageError("missing-field", msg("error.missing-field", name=missing), msg("hint.missing-parameter"))
    return request


def page(endpoint: Endpoint, values: Values) -> tuple[int | None, int]:
    """The limit (None: all) and offset asked for."""
    limit, offset = (_paging(name, endpoint, values) for name in ("limit", "offset"))
    return limit if limit is not None else endpoint.page, offset or 0


def _paging(name: str, endpoint: Endpoint, values: Values) -> int | None:
    if name not in values:
        return None
    try:
        found: int = read_field(fields(endpoint)[name], values[name][-1])
    except InvalidValue as refused:
        raise invalid_field(name, values[name][-1], refused) from refused
    return found


def _value(field: Field, given: Sequence[Any]) -> Any:
    """The one value of a field, or the list of them where it takes several: each parameter, list and text with commas."""
    name = shown_name(field)
    for value in given:
        if isinstance(value, str) and len(value) > MAX_CHARACTERS:
            raise invalid_field(name, value, InvalidValue(msg("wants.text", longest=MAX_CHARACTERS)))
    if not field.is_list or isinstance(field.kind, Span):
        if len(given) > 1:
            raise UsageError("given-twice", msg("error.given-twice", name=name), msg("hint.given-twice"))
        return given[0]
    items = [part for value in given for one in _each(value) for part in _parts(one)]
    if any(isinstance(item, (*SEVERAL,)) for item in items):
        raise invalid_field(name, given[0], InvalidValue(msg("wants.one-value")))  # a list in a list
    if len(items) > largest_list(field):
        raise invalid_field(name, ",".join(map(str, items[:9])), InvalidValue(msg("wants.names", most=largest_list(field))))
    return items


def _each(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else (value,)


def _parts(value: Any) -> Sequence[Any]:
    """Names with commas between; a model's config is one thing."""
    if not isinstance(value, str) or value.lstrip().startswith("{"):
        return (value,)
    return [part.strip() for part in value.split(",") if part.strip()]


def _catalog(values: Mapping[str, Sequence[Any]]) -> Catalog:
    """The catalog the command will use: models are checked in the one they are looked up in."""
    given = values.get(AS_KNOWN)
    return kept_catalog(parse_as_known(str(given[0]), date.today()) if given else None)


def _guarded(field: Field, value: Any, catalog: Catalog) -> Any:
    """A value; models as the guard resolves them."""
    if field.name not in MODELS:
        return value
    if isinstance(value, list):
        return [permitted(one, catalog) if isinstance(one, str) else one for one in value]
    return permitted(value, catalog) if isinstance(value, str) else value
