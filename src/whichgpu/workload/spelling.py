"""A workload's four spellings: a JSON object, command-line flags, TOML and a URL's query. Each reads back as the same value.

Every field that cannot be read is named, with what would work; several faults are reported together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

from whichgpu.base.errors import UnknownName, UsageError
from whichgpu.base.kinds import Flag, InvalidValue, ValueKind
from whichgpu.base.messages import Message, msg
from whichgpu.base.names import nearest
from whichgpu.workload.contradictions import contradiction
from whichgpu.workload.defaults import echo, fill_defaults
from whichgpu.workload.parallel import LAYOUT_FIELDS
from whichgpu.workload.workload import FIELDS, KINDS, Workload

__all__ = [
    "ParsedWorkload", "echo", "fill_defaults", "flag_of", "from_argv", "from_object", "from_query", "from_texts", "from_toml",
    "from_values", "to_argv", "to_object", "to_query", "to_toml",
]  # fmt: skip

ALIASES = {"in": "seq_in", "out": "seq_out", "ttft": "ttft_max", "tpot": "tpot_max"}
ASIDE = ("id", "defaults")  # in a request, but no part of the workload: its label, and what an echo adds
_BARE = Workload("serve", "")
USUAL = {name: getattr(_BARE, name) for name in FIELDS if name not in ("task", "model")}


@dataclass(frozen=True, slots=True)
class ParsedWorkload:
    """A workload and which of its fields were given."""

    workload: Workload
    given: frozenset[str]


def flag_of(name: str) -> str:
    """A field's flag.

    >>> flag_of("seq_in")
    '--seq-in'
    """
    return "--" + name.replace("_", "-")


def flag_with_alias(name: str) -> str:
    """A field's flag in an error, by each of its spellings: the one that was typed is among them.

    >>> flag_with_alias("tpot_max"), flag_with_alias("batch")
    ('--tpot (--tpot-max)', '--batch')
    """
    short = next((alias for alias, field in ALIASES.items() if field == name), None)
    return f"--{short} ({flag_of(name)})" if short else flag_of(name)


def from_object(request: Mapping[str, Any], **usual: Any) -> ParsedWorkload:
    """A workload from a JSON object; null means not given. `usual` are values for what is left out."""
    given = {name: value for name, value in request.items() if name not in ASIDE and value is not None}
    for short, name in ALIASES.items():
        if short in given and name in given:
            raise UsageError("given-twice", msg("error.given-twice", name=short), msg("hint.given-twice"))
        if short in given:
            given[name] = given.pop(short)
    return _built(given, lambda kind, value: kind.read(value), str, usual, _defaults(request))


def from_texts(texts: Mapping[str, str | bool | None], **usual: Any) -> ParsedWorkload:
    """A workload from flags already told apart: field -> text, or true and false for those that take no value."""
    return from_values(texts, flag_with_alias, **usual)


def from_values(values: Mapping[str, Any], spell: Callable[[str], str], **usual: Any) -> ParsedWorkload:
    """A workload from values of any kind: a text is read as on the command line. `spell` names a field in errors."""

    def read(kind: ValueKind, value: Any) -> Any:
        return kind.read_text(value) if isinstance(value, str) else kind.read(value)

    return _built({name: value for name, value in values.items() if value is not None}, read, spell, usual)


def from_argv(argv: Sequence[str], **usual: Any) -> ParsedWorkload:
    """A workload from `--flag value`, `--flag=value`, `--qlora`, `--no-qlora`; the same flag twice is refused."""
    texts: dict[str, str | bool] = {}
    words = list(argv)
    while words:
        flag, equals, value = words.pop(0).partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        name = ALIASES.get(name, name)
        if not flag.startswith("--"):
            raise UsageError("usage", msg("error.no-flag", text=flag), msg("hint.flags"))
        bare = name.removeprefix("no_")
        if isinstance(KINDS.get(bare), Flag) and not equals:
            item: tuple[str, str | bool] = (bare, bare == name)
        elif equals or words:
            item = (name, value if equals else words.pop(0))
        else:
            raise UsageError("missing-value", msg("error.missing-value", name=flag), msg("hint.flags"))
        if item[0] in texts:
            raise UsageError("given-twice", msg("error.given-twice", name=flag), msg("hint.given-twice"))
        texts[item[0]] = item[1]
    return from_texts(texts, **usual)


def from_toml(text: str, **usual: Any) -> ParsedWorkload:
    """A workload from TOML, one key a field."""
    import tomllib

    try:
        told = tomllib.loads(text)
    except (ValueError, RecursionError) as problem:  # no TOML, numbers of thousands of digits, tables in tables without end
        raise UsageError("bad-toml", msg("error.bad-toml", why=str(problem)), msg("hint.bad-toml")) from problem
    return from_object(told, **usual)


def from_query(text: str, **usual: Any) -> ParsedWorkload:
    """A workload from the query of a URL, with or without its question mark."""
    pairs = parse_qsl(text.removeprefix("?"), keep_blank_values=True)
    texts = {ALIASES.get(name, name): value for name, value in pairs}
    if len(texts) < len(pairs):
        names = [ALIASES.get(name, name) for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError("given-twice", msg("error.given-twice", name=twice), msg("hint.given-twice"))
    return _built(texts, lambda kind, value: kind.read_text(value), str, usual)


def to_object(workload: Workload, whole: bool = False) -> dict[str, Any]:
    """The JSON object; only what differs from a bare request, or with `whole` every field."""
    return {name: _written(workload, name) for name in (FIELDS if whole else _told(workload))}


def to_argv(workload: Workload) -> tuple[str, ...]:
    """Flags, task and model among them."""
    words: list[str] = []
    for name in _told(workload):
        value, kind = getattr(workload, name), KINDS[name]
        if isinstance(kind, Flag):
            words.append(flag_of(name) if value else flag_of(f"no_{name}"))
        else:
            words.append(f"{flag_of(name)}={kind.write_text(value)}")
    return tuple(words)


def to_query(workload: Workload) -> str:
    """The query of a URL."""
    return urlencode([(name, KINDS[name].write_text(getattr(workload, name))) for name in _told(workload)])


def to_toml(workload: Workload) -> str:
    """TOML; a model given by its config is JSON inside a string, since TOML has no null."""
    return "".join(f"{name} = {_toml(name, _written(workload, name))}\n" for name in _told(workload))


def _told(workload: Workload) -> list[str]:
    return [name for name in FIELDS if name not in USUAL or getattr(workload, name) != USUAL[name]]


def _written(workload: Workload, name: str) -> Any:
    value = getattr(workload, name)
    return None if value is None else KINDS[name].write(value)


def _toml(name: str, value: Any) -> str:
    import json

    if name == "model" and not isinstance(value, str):
        value = json.dumps(value)
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(key, item)}" for key, item in value.items()) + " }"
    if isinstance(value, str):  # JSON's escapes are TOML's, save that TOML wants whole characters and no bare DEL
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


def _built(
    given: Mapping[str, Any], read: Callable[[ValueKind, Any], Any], spell: Callable[[str], str], usual: Mapping[str, Any],
    told: frozenset[str] = frozenset(),
) -> ParsedWorkload:  # fmt: skip
    """Read every field there is, then complain of all that could not be, or build; those `told` are another answer's defaults."""
    values: dict[str, Any] = {}
    problems: list[UsageError] = []
    for name, value in given.items():
        kind = KINDS.get(name)
        if kind is None:
            problems.append(_unknown(name, spell))
            continue
        try:
            values[name] = read(kind, value)
        except InvalidValue as refused:
            problems.append(_refused(spell(name), value, refused))
    names = frozenset(values)
    if values.get("lora_rank") == 0:  # none, said aloud
        del values["lora_rank"]
    values = {**usual, **values}
    for name in ("task", "model"):
        if name not in values and name not in given:
            problems.append(
                UsageError("missing-field", msg("error.missing-field", name=spell(name)), msg(f"hint.missing-{name}"))
            )
    if problems:
        raise together(problems)
    workload = Workload(**values)
    if (clash := contradiction(workload, names - told, spell)) is not None:
        raise clash
    return ParsedWorkload(workload, names)


def _defaults(request: Mapping[str, Any]) -> frozenset[str]:
    """Fields that an echo says nobody gave."""
    names = request.get("defaults")
    return frozenset(one for one in names if isinstance(one, str)) if isinstance(names, list | tuple) else frozenset()


def _unknown(name: object, spell: Callable[[str], str]) -> UsageError:
    near = nearest(str(name)[:80], (*FIELDS, *ALIASES))
    if name in LAYOUT_FIELDS:
        hint, near = msg("hint.in-parallel", name=name), ("parallel",)
    else:
        hint = msg("hint.nearest", choices=near) if near else msg("hint.choices", choices=FIELDS)
    return UnknownName("unknown-field", msg("error.unknown-field", name=str(name)[:80]), hint, tuple(map(spell, near or FIELDS)))


def _refused(name: str, value: Any, refused: InvalidValue) -> UsageError:
    message = msg("error.bad-field", name=name, value=_shown(value))
    if refused.problem:
        message = msg("error.bad-field-because", name=name, why=refused.problem)
    return UsageError("bad-field", message, msg("hint.bad-field", name=name, wants=refused.expected), refused.choices)


def _shown(value: Any) -> str:
    text = repr(value) if not isinstance(value, bool) and value is not None else str(value).lower()
    return text if len(text) <= 60 else text[:57] + "…"


def together(problems: Sequence[UsageError]) -> UsageError:
    """One error of several: the first as it is where it stands alone."""
    if len(problems) == 1:
        return problems[0]
    message = _joined(problem.message for problem in problems)
    hints = dict.fromkeys(problem.hint for problem in problems if problem.hint)
    choices = tuple(dict.fromkeys(choice for problem in problems for choice in problem.choices))
    return UsageError("bad-request", msg("error.several", n=len(problems), what=message), _joined(hints), choices)


def _joined(messages: Iterable[Message]) -> Message:
    first, *rest = messages
    for message in rest:
        first = msg("list.and-then", first=first, then=message)
    return first
