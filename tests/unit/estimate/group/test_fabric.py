"""How GPUs reach one another, by what the catalog says of them and of their machines."""

from __future__ import annotations

import csv

import pytest

from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Instance
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.group.fabric import DATA_DIR, fabric_of

CATALOG = Catalog()
GPUS = CATALOG.gpu_by_id


def machine(name: str) -> Instance:
    return next(instance for instance in CATALOG.instances if instance.instance == name)


@pytest.mark.parametrize(
    ("gpu", "kind"),
    [
        ("h100-sxm", "nvswitch"),
        ("a100-sxm-40gb", "nvswitch"),
        ("v100-sxm-16gb", "cube-mesh"),
        ("v100-sxm3-32gb", "nvswitch"),
        ("mi300x", "mesh"),
        ("a100-pcie-80gb", "pcie"),
        ("t4", "pcie"),
        ("rtx-4090", "pcie-host"),
        ("rtx-5090", "pcie-host"),
        ("rtx-3090", "pcie-host"),
    ],
)
def test_the_usual_links_of_a_gpu(gpu: str, kind: str) -> None:
    assert fabric_of(GPUS[gpu]).kind == kind


def test_a_dgx_1_uses_more_links_the_more_of_its_gpus_talk() -> None:
    fabric = fabric_of(GPUS["v100-sxm-16gb"])
    assert (
        fabric.bus_bandwidth(2) < fabric.bus_bandwidth(4) < fabric.bus_bandwidth(8) == pytest.approx(120e9)
    )  # six links of 20 GB/s


def test_two_mi300x_share_one_link_of_seven() -> None:
    fabric = fabric_of(GPUS["mi300x"])
    assert fabric.bus_bandwidth(2) == pytest.approx(48e9, rel=0.01)  # as AMD measured one link
    assert fabric.bus_bandwidth(8) == pytest.approx(7 * fabric.bus_bandwidth(2))


def test_a_bridge_joins_two_cards_and_no_more() -> None:
    """Two bridged A100 reach 208 GB/s, three of them 20 (NVIDIA/nccl-tests issue 178)."""
    fabric = fabric_of(GPUS["a100-pcie-80gb"], interconnect="pairs")
    assert fabric.bus_bandwidth(2) == pytest.approx(208e9, rel=0.2)
    assert fabric.bus_bandwidth(3) == pytest.approx(20e9, rel=0.25)


def test_without_peers_a_bridge_still_joins_two_cards() -> None:
    """Beyond the pair, what two RTX 3090 send goes through host memory: their driver offers no peers over PCIe."""
    fabric = fabric_of(GPUS["rtx-3090"], interconnect="pairs")
    assert fabric.bus_bandwidth(2) == pytest.approx(45e9, rel=0.05)  # 56.2 GB/s each way, of which NCCL reaches four fifths
    assert fabric.bus_bandwidth(4) == fabric_of(GPUS["rtx-3090"]).bus_bandwidth(4) < fabric_of(GPUS["rtx-a6000"]).bus_bandwidth(4)


def test_across_sockets_pcie_is_slower() -> None:
    fabric = fabric_of(GPUS["l40s"])
    assert fabric.bus_bandwidth(8) < fabric.bus_bandwidth(4)


def test_instance_has_its_gpu_interconnect() -> None:
    p3 = fabric_of(GPUS["v100-sxm-16gb"], machine("p3.16xlarge"))
    assert (p3.kind, p3.network_kind) == ("cube-mesh", "ethernet")
    azure = fabric_of(GPUS["h100-sxm"], machine("Standard_ND96isr_H100_v5"))
    assert azure.network_kind == "infiniband"
    assert azure.network_bandwidth == pytest.approx(3200e9 / 8 / 8 * 0.92)


def test_the_user_has_the_last_word() -> None:
    fabric = fabric_of(GPUS["h100-sxm"], machine("p5.48xlarge"), "pcie", 25.0, "ethernet")
    assert (fabric.kind, fabric.network_kind) == ("pcie", "ethernet")
    assert fabric.network_bandwidth < 25e9 / 8


def test_missing_links_fall_back_to_pcie() -> None:
    assert fabric_of(GPUS["t4"], interconnect="nvswitch").kind == "pcie"


@pytest.mark.parametrize("gpu", CATALOG.gpus, ids=lambda gpu: str(gpu.id))
def test_every_gpu_of_the_catalog_has_links(gpu: Gpu) -> None:
    fabric = fabric_of(gpu)
    assert all(fabric.bus_bandwidth(count) > 1e9 for count in (2, 4, 8))
    assert fabric.network_bandwidth > 0


@pytest.mark.parametrize("table", ["links", "networks", "default_networks"])
def test_every_row_cites_a_source_of_the_catalog(table: str) -> None:
    source_ids = set(CATALOG.sources)
    with (DATA_DIR / f"{table}.csv").open(newline="") as stream:
        for row in csv.DictReader(stream):
            assert row["sources"], row
            assert set(row["sources"].split(";")) <= source_ids, row


def test_every_collective_parameter_has_a_description() -> None:
    with (DATA_DIR / "parameters.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len({row["name"] for row in rows}) == len(rows)
    for row in rows:
        assert row["unit"], row
        assert row["meaning"].endswith("."), row
        assert row["source"], row
        assert row["status"] in ("fitted", "fixed"), row
        assert bool(row["start"]) == (row["status"] == "fitted"), row
        assert float(row["value"]) > 0, row
