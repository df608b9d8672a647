"""Replicas of a model in each role on GPUs of one kind: which are possible, and their capacity."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from whichgpu.base.errors import NoAnswer
from whichgpu.base.figure import Figure
from whichgpu.base.lru import LruCache
from whichgpu.base.messages import Message, msg
from whichgpu.base.parallel.sweep import run_sweep
from whichgpu.base.units import format_seconds
from whichgpu.decide.configurations.generating import with_precision
from whichgpu.decide.roles.cluster import GpuKind, ModelLoad
from whichgpu.decide.roles.max_rate import ROUGH, max_rate
from whichgpu.estimate.group.group_answer import group_time_of
from whichgpu.estimate.group.layouts import divides_evenly
from whichgpu.estimate.serving.fleet.kv_transfer import Port, port_of
from whichgpu.estimate.serving.fleet.pools import ROLES, Fleet, ReplicaPool, Role
from whichgpu.estimate.serving.load import longest_request, mean_lengths
from whichgpu.estimate.serving.load_screen import screen_load
from whichgpu.estimate.serving.server import Server, server_of
from whichgpu.estimate.time.fallbacks import usual_precision
from whichgpu.estimate.time.time_estimate import estimate_time
from whichgpu.workload.workload import Parallel, Workload

DEGREES = (1, 2, 4, 8, 16)  # These tensor-parallel degrees are tried.
MAX_WIDER = 4  # Degrees above this multiple of the smallest that fits are not tried.
# Replicas simulated side by side by role; more gain little, as prefill queues average out and decode batches are large (assumed).
MAX_POOL: Mapping[Role, int] = {"both": 2, "prefill": 4, "decode": 1}
FAST = 1e-6  # Factor on the step times of the other role's engine, so that it is never the bottleneck.
PHASE_GAIN = 1.5  # First guess of one phase's capacity as a multiple of aggregated capacity (assumed).
Sweep = Callable[[Callable[[Any, int], Any], Sequence[Any]], list[Any]]  # `run_sweep`, or with some arguments bound
Reasons = dict[tuple[str, str], Message]  # why there is no replica, by model name and GPU id


class RoleCase(msgspec.Struct, frozen=True):
    """A replica to simulate: a model on `degree` GPUs of a kind in one role, in a pool of at most `max_pool` such replicas."""

    served: ModelLoad
    kind: GpuKind
    degree: int
    role: Role
    max_pool: int


class RoleReplica(msgspec.Struct, frozen=True):
    """A replica as prefill worker, decode worker or both, with its requests per second, 0 if it never meets its objectives.

    `first_alone` and `token_alone` are the seconds to the first token and per output token of a mean request on an idle engine.
    """

    model: str
    gpu: str
    degree: int
    role: Role
    precision: str
    capacity: float
    first_alone: float
    token_alone: float


def role_replicas(
    kinds: Sequence[GpuKind], served: Sequence[ModelLoad], sweep: Sweep = run_sweep, budget: float | None = None
) -> tuple[list[RoleReplica], Reasons]:
    """Return every possible replica in each role with its capacity, and why models have no replica on some kinds of GPU."""
    cases: list[RoleCase] = []
    reasons: Reasons = {}
    for one in served:
        for kind in kinds:
            sizes = replica_sizes(one, kind)
            if isinstance(sizes, Message):
                reasons[one.name, kind.gpu.id] = sizes
                continue
            cases += [RoleCase(one, kind, size, role, _max_pool(kind, size, budget)) for size in sizes for role in ROLES]
    replicas: list[RoleReplica] = sweep(simulate_replica, cases)
    for one in served:
        for kind in kinds:
            mine = [replica for replica in replicas if (replica.model, replica.gpu) == (one.name, kind.gpu.id)]
            if mine and not any(replica.capacity for replica in mine):
                first, token = min(each.first_alone for each in mine), min(each.token_alone for each in mine)
                seconds = {"ttft": format_seconds(first), "tpot": format_seconds(token)}
                reasons[one.name, kind.gpu.id] = msg("roles.too-slow", model=one.name, gpu=kind.gpu.name, **seconds)
    return [replica for replica in replicas if replica.capacity > 0], reasons


def _max_pool(kind: GpuKind, degree: int, budget: float | None) -> int:
    """Return the most equal replicas to simulate together: half of those that GPUs and budget allow, at most 4."""
    limits = [2 * max(MAX_POOL.values())]
    if kind.count is not None:
        limits.append(kind.count // degree)
    if budget is not None and kind.price:
        limits.append(int(budget / (kind.price * degree)))
    return max(1, min(limits) // 2)


def replica_sizes(served: ModelLoad, kind: GpuKind) -> list[int] | Message:
    """Return the GPU counts a replica may have, from the fewest that hold the model and a request; or why there is none."""
    max_degree = min(kind.per_machine, kind.count or kind.per_machine)
    sizes: list[int] = []
    why: Message = msg("roles.not-cut", model=served.name, gpus=max_degree)
    for degree in DEGREES:
        if degree > max_degree or not divides_evenly(served.workload, served.shape, degree, 1, 1):
            continue
        try:
            tokens = server_for(served, kind, degree).batch_limits.cache_tokens
        except NoAnswer as none:
            why = none.message
            continue
        if tokens >= sum(mean_lengths(served.load)):
            sizes.append(degree)
        else:
            why = msg("roles.no-room", model=served.name, gpu=kind.gpu.name, gpus=degree, tokens=tokens)
    return [degree for degree in sizes if degree <= MAX_WIDER * sizes[0]] if sizes else why


def simulate_replica(case: RoleCase, _: int) -> RoleReplica:
    """Return a replica with its capacity in its role, simulated among equal ones while the other role is no bottleneck."""
    served, kind, role = case.served, case.kind, case.role
    server, workload = server_for(served, kind, case.degree), workload_for(served, kind, case.degree)
    objectives, fast = served.objectives, server.scaled(FAST)
    guess = screen_load(server, served.load).saturation * (1.0 if role == "both" else PHASE_GAIN)
    size = min(case.max_pool, MAX_POOL[role])
    if kind.count is None:
        size = min(size, round(served.load.rate / guess))
    size = max(1, size)
    pools = [ReplicaPool("copy", server, size, role)]
    if role == "prefill":
        pools.append(ReplicaPool("rest", fast, size, "decode"))
        objectives = replace(objectives, tpot_max=None, latency_max=None)
    if role == "decode":
        pools.insert(0, ReplicaPool("rest", fast, size, "prefill"))
        objectives = replace(objectives, ttft_max=None, latency_max=None)
    prompt, output = mean_lengths(served.load)
    return RoleReplica(
        model=served.name,
        gpu=kind.gpu.id,
        degree=case.degree,
        role=role,
        precision=workload.kv_precision or workload.precision or "bf16",
        capacity=max_rate(Fleet(tuple(pools)), served.load, objectives, guess * size, ROUGH) / size,
        first_alone=server.steps.mixed(max(1, min(round(prompt), server.batch_limits.max_batched_tokens)), 0.0, 0, 0.0),
        token_alone=server.steps.decode(1, prompt + output / 2),
    )


def workload_for(served: ModelLoad, kind: GpuKind, degree: int) -> Workload:
    """Return the workload of one replica, in a precision the GPU has units for and with the load's mean lengths."""
    prompt, output = mean_lengths(served.load)
    precision = usual_precision(served.workload.precision or "bf16", kind.gpu, language=True)
    sized = replace(
        served.workload, gpus=degree, nodes=1, parallel=Parallel(tp=degree), seq_in=max(1, round(prompt)),
        seq_out=max(1, round(output)), batch=None, micro_batch=None,
    )  # fmt: skip
    return with_precision(sized, precision)


_SERVERS = LruCache[tuple[object, Server]](max_size=256)


def server_for(served: ModelLoad, kind: GpuKind, degree: int) -> Server:
    """Return the simulated engine of one replica on `degree` GPUs, cached with the objects whose `id()` is in the key."""
    workload, longest = workload_for(served, kind, degree), longest_request(served.load)
    identified = (served.shape, kind.gpu, kind.instance)
    key = (workload, longest, *map(id, identified))
    return _SERVERS.get(key, lambda: (identified, server_of(workload, *identified, longest=longest)))[1]


def port_for(served: ModelLoad, kind: GpuKind, degree: int) -> Port:
    """Return the network port by which a replica sends and receives KV caches."""
    return port_of(workload_for(served, kind, degree), served.shape, kind.gpu, degree, kind.instance)


def step_time(served: ModelLoad, kind: GpuKind, degree: int) -> Figure:
    """Return the estimated time of a replica's step in seconds; the relative range of its capacity is taken from it."""
    workload = replace(workload_for(served, kind, degree), task="serve", batch=8)
    if degree == 1:
        return estimate_time(workload, served.shape, kind.gpu).time
    return group_time_of(workload, served.shape, kind.gpu, kind.instance)[0].time
