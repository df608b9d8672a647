"""From a query or a JSON body to the command line that asks the same: every value one word of a known flag, nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any
from urllib.parse import parse_qsl

from whichgpu.base.dates import parse_known
from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.base.names import unknown_word
from whichgpu.catalog.store import Catalog
from whichgpu.surface.values import is_span, no_list, value_text
from whichgpu.surface.web.asking import catalog as kept_catalog
from whichgpu.surface.web.endpoints import MODELS, PAGED, Endpoint, Field, fields
from whichgpu.surface.web.guard import permitted
from whichgpu.workload.kinds import FALSE, TRUE
from whichgpu.workload.spelling import ALIASES

MOST_PARAMETERS = 200
LONGEST = 100_000  # characters of one value
MOST_ROWS = 5000
AS_KNOWN = "catalog_as_known"

Values = dict[str, list[Any]]


def from_query(query: str) -> Values:
    """Values by name; a parameter that comes again adds to those before."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=MOST_PARAMETERS, errors="strict")
    except ValueError as problem:  # too many, or bytes that are no UTF-8
        raise UsageError("bad-query", msg("error.bad-query"), msg("hint.bad-query", n=MOST_PARAMETERS)) from problem
    values: Values = {}
    for name, value in pairs:
        values.setdefault(ALIASES.get(name, name), []).append(value)
    return values


def from_body(body: bytes) -> Values:
    """Values of a JSON object; null means not given."""
    from whichgpu.workload.jsontext import read_object

    try:
        given = read_object(body.decode("utf-8"))
    except (ValueError, RecursionError) as problem:
        raise UsageError("bad-json", msg("error.bad-json", why=str(problem)[:200]), msg("hint.request")) from problem
    return {ALIASES.get(name, name): [value] for name, value in given.items() if value is not None}


def argv(endpoint: Endpoint, values: Values) -> list[str]:
    """The command line. A parameter the command does not know, or one given twice that takes one value, is refused."""
    known = fields(endpoint)
    catalog = _catalog(known, values)
    options: list[str] = []
    names: dict[str, list[str]] = {}
    for name, given in values.items():
        field = known.get(name)
        if field is None:
            raise unknown_word("field", name[:80], tuple(known))
        if name in PAGED and endpoint.rows:
            continue
        texts = _resolved(field, _texts(field, given), catalog)
        if field.is_switch:
            options += _switch(field, texts)
        elif field.flag is None:
            names[name] = texts
        else:
            options += [f"{field.flag}={text}" for text in texts]
    required = [name for name, field in known.items() if field.required and name not in values]
    if required:
        raise UsageError("missing-field", msg("error.missing-field", name=required[0]), msg("hint.missing-parameter"))
    ordered = [text for name, field in known.items() if field.flag is None for text in names.get(name, ())]
    return [*endpoint.command, *options, "--", *ordered]


def page(endpoint: Endpoint, values: Values) -> tuple[int | None, int]:
    """The limit (None: all) and offset asked for."""
    limit = _count("limit", values, 1, MOST_ROWS)
    offset = _count("offset", values, 0, 10**9)
    return limit if limit is not None else endpoint.page, offset or 0


def _count(name: str, values: Values, low: int, high: int) -> int | None:
    if name not in values:
        return None
    text = str(values[name][-1]).strip()
    if not (text.isascii() and text.isdigit() and len(text) < 12 and low <= int(text) <= high):
        wants = msg("wants.whole", low=low, high=f"{high:,}")
        hint = msg("hint.bad-field", name=name, wants=wants)
        raise UsageError("bad-field", msg("error.bad-field", name=name, value=repr(text[:60])), hint)
    return int(text)


def _texts(field: Field, given: Sequence[Any]) -> list[str]:
    texts = [_text(field, one) for value in given for one in _each(field, value)]
    if any(len(text) > LONGEST for text in texts):
        raise _bad(field, texts[0], msg("wants.text", longest=LONGEST))
    if field.many:
        names = [part.strip() for text in texts for part in _parts(text) if part.strip()]
        if len(names) > field.most:
            raise _bad(field, ",".join(names[:9]), msg("wants.names", most=field.most))
        return names if field.flag is None else [",".join(names)] if names else []
    if len(texts) > 1:
        raise UsageError("given-twice", msg("error.given-twice", name=field.name), msg("hint.given-twice"))
    return texts


def _catalog(known: Mapping[str, Field], values: Values) -> Catalog:
    """The catalog the command will use: models are checked in the one they are looked up in."""
    given = values.get(AS_KNOWN)
    texts = _texts(known[AS_KNOWN], given) if given and AS_KNOWN in known else []
    return kept_catalog(parse_known(texts[0], date.today()) if texts else None)


def _resolved(field: Field, texts: list[str], catalog: Catalog) -> list[str]:
    """Values of a field; models as the guard resolves them."""
    return [permitted(text, catalog) for text in texts] if field.name in MODELS else texts


def _each(field: Field, value: Any) -> Sequence[Any]:
    """The items of a list, where there may be several."""
    if not isinstance(value, list) or is_span(field.metavar, value):
        return (value,)
    if not field.many:
        raise no_list(field.name, value)
    return value


def _parts(text: str) -> Sequence[str]:
    """Names with commas between; a model's config is one thing."""
    return (text,) if text.lstrip().startswith("{") else text.split(",")


def _text(field: Field, value: Any) -> str:
    if isinstance(value, list) and not is_span(field.metavar, value):
        raise no_list(field.name, value)  # a list in a list
    return value_text(field.name, value, field.metavar)


def _switch(field: Field, texts: Sequence[str]) -> list[str]:
    word = texts[0].strip().lower()
    if word not in ("", *TRUE, *FALSE):
        raise _bad(field, texts[0], msg("wants.flag"))
    if word in FALSE:
        return [field.negative] if field.negative else []
    assert field.flag is not None
    return [field.flag]


def _bad(field: Field, text: str, wants: Any) -> UsageError:
    shown = repr(text if len(text) <= 60 else text[:57] + "…")
    hint = msg("hint.bad-field", name=field.name, wants=wants)
    return UsageError("bad-field", msg("error.bad-field", name=field.name, value=shown), hint)
