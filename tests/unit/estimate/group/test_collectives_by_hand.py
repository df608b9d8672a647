"""Collectives over links of round numbers, by hand; the links of a machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from whichgpu.catalog.store import Catalog
from whichgpu.estimate.group.collective_parameters import collective_parameters
from whichgpu.estimate.group.collectives import CollectiveCost, CollectiveKind, Communicator, collective_cost
from whichgpu.estimate.group.expert_exchange import FP8_BYTES, ExpertExchange, deepep_cost, exchange_cost
from whichgpu.estimate.group.fabric import Fabric, fabric_of

GPUS = Catalog().gpu_by_id
US = 1e-6
SWITCH = Fabric("nvswitch", 1e11, 1e10, "nvlink", "pcie", False, "infiniband", 1e10, 4 * US)
P = collective_parameters()
SIMPLE = P["simple.share"]
# NCCL's protocols: share of the bandwidth, seconds to start, a hop over NVLink, what it adds to a hop of the network
PROTOCOLS = [
    tuple(P[f"{one}.{name}"] for name in ("share", "start", "hop.nvlink", "hop.net")) for one in ("ll", "ll128", "simple")
]


def cost(kind: CollectiveKind, size: float, ring: Communicator, fabric: Fabric = SWITCH, own: str = "") -> CollectiveCost:
    return collective_cost(kind, size, ring, [fabric], own)


def seconds(*arguments: Any, **more: Any) -> float:
    return float(cost(*arguments, **more).seconds[0, 0])


def test_a_ring_hands_parts_on() -> None:
    """Eight GPUs: seven steps to gather, each GPU sends 7/8 of the whole and copies 1/8; a reduction sends twice as much."""
    for size in (1e3, 1e6, 1e9):
        copied = size / 8 / (1e11 * P["own_copy.share"])
        gathered = min(base + 7 * hop + size * 7 / 8 / (1e11 * share) for share, base, hop, _ in PROTOCOLS) + copied
        assert seconds("all_gather", size, Communicator(8, 8)) == pytest.approx(gathered)
        assert seconds("reduce_scatter", size, Communicator(8, 8)) == pytest.approx(gathered)
        rings = [base + 14 * hop + size * 14 / 8 / (1e11 * share) for share, base, hop, _ in PROTOCOLS]
        assert seconds("all_reduce", size, Communicator(8, 8)) == pytest.approx(min(rings) + copied)
        passed = min(base + 7 * hop + size / (1e11 * share) for share, base, hop, _ in PROTOCOLS)
        assert seconds("broadcast", size, Communicator(8, 8)) == pytest.approx(passed)


def test_a_send_is_one_hop() -> None:
    """The network's bandwidth is what Simple achieves."""
    near = min(base + hop + 1e6 / (1e11 * share) for share, base, hop, _ in PROTOCOLS)
    assert seconds("send", 1e6, Communicator(2, 2)) == pytest.approx(near)
    far = min(base + 4 * US + net + 1e6 / (1e10 * min(1.0, share / SIMPLE)) for share, base, _, net in PROTOCOLS)
    assert seconds("send", 1e6, Communicator(2, 1)) == pytest.approx(far)


def test_between_nodes_the_network_s_hops_and_bandwidth_count() -> None:
    """Four nodes of eight: three far steps of 31; a node's eight shares of the network are 80 GB/s, less than its links."""
    size = 1e6
    rates = [min(8e10 * min(1.0, share / SIMPLE), 1e11 * share) for share, *_ in PROTOCOLS]
    both, copied = list(zip(PROTOCOLS, rates, strict=True)), size / 32 / (1e11 * P["own_copy.share"])
    gathered = min(base + 28 * hop + 3 * (4 * US + net) + size * 31 / 32 / rate for (_, base, hop, net), rate in both)
    assert seconds("all_gather", size, Communicator(32, 8)) == pytest.approx(gathered + copied)
    rings = [base + 56 * hop + 6 * (4 * US + net) + size * 62 / 32 / rate + copied for (_, base, hop, net), rate in both]
    trees = [base + 2 * (7 * hop + 2 * (4 * US + net)) + size * 2 / rate for (_, base, hop, net), rate in both]
    assert seconds("all_reduce", size, Communicator(32, 8)) == pytest.approx(min(rings + trees))
    assert min(trees) < min(rings)
    assert Communicator(9, 8).nodes == 2
    assert Communicator(8, 8).nodes == 1
    assert Communicator(2, 8).nodes == 1


def test_a_switch_that_adds_up_takes_every_byte_once() -> None:
    adding = replace(SWITCH, has_nvls=True)
    in_switch = P["nvls.start"] + 1e10 / (1e11 * P["nvls.share"])
    assert seconds("all_reduce", 1e10, Communicator(8, 8), adding) == pytest.approx(in_switch)
    for ranks in (Communicator(2, 2), Communicator(4, 4), Communicator(16, 8)):
        assert seconds("all_reduce", 1e10, ranks, adding) == seconds("all_reduce", 1e10, ranks)
    assert seconds("all_gather", 1e10, Communicator(8, 8), adding) == seconds("all_gather", 1e10, Communicator(8, 8))


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_an_engine_s_own_kernel_reads_its_peers(engine: str) -> None:
    """Once, or a part and then the sums; every barrier grows as the root of the peers."""
    start, barrier = P[f"custom.start.{engine}"], 3**0.5 * P["custom.barrier"]
    for size in (1e3, 3e6):
        once = start + barrier + size * 3 / (1e11 * P["custom.one_shot.share"])
        twice = start + 2 * barrier + size * 1.5 / (1e11 * P["custom.two_shot.share"])
        nccl = seconds("all_reduce", size, Communicator(4, 4))
        assert seconds("all_reduce", size, Communicator(4, 4), own=engine) == pytest.approx(min(once, twice, nccl))
        assert min(once, twice) < nccl or size > 1e6
    large = P["custom.max_bytes"] * 2
    assert seconds("all_reduce", large, Communicator(4, 4), own=engine) == seconds("all_reduce", large, Communicator(4, 4))
    board = replace(SWITCH, kind="pcie", link_latency_kind="pcie")
    assert seconds("all_reduce", 1e3, Communicator(4, 4), board, own=engine) == seconds(
        "all_reduce", 1e3, Communicator(4, 4), board
    )
    assert seconds("all_reduce", 1e3, Communicator(2, 2), board, own=engine) < seconds(
        "all_reduce", 1e3, Communicator(2, 2), board
    )
    assert seconds("all_reduce", 1e3, Communicator(8, 4), own=engine) == seconds("all_reduce", 1e3, Communicator(8, 4))


def test_an_unmeasured_engine_s_own_kernel_is_like_vllm_s() -> None:
    assert seconds("all_reduce", 1e3, Communicator(4, 4), own="other") == seconds(
        "all_reduce", 1e3, Communicator(4, 4), own="vllm"
    )


def test_all_to_all_uses_intra_and_inter_node_links_at_once() -> None:
    start = P["p2p.simple.start"]
    near = start + 7 * P["p2p.peer"] + 1e9 * 7 / 8 / (1e11 * P["p2p.simple.share"])
    assert seconds("all_to_all", 1e9, Communicator(8, 8)) == pytest.approx(near)
    away = start + 15 * P["p2p.peer"] + 4 * US + P["simple.hop.net"]
    assert seconds("all_to_all", 1e9, Communicator(16, 8)) == pytest.approx(away + 1e9 * 8 / 16 / 1e10)
    quick = replace(SWITCH, network_bandwidth=1e13)
    assert seconds("all_to_all", 1e9, Communicator(16, 8), quick) == pytest.approx(
        away + 1e9 * 7 / 16 / (1e11 * P["p2p.simple.share"])
    )
    fast = replace(SWITCH, link_bandwidth=1e13)
    copied = cost("all_to_all", 1e9, Communicator(8, 8), fast)
    assert copied.volume[0, 0] == pytest.approx(1e9 / P["p2p.copy"])
    lonely = cost("all_to_all", 1e9, Communicator(2, 1))
    assert lonely.volume[0, 0] == pytest.approx(1e9 / 2 / 1e10)


def test_pcie_reaches_its_fitted_share_and_socket_links_their_bandwidth() -> None:
    board = replace(SWITCH, kind="pcie", link_latency_kind="pcie", pcie_bandwidth=4e10, socket_bandwidth=2.2e10)
    for ranks, bandwidth in ((4, 4e10 * P["pcie.share"]), (8, 2.2e10)):
        volume = cost("broadcast", 1e10, Communicator(ranks, ranks), board).volume[0, 0]
        assert volume == pytest.approx(1e10 / (bandwidth * max(share for share, *_ in PROTOCOLS)))


def test_deepep_sends_each_token_to_its_experts() -> None:
    sizes = 128.0, 7168.0, 8.0, 256.0
    there, back = ExpertExchange("dispatch", *sizes, FP8_BYTES), ExpertExchange("combine", *sizes, 2.0)
    ranks = Communicator(8, 8)
    counted = 256 * P["deepep.expert"]
    bytes_ = 128 * 8 * 7168 * 7 / 8 / 1e11
    dispatch = P["deepep.dispatch.start"] + counted + P["deepep.token"] + bytes_ * FP8_BYTES / P["deepep.dispatch.share"]
    assert float(deepep_cost(there, ranks, [SWITCH]).seconds[0, 0]) == pytest.approx(dispatch)
    combine = P["deepep.combine.start"] + counted + bytes_ * 2 / P["deepep.combine.share"]
    assert float(deepep_cost(back, ranks, [SWITCH]).seconds[0, 0]) == pytest.approx(combine)
    nccl = seconds("all_to_all", 128 * 8 * 7168 * 2.0, ranks)
    assert float(exchange_cost(back, ranks, [SWITCH], False).seconds[0, 0]) == pytest.approx(nccl)
    assert float(exchange_cost(back, ranks, [SWITCH], True).seconds[0, 0]) == pytest.approx(min(nccl, combine))
    assert exchange_cost(back, Communicator(1, 1), [SWITCH], True).seconds.tolist() == [[0.0]]
    cards = replace(SWITCH, kind="pcie", link_latency_kind="pcie")
    assert np.isinf(deepep_cost(back, ranks, [cards]).seconds[0, 0])
    far = deepep_cost(back, Communicator(16, 8), [SWITCH])
    assert far.volume[0, 0] == pytest.approx(128 * 8 * 7168 * 2 * 8 / 16 / 1e10)


def test_many_sizes_and_fabrics_at_once() -> None:
    slow = replace(SWITCH, link_bandwidth=5e10)
    both = collective_cost("all_gather", [1e9, 2e9], Communicator(8, 8), [SWITCH, slow])  # type: ignore[arg-type]
    assert both.seconds.shape == (2, 2)
    assert both.volume[1, 0] == pytest.approx(both.volume[0, 1])
    assert collective_cost("send", [1.0, 2.0], Communicator(1, 8), [SWITCH]).seconds.tolist() == [[0.0, 0.0]]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "board", "members", "share"),
    [
        ("nvswitch", 8, 2, 1.0), ("nvswitch", 8, 8, 1.0),
        ("cube-mesh", 8, 2, 1 / 3), ("cube-mesh", 8, 3, 2 / 3), ("cube-mesh", 8, 4, 2 / 3), ("cube-mesh", 8, 8, 1.0),
        ("cube-mesh", 4, 2, 0.5), ("cube-mesh", 4, 4, 1.0), ("cube-mesh", 4, 8, 1.0),
        ("mesh", 8, 2, 1 / 7), ("mesh", 8, 8, 1.0), ("mesh", 4, 2, 1 / 3), ("mesh", 1, 2, 1.0),
        ("pairs", 8, 2, 1.0),
    ],
)  # fmt: skip
def test_how_much_of_its_links_a_gpu_can_use(kind: str, board: int, members: int, share: float) -> None:
    fabric = replace(SWITCH, kind=kind, board_gpus=board)
    assert fabric.bus_bandwidth(members) == pytest.approx(1e11 * share)
    assert fabric.bus_bandwidth(1) == float("inf")


def test_beyond_a_bridge_and_beyond_a_socket() -> None:
    bridged, cards = replace(SWITCH, kind="pairs"), replace(SWITCH, kind="pcie", pcie_bandwidth=2e10)
    assert bridged.bus_bandwidth(3) == 1e10
    assert (bridged.latency_kind(2), bridged.latency_kind(3)) == ("nvlink", "pcie")
    assert [cards.bus_bandwidth(members) for members in (2, 4, 5, 8)] == [2e10, 2e10, 13e9, 13e9]
    assert replace(SWITCH, kind="pcie").bus_bandwidth(8) == 1e10
    assert fabric_of(GPUS["rtx-pro-6000-server"]).bus_bandwidth(8) == 22e9
    kinds = ("nvswitch", "mesh", "pcie", "pairs", "pcie-host")
    assert [replace(SWITCH, kind=kind).peer_access(4) for kind in kinds] == [True, True, False, False, False]
    assert [replace(SWITCH, kind=kind).peer_access(2) for kind in kinds] == [True, True, True, True, False]


def test_links_of_gpus_as_sold() -> None:
    h100 = fabric_of(GPUS["h100-sxm"])
    assert h100.link_bandwidth == pytest.approx(450e9 * 0.824)
    assert (h100.has_nvls, h100.board_gpus, h100.domain_gpus, h100.name) == (True, 8, 16, "nvswitch-4")
    assert h100.network_kind == "infiniband"
    assert (h100.network_bandwidth, h100.network_latency) == pytest.approx((400e9 / 8 * 0.92, 4 * US))
    assert not fabric_of(GPUS["a100-sxm-80gb"]).has_nvls
    assert fabric_of(GPUS["gb200"]).domain_gpus == 72
    t4 = fabric_of(GPUS["t4"])
    assert t4.link_bandwidth == t4.pcie_bandwidth == pytest.approx(15.75e9 * 0.76, rel=0.01)
    assert t4.name == "pcie-3"
    assert t4.network_bandwidth == pytest.approx(12.5e9 / 8 * 0.7)
    host = fabric_of(GPUS["t4"], interconnect="pcie-host")
    assert host.link_bandwidth == pytest.approx(t4.link_bandwidth / 2)
    blind = fabric_of(replace(GPUS["t4"], pcie=None))
    assert blind.link_bandwidth == pytest.approx(15.75e9 * 0.76)
    assert blind.name == "pcie-3"
    slow = fabric_of(GPUS["h100-sxm"], network_gbps=0.0)
    assert slow.network_bandwidth == 0.0
    odd = fabric_of(GPUS["h100-sxm"], network_kind="pigeons", network_gbps=80.0)
    assert odd.network_bandwidth == pytest.approx(10e9 * 0.7)


def test_custom_all_reduce_over_infinity_fabric_only_if_the_engine_has_it() -> None:
    ranks, fabrics = Communicator(8, 8), [SWITCH, replace(SWITCH, kind="mesh")]
    with_mesh = collective_cost("all_reduce", 1e4, ranks, fabrics, "vllm").seconds[:, 0]
    without = collective_cost("all_reduce", 1e4, ranks, fabrics, "vllm", custom_on_mesh=False).seconds[:, 0]
    nccl = collective_cost("all_reduce", 1e4, ranks, fabrics).seconds[:, 0]
    assert with_mesh[0] == with_mesh[1] == without[0] < without[1] == nccl[1]
