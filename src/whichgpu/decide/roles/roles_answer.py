"""Answers about roles: groups of GPUs with their role and capacity, and why the other GPUs are idle."""

from __future__ import annotations

import msgspec

from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message
from whichgpu.base.money import Money
from whichgpu.estimate.serving.fleet.fleet_answer import FleetAnswer


class RoleGroup(msgspec.Struct, frozen=True):
    """Equal replicas of a model in one role (prefill, decode or both); `capacity` is that of all in requests per second."""

    model: str
    role: str  # both, prefill, decode
    gpu: str  # id
    gpus: int  # all of them
    copies: int
    tensor_parallel: int
    precision: str
    max_batch: int
    max_batched_tokens: int
    capacity: Figure
    because: Message


class IdleGpus(msgspec.Struct, frozen=True):
    """GPUs of one kind that serve no model, and why."""

    gpu: str
    gpus: int
    reasons: tuple[Message, ...]


class ModelRoles(msgspec.Struct, frozen=True):
    """The capacity of one model's replicas in requests per second, and their simulation at the requested rate."""

    model: str
    rate: float
    capacity: Figure
    disaggregated: bool
    fleet: FleetAnswer


class ComparedServing(msgspec.Struct, frozen=True):
    """One kind of serving considered (aggregated or disaggregated) and its simulated capacity as a multiple of the load."""

    name: str
    times: float
    chosen: bool


class RolesAnswer(msgspec.Struct, frozen=True):
    """What each GPU serves (prefill, decode or both), or why it is idle. `times` is the capacity as a multiple of the load."""

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
    disaggregated: bool
    gpus: tuple[tuple[str, int], ...]
    cost: Money  # per hour
    capacity: Figure
    groups: tuple[RoleGroup, ...]


class DesignsAnswer(msgspec.Struct, frozen=True):
    """Ways to serve a model with rented GPUs, compared at equal cost or at equal load, best first."""

    sentence: Message
    best: Design
    designs: tuple[Design, ...]
    left_out: tuple[Message, ...]
