"""From what was chosen to a fleet that can be simulated, and to groups that can be shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message, msg
from whichgpu.decide.roles.assignment import Assignment, ReplicaCount
from whichgpu.decide.roles.cluster import GpuKind, ModelLoad
from whichgpu.decide.roles.max_rate import max_rate
from whichgpu.decide.roles.role_replicas import RoleReplica, port_for, server_for, step_time, workload_for
from whichgpu.decide.roles.roles_answer import RoleGroup
from whichgpu.estimate.serving.fleet.pools import Fleet, ReplicaPool
from whichgpu.estimate.serving.serving_answer import StepRange


@dataclass(frozen=True, slots=True)
class SimulatedAssignment:
    """An assignment with what each model's fleet bears by simulation."""

    assignment: Assignment
    fleets: Mapping[str, Fleet]
    borne: Mapping[str, float]
    times: float  # the load, as the hardest model allows


def fleet_for(served: ModelLoad, chosen: Sequence[ReplicaCount], kinds: Sequence[GpuKind]) -> Fleet:
    """The fleet of one model."""
    of = {kind.gpu.id: kind for kind in kinds}
    stations = tuple(
        ReplicaPool(
            cache=one.copy.precision,
            name=f"{one.copy.gpu} {one.copy.role}",
            server=server_for(served, of[one.copy.gpu], one.copy.degree),
            replicas=one.count,
            role=one.copy.role,
            gpus=one.copy.degree,
            weight=one.copy.capacity,
            port=port_for(served, of[one.copy.gpu], one.copy.degree),
        )
        for one in chosen
    )
    return Fleet(stations)


def simulate_assignment(found: Assignment, served: Sequence[ModelLoad], kinds: Sequence[GpuKind]) -> SimulatedAssignment:
    """What it bears, model by model: they share no GPUs, so each is simulated by itself."""
    fleets: dict[str, Fleet] = {}
    borne: dict[str, float] = {}
    for one in served:
        chosen = found.of(one.name)
        if not chosen:
            borne[one.name] = 0.0
            continue
        fleets[one.name] = fleet_for(one, chosen, kinds)
        borne[one.name] = max_rate(fleets[one.name], one.load, one.goals, estimated_capacity(chosen))
    return SimulatedAssignment(found, fleets, borne, min(borne[one.name] / one.load.rate for one in served))


def estimated_capacity(chosen: Sequence[ReplicaCount]) -> float:
    """Requests a second the program thinks a model's copies bear."""
    total = {role: sum(one.count * one.copy.capacity for one in chosen if one.copy.role == role) for role in ROLES}
    return total["both"] + min(total["prefill"], total["decode"])


ROLES = ("both", "prefill", "decode")


def role_groups(found: Assignment, served: Sequence[ModelLoad], kinds: Sequence[GpuKind]) -> tuple[RoleGroup, ...]:
    """To be shown: by model, readers before writers."""
    of, models = {kind.gpu.id: kind for kind in kinds}, {one.name: one for one in served}
    order = {"both": 0, "prefill": 1, "decode": 2}
    chosen = sorted(found.chosen, key=lambda one: (list(models).index(one.copy.model), order[one.copy.role], one.copy.gpu))
    return tuple(_group(one, models[one.copy.model], of[one.copy.gpu]) for one in chosen)


def _group(one: ReplicaCount, served: ModelLoad, kind: GpuKind) -> RoleGroup:
    copy, lane = one.copy, server_for(served, kind, one.copy.degree).batch_limits
    return RoleGroup(
        model=copy.model, role=copy.role, gpu=copy.gpu, gpus=one.count * copy.degree, copies=one.count,
        tensor_parallel=copy.degree, precision=workload_for(served, kind, copy.degree).precision or copy.precision,
        max_batch=lane.max_sequences, max_batched_tokens=lane.max_batched_tokens,
        bears=rate_figure(one.count * copy.capacity, step_time(served, kind, copy.degree)), because=_because(copy, kind),
    )  # fmt: skip


def _because(copy: RoleReplica, kind: GpuKind) -> Message:
    return msg(f"roles.because-{copy.role}", gpu=kind.gpu.name, rate=f"{copy.capacity:.3g}", model=copy.model)


def rate_figure(rate: float, like: Figure) -> Figure:
    """A rate that falls as steps take longer."""
    return StepRange(like).rate(rate)


def widest_range(served: ModelLoad, chosen: Sequence[ReplicaCount], kinds: Sequence[GpuKind]) -> Figure:
    """Of the times of its copies, the one least sure."""
    of = {kind.gpu.id: kind for kind in kinds}
    likes = [step_time(served, of[one.copy.gpu], one.copy.degree) for one in chosen]
    found = max(likes, key=lambda one: one.high / one.low)
    return replace(found, sources=tuple(dict.fromkeys(source for one in likes for source in one.sources)))
