"""Answers about roles: groups of GPUs with their role and capacity, and why the other GPUs are idle."""

from __future__ import annotations

import msgspec

from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message
from whichgpu.base.money import Money
from whichgpu.estimate.serving.fleet.fleet_answer import FleetAnswer


class RoleGroup(msgspec.Struct, frozen=True):
    """Equal replicas of a model on GPUs of one kind. `bears` is the capacity of all of them in their role."""

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


class IdleGpus(msgspec.Struct, frozen=True):
    """GPUs without a role, and why."""

    gpu: str
    gpus: int
    reasons: tuple[Message, ...]


class ModelRoles(msgspec.Struct, frozen=True):
    """The capacity of a model's fleet, and its simulation at the requested rate."""

    model: str
    rate: float
    bears: Figure
    in_halves: bool
    fleet: FleetAnswer


class ComparedServing(msgspec.Struct, frozen=True):
    """One kind of serving considered, with its simulated capacity as a multiple of the load."""

    name: str
    times: float
    chosen: bool


class RolesAnswer(msgspec.Struct, frozen=True):
    """Every GPU's role, or the reason it has none. `times` is the capacity as a multiple of the load."""

    sentence: Message
    times: Figure
    groups: tuple[RoleGroup, ...]
    idle: tuple[IdleGpus, ...]
    models: tuple[ModelRoles, ...]
    compared: tuple[ComparedServing, ...]
    assumptions: tuple[Message, ...]
    warnings: tuple[Message, ...]


class Design(msgspec.Struct, frozen=True):
    """One way to serve a model with rented GPUs: its cost per hour and simulated capacity."""

    name: str
    in_halves: bool
    gpus: tuple[tuple[str, int], ...]
    cost: Money  # per hour
    bears: Figure
    groups: tuple[RoleGroup, ...]


class DesignsAnswer(msgspec.Struct, frozen=True):
    """Designs compared at equal cost, or at equal load, best first."""

    sentence: Message
    best: Design
    designs: tuple[Design, ...]
    left_out: tuple[Message, ...]
