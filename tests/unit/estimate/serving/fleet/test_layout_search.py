"""The search over layouts and the plumbing of fleets, piece by piece."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.serving_cases import DEFAULT_LIMITS, linear, small
from whichgpu.catalog.engines.registry import engine_record
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.allocation_sequence import ALLOCATE, AllocationSequence, exact_sizes
from whichgpu.estimate.group.layout_memory import COUNTED_PARTS, PART_INDEX, _after_zero, apply_layout
from whichgpu.estimate.group.layout_search import LayoutCandidate, ScreenedLayouts, _checkpointings, batch_splits
from whichgpu.estimate.group.scaling import _sizes
from whichgpu.estimate.serving.fleet.pools import Fleet, FleetRouting, Interruptions, ReplicaPool
from whichgpu.estimate.serving.load import Lengths
from whichgpu.estimate.serving.prefix_cache import PrefixCache
from whichgpu.estimate.serving.scheduler_limits import batch_limits, default_max_sequences
from whichgpu.workload.shapes import Mlp, Shape, Transformer
from whichgpu.workload.workload import Parallel, Workload

GPUS = Catalog().gpu_by_id
TINY = Transformer("tiny", "llama", 64, 4, 8, 2, 8, 256, 1000, True, "rms", "silu", False, True, 0, 4096)
NET = Mlp("net", (8, 4))


def work(task: Any = "train", **fields: Any) -> Workload:
    plain: dict[str, Any] = {"precision": "bf16", "batch": 24}
    return Workload(task, "tiny", **(plain | fields))


def sizes(workload: Workload, shape: Shape = TINY, **layout: Any) -> list[tuple[int, int]]:
    micro, rounds = batch_splits(workload, shape, Parallel(**layout))
    return [(int(size), int(times)) for size, times in zip(micro, rounds, strict=True)]


def test_micro_batches_divide_a_replica_s_share() -> None:
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


def test_checkpointing_is_as_requested_or_both() -> None:
    assert tuple(_checkpointings(work(), TINY)) == ("none", "full")
    assert tuple(_checkpointings(work(checkpointing="full"), TINY)) == ("full",)
    assert tuple(_checkpointings(work("serve"), TINY)) == ("none",)
    assert tuple(_checkpointings(work(), NET)) == ("none",)


def test_a_candidate_is_a_request() -> None:
    workload = apply_layout(work(), Parallel(dp=2, tp=3, pp=5, cp=7), 4, 3, "full")
    assert (workload.gpus, workload.batch, workload.micro_batch, workload.accumulation, workload.checkpointing) == (
        210,
        24,
        4,
        3,
        "full",
    )
    assert apply_layout(work("serve"), Parallel(dp=2), 4, 3, "none").batch == 8
    assert LayoutCandidate(Parallel(dp=2), 4, 1, "none").workload(work()).batch == 24


def test_the_best_of_a_screen_are_the_fastest_that_fit() -> None:
    many = tuple(LayoutCandidate(Parallel(), size, 1, "none") for size in range(20))
    seconds = np.array([[float(20 - place) for place in range(20)]])
    seconds[0, 19] = np.inf
    layouts = ScreenedLayouts(many, seconds, np.zeros(20))
    assert [one.micro_batch for one in layouts.best(0)[:3]] == [18, 17, 16]
    assert len(layouts.best(0)) == 16


def test_zero_leaves_a_share_of_each_part() -> None:
    for zero, shared in (
        (0, ()),
        (1, ("optimizer",)),
        (2, ("optimizer", "gradients")),
        (3, ("optimizer", "gradients", "weights")),
    ):
        sharded = _after_zero(np.full((len(COUNTED_PARTS), 1), 12.0), Parallel(dp=4, zero=zero), 5.0)
        assert {name: sharded[place, 0] for name, place in PART_INDEX.items()} == {
            name: 17.0 if name == "temporary" else 3.0 if name in shared else 12.0 for name in COUNTED_PARTS
        }


def scaled(workload: Workload, axis: str, shape: Shape = TINY) -> list[tuple[int, int, int, int]]:
    return [
        (gpus, request.nodes, request.parallel.tp * request.parallel.dp, request.batch or 0)
        for gpus, request in _sizes(workload, shape, axis)
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


def test_lanes_of_a_pipeline_share_in_whole_blocks() -> None:
    cut = batch_limits(small(16 * 31, max_sequences=7), 3)
    assert (cut.cache_tokens, cut.max_sequences) == (16 * 10, 2)
    assert batch_limits(DEFAULT_LIMITS, 1) is DEFAULT_LIMITS
    limits = batch_limits(small(16, max_sequences=1), 3)
    assert (limits.cache_tokens, limits.max_sequences) == (16, 1)


def test_beginnings_are_forgotten_oldest_first() -> None:
    prefix_cache = PrefixCache(30, 10)
    prefix_cache.insert([1, 2])
    prefix_cache.insert([3])
    assert prefix_cache.cached_tokens([1], 100) == 10  # looked at, so it is not the oldest any more
    prefix_cache.insert([4])
    assert [prefix_cache.cached_tokens([one], 100) for one in (1, 2, 3, 4)] == [10, 0, 10, 10]
    assert prefix_cache.cached_tokens([1, 3, 9], 15) == 15
    prefix_cache.clear()
    assert prefix_cache.cached_tokens([1], 100) == 0
    assert PrefixCache(5, 10).cached_tokens([1], 100) == 0


def station(name: str = "a", **changed: Any) -> ReplicaPool:
    return ReplicaPool(name, linear(), **({"replicas": 2} | changed))


def test_a_fleet_counts_and_scales() -> None:
    fleet = Fleet((station(gpus=3), station("b", replicas=5)))
    assert fleet.gpus == 2 * 3 + 5
    steps = fleet.scaled(3.0).pools[0].server.steps
    assert steps.decode(1, 10.0) == pytest.approx(3 * fleet.pools[0].server.steps.decode(1, 10.0))
    assert FleetRouting("shares", (1, 2), (3,)).buckets == 6
    assert FleetRouting("lengths", (10,)).bucket(10, 5) == 1
    assert Interruptions() == Interruptions(0.0, 0.0, 600.0, 3600.0, True, 3)


def test_histograms_have_no_spread() -> None:
    assert Lengths.histogram((10, 30), (3, 1)) == Lengths(15.0, 0.0, (10, 30), (3, 1))


# the course of allocations


def test_births_and_deaths_by_label() -> None:
    """A of 1000 bytes, B of 600; A ends, C of 2000 comes: blocks of 512."""
    course = AllocationSequence([ALLOCATE, ALLOCATE, 0, ALLOCATE], ["a", "b", "c"])
    replay = course.replay(exact_sizes([1000, 600, 2000]), pools=False)
    assert (replay.peak_allocated, replay.breakdown) == (1024 + 2048, {"b": 1024, "c": 2048})
    again = AllocationSequence([ALLOCATE, 0, 0, ALLOCATE], ["a", "c"]).replay(exact_sizes([5000, 10]), pools=False)
    assert (again.peak_allocated, again.breakdown) == (5120, {"a": 5120})
    nothing = AllocationSequence([], []).replay(exact_sizes([]))
    assert (nothing.peak_allocated, nothing.peak_reserved) == (0, 0)
    pooled = course.replay(exact_sizes([1000, 600, 2000]))
    assert pooled.peak_reserved == 2 << 20
    assert pooled.peak_allocated == 1024 + 2048
