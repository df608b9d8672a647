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
    parameters: Mapping[str, float] | None = None,
) -> CollectiveCost:  # fmt: skip
    """Return the seconds of one dispatch or combine on each fabric: by NCCL's all-to-all, or by DeepEP if that is faster."""
    nccl = collective_cost("all_to_all", exchange.size, ranks, fabrics, parameters=parameters)
    if not has_deepep or ranks.size < 2:
        return nccl
    return fastest([nccl, deepep_cost(exchange, ranks, fabrics, parameters)])


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
