"""Transfer of KV caches from prefill workers to decode workers.

Every replica has a port with the bandwidth of its links or network cards, shared by all its transfers. A transfer queues at the
sender's and at the receiver's port, and arrives when both have passed it on.
"""

from __future__ import annotations

import msgspec

from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Instance
from whichgpu.estimate.group.collective_parameters import collective_parameters
from whichgpu.estimate.group.fabric import Fabric, fabric_of
from whichgpu.estimate.memory.kv import kv_bytes_per_token
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Workload


class Port(msgspec.Struct, frozen=True):
    """Port of one replica: bytes per second out and in, seconds of latency, KV bytes per token over all its GPUs."""

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
    fabric: Fabric | None = None,
) -> Port:
    """Return the port of a replica of `gpus` GPUs: their share of the machine's network, or their links within one machine.

    `fabric` says how the GPUs are linked if that is known.
    """
    fabric = fabric or fabric_of(gpu, instance, workload.interconnect, workload.network_gbps, workload.network)
    simple = collective_parameters()  # NCCL uses its protocol Simple for large messages.
    if same_machine:
        bandwidth, kind = fabric.bus_bandwidth(2), fabric.kind
        hop = simple[f"simple.hop.{fabric.latency_kind(2)}"]
    else:
        bandwidth, kind = fabric.network_bandwidth, fabric.network_kind
        hop = fabric.network_latency + simple["simple.hop.net"]
    size = float(kv_bytes_per_token(shape, workload.kv_precision or "bf16"))
    return Port(bandwidth * gpus, bandwidth * gpus, simple["simple.start"] + hop, size, kind)


class TransferQueues:
    """Ports of all machines, the times at which they become free, and totals of all transfers."""

    def __init__(self, ports: list[Port]) -> None:
        self._ports = ports
        self._out_free, self._in_free = [0.0] * len(ports), [0.0] * len(ports)
        self.bytes = self.seconds = self.waited = 0.0
        self.count = 0

    def send(self, source: int, target: int, tokens: int, now: float) -> float:
        """Send the KV cache of `tokens` tokens and return the time at which it arrives, in seconds."""
        here, there = self._ports[source], self._ports[target]
        size = tokens * here.token_bytes
        leaves = self._out_free[source] = max(now, self._out_free[source]) + size / here.out
        enters = self._in_free[target] = max(now, self._in_free[target]) + size / there.into
        latency = max(here.latency, there.latency)
        end = max(leaves, enters) + latency
        self.count += 1
        self.bytes += size
        self.seconds += end - now
        self.waited += end - now - (size / min(here.out, there.into) + latency)
        return end

    def reset_port(self, machine: int, now: float) -> None:
        """Mark the port of a lost machine as free from `now`, because its transfers are dropped."""
        self._out_free[machine] = self._in_free[machine] = now
