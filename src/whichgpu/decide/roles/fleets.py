"""Conversion of role assignments to fleets for simulation, and to groups of the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message, msg
from whichgpu.decide.roles.assignment import Assignment, ReplicaCount
from whichgpu.decide.roles.cluster import GpuKind, ModelLoad
from whichgpu.decide.roles.max_rate import max_rate
from whichgpu.decide.roles.role_replicas import RoleReplica, port_for, server_for, step_time, workload_for
from whichgpu.decide.roles.roles_answer import RoleGroup
from whichgpu.estimate.serving.fleet.pools import ROLES, Fleet, ReplicaPool
from whichgpu.estimate.serving.serving_answer import StepRange


class SimulatedAssignment(msgspec.Struct, frozen=True):
    """Replicas chosen by model and role, with the simulated capacity of each model's fleet, in requests per second."""

    assignment: Assignment
    fleets: Mapping[str, Fleet]
    capacities: Mapping[str, float]
    times: float  # smallest capacity of any model, as a multiple of its load


def fleet_for(served: ModelLoad, chosen: Sequence[ReplicaCount], kinds: Sequence[GpuKind]) -> Fleet:
    """Return the fleet to simulate for one model: the chosen replicas in their roles, with their engines and network ports."""
    of = {kind.gpu.id: kind for kind in kinds}
    stations = tuple(
        ReplicaPool(
            cache=one.replica.precision,
            name=f"{one.replica.gpu} {one.replica.role}",
            server=server_for(served, of[one.replica.gpu], one.replica.degree),
            replicas=one.count,
            role=one.replica.role,
            gpus=one.replica.degree,
            weight=one.replica.capacity,
            port=port_for(served, of[one.replica.gpu], one.replica.degree),
        )
        for one in chosen
    )
    return Fleet(stations)


def simulate_assignment(assignment: Assignment, served: Sequence[ModelLoad], kinds: Sequence[GpuKind]) -> SimulatedAssignment:
    """Return the simulated capacity of each model, simulated separately since models share no GPUs."""
    fleets: dict[str, Fleet] = {}
    capacities: dict[str, float] = {}
    for one in served:
        chosen = assignment.of(one.name)
        if not chosen:
            capacities[one.name] = 0.0
            continue
        fleets[one.name] = fleet_for(one, chosen, kinds)
        capacities[one.name] = max_rate(fleets[one.name], one.load, one.objectives, estimated_capacity(chosen))
    return SimulatedAssignment(assignment, fleets, capacities, min(capacities[one.name] / one.load.rate for one in served))


def estimated_capacity(chosen: Sequence[ReplicaCount]) -> float:
    """Return the capacity of a model's replicas in requests per second, as the mixed-integer program estimates it."""
    total = {role: sum(one.count * one.replica.capacity for one in chosen if one.replica.role == role) for role in ROLES}
    return total["both"] + min(total["prefill"], total["decode"])


def role_groups(assignment: Assignment, served: Sequence[ModelLoad], kinds: Sequence[GpuKind]) -> tuple[RoleGroup, ...]:
    """Return the rows of the answer: groups of equal replicas by model, prefill workers before decode workers."""
    of, models = {kind.gpu.id: kind for kind in kinds}, {one.name: one for one in served}
    chosen = sorted(
        assignment.chosen, key=lambda one: (list(models).index(one.replica.model), ROLES.index(one.replica.role), one.replica.gpu)
    )
    return tuple(_group(one, models[one.replica.model], of[one.replica.gpu]) for one in chosen)


def _group(one: ReplicaCount, served: ModelLoad, kind: GpuKind) -> RoleGroup:
    replica, limits = one.replica, server_for(served, kind, one.replica.degree).batch_limits
    return RoleGroup(
        model=replica.model, role=replica.role, gpu=replica.gpu, gpus=one.count * replica.degree, copies=one.count,
        tensor_parallel=replica.degree, precision=workload_for(served, kind, replica.degree).precision or replica.precision,
        max_batch=limits.max_sequences, max_batched_tokens=limits.max_batched_tokens,
        capacity=rate_figure(one.count * replica.capacity, step_time(served, kind, replica.degree)),
        because=_because(replica, kind),
    )  # fmt: skip


def _because(replica: RoleReplica, kind: GpuKind) -> Message:
    return msg(f"roles.because-{replica.role}", gpu=kind.gpu.name, rate=f"{replica.capacity:.3g}", model=replica.model)


def rate_figure(rate: float, step: Figure) -> Figure:
    """Return a request rate with a 90% range that is the inverse of the range of the step time `step`."""
    return StepRange(step).rate(rate)


def widest_range(served: ModelLoad, chosen: Sequence[ReplicaCount], kinds: Sequence[GpuKind]) -> Figure:
    """Return the step time in seconds with the widest range among the replicas, with the sources of all."""
    of = {kind.gpu.id: kind for kind in kinds}
    steps = [step_time(served, of[one.replica.gpu], one.replica.degree) for one in chosen]
    widest = max(steps, key=lambda one: one.high / one.low)
    return replace(widest, sources=tuple(dict.fromkeys(source for one in steps for source in one.sources)))
