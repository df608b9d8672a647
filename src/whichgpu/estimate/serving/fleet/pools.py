"""What a fleet is: stations of equal copies, how requests find them, and what becomes of machines that may be taken away."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Message, msg
from whichgpu.estimate.serving.fleet.kv_transfer import Port
from whichgpu.estimate.serving.server import Server

Role = Literal["both", "prefill", "decode"]
ROLES: tuple[Role, ...] = ("both", "prefill", "decode")
Policy = Literal["least", "shares", "lengths"]
POLICIES: tuple[Policy, ...] = ("least", "shares", "lengths")
MOST_COPIES = 10_000
MOST_OFTEN = 1e5  # an hour: every 36 ms, when nothing is ever answered
UNLIMITED = Port(float("inf"), float("inf"), 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class ReplicaPool:
    """Equal copies of one model on equal GPUs. `server` is one copy; `gpus` are a copy's.

    `weight` is the requests a second a copy bears, by which the load is shared; `spot` of the copies may be taken away.
    A station that reads prompts alone sends their keys and values through its port to those that write answers alone and keep
    them in the same kind of `cache`.
    """

    name: str
    server: Server
    copies: int
    role: Role = "both"
    gpus: int = 1
    weight: float = 1.0
    spot: int = 0
    port: Port = UNLIMITED
    cache: str = ""


@dataclass(frozen=True, slots=True)
class FleetRouting:
    """How requests find a station.

    `least`: whoever has the least to do for its size. `shares`: a bucket of lengths goes to stations in the planned shares,
    `shares[bucket][station]`, buckets counted answer by answer within a prompt's. `lengths`: the same by prompts alone, since
    nobody knows an answer's length before it is written.
    """

    policy: Policy = "least"
    prompt_edges: tuple[int, ...] = ()
    output_edges: tuple[int, ...] = ()
    shares: tuple[tuple[float, ...], ...] = ()

    @property
    def buckets(self) -> int:
        """How many there are."""
        return (len(self.prompt_edges) + 1) * (len(self.output_edges) + 1)

    def bucket(self, prompt: int, output: int) -> int:
        """Of a request; an edge belongs to the bucket above it.

        >>> FleetRouting("shares", (100,), (50, 80)).bucket(100, 49), FleetRouting("shares", (100,), (50, 80)).bucket(5, 80)
        (3, 2)
        """
        column = bisect_right(self.output_edges, output) if self.output_edges else 0
        return bisect_right(self.prompt_edges, prompt) * (len(self.output_edges) + 1) + column


@dataclass(frozen=True, slots=True)
class Interruptions:
    """Of machines on spot: how often each is taken away, how long beforehand it is told, what then happens.

    `rate` per machine and hour; times in seconds: `notice` before it is gone, `warm_up` from asking for one until it serves,
    `outage` until spot machines are to be had again, on average. With `fallback` one on demand stands in meanwhile.
    A request whose machine went is read again elsewhere, up to `retries` times.
    """

    rate: float = 0.0
    notice: float = 0.0
    warm_up: float = 600.0  # it boots, pulls an image of some 10 GB and reads its weights
    outage: float = 3600.0
    fallback: bool = True
    retries: int = 3


@dataclass(frozen=True, slots=True)
class Fleet:
    """All of it. `seed` decides when machines are taken away, and nothing else is left to chance."""

    stations: tuple[ReplicaPool, ...]
    routing: FleetRouting = FleetRouting()
    interruptions: Interruptions = Interruptions()
    seed: int = 0

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise UsageError("bad-fleet", problem)

    @property
    def gpus(self) -> int:
        """Of all stations."""
        return sum(one.copies * one.gpus for one in self.stations)

    def scaled(self, factor: float) -> Fleet:
        """With every step so many times as long."""
        return replace(self, stations=tuple(replace(one, server=one.server.scaled(factor)) for one in self.stations))


def _problems(fleet: Fleet) -> list[Message]:
    stations, found = fleet.stations, []
    if not stations:
        return [msg("fleet.none")]
    for one in stations:
        if one.role not in ROLES:
            found.append(msg("fleet.role", name=one.name, role=one.role, known=ROLES))
        if not 1 <= one.copies <= MOST_COPIES or one.gpus < 1:
            found.append(msg("fleet.copies", name=one.name, copies=one.copies, most=f"{MOST_COPIES:,}"))
        if not 0 <= one.spot <= one.copies:
            found.append(msg("fleet.spot", name=one.name, spot=one.spot, copies=one.copies))
        if not (isfinite(one.weight) and one.weight > 0):
            found.append(msg("fleet.weight", name=one.name, weight=one.weight))
    for cache in sorted({one.cache for one in stations}):
        reading, writing = (any((one.role, one.cache) == (role, cache) for one in stations) for role in ("prefill", "decode"))
        if reading != writing:
            found.append(msg("fleet.half", there="prefill" if reading else "decode", missing="decode" if reading else "prefill"))
    return [*found, *_routing_problems(fleet), *_interruption_problems(fleet.interruptions)]


def _routing_problems(fleet: Fleet) -> list[Message]:
    routing, count = fleet.routing, len(fleet.stations)
    if routing.policy not in POLICIES:
        return [msg("fleet.policy", policy=routing.policy, known=POLICIES)]
    if routing.policy == "least":
        return []
    if routing.policy == "lengths" and routing.output_edges:
        return [msg("fleet.unknown-lengths")]
    edges = (routing.prompt_edges, routing.output_edges)
    if any(list(one) != sorted(set(one)) for one in edges):
        return [msg("fleet.edges")]
    if len(routing.shares) != routing.buckets or any(len(row) != count for row in routing.shares):
        return [msg("fleet.shares-shape", buckets=routing.buckets, stations=count)]
    entries = [place for place, one in enumerate(fleet.stations) if one.role != "decode"]
    bad = [row for row in routing.shares if min(row) < 0 or not all(map(isfinite, row)) or not sum(row[at] for at in entries) > 0]
    return [msg("fleet.shares")] if bad else []


def _interruption_problems(asked: Interruptions) -> list[Message]:
    numbers = {"rate": asked.rate, "notice": asked.notice, "warm-up": asked.warm_up, "outage": asked.outage}
    found = [msg("fleet.number", name=name, value=one) for name, one in numbers.items() if not (isfinite(one) and one >= 0)]
    if asked.rate > MOST_OFTEN:
        found.append(msg("fleet.too-often", rate=f"{asked.rate:g}", most=f"{MOST_OFTEN:g}"))
    if asked.retries < 0:
        found.append(msg("fleet.number", name="retries", value=asked.retries))
    return found
