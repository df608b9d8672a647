"""One copy of a model on GPUs of one kind, in each role: whether it can be, and how many requests a second it bears."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from whichgpu.base.errors import NoAnswer
from whichgpu.base.figure import Figure
from whichgpu.base.messages import Message, msg
from whichgpu.base.parallel.sweep import Progress, run_sweep
from whichgpu.base.units import format_seconds
from whichgpu.decide.configurations.generating import with_precision
from whichgpu.decide.roles.cluster import GpuKind, ModelLoad
from whichgpu.decide.roles.max_rate import ROUGH, max_rate
from whichgpu.estimate.group.group_answer import group_time_of
from whichgpu.estimate.group.layouts import divides_evenly
from whichgpu.estimate.serving.fleet.kv_transfer import Port, port_of
from whichgpu.estimate.serving.fleet.pools import Fleet, ReplicaPool, Role
from whichgpu.estimate.serving.load import longest_request, mean_lengths
from whichgpu.estimate.serving.load_screen import screen_load
from whichgpu.estimate.serving.server import Server, server_of
from whichgpu.estimate.time.fallbacks import usual_precision
from whichgpu.estimate.time.time_estimate import estimate_time
from whichgpu.workload.workload import Parallel, Workload

DEGREES = (1, 2, 4, 8, 16)
WIDER = 4  # times the smallest degree that fits, beyond which none is tried
ROLES: tuple[Role, ...] = ("both", "prefill", "decode")
# Copies side by side beyond which sharing a load helps little more: many small waits even out, large batches do by themselves.
POOL: Mapping[Role, int] = {"both": 2, "prefill": 4, "decode": 1}
QUICK = 1e-6  # of the time of an engine that is to be in nobody's way


@dataclass(frozen=True, slots=True)
class RoleCase:
    """A copy to be tried: a model on so many GPUs of a kind, in a role, beside up to so many of its like."""

    served: ModelLoad
    kind: GpuKind
    degree: int
    role: Role
    beside: int


@dataclass(frozen=True, slots=True)
class RoleReplica:
    """What one copy bears: requests a second with its objectives kept, 0 where it never keeps them.

    `alone` is the time it takes for what its role is judged by, of a mean request with nobody else there: seconds to the first
    token where it reads, between tokens where it writes.
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
    kinds: tuple[GpuKind, ...],
    served: tuple[ModelLoad, ...],
    jobs: int = 1,
    ray: str | None = None,
    progress: Callable[[Progress], None] | None = None,
    budget: float | None = None,
) -> tuple[list[RoleReplica], dict[tuple[str, str], Message]]:
    """Every copy that can be, with what it bears; and by model and GPU why there is none."""
    cases: list[RoleCase] = []
    reasons: dict[tuple[str, str], Message] = {}
    for one in served:
        for kind in kinds:
            found = replica_sizes(one, kind)
            if isinstance(found, Message):
                reasons[one.name, kind.gpu.id] = found
                continue
            cases += [RoleCase(one, kind, degree, role, _most(kind, degree, budget)) for degree in found for role in ROLES]
    told: list[RoleReplica] = run_sweep(simulate_replica, cases, jobs=jobs, ray=ray, progress=progress)
    for one in served:
        for kind in kinds:
            mine = [copy for copy in told if (copy.model, copy.gpu) == (one.name, kind.gpu.id)]
            if mine and not any(copy.capacity for copy in mine):
                reasons[one.name, kind.gpu.id] = _too_slow(one, kind, mine)
    return [copy for copy in told if copy.capacity > 0], reasons


def _most(kind: GpuKind, degree: int, budget: float | None) -> int:
    """Copies in one role that there may be: half of all."""
    limits = [2 * max(POOL.values())]
    if kind.count is not None:
        limits.append(kind.count // degree)
    if budget is not None and kind.price:
        limits.append(int(budget / (kind.price * degree)))
    return max(1, min(limits) // 2)


def _too_slow(served: ModelLoad, kind: GpuKind, mine: list[RoleReplica]) -> Message:
    first, token = min(copy.first_alone for copy in mine), min(copy.token_alone for copy in mine)
    return msg(
        "roles.too-slow", model=served.name, gpu=kind.gpu.name, ttft=format_seconds(first), tpot=format_seconds(token)
    )  # fmt: skip


def replica_sizes(served: ModelLoad, kind: GpuKind) -> list[int] | Message:
    """GPUs a copy may have: from the fewest that hold the model with a request, to a few times as many; or why none do."""
    most = min(kind.per_machine, kind.count or kind.per_machine)
    able = [degree for degree in DEGREES if degree <= most and divides_evenly(served.workload, served.shape, degree, 1, 1)]
    found: list[int] = []
    why: Message = msg("roles.not-cut", model=served.name, gpus=most)
    for degree in able:
        try:
            server = server_for(served, kind, degree)
        except NoAnswer as none:
            why = none.message
            continue
        if server.batch_limits.cache_tokens < sum(mean_lengths(served.load)):
            why = msg("roles.no-room", model=served.name, gpu=kind.gpu.name, gpus=degree, tokens=server.batch_limits.cache_tokens)
            continue
        found.append(degree)
    return [degree for degree in found if degree <= WIDER * found[0]] if found else why


def simulate_replica(case: RoleCase, _: int) -> RoleReplica:
    """What one copy bears among its like, by simulation; the other half of the work takes no time. The load has its own seed."""
    served, kind = case.served, case.kind
    server, workload = server_for(served, kind, case.degree), workload_for(served, kind, case.degree)
    goals, quick = served.goals, server.scaled(QUICK)
    guess = screen_load(server, served.load).saturation * (1.0 if case.role == "both" else 1.5)
    pool = min(case.beside, POOL[case.role])
    if kind.count is None:
        pool = min(pool, round(served.load.rate / guess))
    pool = max(1, pool)
    stations: tuple[ReplicaPool, ...] = (ReplicaPool("copy", server, pool),)
    if case.role == "prefill":
        stations = ReplicaPool("copy", server, pool, "prefill"), ReplicaPool("rest", quick, pool, "decode")
        goals = replace(goals, tpot_max=None, latency_max=None)
    if case.role == "decode":
        stations = ReplicaPool("rest", quick, pool, "prefill"), ReplicaPool("copy", server, pool, "decode")
        goals = replace(goals, ttft_max=None, latency_max=None)
    prompt, output = mean_lengths(served.load)
    return RoleReplica(
        model=served.name,
        gpu=kind.gpu.id,
        degree=case.degree,
        role=case.role,
        precision=workload.kv_precision or workload.precision or "bf16",
        capacity=max_rate(Fleet(stations), served.load, goals, guess * pool, ROUGH) / pool,
        first_alone=server.steps.mixed(max(1, min(round(prompt), server.batch_limits.max_batched_tokens)), 0.0, 0, 0.0),
        token_alone=server.steps.decode(1, prompt + output / 2),
    )


def workload_for(served: ModelLoad, kind: GpuKind, degree: int) -> Workload:
    """The request on so many GPUs of a kind, in the precision such GPUs have units for, with the load's mean lengths."""
    prompt, output = mean_lengths(served.load)
    precision = usual_precision(served.workload.precision or "bf16", kind.gpu, language=True)
    sized = replace(
        served.workload, gpus=degree, nodes=1, parallel=Parallel(tp=degree), seq_in=max(1, round(prompt)),
        seq_out=max(1, round(output)), batch=None, micro_batch=None,
    )  # fmt: skip
    return with_precision(sized, precision)


def server_for(served: ModelLoad, kind: GpuKind, degree: int) -> Server:
    """The engine of one copy."""
    return _server(workload_for(served, kind, degree), served, kind)


_KNOWN: dict[tuple[object, ...], tuple[object, Server]] = {}
MOST_KNOWN = 256


def _server(workload: Workload, served: ModelLoad, kind: GpuKind) -> Server:
    """Made once for equal work on these very GPUs; they are kept with it, so that their identities stay theirs."""
    kept = (served.shape, kind.gpu, kind.instance)
    key = (workload, longest_request(served.load), *map(id, kept))
    if key not in _KNOWN:
        if len(_KNOWN) >= MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = kept, server_of(workload, served.shape, kind.gpu, kind.instance, longest=longest_request(served.load))
    return _KNOWN[key][1]


def port_for(served: ModelLoad, kind: GpuKind, degree: int) -> Port:
    """What a copy sends and takes."""
    return port_of(workload_for(served, kind, degree), served.shape, kind.gpu, degree, kind.instance)


def step_time(served: ModelLoad, kind: GpuKind, degree: int) -> Figure:
    """A time whose range is that of the copy's steps."""
    workload = replace(workload_for(served, kind, degree), task="serve", batch=8)
    if degree == 1:
        return estimate_time(workload, served.shape, kind.gpu).time
    return group_time_of(workload, served.shape, kind.gpu, kind.instance)[0].time
