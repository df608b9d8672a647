"""The answers about roles: groups of GPUs with their roles, what they bear, and why the rest have none."""

from __future__ import annotations

from dataclasses import dataclass

from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message
from whichgpu.base.money import Money
from whichgpu.estimate.serving.fleet.fleet_answer import FleetAnswer


@dataclass(frozen=True, slots=True)
class RoleGroup:
    """Equal copies of a model on GPUs of one kind. `max_rate` is what all of them would by themselves, each alone in its role."""

    model: str
    role: str  # both, prefill, decode
    gpu: str  # id
    gpus: int  # all of them
    copies: int
    tensor_parallel: int
    precision: str
    max_batch: int
    max_batched_tokens: int
    bears: Figure
    because: Message


@dataclass(frozen=True, slots=True)
class IdleGpus:
    """GPUs without a role, and why."""

    gpu: str
    gpus: int
    reasons: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class ModelRoles:
    """How a model is served: the most it bears with its objectives kept, and how it fares at the rate asked."""

    model: str
    rate: float
    bears: Figure
    in_halves: bool
    fleet: FleetAnswer


@dataclass(frozen=True, slots=True)
class ComparedServing:
    """A way considered, with how many times the whole load it bears by simulation."""

    name: str
    times: float
    chosen: bool


@dataclass(frozen=True, slots=True)
class RolesAnswer:
    """Every GPU's role, or the reason it has none. `times` is how many times the load asked is borne."""

    sentence: Message
    times: Figure
    groups: tuple[RoleGroup, ...]
    idle: tuple[IdleGpus, ...]
    models: tuple[ModelRoles, ...]
    compared: tuple[ComparedServing, ...]
    assumptions: tuple[Message, ...]
    warnings: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Design:
    """A way to serve one model with rented GPUs: what it costs an hour and bears, by simulation."""

    name: str
    in_halves: bool
    gpus: tuple[tuple[str, int], ...]
    cost: Money  # an hour
    bears: Figure
    groups: tuple[RoleGroup, ...]


@dataclass(frozen=True, slots=True)
class DesignsAnswer:
    """Ways compared at equal cost, or at equal load, best first."""

    sentence: Message
    best: Design
    designs: tuple[Design, ...]
    left_out: tuple[Message, ...]
