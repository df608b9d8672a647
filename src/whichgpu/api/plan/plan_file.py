"""What a plan is asked for, as a TOML file or as flags spell it: models with their traffic, jobs, GPUs owned, limits."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from whichgpu.api.plan.request import MONTH, JobAsked, ModelAsked, OwnedAsked, PlanRequest
from whichgpu.base.errors import UnknownName, UsageError
from whichgpu.base.files import read_regular_file
from whichgpu.base.messages import Message, msg
from whichgpu.base.names import nearest, split_count
from whichgpu.base.units import parse_rate, parse_seconds, parse_whole_number
from whichgpu.decide.requirements import Requirements
from whichgpu.workload.kinds import KINDS
from whichgpu.workload.spelling import ALIASES, from_texts

MOST_BYTES = 1 << 22
MOST_QUOTA = 10**9  # GPUs: more than there are
LISTED = ("gpu", "instance", "provider", "region", "term", "needs")
WISHES = (
    *LISTED,
    "min_memory",
    "near",
    "max_latency",
    "budget",
    "currency",
    "exchange_rate",
    "power_price",
    "startup",
    "interruptions",
    "max_age",
)
MOST_RATE = 1e6  # requests a second in an hour: a fleet of hundreds of thousands
LOADS = ("trace", "hourly", "in_spread", "out_spread", "in_histogram", "out_histogram", "latency")
HOURS = {"hour": 1.0, "hours": 1.0, "month": MONTH, "months": MONTH, "mo": MONTH, "year": 8760.0, "years": 8760.0, "y": 8760.0}


TOP = (
    "horizon",
    "headroom",
    "slices",
    "levels",
    "current",
    "change_cost",
    "spot_share",
    "tolerance",
    "time_limit",
    "only_owned",
    "simulate",
    "curve",
    "seed",
    "profiles",
    "rate",
    "sweep",
    "roles",
    "policies",
    "workers",
    "ray",
    "model",
    "job",
    "owned",
    "quota",
)


def read_plan(path: Path) -> PlanRequest:
    """A plan file; errors name the file and the key."""
    try:
        content = tomllib.loads(read_regular_file(path, MOST_BYTES).decode("utf-8"))
    except OSError as problem:
        raise _bad(path.name, msg("plan.unreadable", why=problem.strerror or str(problem))) from problem
    except (ValueError, RecursionError) as problem:
        raise _bad(path.name, msg("plan.unreadable", why=str(problem)[:200])) from problem
    return replace(from_mapping(content, path.name, path.parent), file=str(path))


def from_mapping(content: Mapping[str, Any], name: str = "request", folder: Path | None = None) -> PlanRequest:
    """A plan of a parsed document; paths in it are relative to `folder`."""
    told = {key.replace("-", "_"): value for key, value in content.items()}
    _known(name, told, (*TOP, *WISHES))
    constraints: dict[str, Any] = {key: _text(value) for key, value in told.items() if key in WISHES}
    simple: dict[str, Any] = {}
    for key, read in READERS.items():
        if key in told:
            simple[key] = _read(name, key, read, told[key])
    if "profiles" in simple:
        simple["profiles"] = _path(folder, str(told["profiles"]))
    models = tuple(model_asked(one, f"{name} [[model]]", folder) for one in _tables(name, "model", told.get("model", ())))
    jobs = tuple(job_asked(one, f"{name} [[job]]", place) for place, one in enumerate(_tables(name, "job", told.get("job", ()))))
    return PlanRequest(
        models=models,
        jobs=jobs,
        owned=_owned(name, told.get("owned", ())),
        quotas=_quotas(name, told.get("quota", {})),
        query=Requirements(**constraints),
        **simple,
    )


def model_asked(told: Mapping[str, Any], where: str, folder: Path | None = None) -> ModelAsked:
    """One model of a plan: the fields of a `serve` request, and its traffic."""
    found = {key.replace("-", "_"): value for key, value in told.items()}
    found = {ALIASES.get(key, key): value for key, value in found.items()}
    label = found.pop("name", None)
    name = found.pop("model", None) or label  # with both, the name is what the answer calls it
    if not name:
        raise _bad(where, msg("plan.no-model-name"))
    load = {key: found.pop(key) for key in LOADS if key in found}
    _known(where, found, [*KINDS, *LOADS])
    return ModelAsked(
        _model(name),
        {key: _text(value) for key, value in found.items()},
        trace=_path(folder, str(load["trace"])) if "trace" in load else None,
        hourly=_read(where, "hourly", HOURLY, load["hourly"]) if "hourly" in load else (),
        in_spread=_read(where, "in_spread", share(5.0), load.get("in_spread", 0.0)),
        out_spread=_read(where, "out_spread", share(5.0), load.get("out_spread", 0.0)),
        in_histogram=_read(where, "in_histogram", HISTOGRAM, load.get("in_histogram", {})),
        out_histogram=_read(where, "out_histogram", HISTOGRAM, load.get("out_histogram", {})),
        latency_max=_read(where, "latency", SECONDS, load["latency"]) if "latency" in load else None,
        label=str(label) if label and label != name else "",
    )


def _model(told: Any) -> str | Mapping[str, Any]:
    """A model's name, or its config as a table or as JSON."""
    if not isinstance(told, Mapping) and not str(told).lstrip().startswith("{"):
        return str(told)
    return from_texts({"task": "serve", "model": told}).workload.model


def job_asked(told: Mapping[str, Any], where: str, place: int = 0) -> JobAsked:
    """One job: the fields of a request, its name and its deadline."""
    found = {ALIASES.get(key.replace("-", "_"), key.replace("-", "_")): value for key, value in told.items()}
    name = str(found.pop("name", f"job {place + 1}"))
    deadline = found.pop("deadline", None)
    if deadline is None:
        raise _bad(where, msg("plan.no-deadline-given", name=name))
    _known(where, found, [*KINDS, "name", "deadline"])
    return JobAsked(name, {key: _text(value) for key, value in found.items()}, _read(where, "deadline", DEADLINE, deadline))


def hours(value: Any) -> float:
    """A horizon in hours: `12 months`, `720h`, `30d`, or a number of hours."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _positive(float(value))
    text = str(value).strip()
    number, unit = text.rstrip("abcdefghijklmnopqrstuvwxyz ").strip(), text.lstrip("0123456789. ").strip().lower()
    if unit in HOURS and number:
        return _positive(float(number) * HOURS[unit])
    return _positive(parse_seconds(text) / 3600.0)


def hourly(value: Any) -> tuple[float, ...]:
    """Requests a second in each hour: a list, or numbers with commas."""
    parts = value.split(",") if isinstance(value, str) else list(value)
    told = tuple(parse_rate(part) if isinstance(part, str) and "/" in part else float(part) for part in parts)
    if not told or min(told) < 0 or max(told) <= 0 or any(one != one or one > MOST_RATE or 0 < one < 1e-9 for one in told):
        raise ValueError
    return told


def histogram(value: Any) -> dict[float, float]:
    """Lengths with their weights: a table, or `100:1,200:3`."""
    pairs = value.items() if isinstance(value, Mapping) else [part.split(":") for part in str(value).split(",")]
    told = {float(length): float(weight) for length, weight in pairs}
    bounded = all(1 <= length < 1e12 and 0 <= weight < 1e12 for length, weight in told.items())  # what is no number is in none
    if told and not (bounded and any(told.values())):
        raise ValueError
    return told


def owned_text(text: str) -> tuple[OwnedAsked, ...]:
    """`8xV100-SXM-16GB,4xA100-SXM-80GB`."""
    found = []
    for part in text.split(","):
        count, bare = split_count(part)
        if count == 0 or not bare:
            raise UsageError("bad-count", msg("error.bad-count", name=part.strip()), msg("hint.bad-count"))
        found.append(OwnedAsked(bare, count or 1))
    return tuple(found)


def quotas_text(text: str) -> dict[str, float]:
    """`H100 SXM=16,A100=32`: most rented GPUs of a kind."""
    found = {}
    for part in text.split(","):
        name, equals, number = part.rpartition("=")
        most = parse_whole_number(number.strip(), MOST_QUOTA)
        if not equals or not name.strip() or most is None:
            raise _bad("--quota", msg("plan.wants-quota"))
        found[name.strip()] = float(most)
    return found


def _owned(name: str, value: Any) -> tuple[OwnedAsked, ...]:
    if isinstance(value, str):
        return owned_text(value)
    found = []
    for one in _tables(name, "owned", value):
        told = {key.replace("-", "_"): item for key, item in one.items()}
        _known(f"{name} [[owned]]", told, ("gpu", "gpus", "count", "power_cost"))
        count = told.get("gpus", told.get("count", 1))
        if "gpu" not in told or not isinstance(count, int) or isinstance(count, bool) or not 0 < count < 100_000:
            raise _bad(f"{name} [[owned]]", msg("plan.wants-owned"))
        found.append(OwnedAsked(str(told["gpu"]), count, str(told["power_cost"]) if "power_cost" in told else None))
    return tuple(found)


def _quotas(name: str, value: Any) -> dict[str, float]:
    if isinstance(value, str):
        return quotas_text(value)
    if not isinstance(value, Mapping) or not all(map(_is_quota, value.values())):
        raise _bad(name, msg("plan.wants-quota"))
    return {str(gpu): float(most) for gpu, most in value.items()}


def _is_quota(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_QUOTA


def _tables(name: str, key: str, value: Any) -> Sequence[Mapping[str, Any]]:
    found = [value] if isinstance(value, Mapping) else value
    if not isinstance(found, list | tuple) or not all(isinstance(one, Mapping) for one in found):
        raise _bad(name, msg("plan.wants-tables", key=key))
    return found


def _known(name: str, told: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in told:
        if key not in known:
            near = nearest(key, known)
            hint = msg("hint.nearest", choices=near) if near else msg("hint.choices", choices=tuple(sorted(known)))
            message = msg("error.in-file", path=name, what=msg("error.unknown-key", name=key))
            raise UnknownName("unknown-key", message, hint, near or tuple(sorted(known)))


def _read(name: str, key: str, reads: Reads, value: Any) -> Any:
    try:
        return reads.read(value)
    except (TypeError, ValueError, AttributeError, OverflowError, UsageError) as problem:
        word = SPELLED.get(key, key)
        told = {"key": word.replace("_", "-") if name.startswith("--") else word, "value": repr(value)[:60], **reads.limits}
        raise _bad(name, msg(f"plan.wants-{reads.wants}", **told)) from problem


def _path(folder: Path | None, text: str) -> Path:
    path = Path(text).expanduser()
    return path if path.is_absolute() or folder is None else folder / path


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(_text, value)) if isinstance(value, list | tuple) else str(value)


def _seconds(value: Any) -> float:
    return _positive(parse_seconds(value) if isinstance(value, str) else float(value))


def _rate(value: Any) -> float:
    return _positive(parse_rate(value) if isinstance(value, str) else float(value))


def _positive(value: float) -> float:
    if not 0 < value < 1e12:
        raise ValueError
    return value


@dataclass(frozen=True, slots=True)
class Reads:
    """How a key is read, and the sentence that says what it wants (`plan.wants-…`) with its limits."""

    read: Callable[[Any], Any]
    wants: str
    limits: Mapping[str, Any] = field(default_factory=dict)


def share(most: float) -> Reads:
    """A reader of numbers from nothing up."""

    def read(value: Any) -> float:
        told = float(value)
        if not 0 <= told <= most:
            raise ValueError
        return told

    return Reads(read, "number", {"least": "0", "most": f"{most:g}"})


def whole(least: int, most: int) -> Reads:
    """A reader of whole numbers in a range."""

    def read(value: Any) -> int:
        told = int(value)
        if isinstance(value, bool) or not least <= told <= most or float(value) != told:
            raise ValueError
        return told

    return Reads(read, "whole", {"least": least, "most": f"{most:,}"})


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


HOURLY, HISTOGRAM = Reads(hourly, "hourly"), Reads(histogram, "histogram")
SECONDS, DEADLINE = Reads(_seconds, "time", {"like": "20s, 500ms"}), Reads(_seconds, "time", {"like": "24h, 3d"})
FLAG, TEXT = Reads(_flag, "flag"), Reads(str, "text")
SPELLED = {"workers": "jobs"}  # keys of files that are other words on the command line

READERS: dict[str, Reads] = {
    "horizon": Reads(hours, "time", {"like": "720h, 30d, 12 months"}),
    "headroom": share(0.9),
    "slices": whole(1, 1000),
    "levels": whole(1, 24),
    "current": TEXT,
    "change_cost": TEXT,
    "spot_share": share(1.0),
    "tolerance": share(1.0),
    "time_limit": SECONDS,
    "only_owned": FLAG,
    "simulate": FLAG,
    "curve": FLAG,
    "seed": whole(0, 2**31 - 1),
    "sweep": TEXT,
    "roles": FLAG,
    "policies": FLAG,
    "workers": whole(1, 256),
    "ray": TEXT,
    "profiles": TEXT,
    "rate": Reads(_rate, "rate"),
}


def read_setting(spelled: str, name: str, value: Any) -> Any:
    """A setting of the plan by the reader of its key; `spelled` is its name as the user wrote it."""
    return _read(spelled, name, READERS[name], value)


def _bad(name: str, what: Message) -> UsageError:
    return UsageError("bad-plan", msg("error.bad-plan", name=name, what=what), msg("hint.plan"))
