"""A fleet: pools of equal replicas, how requests are routed to them, and interruptions of spot machines."""

from __future__ import annotations

from bisect import bisect_right
from math import isfinite
from typing import Literal

import msgspec
from msgspec.structs import replace

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.estimate.serving.fleet.kv_transfer import Port
from whichgpu.estimate.serving.server import Server

Role = Literal["both", "prefill", "decode"]
ROLES: tuple[Role, ...] = ("both", "prefill", "decode")
Policy = Literal["least", "shares", "lengths"]
POLICIES: tuple[Policy, ...] = ("least", "shares", "lengths")
MAX_REPLICAS = 10_000  # most replicas per pool, which bounds the simulation's memory and time (assumed)
MAX_INTERRUPTION_RATE = 1e5  # interruptions per machine and hour; at one every 36 ms no request would ever be answered
UNLIMITED = Port(float("inf"), float("inf"), 0.0, 0.0)


class ReplicaPool(msgspec.Struct, frozen=True):
    """Equal replicas of one model on equal GPUs. `server` is one replica; `gpus` is the number of GPUs per replica.

    `weight` is a replica's capacity in requests per second, by which load is shared; `spot` replicas run on spot machines.
    Prefill workers send KV caches through their port to decode workers with the same KV cache format (`cache`).
    """

    name: str
    server: Server
    replicas: int
    role: Role = "both"
    gpus: int = 1
    weight: float = 1.0
    spot: int = 0
    port: Port = UNLIMITED
    cache: str = ""


class FleetRouting(msgspec.Struct, frozen=True):
    """Routing of requests to pools.

    `least`: lowest load by weight. `shares`: each bucket of lengths goes to pools in planned shares, `shares[bucket][pool]`,
    buckets ordered by input length, then by output length. `lengths`: the same by input length alone, since an output's length
    is not known before it is generated.
    """

    policy: Policy = "least"
    prompt_edges: tuple[int, ...] = ()
    output_edges: tuple[int, ...] = ()
    shares: tuple[tuple[float, ...], ...] = ()

    @property
    def buckets(self) -> int:
        """Number of length buckets."""
        return (len(self.prompt_edges) + 1) * (len(self.output_edges) + 1)

    def bucket(self, prompt: int, output: int) -> int:
        """Return the bucket index of a request by its lengths; an edge belongs to the bucket above it.

        >>> FleetRouting("shares", (100,), (50, 80)).bucket(100, 49), FleetRouting("shares", (100,), (50, 80)).bucket(5, 80)
        (3, 2)
        """
        column = bisect_right(self.output_edges, output) if self.output_edges else 0
        return bisect_right(self.prompt_edges, prompt) * (len(self.output_edges) + 1) + column


class Interruptions(msgspec.Struct, frozen=True):
    """Interruptions of spot machines.

    `rate` per machine and hour; times in seconds: `notice` before the loss, `warm_up` from requesting a machine until it serves,
    `outage` until spot machines are available again, on average. With `fallback` an on-demand machine serves meanwhile.
    A request whose machine was lost is restarted elsewhere, up to `retries` times.
    """

    rate: float = 0.0
    notice: float = 0.0
    warm_up: float = 600.0  # boot, pull an image of some 10 GB, load the weights (assumed)
    outage: float = 3600.0
    fallback: bool = True
    retries: int = 3


class Fleet(msgspec.Struct, frozen=True):
    """Pools of replicas that share one stream of requests; `seed` decides when machines are interrupted, all else is fixed."""

    pools: tuple[ReplicaPool, ...]
    routing: FleetRouting = FleetRouting()
    interruptions: Interruptions = Interruptions()
    seed: int = 0

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise UsageError("bad-fleet", problem)

    @property
    def gpus(self) -> int:
        """GPUs of all pools together."""
        return sum(one.replicas * one.gpus for one in self.pools)

    def scaled(self, factor: float) -> Fleet:
        """Return the fleet with the seconds of every step multiplied by `factor`."""
        return replace(self, pools=tuple(replace(one, server=one.server.scaled(factor)) for one in self.pools))


def _problems(fleet: Fleet) -> list[Message]:
    pools, problems = fleet.pools, []
    if not pools:
        return [msg("fleet.none")]
    for one in pools:
        if one.role not in ROLES:
            problems.append(msg("fleet.role", name=one.name, role=one.role, known=ROLES))
        if not 1 <= one.replicas <= MAX_REPLICAS or one.gpus < 1:
            problems.append(msg("fleet.copies", name=one.name, copies=one.replicas, most=f"{MAX_REPLICAS:,}"))
        if not 0 <= one.spot <= one.replicas:
            problems.append(msg("fleet.spot", name=one.name, spot=one.spot, copies=one.replicas))
        if not (isfinite(one.weight) and one.weight > 0):
            problems.append(msg("fleet.weight", name=one.name, weight=one.weight))
    for cache in sorted({one.cache for one in pools}):
        roles = {one.role for one in pools if one.cache == cache} - {"both"}
        if len(roles) == 1:
            there = roles.pop()
            problems.append(msg("fleet.half", there=there, missing="decode" if there == "prefill" else "prefill"))
    return [*problems, *_routing_problems(fleet), *_interruption_problems(fleet.interruptions)]


def _routing_problems(fleet: Fleet) -> list[Message]:
    routing, count = fleet.routing, len(fleet.pools)
    if routing.policy not in POLICIES:
        return [msg("fleet.policy", policy=routing.policy, known=POLICIES)]
    if routing.policy == "least":
        return []
    if routing.policy == "lengths" and routing.output_edges:
        return [msg("fleet.unknown-lengths")]
    if any(list(edges) != sorted(set(edges)) for edges in (routing.prompt_edges, routing.output_edges)):
        return [msg("fleet.edges")]
    if len(routing.shares) != routing.buckets or any(len(row) != count for row in routing.shares):
        return [msg("fleet.shares-shape", buckets=routing.buckets, stations=count)]
    entries = [index for index, one in enumerate(fleet.pools) if one.role != "decode"]
    bad = [
        row
        for row in routing.shares
        if min(row) < 0 or not all(map(isfinite, row)) or not sum(row[index] for index in entries) > 0
    ]
    return [msg("fleet.shares")] if bad else []


def _interruption_problems(one: Interruptions) -> list[Message]:
    numbers = {"rate": one.rate, "notice": one.notice, "warm-up": one.warm_up, "outage": one.outage}
    problems = [
        msg("fleet.number", name=name, value=value) for name, value in numbers.items() if not (isfinite(value) and value >= 0)
    ]
    if one.rate > MAX_INTERRUPTION_RATE:
        problems.append(msg("fleet.too-often", rate=f"{one.rate:g}", most=f"{MAX_INTERRUPTION_RATE:g}"))
    if one.retries < 0:
        problems.append(msg("fleet.number", name="retries", value=one.retries))
    return problems
