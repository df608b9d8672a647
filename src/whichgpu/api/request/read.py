"""Convert the raw fields of a request to typed values; all errors are reported together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from whichgpu.api.request.field import Field, fields_of, names_of
from whichgpu.api.request.kinds import COLLECTION_TYPES, python_number
from whichgpu.base.errors import UsageError, WhichGpuError
from whichgpu.base.kinds import InvalidValue
from whichgpu.base.messages import msg
from whichgpu.base.names import unknown_word
from whichgpu.workload.field_errors import combine_errors, invalid_field

if TYPE_CHECKING:
    from whichgpu.workload.spelling import ParsedWorkload

Spell = Callable[[str], str]
DEFAULT_LORA_RANK = 16  # Rank if `lora` is given without one.


def present_fields(request: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request that have a value, by their main names; None and an empty list of names mean not given."""
    by_name, present = names_of(request), dict[str, Any]()
    for name, value in values.items():
        field = by_name.get(name)
        if field is None:
            raise unknown_word("field", name[:80], sorted(by_name))
        if value is None or (field.is_list and isinstance(value, COLLECTION_TYPES) and not value):
            continue
        if field.name in present:
            raise UsageError("given-twice", msg("error.given-twice", name=name), msg("hint.given-twice"))
        present[field.name] = _switch(field, name, value) if field.is_switch else value
    return present


def _switch(field: Field, name: str, value: Any) -> bool:
    """Return a yes-or-no value; a URL parameter without a value means yes."""
    try:
        return value == "" or bool(read_field(field, value))
    except InvalidValue as problem:
        raise invalid_field(name, value, problem) from problem


def read(request: type, values: Mapping[str, Any], spell: Spell, names: Iterable[str] | None = None) -> dict[str, Any]:
    """Return parsed values of the fields that were given, or only of those in `names`; one error reports all invalid values."""
    declared = fields_of(request)
    chosen = [name for name in values if names is None or name in names]
    result: dict[str, Any] = {}
    problems: dict[str, WhichGpuError] = {}
    for name in chosen:
        try:
            result[name] = read_field(declared[name], values[name])
        except InvalidValue as problem:
            problems[name] = invalid_field(spell(name), values[name], problem)
    if problems:
        raise combine_errors(problems)
    return result


def read_field(field: Field, value: Any) -> Any:
    """Return the value of one field: text is parsed as on the command line, other types as Python callers pass them."""
    value = python_number(value)
    if isinstance(value, str):
        return field.kind.read_text(value)
    if isinstance(value, (*COLLECTION_TYPES, Mapping)) and not _takes(field, value):
        raise InvalidValue(msg("wants.one-value"))
    return field.kind.read(value)


def _takes(field: Field, value: Any) -> bool:
    """Return whether a field accepts a value of this type (a list or a mapping)."""
    if isinstance(value, Mapping):
        return bool(getattr(field.kind, "takes_mapping", False))
    return field.is_list or bool(getattr(field.kind, "takes_list", False))


def workload(values: Mapping[str, Any], spell: Spell, without: Iterable[str] = ()) -> ParsedWorkload:
    """Return the workload of a request: its fields, layout degrees combined into one layout, and LoRA's default rank."""
    from whichgpu.workload.parallel import LAYOUT_FIELDS
    from whichgpu.workload.spelling import from_values
    from whichgpu.workload.workload import FIELDS

    own = {name: python_number(value) for name, value in values.items() if name in FIELDS and name not in without}
    if values.get("lora") and own.get("lora_rank") is None:
        own["lora_rank"] = DEFAULT_LORA_RANK
    degrees = {name: python_number(values[name]) for name in LAYOUT_FIELDS if name in values}
    if degrees:
        stated = [f"{name}={str(value).lower()}" for name, value in degrees.items()]
        own["parallel"] = ",".join([*_layout(own.get("parallel")), *stated])
    return from_values(own, spell)


def _layout(value: Any) -> list[str]:
    """Return the parts of a layout that is given in addition to single degrees."""
    if value is None:
        return []
    if isinstance(value, Mapping):
        return [f"{name}={str(degree).lower()}" for name, degree in value.items()]
    return [str(value)]
