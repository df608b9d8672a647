"""Read a plan's question from a TOML file or a JSON document: settings, models with their traffic, jobs, owned GPUs, quotas."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from whichgpu.api.request.field import Field, names_of
from whichgpu.api.request.plan import PlanRequest
from whichgpu.api.request.plan_settings import (
    DEADLINE,
    FLAG,
    HISTOGRAM,
    HOURLY,
    RATE,
    SECONDS,
    SPREAD,
    TEXT,
    Setting,
    whole,
)
from whichgpu.base.errors import UnknownName, UsageError
from whichgpu.base.files import read_regular_file
from whichgpu.base.kinds import InvalidValue, Whole
from whichgpu.base.messages import Message, msg
from whichgpu.base.names import nearest
from whichgpu.base.units import parse_whole_number
from whichgpu.decide.plan.question import SETTINGS, OwnedGpus, PlanQuestion, RequestedJob, RequestedModel, parse_owned
from whichgpu.decide.requirements import Requirements
from whichgpu.workload.spelling import ALIASES, from_texts
from whichgpu.workload.workload import KINDS

MAX_BYTES = 1 << 22  # Largest plan file accepted, in bytes.
MAX_QUOTA = 10**9  # Largest quota of GPUs, more than exist.
MAX_MODELS = 100  # Most models of one plan, each of which takes about a second (assumed).
MAX_OWNED = 99_999  # Largest number of owned GPUs of one kind.
DECLARED = names_of(PlanRequest)
FILTERS = tuple(name for name in Requirements.__struct_fields__ if name in DECLARED and name != "owned")
MACHINE_FIELDS = ("gpu", "gpus", "nodes")  # Fields of a request that a plan chooses itself.
TABLES = ("model", "job", "owned", "quota")
TOP = (*SETTINGS, *TABLES)
TRAFFIC = {  # Parsers of the keys in a model's table that are not fields of its workload.
    "trace": TEXT,
    "hourly": HOURLY,
    "in_spread": SPREAD,
    "out_spread": SPREAD,
    "in_histogram": HISTOGRAM,
    "out_histogram": HISTOGRAM,
    "latency": SECONDS,
}


def _reader(field: Field) -> Setting:
    """Return the parser of one setting of a plan, from the request field that declares the setting."""
    kind = field.kind
    if isinstance(kind, Whole):
        return whole(kind.low, kind.high)
    return kind if isinstance(kind, Setting) else FLAG if field.is_switch else TEXT


READERS = {name: RATE if name == "rate" else _reader(DECLARED[name]) for name in SETTINGS}


def read_plan(path: Path) -> PlanQuestion:
    """Return the plan request in a TOML file: models, traffic, jobs and settings; errors name the file and the key."""
    try:
        content = tomllib.loads(read_regular_file(path, MAX_BYTES).decode("utf-8"))
    except OSError as problem:
        raise _bad(path.name, msg("plan.unreadable", why=problem.strerror or str(problem))) from problem
    except (ValueError, RecursionError) as problem:
        raise _bad(path.name, msg("plan.unreadable", why=str(problem)[:200])) from problem
    return replace(from_document(content, path.name, path.parent), file=str(path))


def from_document(content: Mapping[str, Any], name: str = "request", folder: Path | None = None) -> PlanQuestion:
    """Return the plan request in a parsed TOML or JSON document; paths in it are relative to `folder`."""
    keys = {key.replace("-", "_"): value for key, value in content.items()}
    _check_names(name, keys, (*TOP, *FILTERS))
    settings = {key: _read(name, key, reader, keys[key]) for key, reader in READERS.items() if key in keys}
    if "profiles" in settings:
        settings["profiles"] = _path(folder, settings["profiles"])
    models = tuple(requested_model(one, f"{name} [[model]]", folder) for one in _tables(name, "model", keys))
    if len(models) > MAX_MODELS:
        raise _bad(name, msg("plan.many-models", n=len(models), most=MAX_MODELS))
    jobs = tuple(_job(one, f"{name} [[job]]", place) for place, one in enumerate(_tables(name, "job", keys)))
    return PlanQuestion(
        models=models,
        jobs=jobs,
        owned=_owned(name, keys),
        quotas=_quotas(name, keys.get("quota", {})),
        filters={key: _text(keys[key]) for key in FILTERS if key in keys},
        **settings,
    )


def requested_model(table: Mapping[str, Any], where: str, folder: Path | None = None) -> RequestedModel:
    """Return one model of a plan, from the fields of a `serve` request and its traffic."""
    keys = _field_names(table)
    label = keys.pop("name", None)
    name = keys.pop("model", None) or label  # If a table has both, `name` is what the answer calls the model.
    if not name:
        raise _bad(where, msg("plan.no-model-name"))
    values = {key: keys.pop(key) for key in TRAFFIC if key in keys}
    _check_no_gpus(where, keys, MACHINE_FIELDS)
    _check_names(where, keys, [*(name for name in KINDS if name not in MACHINE_FIELDS), *TRAFFIC])
    traffic = {key: _read(where, key, TRAFFIC[key], value) for key, value in values.items()}
    if "trace" in traffic:
        traffic["trace"] = _path(folder, traffic["trace"])
    if "latency" in traffic:
        traffic["latency_max"] = traffic.pop("latency")
    texts = {key: _field_text(key, value) for key, value in keys.items()}
    return RequestedModel(_model(name), texts, **traffic, label=str(label) if label and label != name else "")


def _field_names(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with abbreviated workload fields replaced by their full names."""
    keys = {key.replace("-", "_"): value for key, value in table.items()}
    return {ALIASES.get(key, key): value for key, value in keys.items()}


def _model(value: Any) -> str | Mapping[str, Any]:
    """Return a model's name, or its config if given as a table or as JSON."""
    if not isinstance(value, Mapping) and not str(value).lstrip().startswith("{"):
        return str(value)
    return from_texts({"task": "serve", "model": value}).workload.model


def _job(table: Mapping[str, Any], where: str, place: int) -> RequestedJob:
    """Return one job, from the fields of a request, its name and its deadline."""
    keys = _field_names(table)
    name, deadline = str(keys.pop("name", f"job {place + 1}")), keys.pop("deadline", None)
    if deadline is None:
        raise _bad(where, msg("plan.no-deadline-given", name=name))
    _check_no_gpus(where, keys, MACHINE_FIELDS[:1])
    _check_names(where, keys, [*(name for name in KINDS if name != MACHINE_FIELDS[0]), "name", "deadline"])
    texts = {key: _field_text(key, value) for key, value in keys.items()}
    return RequestedJob(name, texts, _read(where, "deadline", DEADLINE, deadline))


def parse_quotas(text: str) -> dict[str, float]:
    """Return the largest number of GPUs of each kind that may be rented, parsed from text.

    >>> parse_quotas("H100 SXM=16,A100=32")
    {'H100 SXM': 16.0, 'A100': 32.0}
    """
    quotas = {}
    for part in text.split(","):
        name, equals, number = part.rpartition("=")
        limit = parse_whole_number(number.strip(), MAX_QUOTA)
        if not equals or not name.strip() or limit is None:
            raise _bad("--quota", msg("plan.wants-quota"))
        quotas[name.strip()] = float(limit)
    return quotas


def _owned(name: str, content: Mapping[str, Any]) -> tuple[OwnedGpus, ...]:
    value = content.get("owned", ())
    if isinstance(value, str):
        return parse_owned(value)
    owned = []
    for table in _tables(name, "owned", content):
        keys = {key.replace("-", "_"): item for key, item in table.items()}
        _check_names(f"{name} [[owned]]", keys, ("gpu", "gpus", "count", "power_cost"))
        count = keys.get("gpus", keys.get("count", 1))
        if "gpu" not in keys or not _is_count(count, 1, MAX_OWNED):
            raise _bad(f"{name} [[owned]]", msg("plan.wants-owned"))
        owned.append(OwnedGpus(str(keys["gpu"]), count, str(keys["power_cost"]) if "power_cost" in keys else None))
    return tuple(owned)


def _quotas(name: str, value: Any) -> dict[str, float]:
    if isinstance(value, str):
        return parse_quotas(value)
    if not isinstance(value, Mapping) or not all(_is_count(limit, 0, MAX_QUOTA) for limit in value.values()):
        raise _bad(name, msg("plan.wants-quota"))
    return {str(gpu): float(limit) for gpu, limit in value.items()}


def _is_count(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _tables(name: str, key: str, content: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    value = content.get(key, ())
    tables = [value] if isinstance(value, Mapping) else value
    if not isinstance(tables, list | tuple) or not all(isinstance(one, Mapping) for one in tables):
        raise _bad(name, msg("plan.wants-tables", key=key))
    return tables


def _check_no_gpus(where: str, keys: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raise for a model or job that states its own GPUs: the plan chooses them, among those of the whole file."""
    if name := next((name for name in names if name in keys), None):
        raise _bad(where, msg("plan.own-gpus", key=name))


def _check_names(name: str, keys: Mapping[str, Any], allowed: Sequence[str]) -> None:
    for key in keys:
        if key not in allowed:
            near = nearest(key, allowed)
            hint = msg("hint.nearest", choices=near) if near else msg("hint.choices", choices=tuple(sorted(allowed)))
            message = msg("error.in-file", path=name, what=msg("error.unknown-key", name=key))
            raise UnknownName("unknown-key", message, hint, near or tuple(sorted(allowed)))


def read_setting(spelling: str, name: str, value: Any) -> Any:
    """Return the value of a setting, read according to `name`; `spelling` is the name as the user wrote it, for errors."""
    return _read(spelling, name, READERS[name], value)


def _read(where: str, key: str, reader: Setting, value: Any) -> Any:
    try:
        return reader.parse(value)
    except (TypeError, ValueError, AttributeError, OverflowError, UsageError) as problem:
        word = DECLARED[key].name if key in DECLARED else key  # On the command line `workers` is called `jobs`.
        word = word.replace("_", "-") if where.startswith("--") else word
        raise _bad(where, msg(f"plan.wants-{reader.wants}", key=word, value=repr(value)[:60], **reader.limits)) from problem


def _path(folder: Path | None, text: str) -> Path:
    path = Path(text).expanduser()
    return path if path.is_absolute() or folder is None else folder / path


def _field_text(name: str, value: Any) -> str:
    """Return a workload field as text, also if it is given as a table; one that is invalid is reported by its parser."""
    kind = KINDS[name]
    if isinstance(value, Mapping) and getattr(kind, "takes_mapping", False):
        with suppress(InvalidValue):
            return str(kind.write_text(kind.read(value)))
    return _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(_text, value)) if isinstance(value, list | tuple) else str(value)


def _bad(name: str, what: Message) -> UsageError:
    return UsageError("bad-plan", msg("error.bad-plan", name=name, what=what), msg("hint.plan"))
