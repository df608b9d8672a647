"""The screen's estimates of layouts, from a few evaluations, equal evaluating each of them."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from whichgpu.catalog.store import Catalog
from whichgpu.estimate.group.fabric import fabric_of
from whichgpu.estimate.group.layout_memory import apply_layout
from whichgpu.estimate.group.layout_times import LayoutStep, LayoutTimes
from whichgpu.estimate.group.layouts import legal_layouts
from whichgpu.estimate.group.step import Devices, evaluate_group
from whichgpu.workload.shapes import Experts, Transformer
from whichgpu.workload.workload import Parallel, Workload

GPUS = Catalog().gpu_by_id
DENSE = Transformer("small", "llama", 1024, 8, 16, 4, 64, 4096, 32000, True, "rms", "silu", False, True, 0, 4096)
WORK = Workload("train", "small", precision="bf16", batch=32, seq_in=512, engine="pytorch", optimizer="adamw", gpus=4)
DEVICES = Devices.of([GPUS["h100-sxm"]], [fabric_of(GPUS["h100-sxm"])])


def _seconds(screen: LayoutTimes, parallel: Parallel, checkpointing: str, micro: list[int], rounds: list[int]) -> np.ndarray:
    step = LayoutStep(parallel, checkpointing, np.array(micro, dtype=float), np.array(rounds, dtype=float))
    return screen.seconds([step])[0]


def test_layouts_timed_together_are_as_each_alone() -> None:
    layouts = list(legal_layouts(WORK, DENSE, 4, 2))[::4]
    steps = [LayoutStep(one, "full", np.array([1.0, 2.0]), np.array([4.0, 2.0])) for one in layouts]
    together = LayoutTimes(WORK, DENSE, DEVICES, 4, 2).seconds(steps)
    for step, seconds in zip(steps, together, strict=True):
        assert (LayoutTimes(WORK, DENSE, DEVICES, 4, 2).seconds([step])[0] == seconds).all(), step.parallel


@pytest.mark.parametrize(("engine", "near"), [("pytorch", 0.003), ("ngc", 0.01)])
@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("shape", [DENSE, replace(DENSE, experts=Experts(8, 2, 1024))], ids=["dense", "mixture"])
def test_layouts_screened_are_layouts_evaluated(shape: Transformer, nodes: int, engine: str, near: float) -> None:
    workload = replace(WORK, engine=engine, nodes=nodes)
    screen = LayoutTimes(workload, shape, DEVICES, 4, nodes)
    layouts = list(legal_layouts(workload, shape, 4, nodes))[:: 5 if shape is DENSE else 9]
    for place, parallel in enumerate(layouts):
        checkpointing = ("none", "full")[place % 2]
        for micro in (1, 2):
            rounds = 32 // parallel.dp // micro
            seconds = _seconds(screen, parallel, checkpointing, [micro], [rounds])
            whole = replace(apply_layout(workload, parallel, micro, rounds, checkpointing), gpus=4, nodes=nodes)
            assert seconds[0, 0] == pytest.approx(evaluate_group(whole, shape, DEVICES).breakdown.wall[0, 0], rel=near), parallel


def test_gpu_in_several_fabrics_is_timed_as_in_each_alone() -> None:
    gpu = GPUS["h100-sxm"]
    fabrics = [fabric_of(gpu), fabric_of(gpu, interconnect="pcie"), fabric_of(gpu)]
    parallel = list(legal_layouts(WORK, DENSE, 4, 1))[1]
    together = _seconds(LayoutTimes(WORK, DENSE, Devices.of([gpu] * 3, fabrics), 4, 1), parallel, "full", [1, 2], [4, 2])
    assert together.shape == (3, 2)
    for place, fabric in enumerate(fabrics):
        alone = _seconds(LayoutTimes(WORK, DENSE, Devices.of([gpu], [fabric]), 4, 1), parallel, "full", [1, 2], [4, 2])
        assert together[place] == pytest.approx(alone[0], rel=1e-12)
    assert together[0, 0] != together[1, 0]


@pytest.mark.parametrize("own", [3, 300])
def test_a_micro_batch_that_is_no_power_of_two_is_timed_at_its_own_size(own: int) -> None:
    workload = replace(WORK, gpus=1, batch=own, micro_batch=own)
    screen = LayoutTimes(workload, DENSE, DEVICES, 1, 1, sizes=np.array([float(own)]))
    seconds = _seconds(screen, Parallel(), "none", [own], [1])
    whole = apply_layout(workload, Parallel(), own, 1, "none")
    assert seconds[0, 0] == pytest.approx(evaluate_group(whole, DENSE, DEVICES).breakdown.wall[0, 0], rel=0.01)
