"""How the GPUs of a group reach one another: links inside a node by kind and topology, and the network between nodes.

Bandwidths are what a large collective reaches (nccl-tests' bus bandwidth), one GPU's, one way; the shares of the nominal ones and
the times a hop takes are data with sources (`data/*.csv`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from whichgpu.base.bundled_data import data_rows
from whichgpu.catalog.architecture import architecture_of
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Instance

DATA_DIR = Path(__file__).parent / "data"
# Bytes a second between the two sockets of a server, one way, as a collective sees them (NCCL's own table; Intel 10, AMD 16).
BETWEEN_SOCKETS = 13e9
A_SOCKET = 4  # GPUs on PCIe that hang from one socket
SWITCHED_SXM = ("v100-sxm3-32gb",)  # DGX-2; other modules of its architecture sit in a cube mesh
CUBE_MESH = {2: 1 / 3, 3: 2 / 3, 4: 2 / 3}  # share of a GPU's six links that reach so many GPUs of a DGX-1
WHOLE_RACK = 72  # GPUs of one NVLink domain of GB200 and GB300
NO_PEERS = "geforce-no-p2p"


@dataclass(frozen=True, slots=True)
class Fabric:
    """Links of one GPU to the others of its node, and its share of the network.

    `link` is the whole one-way bandwidth of its links, `pcie` what it has beside them; `network` is a GPU's share, one way.
    """

    kind: str  # nvswitch, cube-mesh, mesh, pairs, pcie, pcie-host
    link: float
    pcie: float
    hop: str  # whose latencies hold: nvlink, pcie, host, net
    pcie_hop: str
    reduces: bool  # the switch adds up what passes (NVLink SHARP)
    network_kind: str
    network: float
    network_hop: float  # seconds
    board: int = 8  # GPUs that stand together: of a mesh, those a GPU's links are spread over
    domain: int = 8  # GPUs within which the links reach
    name: str = ""  # key of its corrections: nvswitch-4, pcie-4

    def inside(self, members: int) -> float:
        """Bus bandwidth among so many GPUs of a node."""
        if members < 2:
            return float("inf")
        if self.kind == "cube-mesh":
            return self.link * min(1.0, CUBE_MESH.get(members, 1.0) / CUBE_MESH.get(self.board, 1.0))
        if self.kind == "mesh":
            return self.link * min(1.0, (members - 1) / max(1, self.board - 1))
        if self.kind == "pairs":
            return self.link if members == 2 else self._host(members)
        return self.link if self.kind == "nvswitch" else self._host(members)

    def hop_kind(self, members: int) -> str:
        """Whose latencies hold among so many."""
        return self.pcie_hop if self.kind == "pairs" and members > 2 else self.hop

    @property
    def direct(self) -> bool:
        """Whether a small message may go to all others at once."""
        return self.kind in ("nvswitch", "mesh")

    def _host(self, members: int) -> float:
        return self.pcie if members <= A_SOCKET else min(self.pcie, BETWEEN_SOCKETS)


def fabric_of(gpu: Gpu, instance: Instance | None = None, interconnect: str | None = None, network_gbps: float | None = None,
              network_kind: str | None = None) -> Fabric:  # fmt: skip
    """The links of a GPU: as asked for, as its machine has them, or as such GPUs are usually sold."""
    stated = instance.interconnect if instance else None
    kind = interconnect or (_topology(instance) if instance and stated else None) or _usual(gpu)
    if kind not in ("pcie", "pcie-host") and not (gpu.link and gpu.link.bandwidth):
        kind = "pcie"
    pcie_kind = "pcie-host" if NO_PEERS in gpu.quirk_ids else "pcie"
    kind = pcie_kind if kind == "pcie" else kind
    pcie = _pcie(gpu, pcie_kind)
    link, generation, row = pcie, _pcie_generation(gpu), _link_row(pcie_kind, "")
    if kind not in ("pcie", "pcie-host") and gpu.link:
        generation = _generation(gpu.link.generation)
        row = _link_row(gpu.link.kind, generation)
        nominal = float(stated.bandwidth if stated and stated.bandwidth and not interconnect else gpu.link.bandwidth or 0)
        link = nominal / 2 * float(row["share"])
    elif interconnect == "pcie-host":
        link = pcie = _pcie(gpu, "pcie-host")
    net_kind, net, hop = _network(gpu, instance, network_gbps, network_kind)
    return Fabric(
        kind=kind,
        link=link,
        pcie=pcie,
        hop=row["hop"],
        pcie_hop=_link_row(pcie_kind, "")["hop"],
        reduces=kind == "nvswitch" and "multimem" in architecture_of(gpu).instructions,
        network_kind=net_kind,
        network=net,
        network_hop=hop,
        board=int(instance.gpus) if instance and instance.gpus >= 2 else 8,
        domain=WHOLE_RACK if gpu.form_factor == "superchip" and kind == "nvswitch" else 16,
        name=f"{kind}-{generation}" if generation else kind,
    )


def _topology(instance: Instance) -> str | None:
    """Our kind for a machine's interconnect and topology."""
    kind = instance.interconnect.kind if instance.interconnect else ""
    if kind in ("none", ""):
        return None
    if kind == "pcie":
        return "pcie"
    if kind == "nvswitch":
        return "nvswitch"
    if kind == "nvlink" and instance.topology != "pairs":  # modules without a switch, part of such a mesh where there are four
        return "cube-mesh"
    return {"cube-mesh": "cube-mesh", "ring": "cube-mesh", "pairs": "pairs", "all-to-all": "mesh"}.get(
        instance.topology or "", "mesh"
    )


def _usual(gpu: Gpu) -> str:
    """How such GPUs usually stand beside one another, where nothing is said: bridges are extra, so cards talk over PCIe."""
    if not gpu.link or gpu.form_factor in ("pcie", "mxm"):
        return "pcie"
    if gpu.link.kind == "nvlink":
        return "nvswitch" if gpu.id in SWITCHED_SXM else architecture_of(gpu).sxm_topology
    return "mesh"


def _network(gpu: Gpu, instance: Instance | None, gbps: float | None, kind: str | None) -> tuple[str, float, float]:
    """Kind, a GPU's share of bytes a second one way, and seconds a hop."""
    usual = _usual_network(gpu)
    machine = float(instance.network_gbps) if instance and instance.network_gbps else None
    shared = machine / float(instance.gpus) if instance and machine and instance.gpus >= 1 else None
    kind = kind or (instance.network_kind if instance and instance.network_kind else None) or usual["kind"]
    row = networks()[kind if kind in networks() else "ethernet"]
    rate = gbps if gbps is not None else shared if shared is not None else float(usual["gbps_per_gpu"])
    return kind, rate * 1e9 / 8 * float(row["share"]), float(row["hop_us"]) * 1e-6


def _usual_network(gpu: Gpu) -> Mapping[str, str]:
    rows = _table("default_networks")
    fitting = [row for row in rows if row["form_factor"] == gpu.form_factor and row["architecture"] in ("", gpu.architecture)]
    return fitting[0] if fitting else rows[-1]


def _pcie(gpu: Gpu, kind: str) -> float:
    """One way; a card of unknown generation is taken to have the third with 16 lanes."""
    nominal = float(gpu.pcie.bandwidth) / 2 if gpu.pcie and gpu.pcie.bandwidth else 15.75e9
    return nominal * float(_link_row(kind, "")["share"])


def _pcie_generation(gpu: Gpu) -> str:
    return str(int(gpu.pcie.generation)) if gpu.pcie else "3"


def _generation(text: str | None) -> str:
    return (text or "").removesuffix(".0")


def _link_row(kind: str, generation: str) -> Mapping[str, str]:
    rows = [row for row in _table("links") if row["kind"] == kind]
    return next((row for row in rows if row["generation"] in ("", generation)), rows[-1] if rows else _table("links")[0])


@cache
def networks() -> Mapping[str, Mapping[str, str]]:
    """Networks by kind."""
    return {row["kind"]: row for row in _table("networks")}


@cache
def _table(name: str) -> tuple[dict[str, str], ...]:
    return data_rows(DATA_DIR / f"{name}.csv")


def protocols() -> tuple[dict[str, str], ...]:
    """How NCCL sends small, middling and large messages."""
    return _table("protocols")
