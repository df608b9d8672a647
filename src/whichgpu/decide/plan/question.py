"""The question of a plan call: models with their traffic, jobs, owned GPUs, limits; and its form as a JSON or TOML document."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg
from whichgpu.base.names import split_count
from whichgpu.workload.models import own_name
from whichgpu.workload.workload import KINDS

MONTH = 730.0  # hours


class RequestedModel(msgspec.Struct, frozen=True):
    """A model to serve, by name or by its config: the fields of its workload as texts, and its traffic."""

    model: str | Mapping[str, Any]
    fields: Mapping[str, str]
    trace: Path | None = None
    hourly: tuple[float, ...] = ()  # requests per second in each hour
    in_spread: float = 0.0
    out_spread: float = 0.0
    in_histogram: Mapping[float, float] = msgspec.field(default_factory=dict)  # weight by number of input tokens
    out_histogram: Mapping[float, float] = msgspec.field(default_factory=dict)
    latency_max: float | None = None  # limit of the end-to-end latency in seconds
    label: str = ""  # Name in the answer if it is not the model's name.

    @property
    def name(self) -> str:
        """Return the name under which the answer lists the model: its label if given, else the model's own name."""
        return self.label or (self.model if isinstance(self.model, str) else own_name(self.model))

    @property
    def spelling(self) -> str:
        """Return the model as it is written on a command line."""
        return KINDS["model"].write_text(self.model)


class RequestedJob(msgspec.Struct, frozen=True):
    """A training or batch job and the seconds until its deadline."""

    name: str
    fields: Mapping[str, str]
    deadline: float


class OwnedGpus(msgspec.Struct, frozen=True):
    """GPUs of the user; `power_cost` is money per GPU and hour of work, estimated from the power draw if None."""

    gpu: str
    gpus: int
    power_cost: str | None = None


class PlanQuestion(msgspec.Struct, frozen=True):
    """A question to `plan`: models, jobs, owned GPUs and filters; fields after `filters` are settings of `api.request.plan`."""

    models: tuple[RequestedModel, ...] = ()
    jobs: tuple[RequestedJob, ...] = ()
    owned: tuple[OwnedGpus, ...] = ()
    quotas: Mapping[str, float] = msgspec.field(default_factory=dict)  # most rented GPUs, by name
    filters: Mapping[str, str | tuple[str, ...]] = msgspec.field(default_factory=dict)  # constraints on offers, as typed
    horizon: float = MONTH  # planning horizon in hours
    headroom: float | None = None
    slices: int | None = None
    levels: int = 4
    current: str | None = None
    change_cost: str | None = None
    spot_share: float = 0.5
    spare: bool = False  # whether the load must be served after the loss of any one machine
    tolerance: float = 0.01
    time_limit: float = 20.0  # solver time in seconds
    only_owned: bool = False
    simulate: bool = True
    curve: bool = True
    seed: int = 0
    profiles: Path | None = None
    rate: float | None = None  # requests per second, for plans from profiles
    sweep: str | None = None  # `rate=1/s,2/s…` or an objective and its values; the cost is computed at each
    roles: bool = False
    policies: bool = False
    workers: int = 1  # processes used for sweeps
    ray: str | None = None
    file: str | None = None  # path of the plan file it was read from

    @property
    def filter_texts(self) -> dict[str, str]:
        """Return the filters on offers as texts, as their flags take them."""
        return {name: str(value) if isinstance(value, str | Path) else ",".join(value) for name, value in self.filters.items()}


SETTINGS = PlanQuestion.__struct_fields__[5:-1]
# Settings of how an answer is computed, or of what else is reported; they are left out at each point of a sweep.
NOT_OF_A_POINT = ("workers", "ray", "sweep", "roles", "policies")


def echo(question: PlanQuestion) -> dict[str, Any]:
    """Return the question with every default filled in, and the names of the settings left at their defaults."""
    values = {name: _plain(getattr(question, name)) for name in SETTINGS}
    defaults = [name for name in SETTINGS if getattr(question, name) == getattr(PlanQuestion(), name)]
    return {**values, **_tables(question), "wishes": question.filter_texts, "file": question.file, "defaults": defaults}


def to_document(question: PlanQuestion) -> dict[str, Any]:
    """Return the question as the document of a plan file, with only what differs from the defaults."""
    changed = [name for name in SETTINGS if getattr(question, name) != getattr(PlanQuestion(), name)]
    values = {name: _plain(getattr(question, name)) for name in changed if name not in NOT_OF_A_POINT}
    return {**values, **{name: value for name, value in _tables(question).items() if value}, **question.filter_texts}


def _tables(question: PlanQuestion) -> dict[str, Any]:
    return {
        "model": [_model(one) for one in question.models],
        "job": [{"name": one.name, **one.fields, "deadline": one.deadline} for one in question.jobs],
        "owned": [_stated_fields(one) for one in question.owned],
        "quota": {name: int(limit) for name, limit in question.quotas.items()},
    }


def _model(one: RequestedModel) -> dict[str, Any]:
    table = _stated_fields(one)
    table.pop("fields", None)
    latency, label = table.pop("latency_max", None), table.pop("label", "")
    table |= {"name": label} if label else {"name": table.pop("model")} if isinstance(one.model, str) else {}
    return {**table, **one.fields, **({"latency": latency} if latency is not None else {})}


def _stated_fields(record: RequestedModel | OwnedGpus) -> dict[str, Any]:
    values = {name: _plain(value) for name, value in asdict(record).items()}
    return {name: value for name, value in values.items() if value not in (None, 0.0, [], {}, "")}


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def parse_owned(text: str) -> tuple[OwnedGpus, ...]:
    """Return the user's GPUs (kind and number of each) parsed from a text.

    >>> [(one.gpu, one.gpus) for one in parse_owned("8xV100-SXM-16GB,T4")]
    [('V100-SXM-16GB', 8), ('T4', 1)]
    """
    items = []
    for part in text.split(","):
        count, bare = split_count(part)
        if count == 0 or not bare:
            raise UsageError("bad-count", msg("error.bad-count", name=part.strip()), msg("hint.bad-count"))
        items.append(OwnedGpus(bare, count or 1))
    return tuple(items)
