"""Links between the GPUs of a group: their kind and topology inside a node, and the network between nodes.

Bandwidths are bytes per second of one GPU in one direction, as a large collective achieves them (bus bandwidth of nccl-tests).
The achieved shares of nominal bandwidth and the latencies per hop are data with sources (`data/*.csv`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from whichgpu.base.bundled_data import data_rows
from whichgpu.catalog.architecture import architecture_of
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Instance

DATA_DIR = Path(__file__).parent / "data"
# Bytes per second, one way, that a collective achieves between the two sockets of a server (NCCL's table: Intel 10e9 with PCIe
# of generation 3, 22e9 with generation 5, AMD 16e9).
SOCKET_BANDWIDTH, SOCKET_BANDWIDTH_PCIE5 = 13e9, 22e9
GPUS_PER_SOCKET = 4  # PCIe GPUs attached to one CPU socket (assumed)
NVSWITCH_VOLTA_IDS = ("v100-sxm3-32gb",)  # DGX-2; other Volta SXM modules sit in a cube mesh
CUBE_MESH_LINK_SHARE = {2: 1 / 3, 3: 2 / 3, 4: 2 / 3}  # by ranks: share of a GPU's six links that lead to them (DGX-1)
RACK_DOMAIN_GPUS = 72  # GPUs of one NVLink domain of GB200 and GB300 (NVIDIA)
NODE_DOMAIN_GPUS = 16  # GPUs of the largest NVLink domain without a rack switch (DGX-2)
# Chips within reach of the links of accelerators that form a torus: a pod of TPUs (Google's documentation of each version), the
# largest machine or UltraServer with Inferentia or Trainium (AWS).
TORUS_DOMAIN_GPUS = {
    "tpu-v2": 256, "tpu-v3": 1024, "tpu-v4": 4096, "tpu-v5e": 256, "tpu-v5p": 8960, "tpu-v6e": 256, "tpu-v7": 9216,
    "inferentia1": 16, "inferentia2": 12, "trainium1": 16, "trainium2": 64, "trainium3": 144,
}  # fmt: skip
TORUS_LINKS = ("ici", "neuronlink")
PCIE3_X16_BANDWIDTH = 15.75e9  # bytes per second, one way; assumed for a card whose PCIe generation is unknown
NO_PEER_QUIRK = "geforce-no-p2p"
PCIE_KINDS = ("pcie", "pcie-host")
TOPOLOGY_KINDS = {"cube-mesh": "cube-mesh", "ring": "cube-mesh", "pairs": "pairs"}


class Fabric(msgspec.Struct, frozen=True):
    """Links of one GPU to the others of its node, and its share of the network; bandwidths in bytes/s, one way."""

    kind: str  # nvswitch, cube-mesh, mesh, torus, pairs, pcie, pcie-host
    link_bandwidth: float  # bytes per second of all the GPU's links together
    pcie_bandwidth: float
    link_latency_kind: str  # kind of hop whose latency `parameters.csv` has: nvlink, pcie, host, net
    pcie_latency_kind: str
    has_nvls: bool  # the switch reduces in flight (NVLink SHARP)
    network_kind: str
    network_bandwidth: float
    network_latency: float  # seconds per hop
    board_gpus: int = 8  # in a mesh, the GPUs that share a GPU's links
    domain_gpus: int = 8  # GPUs within reach of the links
    name: str = ""  # key of the fabric's fitted corrections, such as nvswitch-4 or pcie-4
    link_generation: str = ""  # kind and generation of the links, such as nvlink-4
    socket_bandwidth: float = SOCKET_BANDWIDTH

    def bus_bandwidth(self, ranks: int, pcie_share: float = 1.0) -> float:
        """Return the bus bandwidth of a collective among `ranks` GPUs of a node in bytes per second; infinite for one rank.

        `pcie_share` is the share of the PCIe bandwidth that the collective achieves.
        """
        if ranks < 2:
            return float("inf")
        if self.kind == "cube-mesh":
            share = CUBE_MESH_LINK_SHARE.get(ranks, 1.0) / CUBE_MESH_LINK_SHARE.get(self.board_gpus, 1.0)
            return self.link_bandwidth * min(1.0, share)
        if self.kind == "mesh":
            return self.link_bandwidth * min(1.0, (ranks - 1) / max(1, self.board_gpus - 1))
        if self.kind in ("nvswitch", "torus") or (self.kind == "pairs" and ranks == 2):
            return self.link_bandwidth
        achieved = self.pcie_bandwidth * pcie_share
        return achieved if ranks <= GPUS_PER_SOCKET else min(achieved, self.socket_bandwidth)

    def latency_kind(self, ranks: int) -> str:
        """Return the kind of hop (nvlink, pcie, …) whose latency holds for `ranks` GPUs; bridged pairs use PCIe beyond two."""
        return self.pcie_latency_kind if self.kind == "pairs" and ranks > 2 else self.link_latency_kind

    def latency_class(self, ranks: int) -> str:
        """Return the kind and generation of the links among `ranks` GPUs of a node, by which latencies differ."""
        kind = self.latency_kind(ranks)
        return kind if kind in ("pcie", "host") else self.link_generation

    def peer_access(self, ranks: int) -> bool:
        """Whether all of `ranks` GPUs read the others' memory directly, as custom all-reduce needs; PCIe cards only in pairs."""
        return self.kind in ("nvswitch", "mesh") or (ranks == 2 and self.kind != "pcie-host")


def fabric_of(gpu: Gpu, instance: Instance | None = None, interconnect: str | None = None, network_gbps: float | None = None,
              network_kind: str | None = None) -> Fabric:  # fmt: skip
    """Return a GPU's links and network: those requested, else those of the instance, else those usual for such GPUs."""
    stated = instance.interconnect if instance else None
    kind = interconnect or (_instance_kind(instance) if instance and stated else None) or _default_kind(gpu)
    if not (gpu.link and gpu.link.bandwidth) and kind not in PCIE_KINDS:
        kind = "pcie"
    pcie_kind = "pcie-host" if NO_PEER_QUIRK in gpu.quirk_ids else "pcie"
    kind = pcie_kind if kind == "pcie" else kind
    pcie = _pcie_bandwidth(gpu, pcie_kind)
    link, generation, row = pcie, str(int(gpu.pcie.generation)) if gpu.pcie else "3", _link_row(pcie_kind)
    if kind not in PCIE_KINDS and gpu.link:
        generation = (gpu.link.generation or "").removesuffix(".0")
        row = _link_row(gpu.link.kind, generation)
        nominal = float(stated.bandwidth if stated and stated.bandwidth and not interconnect else gpu.link.bandwidth or 0)
        link = nominal / 2 * float(row["share"])
    elif interconnect == "pcie-host":
        link = pcie = _pcie_bandwidth(gpu, "pcie-host")
    net_kind, net_bandwidth, net_latency = _network(gpu, instance, network_gbps, network_kind)
    return Fabric(
        kind=kind,
        link_bandwidth=link,
        pcie_bandwidth=pcie,
        link_latency_kind=row["hop"],
        pcie_latency_kind=_link_row(pcie_kind)["hop"],
        has_nvls=kind == "nvswitch" and "multimem" in architecture_of(gpu).instructions,
        network_kind=net_kind,
        network_bandwidth=net_bandwidth,
        network_latency=net_latency,
        board_gpus=int(instance.gpus) if instance and instance.gpus >= 2 else 8,
        domain_gpus=_domain_gpus(gpu, kind),
        name=f"{kind}-{generation}" if generation else kind,
        link_generation=f"{row['kind']}-{generation}" if row["generation"] else row["kind"],
        socket_bandwidth=SOCKET_BANDWIDTH_PCIE5 if gpu.pcie and gpu.pcie.generation >= 5 else SOCKET_BANDWIDTH,
    )


def _domain_gpus(gpu: Gpu, kind: str) -> int:
    """Return the GPUs within reach of a GPU's links: a pod of TPUs, a rack with an NVLink switch, or a node."""
    if kind == "torus":
        return TORUS_DOMAIN_GPUS.get(gpu.id, NODE_DOMAIN_GPUS)
    return RACK_DOMAIN_GPUS if gpu.form_factor == "superchip" and kind == "nvswitch" else NODE_DOMAIN_GPUS


def _instance_kind(instance: Instance) -> str | None:
    """Return the fabric kind of an instance from its interconnect and topology; None if the instance states none."""
    kind = instance.interconnect.kind if instance.interconnect else ""
    if kind in ("none", ""):
        return None
    if kind in ("pcie", "nvswitch"):
        return kind
    if kind in TORUS_LINKS:
        return "torus"
    if kind == "nvlink" and instance.topology != "pairs":  # SXM modules without a switch form a cube mesh or half of one.
        return "cube-mesh"
    return TOPOLOGY_KINDS.get(instance.topology or "", "mesh")


def _default_kind(gpu: Gpu) -> str:
    """Return the usual fabric kind of a GPU; NVLink bridges are sold separately, so cards are assumed to use PCIe."""
    if not gpu.link or gpu.form_factor in ("pcie", "mxm"):
        return "pcie"
    if gpu.link.kind == "nvlink":
        return "nvswitch" if gpu.id in NVSWITCH_VOLTA_IDS else architecture_of(gpu).sxm_topology
    return "torus" if gpu.link.kind in TORUS_LINKS else "mesh"


def _network(gpu: Gpu, instance: Instance | None, gbps: float | None, kind: str | None) -> tuple[str, float, float]:
    """Return the kind of network, one GPU's bytes per second in one direction, and seconds per hop."""
    default = _default_network(gpu)
    kind = kind or (instance.network_kind if instance and instance.network_kind else None) or default["kind"]
    row = networks()[kind if kind in networks() else "ethernet"]
    if gbps is None and instance and instance.network_gbps and instance.gpus >= 1:
        gbps = float(instance.network_gbps) / float(instance.gpus)
    rate = float(default["gbps_per_gpu"]) if gbps is None else gbps
    return kind, rate * 1e9 / 8 * float(row["share"]), float(row["hop_us"]) * 1e-6


def _default_network(gpu: Gpu) -> Mapping[str, str]:
    rows = _table("default_networks")
    fitting = (row for row in rows if row["form_factor"] == gpu.form_factor and row["architecture"] in ("", gpu.architecture))
    return next(fitting, rows[-1])


def _pcie_bandwidth(gpu: Gpu, kind: str) -> float:
    """Return the bytes per second, one way, that a collective achieves over PCIe."""
    nominal = float(gpu.pcie.bandwidth) / 2 if gpu.pcie and gpu.pcie.bandwidth else PCIE3_X16_BANDWIDTH
    return nominal * float(_link_row(kind)["share"])


def _link_row(kind: str, generation: str = "") -> Mapping[str, str]:
    rows = [row for row in _table("links") if row["kind"] == kind]
    return next((row for row in rows if row["generation"] in ("", generation)), rows[-1] if rows else _table("links")[0])


@cache
def networks() -> Mapping[str, Mapping[str, str]]:
    """Return bandwidth shares and latencies by kind of network (infiniband, ethernet, …): the rows of `networks.csv`."""
    return {row["kind"]: row for row in _table("networks")}


@cache
def _table(name: str) -> tuple[dict[str, str], ...]:
    return data_rows(DATA_DIR / f"{name}.csv")
