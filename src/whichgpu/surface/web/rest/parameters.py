"""Conversion of a query or JSON body to a command's request: only known fields, and no model that names a file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from whichgpu.api.context import Context
from whichgpu.api.request.field import Field
from whichgpu.api.request.invalid_fields import field_errors
from whichgpu.api.request.kinds import COLLECTION_TYPES, Names, Span
from whichgpu.api.request.read import read_field
from whichgpu.base.dates import parse_as_known
from whichgpu.base.errors import UsageError, WhichGpuError
from whichgpu.base.kinds import InvalidValue
from whichgpu.base.messages import msg
from whichgpu.base.names import unknown_word
from whichgpu.catalog.store import Catalog
from whichgpu.surface.web.command_replies import catalog as catalog_as_known
from whichgpu.surface.web.model_guard import permitted_draft, permitted_model
from whichgpu.surface.web.query import query_pairs
from whichgpu.surface.web.rest.endpoints import (
    DRAFT_FIELD,
    MODEL_FIELDS,
    PAGING,
    Endpoint,
    by_any_name,
    command_of,
    fields,
    max_items,
    parameter_name,
)
from whichgpu.workload.field_errors import combine_errors, invalid_field

MAX_CHARACTERS = 100_000  # Largest number of characters in one value.
AS_KNOWN = "catalog_as_known"

Values = dict[str, list[Any]]


def from_query(query: str) -> Values:
    """Return the parameters of a URL's query by name, each with the list of its values."""
    values: Values = {}
    for name, value in query_pairs(query):
        values.setdefault(name, []).append(value)
    return values


def from_body(body: bytes) -> Values:
    """Return the parameters in a JSON request body by name, each value in a list of one; null means not given."""
    from whichgpu.workload.model_files.json_text import read_object

    try:
        document = read_object(body.decode("utf-8"))
    except (ValueError, RecursionError) as problem:
        raise UsageError("bad-json", msg("error.bad-json", why=str(problem)[:200]), msg("hint.request")) from problem
    return {name: [value] for name, value in document.items() if value is not None}


def request_of(endpoint: Endpoint, values: Values) -> dict[str, Any]:
    """Return the command request that REST parameters describe; raise one error for all that are unknown, doubled or invalid."""
    fields_by_name = by_any_name(endpoint)
    as_known = values.get(AS_KNOWN)
    # Models are checked in the same catalog in which the command will look them up.
    catalog = catalog_as_known(parse_as_known(str(as_known[0]), date.today()) if as_known else None)
    request: dict[str, Any] = {}
    problems: dict[str, WhichGpuError] = {}
    for name, texts in values.items():
        field = fields_by_name.get(name)
        if field is not None and endpoint.rows and field.name in PAGING:
            continue
        try:
            if field is None:
                raise unknown_word("field", name[:80], tuple(fields(endpoint)))
            if field.name in request:
                raise UsageError("given-twice", msg("error.given-twice", name=name), msg("hint.given-twice"))
            request[field.name] = _with_permitted_model(field, _value(field, texts), catalog)
        except WhichGpuError as error:
            problems[name] = error
    has_unknown = any(error.kind == "unknown-field" for error in problems.values())  # It may be a misspelt required one.
    for name, field in fields(endpoint).items():
        if field.required and field.name not in request and name not in problems and not has_unknown:
            problems[name] = UsageError("missing-field", msg("error.missing-field", name=name), msg("hint.missing-parameter"))
    if problems:
        raise combine_errors({**problems, **field_errors(command_of(endpoint).fields, request, Context(catalog))})
    return request


def page(endpoint: Endpoint, values: Values) -> tuple[int | None, int]:
    """Return how many rows a REST client wants (None for all), and how many to skip before them."""
    limit, offset = (_paging(name, endpoint, values) for name in ("limit", "offset"))
    return limit if limit is not None else endpoint.page, offset or 0


def _paging(name: str, endpoint: Endpoint, values: Values) -> int | None:
    if name not in values:
        return None
    try:
        return int(read_field(fields(endpoint)[name], values[name][-1]))
    except InvalidValue as refused:
        raise invalid_field(name, values[name][-1], refused) from refused


def _value(field: Field, values: Sequence[Any]) -> Any:
    """Return the value of a field, or a list if it takes several: repeated, as a list or separated by commas."""
    name = parameter_name(field)
    for value in values:
        if isinstance(value, str) and len(value) > MAX_CHARACTERS:
            raise invalid_field(name, value, InvalidValue(msg("wants.text", longest=MAX_CHARACTERS)))
    if not field.is_list or isinstance(field.kind, Span):
        if len(values) > 1:
            raise UsageError("given-twice", msg("error.given-twice", name=name), msg("hint.given-twice"))
        return values[0]
    items = [part for value in values for one in (value if isinstance(value, list) else (value,)) for part in _parts(one)]
    if any(isinstance(item, (*COLLECTION_TYPES,)) for item in items):
        raise invalid_field(name, values[0], InvalidValue(msg("wants.one-value")))  # The value is a list inside a list.
    if len(items) > max_items(field):
        raise invalid_field(name, ",".join(map(str, items[:9])), InvalidValue(msg("wants.names", most=max_items(field))))
    return items


def _parts(value: Any) -> Sequence[Any]:
    """Split names at commas; a model's config is not split."""
    if not isinstance(value, str) or value.lstrip().startswith("{"):
        return (value,)
    return [part.strip() for part in value.split(",") if part.strip()]


def _with_permitted_model(field: Field, value: Any, catalog: Catalog) -> Any:
    """Return a field's value; if the field names a model, replaced by the built-in id, or an error if it is not permitted."""
    if field.name == DRAFT_FIELD:
        return permitted_draft(value, catalog)
    is_filter = field.name == "model" and isinstance(field.kind, Names)  # It is compared with names in tables, never loaded.
    if field.name not in MODEL_FIELDS or is_filter:
        return value
    if isinstance(value, list):
        return [permitted_model(one, catalog) if isinstance(one, str) else one for one in value]
    return permitted_model(value, catalog) if isinstance(value, str) else value
