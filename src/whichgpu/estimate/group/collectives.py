"""Seconds of collectives: an alpha-beta model over rings, trees and switches, the best of which a library picks for each size.

A collective of `size` bytes over n GPUs costs what starting it costs, so many hops, and the bytes one GPU sends over the
bandwidth it has (Thakur et al. 2005; NCCL's own tuning tables for the constants). `size` is what nccl-tests count: the whole
tensor that is reduced or gathered; of an exchange, what one GPU holds; of a send, what is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from whichgpu.estimate.group.fabric import Fabric, protocols

if TYPE_CHECKING:
    from whichgpu.estimate.time.operators import Number

Array = NDArray[np.float64]
CollectiveKind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send", "broadcast"]
MICRO = 1e-6
# NVLink SHARP: 8 H100 all-reduce at 275 GB/s of data where a ring's links carry 370 (nccl-tests issue 212); a start costs more.
SWITCH_SHARE, SWITCH_BASE = 0.743, 25 * MICRO
# Engines' own all-reduce kernels, which read peers' memory: one start, one or two barriers (vLLM, TensorRT-LLM).
OWN_BASE, OWN_HOP = 4.0 * MICRO, 1.0 * MICRO


@dataclass(frozen=True, slots=True)
class Communicator:
    """Ranks that talk together: how many, and how many of them stand in one node."""

    size: int
    inside: int

    @property
    def nodes(self) -> int:
        """Nodes it spans."""
        return ceil(self.size / self.inside)


@dataclass(frozen=True, slots=True)
class CollectiveCost:
    """Seconds of one call, [gpus, batches]: what any size costs, and what its bytes cost."""

    latency: Array
    volume: Array

    @property
    def seconds(self) -> Array:
        """Together."""
        return self.latency + self.volume


def collective_cost(
    kind: CollectiveKind, size: Number, ring: Communicator, fabrics: Sequence[Fabric], own_kernels: bool = False
) -> CollectiveCost:
    """Of one call on each of these fabrics; nothing where nobody is to be talked to."""
    moved = np.atleast_1d(np.asarray(size, dtype=float))[None, :]
    blank = np.zeros((len(fabrics), moved.shape[1]))
    if ring.size < 2:
        return CollectiveCost(blank, blank)
    paths = _paths(ring, fabrics)
    if kind == "all_to_all":
        return _exchanged(moved, ring, paths)
    found = [_looped(kind, moved, ring, paths, row) for row in protocols()]
    if kind == "all_reduce":
        found += [_treed(moved, ring, paths, row) for row in protocols()]
        found += _switched(moved, ring, paths)
        if own_kernels and ring.nodes == 1:
            found += _own(moved, ring, paths)
    best = found[0]
    for other in found[1:]:
        better = other.seconds < best.seconds
        best = CollectiveCost(np.where(better, other.latency, best.latency), np.where(better, other.volume, best.volume))
    return best


class _Paths:
    """What a ring meets on each fabric, as columns [gpus, 1]."""

    def __init__(self, ring: Communicator, fabrics: Sequence[Fabric]) -> None:
        members = min(ring.inside, ring.size)
        self._hops: dict[str, Array] = {}
        self.inside = _column([fabric.inside(members) for fabric in fabrics])
        self.network = _column([fabric.network for fabric in fabrics])
        self.net_hop = _column([fabric.network_hop for fabric in fabrics])
        self.kinds = [fabric.hop_kind(members) for fabric in fabrics]
        self.reduces = np.array([[fabric.reduces] for fabric in fabrics])
        self.direct = np.array([[fabric.direct] for fabric in fabrics])
        self.bus = self.inside if ring.nodes == 1 else np.minimum(self.inside, self.network * members)

    def hop(self, row: dict[str, str]) -> Array:
        """Seconds between two GPUs of a node."""
        name = row["protocol"]
        if name not in self._hops:
            self._hops[name] = _column([float(row[f"{kind}_us"]) * MICRO for kind in self.kinds])
        return self._hops[name]

    def far(self, row: dict[str, str]) -> Array:
        """Seconds between two nodes: the network's own, and what the protocol adds to it."""
        return self.net_hop + float(row["net_us"]) * MICRO


_KNOWN: dict[tuple[Communicator, tuple[int, ...]], tuple[Sequence[Fabric], _Paths]] = {}


def _paths(ring: Communicator, fabrics: Sequence[Fabric]) -> _Paths:
    """Of these very fabrics, made once; they are kept, so that their identities stay theirs."""
    key = ring, tuple(map(id, fabrics))
    if key not in _KNOWN:
        if len(_KNOWN) >= 256:
            _KNOWN.clear()
        _KNOWN[key] = tuple(fabrics), _Paths(ring, fabrics)
    return _KNOWN[key][1]


def _sent(kind: CollectiveKind, n: int) -> float:
    """Bytes one GPU sends for each byte of the whole."""
    if kind == "all_reduce":
        return 2.0 * (n - 1) / n
    return (n - 1) / n if kind in ("all_gather", "reduce_scatter") else 1.0


def _looped(kind: CollectiveKind, moved: Array, ring: Communicator, paths: _Paths, row: dict[str, str]) -> CollectiveCost:
    """Round a ring: each GPU hands on a part at every step."""
    rounds = 2 if kind == "all_reduce" else 1
    steps = 1 if kind == "send" else rounds * (ring.size - 1)
    far = min(steps, rounds * (ring.nodes - 1)) if kind != "send" else int(ring.nodes > 1)
    latency = float(row["base_us"]) * MICRO + (steps - far) * paths.hop(row) + far * paths.far(row)
    volume = moved * _sent(kind, ring.size) / (paths.bus * float(row["share"]))
    return CollectiveCost(np.broadcast_to(latency, volume.shape), volume)


def _treed(moved: Array, ring: Communicator, paths: _Paths, row: dict[str, str]) -> CollectiveCost:
    """Up a tree of nodes and down again: fewer hops than a ring where there are many nodes."""
    inside, depth = min(ring.inside, ring.size), ceil(log2(ring.nodes))
    latency = float(row["base_us"]) * MICRO + 2 * ((inside - 1) * paths.hop(row) + depth * paths.far(row))
    volume = moved * 2.0 / (paths.bus * float(row["share"]))
    return CollectiveCost(np.broadcast_to(latency, volume.shape), volume)


def _switched(moved: Array, ring: Communicator, paths: _Paths) -> list[CollectiveCost]:
    """The switch adds up: every byte goes up once and comes down once."""
    if ring.nodes > 1 or ring.size < 3 or not paths.reduces.any():
        return []
    volume = np.where(paths.reduces, moved / (paths.bus * SWITCH_SHARE), np.inf)
    return [CollectiveCost(np.full(volume.shape, SWITCH_BASE), volume)]


def _own(moved: Array, ring: Communicator, paths: _Paths) -> list[CollectiveCost]:
    """Every GPU reads all others' tensors (one barrier), or a part of each and then the sums (two)."""
    n = ring.size
    volumes = [(moved * sent / paths.bus, barriers) for sent, barriers in ((float(n - 1), 1), (2.0 * (n - 1) / n, 2))]
    return [
        CollectiveCost(
            np.full(volume.shape, OWN_BASE + barriers * (n - 1) ** 0.5 * OWN_HOP), np.where(paths.direct, volume, np.inf)
        )
        for volume, barriers in volumes
    ]


def _exchanged(moved: Array, ring: Communicator, paths: _Paths) -> CollectiveCost:
    """Everyone sends every other a part; near and far ones at the same time."""
    row = protocols()[-1]
    n, near = ring.size, min(ring.inside, ring.size)
    volume = moved * (near - 1) / n / paths.inside if near > 1 else np.zeros((len(paths.kinds), moved.shape[1]))
    latency = float(row["base_us"]) * MICRO + paths.hop(row)
    if ring.nodes > 1:
        volume = np.maximum(volume, moved * (n - near) / n / paths.network)
        latency = latency + paths.far(row)
    return CollectiveCost(np.broadcast_to(latency, volume.shape), volume)


def _column(values: Sequence[float]) -> Array:
    return np.asarray(values, dtype=np.float64)[:, None]
