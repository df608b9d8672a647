"""Time of collectives: an alpha-beta model of rings, trees, NVLS and custom all-reduce; the fastest is chosen for each size.

Time is a start-up latency, a latency per hop, and the bytes one GPU sends divided by its bandwidth (Thakur et al. 2005; constants
from NCCL's tuning tables). `size` is in bytes as nccl-tests count them: the whole tensor that is reduced or gathered; for an
all-to-all, the data one GPU holds; for a send, the data sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from whichgpu.estimate.group.fabric import Fabric, protocols

if TYPE_CHECKING:
    from whichgpu.estimate.time.operators import Number

Array = NDArray[np.float64]
CollectiveKind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send", "broadcast"]
MICRO = 1e-6  # seconds per microsecond
# NVLS: 8 H100 all-reduce at 275 GB/s where the links carry 370 in a ring (nccl-tests issue 212); start-up seconds are assumed.
NVLS_BANDWIDTH_SHARE, NVLS_LATENCY = 0.743, 25 * MICRO
# Custom all-reduce kernels read peers' memory: seconds of their start and of one barrier (vLLM, TensorRT-LLM).
CUSTOM_LATENCY, CUSTOM_BARRIER = 4.0 * MICRO, 1.0 * MICRO
MAX_CACHED_PATHS = 256  # entries before the cache is emptied (assumed)


class Communicator(msgspec.Struct, frozen=True):
    """Ranks of a collective: how many, and how many of them share a node."""

    size: int
    per_node: int

    @property
    def nodes(self) -> int:
        """Number of nodes the communicator spans."""
        return ceil(self.size / self.per_node)


class CollectiveCost(msgspec.Struct, frozen=True):
    """Seconds of one collective, [gpus, batches]: a latency, and a transfer time proportional to its bytes."""

    latency: Array
    volume: Array

    @property
    def seconds(self) -> Array:
        """Seconds of latency and transfer together."""
        return self.latency + self.volume


def collective_cost(
    kind: CollectiveKind, size: Number, ranks: Communicator, fabrics: Sequence[Fabric], custom_kernels: bool = False
) -> CollectiveCost:
    """Cost of one collective on each fabric; zero for a single rank."""
    sizes = np.atleast_1d(np.asarray(size, dtype=float))[None, :]
    if ranks.size < 2:
        zeros = np.zeros((len(fabrics), sizes.shape[1]))
        return CollectiveCost(zeros, zeros)
    paths = _cached_paths(ranks, fabrics)
    if kind == "all_to_all":
        return _all_to_all(sizes, ranks, paths)
    costs = [_ring(kind, sizes, ranks, paths, protocol) for protocol in protocols()]
    if kind == "all_reduce":
        costs += [_tree(sizes, ranks, paths, protocol) for protocol in protocols()]
        costs += _nvls(sizes, ranks, paths)
        if custom_kernels and ranks.nodes == 1:
            costs += _custom_all_reduce(sizes, ranks, paths)
    best = costs[0]
    for other in costs[1:]:
        better = other.seconds < best.seconds
        best = CollectiveCost(np.where(better, other.latency, best.latency), np.where(better, other.volume, best.volume))
    return best


class _Paths:
    """Bandwidths and latencies of a communicator on each fabric, as columns [gpus, 1]."""

    def __init__(self, ranks: Communicator, fabrics: Sequence[Fabric]) -> None:
        self.near = min(ranks.per_node, ranks.size)  # ranks in one node
        self._hops: dict[str, Array] = {}
        self.node_bandwidth = _column([fabric.bus_bandwidth(self.near) for fabric in fabrics])
        self.network_bandwidth = _column([fabric.network_bandwidth for fabric in fabrics])
        self.network_latency = _column([fabric.network_latency for fabric in fabrics])
        self.latency_kinds = [fabric.latency_kind(self.near) for fabric in fabrics]
        self.has_nvls = np.array([[fabric.has_nvls] for fabric in fabrics])
        self.fully_connected = np.array([[fabric.fully_connected] for fabric in fabrics])
        self.bus = self.node_bandwidth
        if ranks.nodes > 1:
            self.bus = np.minimum(self.node_bandwidth, self.network_bandwidth * self.near)

    def node_hop(self, protocol: dict[str, str]) -> Array:
        """Return the latency in seconds of a hop between two GPUs of one node."""
        name = protocol["protocol"]
        if name not in self._hops:
            self._hops[name] = _column([float(protocol[f"{kind}_us"]) * MICRO for kind in self.latency_kinds])
        return self._hops[name]

    def network_hop(self, protocol: dict[str, str]) -> Array:
        """Return the latency in seconds of a hop between two nodes: that of the network plus that of the protocol."""
        return self.network_latency + float(protocol["net_us"]) * MICRO


_PATHS: dict[tuple[Communicator, tuple[int, ...]], tuple[Sequence[Fabric], _Paths]] = {}


def _cached_paths(ranks: Communicator, fabrics: Sequence[Fabric]) -> _Paths:
    """Return the bandwidths and latencies on these fabrics, cached by object identity; the cache keeps the objects alive."""
    key = ranks, tuple(map(id, fabrics))
    if key not in _PATHS:
        if len(_PATHS) >= MAX_CACHED_PATHS:
            _PATHS.clear()
        _PATHS[key] = tuple(fabrics), _Paths(ranks, fabrics)
    return _PATHS[key][1]


def _cost(latency: Array, volume: Array) -> CollectiveCost:
    return CollectiveCost(np.broadcast_to(latency, volume.shape), volume)


def _start_up(protocol: dict[str, str]) -> float:
    return float(protocol["base_us"]) * MICRO


def _ring(kind: CollectiveKind, sizes: Array, ranks: Communicator, paths: _Paths, protocol: dict[str, str]) -> CollectiveCost:
    """Return the cost of a ring, in which each GPU passes a part on at every step; an all-reduce goes round twice."""
    rounds, n = 2 if kind == "all_reduce" else 1, ranks.size
    steps = 1 if kind == "send" else rounds * (n - 1)
    far = min(steps, rounds * (ranks.nodes - 1)) if kind != "send" else int(ranks.nodes > 1)
    latency = _start_up(protocol) + (steps - far) * paths.node_hop(protocol) + far * paths.network_hop(protocol)
    sent = 1.0 if kind in ("send", "broadcast") else float(rounds) * (n - 1) / n  # bytes one GPU sends per byte of the tensor
    return _cost(latency, sizes * sent / (paths.bus * float(protocol["share"])))


def _tree(sizes: Array, ranks: Communicator, paths: _Paths, protocol: dict[str, str]) -> CollectiveCost:
    """Return the cost of an all-reduce up and down a tree of nodes, which has fewer hops than a ring over many nodes."""
    depth = ceil(log2(ranks.nodes))
    hops = (paths.near - 1) * paths.node_hop(protocol) + depth * paths.network_hop(protocol)
    return _cost(_start_up(protocol) + 2 * hops, sizes * 2.0 / (paths.bus * float(protocol["share"])))


def _nvls(sizes: Array, ranks: Communicator, paths: _Paths) -> list[CollectiveCost]:
    """Return the cost of an all-reduce in the NVLink switch: every byte goes up once and comes down once."""
    if ranks.nodes > 1 or ranks.size < 3 or not paths.has_nvls.any():
        return []
    volume = np.where(paths.has_nvls, sizes / (paths.bus * NVLS_BANDWIDTH_SHARE), np.inf)
    return [CollectiveCost(np.full(volume.shape, NVLS_LATENCY), volume)]


def _custom_all_reduce(sizes: Array, ranks: Communicator, paths: _Paths) -> list[CollectiveCost]:
    """Return costs of one-shot (every GPU reads all tensors, 1 barrier) and two-shot (reduce-scatter, all-gather, 2 barriers)."""
    n = ranks.size
    volumes = [(sizes * sent / paths.bus, barriers) for sent, barriers in ((float(n - 1), 1), (2.0 * (n - 1) / n, 2))]
    return [
        CollectiveCost(
            np.full(volume.shape, CUSTOM_LATENCY + barriers * (n - 1) ** 0.5 * CUSTOM_BARRIER),
            np.where(paths.fully_connected, volume, np.inf),
        )
        for volume, barriers in volumes
    ]


def _all_to_all(sizes: Array, ranks: Communicator, paths: _Paths) -> CollectiveCost:
    """Return the cost when every GPU sends every other GPU its part, inside the node and over the network at the same time."""
    protocol, n, near = protocols()[-1], ranks.size, paths.near
    volume = sizes * (near - 1) / n / paths.node_bandwidth
    latency = _start_up(protocol) + paths.node_hop(protocol)
    if ranks.nodes > 1:
        volume = np.maximum(volume, sizes * (n - near) / n / paths.network_bandwidth)
        latency = latency + paths.network_hop(protocol)
    return _cost(latency, volume)


def _column(values: Sequence[float]) -> Array:
    return np.asarray(values, dtype=np.float64)[:, None]
