"""The search over layouts and the plumbing of fleets, piece by piece."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.serving_cases import PLAIN, linear, small
from whichgpu.base.errors import UsageError
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.allocation_sequence import ALLOCATE, AllocationSequence, exact_sizes
from whichgpu.estimate.group.layout_memory import COUNTED_PARTS, PART_INDEX, _zeroed, apply_layout
from whichgpu.estimate.group.layout_search import LayoutCandidate, ScreenedLayouts, _checkpointings, micro_batches
from whichgpu.estimate.group.scaling import _sizes
from whichgpu.estimate.serving.fleet.kv_transfer import Port, TransferQueues
from whichgpu.estimate.serving.fleet.pools import Fleet, FleetRouting, Interruptions, ReplicaPool
from whichgpu.estimate.serving.fleet.spot_machines import ReplicaMachine
from whichgpu.estimate.serving.load import Lengths
from whichgpu.estimate.serving.prefix_cache import PrefixCache
from whichgpu.estimate.serving.scheduler_limits import LimitOverrides, batch_limits, default_max_sequences
from whichgpu.workload.shapes import Mlp, Shape, Transformer
from whichgpu.workload.workload import Parallel, Workload

GPUS = Catalog().gpu_by_id
TINY = Transformer("tiny", "llama", 64, 4, 8, 2, 8, 256, 1000, True, "rms", "silu", False, True, 0, 4096)
NET = Mlp("net", (8, 4))


def work(task: Any = "train", **fields: Any) -> Workload:
    plain: dict[str, Any] = {"precision": "bf16", "batch": 24}
    return Workload(task, "tiny", **(plain | fields))


def sizes(workload: Workload, shape: Shape = TINY, **layout: Any) -> list[tuple[int, int]]:
    micro, rounds = micro_batches(workload, shape, Parallel(**layout))
    return [(int(size), int(times)) for size, times in zip(micro, rounds, strict=True)]


def test_micro_batches_divide_a_copy_s_share() -> None:
    """Powers of two that do, and the largest divisor of every octave."""
    assert sizes(work(), dp=2) == [(1, 12), (2, 6), (3, 4), (4, 3), (6, 2), (12, 1)]
    assert sizes(work(), dp=5) == []
    assert sizes(work(), dp=48) == []
    assert sizes(work("serve"), dp=2) == [(12, 1)]
    assert sizes(work(batch=None)) == [(1, 1)]
    assert sizes(work(batch=1024)) == [(1 << power, 1024 >> power) for power in range(9)]
    assert sizes(work(batch=300))[-3:] == [(60, 5), (100, 3), (150, 2)]
    assert sizes(work(), NET, dp=2) == sizes(work(), dp=2)
    assert sizes(work(micro_batch=5), dp=2) == [(12, 1)]  # a size that does not divide it
    assert sizes(work(micro_batch=4), dp=2) == sizes(work(), dp=2)


def test_checkpointing_is_as_asked_or_both() -> None:
    assert tuple(_checkpointings(work(), TINY)) == ("none", "full")
    assert tuple(_checkpointings(work(checkpointing="full"), TINY)) == ("full",)
    assert tuple(_checkpointings(work("serve"), TINY)) == ("none",)
    assert tuple(_checkpointings(work(), NET)) == ("none",)


def test_a_candidate_is_a_request() -> None:
    made = apply_layout(work(), Parallel(dp=2, tp=3, pp=5, cp=7), 4, 3, "full")
    assert (made.gpus, made.batch, made.micro_batch, made.accumulation, made.checkpointing) == (210, 24, 4, 3, "full")
    assert apply_layout(work("serve"), Parallel(dp=2), 4, 3, "none").batch == 8
    assert LayoutCandidate(Parallel(dp=2), 4, 1, "none").workload(work()).batch == 24


def test_the_best_of_a_screen_are_the_fastest_that_fit() -> None:
    many = tuple(LayoutCandidate(Parallel(), size, 1, "none") for size in range(20))
    seconds = np.array([[float(20 - place) for place in range(20)]])
    seconds[0, 19] = np.inf
    found = ScreenedLayouts(many, seconds, np.zeros(20))
    assert [one.micro_batch for one in found.best(0, 3)] == [18, 17, 16]
    assert len(found.best(0)) == 16
    assert [one.micro_batch for one in found.best(0, 20)][-1] == 0


def test_zero_leaves_a_share_of_each_part() -> None:
    for zero, shared in (
        (0, ()),
        (1, ("optimizer",)),
        (2, ("optimizer", "gradients")),
        (3, ("optimizer", "gradients", "weights")),
    ):
        told = _zeroed(np.full((len(COUNTED_PARTS), 1), 12.0), Parallel(dp=4, zero=zero), 5.0)
        assert {name: told[place, 0] for name, place in PART_INDEX.items()} == {
            name: 17.0 if name == "temporary" else 3.0 if name in shared else 12.0 for name in COUNTED_PARTS
        }


def scaled(workload: Workload, axis: str, shape: Shape = TINY) -> list[tuple[int, int, int, int]]:
    return [
        (gpus, asked.nodes, asked.parallel.tp * asked.parallel.dp, asked.batch or 0)
        for gpus, asked in _sizes(workload, shape, axis)
    ]


def test_the_same_work_on_more_gpus() -> None:
    assert scaled(work(gpus=2, parallel=Parallel(dp=2)), "tp") == [(1, 1, 1, 12), (2, 1, 2, 12), (4, 1, 4, 12), (8, 1, 8, 12)]
    copies = scaled(work(gpus=2, parallel=Parallel(dp=2)), "dp")
    assert copies[:2] == [(1, 1, 1, 12), (2, 1, 2, 24)]
    assert copies[-1] == (64, 8, 64, 768)
    assert scaled(work(gpus=32, nodes=2, parallel=Parallel(dp=32)), "dp")[-1][1] == 4  # nodes of sixteen
    cut = scaled(work(gpus=8, parallel=Parallel(dp=2, pp=4)), "dp")
    assert [gpus for gpus, *_ in cut][:2] == [4, 8]


# serving


def test_limits_of_engines_by_year_and_memory() -> None:
    h100, l4, a100 = GPUS["h100-sxm"], GPUS["l4"], GPUS["a100-sxm-80gb"]
    assert [default_max_sequences(engine_record("vllm", year), h100) for year in (2023, 2024, 2025, 2026)] == [
        256,
        256,
        1024,
        1024,
    ]
    assert [default_max_sequences(engine_record("vllm", 2026), gpu) for gpu in (l4, a100)] == [256, 256]
    assert [default_max_sequences(engine_record("tensorrt-llm", year), h100) for year in (2023, 2024)] == [256, 2048]
    assert default_max_sequences(engine_record("llama.cpp", 2025), h100) == 1
    assert not engine_record("vllm", 2020).limits.prefix_caching
    assert LimitOverrides(max_sequences=3, chunked_prefill=False).given() == {"max_sequences": 3, "chunked_prefill": False}


def test_lanes_of_a_pipeline_share_in_whole_blocks() -> None:
    cut = batch_limits(small(16 * 31, max_sequences=7), 3)
    assert (cut.cache_tokens, cut.max_sequences) == (16 * 10, 2)
    assert batch_limits(PLAIN, 1) is PLAIN
    least = batch_limits(small(16, max_sequences=1), 3)
    assert (least.cache_tokens, least.max_sequences) == (16, 1)


def test_beginnings_are_forgotten_oldest_first() -> None:
    kept = PrefixCache(30, 10)
    kept.keep([1, 2])
    kept.keep([3])
    assert kept.found([1], 100) == 10  # looked at, so it is not the oldest any more
    kept.keep([4])
    assert [kept.found([one], 100) for one in (1, 2, 3, 4)] == [10, 0, 10, 10]
    assert kept.found([1, 3, 9], 15) == 15
    kept.clear()
    assert kept.found([1], 100) == 0
    assert PrefixCache(5, 10).found([1], 100) == 0


def test_transfers_wait_for_both_ports() -> None:
    wires = TransferQueues([Port(10.0, 5.0, 0.5, 2.0), Port(4.0, 8.0, 0.25, 99.0)])
    assert wires.send(0, 1, 20, 1.0) == 1.0 + 40 / 8 + 0.5  # forty bytes; the slower end counts
    assert wires.send(0, 1, 20, 2.0) == 6.0 + 5.0 + 0.5
    assert (wires.sent, wires.bytes) == (2, 80.0)
    assert wires.seconds == pytest.approx(5.5 + 9.5)
    assert wires.waited == pytest.approx(4.0)  # the second, for the first
    wires.cut(1, 50.0)
    assert wires.send(0, 1, 20, 20.0) == 50 + 5 + 0.5


def test_machines_are_paid_for_while_held() -> None:
    machine = ReplicaMachine(0, range(1), True, True)
    assert machine.seconds(10.0) == 0.0
    machine.start(2.0)
    machine.start(3.0)  # held already
    assert machine.seconds(10.0) == 8.0
    machine.stop(5.0)
    machine.stop(7.0)
    machine.start(8.0)
    assert machine.seconds(10.0) == 3.0 + 2.0
    assert machine.seconds(4.0) == 2.0


def station(name: str = "a", **changed: Any) -> ReplicaPool:
    return ReplicaPool(name, linear(), **({"copies": 2} | changed))


def test_a_fleet_counts_and_scales() -> None:
    fleet = Fleet((station(gpus=3), station("b", copies=5)))
    assert fleet.gpus == 2 * 3 + 5
    steps = fleet.scaled(3.0).stations[0].server.steps
    assert steps.decode(1, 10.0) == pytest.approx(3 * fleet.stations[0].server.steps.decode(1, 10.0))
    assert FleetRouting("shares", (1, 2), (3,)).buckets == 6
    assert FleetRouting("lengths", (10,)).bucket(10, 5) == 1
    assert Interruptions() == Interruptions(0.0, 0.0, 600.0, 3600.0, True, 3)


@pytest.mark.parametrize(
    ("stations", "more"),
    [
        ((), {}),
        ((station(copies=0),), {}),
        ((station(gpus=0),), {}),
        ((station(spot=3),), {}),
        ((station(spot=-1),), {}),
        ((station(weight=0.0),), {}),
        ((station(weight=float("nan")),), {}),
        ((station(role="prefill"),), {}),
        ((station(),), {"routing": FleetRouting("shares", (), (), ((1.0, 2.0),))}),
        ((station(),), {"routing": FleetRouting("shares", (), (), ((-1.0,),))}),
        ((station(),), {"routing": FleetRouting("shares", (), (), ((0.0,),))}),
        ((station(),), {"routing": FleetRouting("shares", (5, 5), (), ((1.0,),) * 3)}),
        ((station(),), {"routing": FleetRouting("lengths", (), (5,), ((1.0,),) * 2)}),
        ((station(),), {"interruptions": Interruptions(rate=-1.0)}),
        ((station(),), {"interruptions": Interruptions(rate=1e6)}),
        ((station(),), {"interruptions": Interruptions(retries=-1)}),
    ],
)
def test_fleets_that_cannot_be_are_refused(stations: Any, more: Any) -> None:
    with pytest.raises(UsageError):
        Fleet(stations, **more)


def test_fleets_at_the_edge_of_what_can_be() -> None:
    assert (
        Fleet((station(spot=2, copies=2),), FleetRouting("shares", (), (), ((1.0,),)), Interruptions(rate=1e5, retries=0)).gpus
        == 2
    )
    assert Fleet((station(role="prefill"), station(role="decode"))).gpus == 4


def test_histograms_have_no_spread() -> None:
    assert Lengths.histogram((10, 30), (3, 1)) == Lengths(15.0, 0.0, (10, 30), (3, 1))


# the course of allocations


def test_births_and_deaths_by_label() -> None:
    """A of 1000 bytes, B of 600; A ends, C of 2000 comes: blocks of 512."""
    course = AllocationSequence([ALLOCATE, ALLOCATE, 0, ALLOCATE], ["a", "b", "c"])
    found = course.replay(exact_sizes([1000, 600, 2000]), pools=False)
    assert (found.peak_allocated, found.breakdown) == (1024 + 2048, {"b": 1024, "c": 2048})
    again = AllocationSequence([ALLOCATE, 0, 0, ALLOCATE], ["a", "c"]).replay(exact_sizes([5000, 10]), pools=False)
    assert (again.peak_allocated, again.breakdown) == (5120, {"a": 5120})
    nothing = AllocationSequence([], []).replay(exact_sizes([]))
    assert (nothing.peak_allocated, nothing.peak_reserved) == (0, 0)
    pooled = course.replay(exact_sizes([1000, 600, 2000]))
    assert pooled.peak_reserved == 2 << 20
    assert pooled.peak_allocated == 1024 + 2048
