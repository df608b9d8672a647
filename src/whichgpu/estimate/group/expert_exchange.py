"""Time in which data-parallel ranks dispatch tokens to their experts and combine the results: DeepEP's kernels or NCCL.

DeepEP's low-latency kernels (github.com/deepseek-ai/DeepEP) write every token straight into the memory of the ranks that hold its
experts: FP8 with scales for dispatch, 16 bits for combine. Constants are in `data/parameters.csv`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from whichgpu.estimate.group.collectives import (
    Array,
    CollectiveCost,
    Communicator,
    Paths,
    cached_paths,
    collective_cost,
    fastest,
)
from whichgpu.estimate.group.fabric import Fabric

if TYPE_CHECKING:
    from whichgpu.estimate.time.operators import Number

ExchangeKind = Literal["dispatch", "combine"]
MAX_BLOCKS = 128  # most thread blocks of a dispatch: about one per SM, of which GPUs have 132 to 152
FP8_BYTES = 1.0 + 4.0 / 128.0  # bytes per element sent in FP8: an fp32 scale belongs to 128 elements


class ExpertExchange(msgspec.Struct, frozen=True):
    """Dispatch of `tokens` tokens per rank to MoE experts, each to `topk` of `experts`, or the combine of their results."""

    kind: ExchangeKind
    tokens: Number
    hidden: float
    topk: float
    experts: float
    element_bytes: float

    @property
    def size(self) -> Number:
        """Bytes that one rank sends or receives, tokens for its own experts included."""
        return self.tokens * (self.topk * self.hidden * self.element_bytes)


def exchange_cost(
    exchange: ExpertExchange, ranks: Communicator, fabrics: Sequence[Fabric], has_deepep: bool,
    parameters: Mapping[str, float] | None = None, once_per_node: bool = False,
) -> CollectiveCost:  # fmt: skip
    """Return the seconds of one dispatch or combine on each fabric: by NCCL's all-to-all, or by faster kernels of the engine.

    These are DeepEP's for few tokens (`has_deepep`) and, for many, kernels that send a token to each node once.
    """
    costs = [collective_cost("all_to_all", exchange.size, ranks, fabrics, parameters=parameters)]
    if ranks.size > 1 and has_deepep:
        costs.append(deepep_cost(exchange, ranks, fabrics, parameters))
    if ranks.size > 1 and once_per_node:
        costs.append(once_per_node_cost(exchange, ranks, fabrics, parameters))
    return fastest(costs)


def once_per_node_cost(
    exchange: ExpertExchange, ranks: Communicator, fabrics: Sequence[Fabric], parameters: Mapping[str, float] | None = None
) -> CollectiveCost:
    """Return the seconds of one dispatch or combine if a token crosses the network once per node that holds one of its experts.

    There it goes on over NVLink, once to each GPU with one of its experts (DeepEP's normal kernels, NVIDIA's HybridEP).
    """
    paths = Paths(ranks, fabrics, parameters) if parameters else cached_paths(ranks, fabrics)
    p, near = paths.parameters, paths.near
    token = np.atleast_1d(np.asarray(exchange.tokens * (exchange.hidden * exchange.element_bytes), dtype=float))[None, :]
    nodes, gpus = (distinct_holders(exchange.topk, holders) for holders in (ranks.nodes, ranks.size))
    volume: Array = token * gpus * ((near - 1) / near) / (paths.node_bandwidth * p["p2p.simple.share"])
    latency = paths.start_up("p2p.simple") + (ranks.size - 1) * p["p2p.peer"]
    if ranks.nodes > 1:
        volume = np.maximum(volume, token * nodes * ((ranks.nodes - 1) / ranks.nodes) / paths.network_bandwidth)
        latency = latency + paths.network_hop("simple")
    reachable = paths.peer_access if near > 1 else np.ones_like(paths.peer_access)
    return CollectiveCost(np.broadcast_to(latency, volume.shape), np.where(reachable, volume, np.inf))


def distinct_holders(choices: float, holders: int) -> float:
    """Return how many of equal holders (GPUs or nodes) a token's experts are on, on average, if it chooses at random.

    >>> round(distinct_holders(8.0, 4), 2)
    3.6
    """
    return float(holders * (1.0 - (1.0 - 1.0 / holders) ** choices))


def deepep_cost(
    exchange: ExpertExchange, ranks: Communicator, fabrics: Sequence[Fabric], parameters: Mapping[str, float] | None = None
) -> CollectiveCost:
    """Return the seconds of one dispatch or combine by DeepEP; infinite if GPUs cannot write into each other's memory."""
    paths = Paths(ranks, fabrics, parameters) if parameters else cached_paths(ranks, fabrics)
    p, n, near = paths.parameters, ranks.size, paths.near
    tokens, size = (np.atleast_1d(np.asarray(one, dtype=float))[None, :] for one in (exchange.tokens, exchange.size))
    volume: Array = size * (near - 1) / n / (paths.node_bandwidth * p[f"deepep.{exchange.kind}.share"])
    latency = (p[f"deepep.{exchange.kind}.start"] + exchange.experts * p["deepep.expert"]) * paths.direct
    if ranks.nodes > 1:
        volume = np.maximum(volume, size * (n - near) / n / paths.network_bandwidth)
        latency = latency + paths.network_latency
    if exchange.kind == "dispatch":  # Each thread block converts and sends its tokens one after another.
        volume = volume + tokens / min(exchange.experts, MAX_BLOCKS) * p["deepep.token"]
    reachable = paths.peer_access if near > 1 else np.ones_like(paths.peer_access)
    return CollectiveCost(np.broadcast_to(latency, volume.shape), np.where(reachable, volume, np.inf))
