"""Parse a workload from a JSON object, flags or TOML, and write it as flags.

All invalid fields of a request are reported in one error, each with what would be valid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from whichgpu.base.errors import UnknownName, UsageError, WhichGpuError
from whichgpu.base.kinds import Flag, InvalidValue, ValueKind
from whichgpu.base.messages import msg
from whichgpu.base.names import nearest
from whichgpu.workload.contradictions import contradiction
from whichgpu.workload.defaults import echo as echo
from whichgpu.workload.defaults import fill_defaults as fill_defaults
from whichgpu.workload.field_errors import combine_errors, invalid_field
from whichgpu.workload.parallel import LAYOUT_FIELDS
from whichgpu.workload.workload import FIELDS, KINDS, Workload

ALIASES = {"in": "seq_in", "out": "seq_out", "ttft": "ttft_max", "tpot": "tpot_max"}
NON_WORKLOAD_KEYS = ("id", "defaults")  # Label of a request, and names of defaults in an echo.
_BARE = Workload("serve", "")
DEFAULTS = {name: getattr(_BARE, name) for name in FIELDS if name not in ("task", "model")}


class ParsedWorkload(msgspec.Struct, frozen=True):
    """A workload read from a request, and the names of the fields the user gave, with degrees of a layout as `parallel.dp`."""

    workload: Workload
    user_fields: frozenset[str]


def flag_of(name: str) -> str:
    """Return the command-line flag of a workload field.

    >>> flag_of("seq_in")
    '--seq-in'
    """
    return "--" + name.replace("_", "-")


def flag_with_alias(name: str) -> str:
    """Return the command-line flag of a workload field with its alias, for error messages.

    >>> flag_with_alias("tpot_max"), flag_with_alias("batch")
    ('--tpot (--tpot-max)', '--batch')
    """
    short = next((alias for alias, field in ALIASES.items() if field == name), None)
    return f"--{short} ({flag_of(name)})" if short else flag_of(name)


def from_object(request: Mapping[str, Any]) -> ParsedWorkload:
    """Read a workload from a JSON object; null means not given."""
    values = {name: value for name, value in request.items() if name not in NON_WORKLOAD_KEYS and value is not None}
    for short, name in ALIASES.items():
        if short in values and name in values:
            raise UsageError("given-twice", msg("error.given-twice", name=short), msg("hint.given-twice"))
        if short in values:
            values[name] = values.pop(short)
    return _build(values, lambda kind, value: kind.read(value), str, _default_fields(request))


def from_texts(texts: Mapping[str, str | bool | None]) -> ParsedWorkload:
    """Read a workload from flag values by field name: a text each, or True or False for flags without a value."""
    return from_values(texts, flag_with_alias)


def from_values(values: Mapping[str, Any], spell: Callable[[str], str]) -> ParsedWorkload:
    """Read a workload from values, texts as on the command line; `spell` returns a field's name for error messages."""

    def read(kind: ValueKind, value: Any) -> Any:
        return kind.read_text(value) if isinstance(value, str) else kind.read(value)

    return _build({name: value for name, value in values.items() if value is not None}, read, spell)


def from_toml(text: str) -> ParsedWorkload:
    """Read a workload from TOML, one key per field."""
    import tomllib

    try:
        request = tomllib.loads(text)
    except (ValueError, RecursionError) as problem:  # This includes numbers of thousands of digits and very deep nesting.
        raise UsageError("bad-toml", msg("error.bad-toml", why=str(problem)), msg("hint.bad-toml")) from problem
    return from_object(request)


def to_argv(workload: Workload) -> tuple[str, ...]:
    """Return the command-line flags of a workload: every field that differs from its default, with task and model."""
    words: list[str] = []
    for name in (one for one in FIELDS if one not in DEFAULTS or getattr(workload, one) != DEFAULTS[one]):
        value, kind = getattr(workload, name), KINDS[name]
        if isinstance(kind, Flag):
            words.append(flag_of(name) if value else flag_of(f"no_{name}"))
        else:
            words.append(f"{flag_of(name)}={kind.write_text(value)}")
    return tuple(words)


def _build(
    fields: Mapping[str, Any],
    read: Callable[[ValueKind, Any], Any],
    spell: Callable[[str], str],
    default_fields: frozenset[str] = frozenset(),
) -> ParsedWorkload:
    """Read every field and build the workload; raise one error for all invalid ones. `default_fields` cause no conflicts."""
    values: dict[str, Any] = {}
    problems: dict[str, WhichGpuError] = {}
    for name, value in fields.items():
        kind = KINDS.get(name)
        if kind is None:
            problems[name] = _unknown(name, spell)
            continue
        try:
            values[name] = read(kind, value)
        except InvalidValue as problem:
            problems[name] = invalid_field(spell(name), value, problem)
    names = frozenset(values) | _stated_degrees(fields.get("parallel"))
    if values.get("lora_rank") == 0:  # A rank of 0 means explicitly without adapters.
        del values["lora_rank"]
    for name in ("task", "model"):
        if name not in fields:
            message = msg("error.missing-field", name=spell(name))
            problems[name] = UsageError("missing-field", message, msg(f"hint.missing-{name}"))
    if problems:
        raise combine_errors(problems)
    workload = Workload(**values)
    if (clash := contradiction(workload, names - default_fields, spell)) is not None:
        raise clash
    return ParsedWorkload(workload, names)


def _stated_degrees(layout: Any) -> frozenset[str]:
    """Return the degrees that a layout states, such as `parallel.zero`, whatever their values.

    >>> sorted(_stated_degrees("dp=4,zero=0")), _stated_degrees({"tp": 2}), _stated_degrees(None)
    (['parallel.dp', 'parallel.zero'], frozenset({'parallel.tp'}), frozenset())
    """
    names = layout if isinstance(layout, Mapping) else [part.partition("=")[0].strip() for part in str(layout or "").split(",")]
    return frozenset(f"parallel.{name}" for name in names if name in LAYOUT_FIELDS)


def _default_fields(request: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the fields that a request marks as defaults, as the echo in an answer does."""
    names = request.get("defaults")
    return frozenset(one for one in names if isinstance(one, str)) if isinstance(names, list | tuple) else frozenset()


def _unknown(name: object, spell: Callable[[str], str]) -> UsageError:
    near = nearest(str(name)[:80], (*FIELDS, *ALIASES))
    if name in LAYOUT_FIELDS:
        hint, near = msg("hint.in-parallel", name=name), ("parallel",)
    else:
        hint = msg("hint.nearest", choices=near) if near else msg("hint.choices", choices=FIELDS)
    return UnknownName("unknown-field", msg("error.unknown-field", name=str(name)[:80]), hint, tuple(map(spell, near or FIELDS)))
