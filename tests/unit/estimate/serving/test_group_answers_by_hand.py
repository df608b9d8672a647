"""Answers of groups and of served loads: their bounds, notes, and what a search omits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.serving_cases import linear, small
from whichgpu.base.figure import Figure
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.group.breakdown import StepBreakdown
from whichgpu.estimate.group.fabric import Fabric, fabric_of
from whichgpu.estimate.group.group_answer import GroupTime, _bound, _remarks, group_time_of
from whichgpu.estimate.group.layout_search import LayoutCandidate, ScreenedLayouts, screen_layouts, time_best_layouts
from whichgpu.estimate.group.scaling import scaling_of
from whichgpu.estimate.group.step import Devices, GroupGrid, evaluate_group
from whichgpu.estimate.serving.curve import CURVE_SHARES, Objectives, RatePoint, _bisected_rate, _capacity, throughput_curve
from whichgpu.estimate.serving.load import Lengths, Load
from whichgpu.estimate.serving.serving_answer import _warnings, serving_answer
from whichgpu.estimate.serving.summary import LatencyPercentiles, Summary
from whichgpu.workload.shapes import Mlp, Transformer
from whichgpu.workload.workload import Parallel, Workload

CATALOG = Catalog()
GPUS = CATALOG.gpu_by_id
H100 = GPUS["h100-sxm"]
SMALL = Transformer("small", "llama", 1024, 8, 16, 4, 64, 4096, 32000, True, "rms", "silu", False, True, 0, 4096)
DEVICES = Devices.of([H100], [fabric_of(H100)])


def work(task: Any = "train", **changed: Any) -> Workload:
    plain: dict[str, Any] = {"precision": "bf16", "batch": 16, "seq_in": 512, "engine": "pytorch", "optimizer": "adamw"}
    return Workload(task, "small", **(plain | changed))


def bound(**seconds: float) -> str:
    """Of a step of ten seconds, nine of them work."""
    plain = dict.fromkeys(StepBreakdown.__struct_fields__, 0.0) | {"wall": 10.0, "work": 9.0}
    flops, moved = (np.array([[seconds.get(name, 0.0)]]) for name in ("flops", "moved"))
    grid = GroupGrid("pytorch", "train", None, np.zeros((1, 1)), flops, moved)  # type: ignore[arg-type]
    return _bound(grid, plain | seconds)


def test_bound_of_a_group() -> None:
    assert bound(flops=8.0, moved=4.0) == "compute"
    assert bound(flops=4.0, moved=8.0) == "bandwidth"
    assert bound(flops=8.0, moved=8.0) == "compute"
    assert bound(flops=8.0, communication=4.1) == "interconnect"
    assert bound(flops=8.0, communication=4.0) == "compute"
    assert bound(flops=8.0, host=9.5) == "overhead"
    assert bound(flops=8.0, host=9.0) == "compute"
    assert bound(flops=0.01, moved=0.02) == "overhead"


FACTS = GroupTime("dp=2", "nvswitch", None, Figure(1.0, 0.5, 2.0, "s", "modelled"), 0.25, 0.0, 0.0, 0.0, None)


def remark_ids(workload: Workload, instance: Any = None, **facts: Any) -> list[str]:
    fabric: Fabric = fabric_of(H100, instance)
    return [one.id for one in _remarks(workload, H100, fabric, instance, replace(FACTS, **facts))]


def test_assumed_links_and_networks_are_named() -> None:
    machine = next(one for one in CATALOG.instances if one.gpu == "h100-sxm" and one.interconnect and one.network_gbps)
    assert remark_ids(work()) == ["group.links", "group.cost"]
    assert remark_ids(work(interconnect="pcie")) == ["group.cost"]
    assert remark_ids(work(), machine) == ["group.cost"]
    assert remark_ids(work(), replace(machine, interconnect=None)) == ["group.links", "group.cost"]
    assert remark_ids(work(nodes=2)) == ["group.links", "group.network", "group.cost"]
    assert remark_ids(work(nodes=2, network_gbps=100.0)) == ["group.links", "group.cost"]
    assert remark_ids(work(nodes=2), machine) == ["group.cost"]
    assert remark_ids(work(nodes=2), replace(machine, network_gbps=None)) == ["group.network", "group.cost"]
    assert remark_ids(work(), hidden=0.5) == ["group.links", "group.cost-beside"]


def test_a_group_s_figures_are_those_of_its_step() -> None:
    workload = work(gpus=4, parallel=Parallel(dp=4))
    estimate, facts = group_time_of(workload, SMALL, H100)
    breakdown = evaluate_group(workload, SMALL, DEVICES).breakdown
    wall = float(breakdown.wall[0, 0])
    assert estimate.time.value == pytest.approx(wall)
    assert estimate.time_device.value == pytest.approx(wall - float(breakdown.waiting[0, 0]))
    assert estimate.throughput.value == pytest.approx(16 * 512 / wall)
    assert (estimate.throughput.low, estimate.throughput.high) == pytest.approx(
        (16 * 512 / estimate.time.high, 16 * 512 / estimate.time.low)
    )
    assert facts.communication_share == pytest.approx(float(breakdown.communication[0, 0]) / wall)
    assert (facts.layout, facts.links, facts.network) == ("dp=4", "nvswitch", None)
    assert (estimate.ttft, estimate.tpot) == (None, None)
    assert group_time_of(replace(workload, nodes=2), SMALL, H100)[1].network == "infiniband"
    served, _ = group_time_of(work("serve", gpus=2, parallel=Parallel(tp=2), engine="vllm", seq_out=32), SMALL, H100)
    assert served.tpot == served.time
    assert served.ttft is not None
    assert served.ttft.value > served.time.value


def test_how_far_more_gpus_help() -> None:
    copies = scaling_of(work(gpus=4, parallel=Parallel(dp=4)), SMALL, DEVICES)
    assert copies is not None
    assert (copies.axis, [one.gpus for one in copies.points]) == ("dp", [1, 2, 4, 8, 16, 32, 64])
    one, two = copies.points[:2]
    assert (one.speed, one.efficiency) == (1.0, 1.0)
    assert two.speed == pytest.approx(2 * one.seconds / two.seconds)  # twice the work
    assert two.efficiency == pytest.approx(two.speed / 2)
    cut = scaling_of(work("serve", gpus=2, parallel=Parallel(tp=2), engine="vllm", seq_out=32), SMALL, DEVICES)
    assert cut is not None
    assert (cut.axis, [one.gpus for one in cut.points]) == ("tp", [1, 2, 4, 8, 16])  # as many as there are heads
    assert cut.points[1].speed == pytest.approx(cut.points[0].seconds / cut.points[1].seconds)  # the same work
    alone = scaling_of(work("serve", engine="vllm", seq_out=32), SMALL, DEVICES)
    assert alone is not None
    assert alone.axis == "tp"
    assert scaling_of(work("serve", gpus=2, parallel=Parallel(dp=2), engine="vllm", seq_out=32), SMALL, DEVICES) is None
    assert scaling_of(work(gpus=2, parallel=Parallel(tp=2)), replace(SMALL, heads=15), DEVICES) is None  # no head can be cut


def test_layouts_wrongly_passed_by_the_screen_are_dropped() -> None:
    """A candidate that needs more than the GPU has comes first and is no answer; the next ones are."""
    huge, fits = LayoutCandidate(Parallel(), 256, 1, "none"), LayoutCandidate(Parallel(), 1, 256, "none")
    layouts = ScreenedLayouts(
        (huge, fits, replace(fits, checkpointing="full")), np.array([[1.0, 2.0, 3.0]]), np.array([1.0, 2.0, 1e15])
    )
    settled = time_best_layouts(work(batch=256, seq_in=4096), SMALL, DEVICES, layouts, 0)
    assert [one.candidate for one in settled] == [fits, replace(fits, checkpointing="full")]
    assert settled[1].need == 10**15  # never less than the screen counted
    assert settled[0].need > 2
    assert all(one.fits == "fits" for one in settled)


def test_the_best_layout_is_the_fastest_that_fits() -> None:
    net = Mlp("net", (512, 512, 8))
    workload = work(precision="fp32", batch=64, gpus=2)
    best = time_best_layouts(workload, net, DEVICES, screen_layouts(workload, net, DEVICES, 2), 0)[0]
    assert best.candidate.parallel.dp == 2
    wide = Mlp("wide", (400_000, 400_000, 8))
    assert screen_layouts(replace(workload, gpus=1), wide, DEVICES, 1).candidates == ()


LIKE = Figure(1.0, 0.8, 1.5, "s", "calibrated", ("a",))
SERVER, LOAD = linear(fixed=0.01), Load(5.0, Lengths(10), Lengths(3), 60, burstiness=0.0)


def test_progress_is_reported_up_to_its_end() -> None:
    heard: list[float] = []
    serving_answer(SERVER, LOAD, Objectives(), LIKE, drawn=False, progress=heard.append)
    assert heard == pytest.approx([1 / 6, 2 / 6, 3 / 6])
    heard.clear()
    drawn = throughput_curve(SERVER, LOAD, Objectives(), 50.0, heard.append)
    assert [one.rate for one in drawn.points] == pytest.approx([5, 12.5, 20, 27.5, 35, 40, 45, 48.5, 55])
    assert drawn.allowed is None
    assert heard == pytest.approx([place / len(CURVE_SHARES) for place in range(1, len(CURVE_SHARES) + 1)])
    heard.clear()
    throughput_curve(SERVER, LOAD, Objectives(ttft_max=1.0), 50.0, heard.append)
    assert heard[-1] == pytest.approx(len(CURVE_SHARES) / (len(CURVE_SHARES) + 6))  # six narrowings are to come


NOTHING = (0.0,)


@pytest.mark.parametrize(
    ("points", "limit", "allowed"),
    [
        ([(1.0, 0.96, False), (2.0, 0.95, False), (3.0, 0.949, False)], 9.0, 2.0),
        ([(1.0, 0.96, False), (2.0, 0.99, True), (3.0, 0.949, False)], 9.0, 1.0),  # one that only seems to hold
        ([(1.0, 0.5, False), (2.0, 0.99, False)], 9.0, 2.0),
        ([(1.0, 0.5, False), (2.0, None, False)], 9.0, 0.0),
        ([(1.0, 1.0, False), (2.0, 1.0, False)], 2.0, 2.0),
    ],
)  # fmt: skip
def test_largest_simulated_rate_that_holds(points: Any, limit: float, allowed: float) -> None:
    """Objectives that no further simulation meets: nothing beyond what was drawn is allowed."""
    drawn = [RatePoint(rate, 1.0, NOTHING, NOTHING, NOTHING, 1.0, met, full) for rate, met, full in points]
    assert _bisected_rate(SERVER, LOAD, Objectives(ttft_max=1e-9), drawn, limit) == allowed
    assert _capacity(SERVER, LOAD, Objectives(ttft_max=1e-9), drawn, limit) <= 0.86 * allowed  # many requests say no


def test_a_rate_between_those_drawn_is_narrowed() -> None:
    """Every rate holds: six bisection steps towards the capacity."""
    drawn = [
        RatePoint(1.0, 1.0, NOTHING, NOTHING, NOTHING, 1.0, 1.0, False),
        RatePoint(9.0, 1.0, NOTHING, NOTHING, NOTHING, 1.0, 0.0, False),
    ]
    capacity = _capacity(SERVER, LOAD, Objectives(ttft_max=10.0), drawn, 5.0)
    assert capacity == pytest.approx(5.0 - 4.0 / 2**6)


NONE = LatencyPercentiles((1.0,), 1.0)
SUMMARY = Summary(1000, (50.0, 99.0), NONE, NONE, NONE, 1.0, 1.0, None, None, 1.0, (), growing=False)


def warning_ids(saturated: bool = False, percentile: float = 95.0, **changed: Any) -> list[str]:
    outcome = replace(
        SERVER.run(LOAD.arrivals()), **{name: changed.pop(name) for name in ("refused", "preempted") if name in changed}
    )
    messages = _warnings(outcome, replace(SUMMARY, **changed), LOAD, 10.0, saturated, Objectives(1.0, percentile=percentile))
    return [one.id.removeprefix("serving.") for one in messages]


def test_warnings_of_a_serving_summary() -> None:
    assert warning_ids() == []
    assert warning_ids(saturated=True) == ["saturated"]
    assert warning_ids(requests=999) == ["too-few"]
    assert warning_ids(refused=1) == ["refused"]
    assert warning_ids(preempted=1) == ["preempted"]
    assert warning_ids(met=0.94) == ["missed"]
    assert warning_ids(met=0.95) == []
    assert warning_ids(met=0.95, percentile=99.0) == ["missed"]
    assert warning_ids(saturated=True, refused=2, preempted=3, met=0.0) == ["saturated", "refused", "preempted", "missed"]


def test_small_kv_cache_preempts_and_reports_it() -> None:
    tight = linear(small(256), fixed=0.01)
    answer = serving_answer(tight, Load(40.0, Lengths(40), Lengths(60), 120, burstiness=0.0), Objectives(), LIKE, drawn=False)
    assert answer.preempted > 0
    assert "serving.preempted" in [one.id for one in answer.warnings]
    assert answer.peak_cache > 0.9
