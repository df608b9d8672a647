"""Time of collectives: an alpha-beta model of rings, trees, NVLS and custom all-reduce; the fastest is chosen for each size.

Time is a start-up latency, a latency per hop, and the bytes one GPU sends divided by its bandwidth (Thakur et al. 2005; constants
in `data/parameters.csv`). `size` is in bytes as nccl-tests count them: the whole tensor that is reduced or gathered; for an
all-to-all, the data one GPU holds; for a send, the data sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, log2
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from whichgpu.estimate.group.collective_parameters import PROTOCOLS, collective_parameters
from whichgpu.estimate.group.fabric import Fabric

if TYPE_CHECKING:
    from whichgpu.estimate.time.operators import Number

Array = NDArray[np.float64]
CollectiveKind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send", "broadcast"]
DEFAULT_CUSTOM_KERNEL = "vllm"  # engine whose measured custom all-reduce is assumed for engines without measurements
MIN_NVLS_RANKS = 5  # fewest ranks for which NVLS is considered; with four it equals a ring (measured on H100 to GB200)
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
    kind: CollectiveKind, size: Number, ranks: Communicator, fabrics: Sequence[Fabric], custom_kernels: str = "",
    parameters: Mapping[str, float] | None = None, *, custom_on_mesh: bool = True,
) -> CollectiveCost:  # fmt: skip
    """Return the seconds of a collective on each fabric, 0 for one rank.

    `custom_kernels` is the engine whose own all-reduce runs; without `custom_on_mesh` only over NVLink and PCIe.
    """
    sizes = np.atleast_1d(np.asarray(size, dtype=float))[None, :]
    if ranks.size < 2:
        zeros = np.zeros((len(fabrics), sizes.shape[1]))
        return CollectiveCost(zeros, zeros)
    paths = Paths(ranks, fabrics, parameters) if parameters else cached_paths(ranks, fabrics)
    if kind == "all_to_all":
        return fastest([_all_to_all(sizes, ranks, paths, protocol) for protocol in ("ll", "simple")])
    costs = [_ring(kind, sizes, ranks, paths, protocol) for protocol in PROTOCOLS]
    if kind == "all_reduce":
        if ranks.nodes > 1:  # In one node a tree has the hops of a ring and sends more.
            costs += [_tree(sizes, ranks, paths, protocol) for protocol in PROTOCOLS]
        costs += _nvls(sizes, ranks, paths)
        if custom_kernels and ranks.nodes == 1:
            costs += _custom_all_reduce(sizes, ranks, paths, custom_kernels, custom_on_mesh)
    return fastest(costs)


def fastest(costs: Sequence[CollectiveCost]) -> CollectiveCost:
    """Return the cost of the fastest of several algorithms, for each fabric and size."""
    best = costs[0]
    for other in costs[1:]:
        better = other.seconds < best.seconds
        best = CollectiveCost(np.where(better, other.latency, best.latency), np.where(better, other.volume, best.volume))
    return best


class Paths:
    """Bandwidths and latencies between the ranks of a collective on each fabric (links of one GPU kind), as columns [gpus, 1]."""

    def __init__(self, ranks: Communicator, fabrics: Sequence[Fabric], parameters: Mapping[str, float]) -> None:
        self.near = min(ranks.per_node, ranks.size)  # ranks in one node
        self.parameters = parameters
        self._hops: dict[str, Array] = {}
        self.latency_kinds = [fabric.latency_kind(self.near) for fabric in fabrics]
        shares = [parameters["pcie.share"] if kind == "pcie" else 1.0 for kind in self.latency_kinds]
        self.node_bandwidth = _column(
            [fabric.bus_bandwidth(self.near, share) for fabric, share in zip(fabrics, shares, strict=True)]
        )
        self.network_bandwidth = _column([fabric.network_bandwidth for fabric in fabrics])
        self.network_latency = _column([fabric.network_latency for fabric in fabrics])
        self.classes = [fabric.latency_class(self.near) for fabric in fabrics]
        # A rank copies its own part to its output. NVLink is not much slower than that; PCIe and host memory are by far.
        shares = [parameters["own_copy.share"] if kind == "nvlink" else np.inf for kind in self.latency_kinds]
        self.own_copy = self.node_bandwidth * _column(shares)  # bytes per second
        self.start = self._ratios("start")
        self.hop = self._ratios("hop")
        self.direct = self._ratios("direct")
        self.nvls = self._ratios("nvls")
        self.has_nvls = np.array([[fabric.has_nvls] for fabric in fabrics])
        self.peer_access = np.array([[fabric.peer_access(self.near)] for fabric in fabrics])
        self.is_mesh = np.array([[fabric.kind == "mesh"] for fabric in fabrics])
        self.nodes = ranks.nodes

    def bandwidth(self, protocol: str) -> Array:
        """Return the bytes per second of a ring or tree under a protocol of NCCL: ll, ll128 or simple.

        Network bandwidths are those that Simple achieves.
        """
        share = self.parameters[f"{protocol}.share"]
        near: Array = self.node_bandwidth * share
        if self.nodes == 1:
            return near
        return np.minimum(near, self.network_bandwidth * (self.near * min(1.0, share / self.parameters["simple.share"])))

    def _ratios(self, name: str) -> Array:
        """Return each fabric's multiplier of the parameter `name` (e.g. hop) for its link generation; 1 if none is listed."""
        return _column([self.parameters.get(f"{name}.{one}", 1.0) for one in self.classes])

    def node_hop(self, protocol: str) -> Array:
        """Return the latency in seconds of a hop between two GPUs of one node."""
        if protocol not in self._hops:
            hops = [self.parameters[f"{protocol}.hop.{kind}"] for kind in self.latency_kinds]
            self._hops[protocol] = _column(hops) * self.hop
        return self._hops[protocol]

    def network_hop(self, protocol: str) -> Array:
        """Return the latency in seconds of a hop between two nodes: that of the network plus that of the protocol."""
        return self.network_latency + self.parameters[f"{protocol}.hop.net"]

    def start_up(self, name: str) -> Array:
        """Return the start-up latency in seconds of an algorithm or protocol of NCCL, such as nvls or simple."""
        return self.parameters[f"{name}.start"] * self.start


_PATHS: dict[tuple[Communicator, tuple[int, ...]], tuple[Sequence[Fabric], Paths]] = {}


def cached_paths(ranks: Communicator, fabrics: Sequence[Fabric]) -> Paths:
    """Return the bandwidths and latencies of `ranks` on these fabrics, cached by identity of the fabrics, which stay alive."""
    key = ranks, tuple(map(id, fabrics))
    if key not in _PATHS:
        if len(_PATHS) >= MAX_CACHED_PATHS:
            _PATHS.clear()
        _PATHS[key] = tuple(fabrics), Paths(ranks, fabrics, collective_parameters())
    return _PATHS[key][1]


def _cost(latency: Array, volume: Array) -> CollectiveCost:
    return CollectiveCost(latency if latency.shape == volume.shape else np.broadcast_to(latency, volume.shape), volume)


def _ring(kind: CollectiveKind, sizes: Array, ranks: Communicator, paths: Paths, protocol: str) -> CollectiveCost:
    """Return the cost of a collective run as a ring: each GPU passes a part on at every step; an all-reduce goes round twice."""
    rounds, n = 2 if kind == "all_reduce" else 1, ranks.size
    steps = 1 if kind == "send" else rounds * (n - 1)
    far = min(steps, rounds * (ranks.nodes - 1)) if kind != "send" else int(ranks.nodes > 1)
    latency = paths.start_up(protocol) + (steps - far) * paths.node_hop(protocol) + far * paths.network_hop(protocol)
    sent = 1.0 if kind in ("send", "broadcast") else float(rounds) * (n - 1) / n  # bytes one GPU sends per byte of the tensor
    volume = sizes * sent / paths.bandwidth(protocol)
    if kind not in ("send", "broadcast"):
        volume = volume + sizes / n / paths.own_copy
    return _cost(latency, volume)


def _tree(sizes: Array, ranks: Communicator, paths: Paths, protocol: str) -> CollectiveCost:
    """Return the cost of an all-reduce up and down a tree of nodes, which has fewer hops than a ring over many nodes."""
    depth = ceil(log2(ranks.nodes))
    hops = (paths.near - 1) * paths.node_hop(protocol) + depth * paths.network_hop(protocol)
    return _cost(paths.start_up(protocol) + 2 * hops, sizes * 2.0 / paths.bandwidth(protocol))


def _nvls(sizes: Array, ranks: Communicator, paths: Paths) -> list[CollectiveCost]:
    """Return the cost of an all-reduce inside the NVLink switch, which each byte enters and leaves once; empty if unavailable."""
    if ranks.nodes > 1 or ranks.size < MIN_NVLS_RANKS or not paths.has_nvls.any():
        return []
    bandwidth = paths.node_bandwidth * paths.nvls * paths.parameters["nvls.share"]
    volume = np.where(paths.has_nvls, sizes / bandwidth, np.inf)
    return [_cost(paths.start_up("nvls"), volume)]


def _custom_all_reduce(sizes: Array, ranks: Communicator, paths: Paths, engine: str, on_mesh: bool) -> list[CollectiveCost]:
    """Return costs of an engine's own all-reduce: one-shot (a GPU reads all tensors), two-shot (reduce-scatter, all-gather)."""
    n, p = ranks.size, paths.parameters
    usable = paths.peer_access & (on_mesh | ~paths.is_mesh) & (sizes <= p["custom.max_bytes"])
    start = p.get(f"custom.start.{engine}", p[f"custom.start.{DEFAULT_CUSTOM_KERNEL}"])
    barrier = (n - 1) ** 0.5 * p["custom.barrier"]
    return [
        _cost(
            (start + barriers * barrier) * paths.direct,
            np.where(usable, sizes * sent / (paths.node_bandwidth * p[f"custom.{name}.share"]), np.inf),
        )
        for name, sent, barriers in (("one_shot", float(n - 1), 1), ("two_shot", 2.0 * (n - 1) / n, 2))
    ]


def _all_to_all(sizes: Array, ranks: Communicator, paths: Paths, protocol: str) -> CollectiveCost:
    """Return the cost of an all-to-all: every GPU sends every other GPU its part, in the node and over the network at once."""
    n, near, p = ranks.size, paths.near, paths.parameters
    volume = np.maximum(
        sizes * (near - 1) / n / (paths.node_bandwidth * p[f"p2p.{protocol}.share"]), sizes * near / n / p["p2p.copy"]
    )
    latency = paths.start_up(f"p2p.{protocol}") + (n - 1) * p["p2p.peer"]
    if ranks.nodes > 1:
        share = min(1.0, p[f"p2p.{protocol}.share"] / p["p2p.simple.share"])  # Network bandwidths are those of Simple.
        volume = np.maximum(volume, sizes * (n - near) / n / (paths.network_bandwidth * share))
        latency = latency + paths.network_hop(protocol)
    return _cost(latency, volume)


def _column(values: Sequence[float]) -> Array:
    return np.asarray(values, dtype=np.float64)[:, None]
