"""Errors of all invalid fields of a request, for a request that was refused because of one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from whichgpu.api.context import Context
from whichgpu.api.request.field import Field, fields_of
from whichgpu.api.request.kinds import Names, Quantity
from whichgpu.api.request.read import read_field
from whichgpu.base.errors import InvalidFields, WhichGpuError
from whichgpu.base.kinds import InvalidValue
from whichgpu.base.money import parse_typed_money
from whichgpu.base.names import split_count
from whichgpu.base.units import parse_bytes, parse_seconds, parse_watts
from whichgpu.catalog.currency import DOLLAR
from whichgpu.catalog.find import find_cpus, find_gpu, find_gpus
from whichgpu.catalog.places.distance import city_point
from whichgpu.catalog.places.user_places import user_places
from whichgpu.catalog.select import check_supports
from whichgpu.catalog.store import Catalog
from whichgpu.price.filters import machines_named, places_named, provider_named
from whichgpu.workload.field_errors import combine_errors, invalid_field
from whichgpu.workload.kinds import ModelValue

Lookup = Callable[[Catalog, str], object]
# Parsers of amounts by their base unit; money has none.
AMOUNTS: Mapping[str, Callable[[str], object]] = {
    "s": parse_seconds, "B": parse_bytes, "W": parse_watts, "": lambda text: parse_typed_money(text, DOLLAR),
}  # fmt: skip
# Lookups of names by the list that completes them, and by the field.
BY_LIST: Mapping[str, Lookup] = {
    "gpus": find_gpus, "instances": machines_named, "providers": provider_named, "cpus": find_cpus, "regions": places_named,
}  # fmt: skip
BY_FIELD: Mapping[str, Lookup] = {
    "region": places_named,
    "near": lambda catalog, name: [
        city_point(catalog.regions, one) for one in [each.name for each in user_places(name)] or [name]
    ],
    "needs": lambda catalog, name: check_supports((name,), catalog.gpus),
    "owned": lambda catalog, name: find_gpu(catalog, split_count(name)[1]),
}
LOADED = ("hf:", "python:", "torchvision:", "timm:")  # Models that take long to look up.


def with_all_fields(error: WhichGpuError, request: type, values: Mapping[str, Any], context: Context) -> WhichGpuError:
    """Return the error of a refused request with the errors of all its invalid fields; the error itself if there is one only."""
    reported = error.fields if isinstance(error, InvalidFields) else {}
    problems = {**field_errors(fields_of(request), values, context), **reported}
    return combine_errors(problems) if len(problems) > 1 else error


def field_errors(fields: Mapping[str, Field], values: Mapping[str, Any], context: Context) -> dict[str, WhichGpuError]:
    """Return the errors of fields whose values cannot be parsed or name what the catalog does not have, by name."""
    problems: dict[str, WhichGpuError] = {}
    for name in [name for name in values if name in fields and not fields[name].is_local]:
        try:
            _check(fields[name], values[name], context)
        except InvalidValue as invalid:
            problems[name] = invalid_field(context.spell(name), values[name], invalid)
        except WhichGpuError as error:
            problems[name] = error
    return problems


def _check(field: Field, value: Any, context: Context) -> None:
    """Raise if a value cannot be parsed, or if a name in it is unknown."""
    parsed = read_field(field, value)
    if isinstance(field.kind, Quantity):
        AMOUNTS[field.kind.unit](parsed)
    elif isinstance(field.kind, ModelValue):
        if isinstance(parsed, str) and not parsed.startswith(LOADED):
            context.lookups_for(own_measurements=False).shape(parsed)
    elif (find := _lookup(field)) is not None:
        for one in (parsed,) if isinstance(parsed, str) else parsed:
            find(context.catalog, one)


def _lookup(field: Field) -> Lookup | None:
    """Return the function that looks up the names in a field; None if it has no names of the catalog."""
    if not isinstance(field.kind, Names):
        return BY_FIELD.get(field.name)
    return find_gpu if field.kind.is_exact else BY_FIELD.get(field.name) or BY_LIST.get(field.kind.complete)
