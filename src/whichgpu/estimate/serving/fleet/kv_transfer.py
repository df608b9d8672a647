"""Keys and values on their way from the GPUs that read a prompt to those that write its answer.

Every copy has a port: what its links or network cards send and take a second, shared by all its transfers. A transfer has its
place in the queue of the port it leaves and of the port it reaches, and is there when both have passed it on; so many at once
share a port's bandwidth, and one slow end does not hold up a fast one for others.
"""

from __future__ import annotations

from dataclasses import dataclass

from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Instance
from whichgpu.estimate.group.collectives import MICRO
from whichgpu.estimate.group.fabric import fabric_of, protocols
from whichgpu.estimate.memory.kv import kv_bytes_per_token
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Port:
    """Of one copy: bytes a second one way, seconds before the first arrive, and the bytes a token has in all its GPUs."""

    out: float
    into: float
    latency: float
    token_bytes: float
    kind: str = ""


def port_of(
    workload: Workload,
    shape: Transformer,
    gpu: Gpu,
    gpus: int,
    instance: Instance | None = None,
    same_machine: bool = False,
) -> Port:
    """The port of a copy on so many GPUs: their shares of the machine's network, or their links to others of the same machine."""
    fabric = fabric_of(gpu, instance, workload.interconnect, workload.network_gbps, workload.network)
    simple = protocols()[-1]  # large messages
    each = fabric.inside(2) if same_machine else fabric.network
    hop = (
        float(simple[f"{fabric.hop_kind(2)}_us"]) * MICRO
        if same_machine
        else fabric.network_hop + float(simple["net_us"]) * MICRO
    )
    size = float(kv_bytes_per_token(shape, workload.kv_precision or "bf16"))
    kind = fabric.kind if same_machine else fabric.network_kind
    return Port(each * gpus, each * gpus, float(simple["base_us"]) * MICRO + hop, size, kind)


class TransferQueues:
    """The ports of all copies at work, and what went through them."""

    __slots__ = ("_into", "_out", "_ports", "bytes", "seconds", "sent", "waited")

    def __init__(self, ports: list[Port]) -> None:
        self._ports = ports
        self._out, self._into = [0.0] * len(ports), [0.0] * len(ports)
        self.bytes = self.seconds = self.waited = 0.0
        self.sent = 0

    def send(self, source: int, target: int, tokens: int, now: float) -> float:
        """When the keys and values of so many tokens will be there."""
        here, there = self._ports[source], self._ports[target]
        size = tokens * here.token_bytes
        leaves = self._out[source] = max(now, self._out[source]) + size / here.out
        enters = self._into[target] = max(now, self._into[target]) + size / there.into
        latency = max(here.latency, there.latency)
        end = max(leaves, enters) + latency
        self.sent += 1
        self.bytes += size
        self.seconds += end - now
        self.waited += end - now - (size / min(here.out, there.into) + latency)
        return end

    def cut(self, machine: int, now: float) -> None:
        """A machine has gone, and what its port had to do with it."""
        self._out[machine] = self._into[machine] = now
