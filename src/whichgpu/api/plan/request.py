"""What a plan is asked for, as values; and the same as a document that reads back (`planfile.from_mapping`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from whichgpu.decide.requirements import Requirements
from whichgpu.workload.kinds import KINDS
from whichgpu.workload.models import own_name

MONTH = 730.0  # hours


@dataclass(frozen=True, slots=True)
class ModelAsked:
    """A model to serve, by name or by its config: its workload's fields as texts, and its traffic beyond them."""

    model: str | Mapping[str, Any]
    fields: Mapping[str, str]
    trace: Path | None = None
    hourly: tuple[float, ...] = ()
    in_spread: float = 0.0
    out_spread: float = 0.0
    in_histogram: Mapping[float, float] = field(default_factory=dict)
    out_histogram: Mapping[float, float] = field(default_factory=dict)
    latency_max: float | None = None
    label: str = ""  # what it is called in the answer, where that is not the model's name

    @property
    def called(self) -> str:
        """What the answer calls it."""
        return self.label or (self.model if isinstance(self.model, str) else own_name(self.model))

    @property
    def spelled(self) -> str:
        """The model as a command line names it."""
        return KINDS["model"].write_text(self.model)


@dataclass(frozen=True, slots=True)
class JobAsked:
    """A training or batch job and the seconds until it must be done."""

    name: str
    fields: Mapping[str, str]
    deadline: float


@dataclass(frozen=True, slots=True)
class OwnedAsked:
    """GPUs somebody has; `power_cost` is money of one GPU's hour of work, where it is not reckoned from its power."""

    gpu: str
    gpus: int
    power_cost: str | None = None


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """All of it. None leaves the default."""

    models: tuple[ModelAsked, ...] = ()
    jobs: tuple[JobAsked, ...] = ()
    owned: tuple[OwnedAsked, ...] = ()
    quotas: Mapping[str, float] = field(default_factory=dict)
    query: Requirements = Requirements()  # noqa: RUF009 - frozen
    horizon: float = MONTH  # hours
    headroom: float | None = None
    slices: int | None = None
    levels: int = 4
    current: str | None = None
    change_cost: str | None = None
    spot_share: float = 0.5
    tolerance: float = 0.01
    time_limit: float = 20.0
    only_owned: bool = False
    simulate: bool = True
    curve: bool = True
    seed: int = 0
    profiles: Path | None = None
    rate: float | None = None  # of profiles
    sweep: str | None = None  # rate=1/s,2/s… or an objective and its values: the bill at each
    roles: bool = False  # a role for every owned GPU, prompts and answers apart where that bears more; rented ones compared so
    policies: bool = False  # what the objectives cost on machines that may be taken away
    workers: int = 1  # processes of sweeps
    ray: str | None = None  # a cluster's address instead
    file: str | None = None  # it was read from


APART = ("models", "jobs", "owned", "quotas", "query", "file")
HOW = (
    "workers",
    "ray",
    "sweep",
    "roles",
    "policies",
)  # how it is worked out, or what more is told: no part of the question of one point


def spelled(request: PlanRequest) -> dict[str, Any]:
    """What was asked with every default filled in, and the names of those nobody gave."""
    usual = PlanRequest()
    told = {one.name: _plain(getattr(request, one.name)) for one in fields(request) if one.name not in APART}
    defaults = [name for name in told if getattr(request, name) == getattr(usual, name)]
    return {**told, **_tables(request), "wishes": request.query.spelled(), "file": request.file, "defaults": defaults}


def to_mapping(request: PlanRequest) -> dict[str, Any]:
    """The document of a plan file: only what differs from a bare request."""
    usual = PlanRequest()
    names = [one.name for one in fields(request) if one.name not in (*APART, *HOW)]
    told = {name: _plain(getattr(request, name)) for name in names if getattr(request, name) != getattr(usual, name)}
    return {**told, **{name: value for name, value in _tables(request).items() if value}, **request.query.spelled()}


def _tables(request: PlanRequest) -> dict[str, Any]:
    return {
        "model": [_model(one) for one in request.models],
        "job": [{"name": one.name, **one.fields, "deadline": one.deadline} for one in request.jobs],
        "owned": [_given(_plain(one)) for one in request.owned],
        "quota": {name: int(most) for name, most in request.quotas.items()},
    }


def _model(one: ModelAsked) -> dict[str, Any]:
    told = _given(_plain(one))
    told.pop("fields", None)
    latency = told.pop("latency_max", None)
    label = told.pop("label", "")
    told |= {"name": label} if label else {"name": told.pop("model")} if isinstance(one.model, str) else {}
    return {**told, **one.fields, **({"latency": latency} if latency is not None else {})}


def _given(told: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in told.items() if value not in (None, 0.0, [], {}, "")}


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, ModelAsked | JobAsked | OwnedAsked):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value
