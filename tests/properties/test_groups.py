"""Properties of groups: shards shrink, faster links never slow a step, more work never takes less."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.examples import examples
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.group.collectives import CollectiveKind, Communicator, collective_cost
from whichgpu.estimate.group.fabric import Fabric, fabric_of
from whichgpu.estimate.group.step import Devices, evaluate_group
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.workload.models import find_model
from whichgpu.workload.shapes import Shape
from whichgpu.workload.spelling import fill_defaults, from_object
from whichgpu.workload.workload import Workload

CATALOG = Catalog()
GPUS = CATALOG.gpu_by_id
LINKED = ["h100-sxm", "a100-sxm-40gb", "v100-sxm-16gb", "mi300x", "t4", "l40s", "rtx-4090", "a100-pcie-80gb", "b200"]
KINDS: list[CollectiveKind] = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send", "broadcast"]
gpus = st.sampled_from(LINKED)
few = settings(max_examples=examples(15), deadline=None)

WORK: list[tuple[str, str, dict[str, Any]]] = [
    ("train", "resnet50", {"gpus": 8, "batch": 512}),
    ("train", "resnet50", {"gpus": 4, "batch": 48, "parallel": {"dp": 4, "threads": True}}),
    ("train", "bert-large", {"gpus": 16, "nodes": 2, "batch": 64, "seq_in": 384}),
    ("train", "llama-3.1-8b", {"gpus": 8, "batch": 16, "parallel": {"dp": 8, "zero": 3}, "seq_in": 1024}),
    (
        "train",
        "llama-3.1-8b",
        {"gpus": 8, "batch": 16, "accumulation": 4, "parallel": {"tp": 2, "pp": 2, "dp": 2}, "seq_in": 1024},
    ),
    ("train", "mixtral-8x7b", {"gpus": 8, "batch": 8, "parallel": {"dp": 8, "ep": 8}, "seq_in": 512}),
    ("train", "llama-3.1-8b", {"gpus": 4, "batch": 4, "parallel": {"cp": 4}, "seq_in": 8192}),
    ("decode", "llama-2-70b", {"gpus": 8, "batch": 16, "engine": "vllm"}),
    ("prefill", "llama-2-70b", {"gpus": 4, "batch": 4}),
    ("batch", "llama-2-70b", {"gpus": 16, "nodes": 2, "batch": 16, "parallel": {"tp": 8, "pp": 2}}),
]
work = st.sampled_from(WORK)


def workload_and_shape(task: str, model: str, **fields: Any) -> tuple[Workload, Shape]:
    shape = find_model(model, CATALOG)
    return fill_defaults(from_object({"task": task, "model": model, **fields}).workload, shape), shape


LINK_FIELDS = ["link_bandwidth", "pcie_bandwidth", "network_bandwidth", "network_latency"]


def wall(workload: Workload, shape: Shape, gpu: str, fabric: Fabric) -> float:
    return float(evaluate_group(workload, shape, Devices.of([GPUS[gpu]], [fabric])).breakdown.wall[0, 0])


@few
@given(
    work,
    gpus,
    st.floats(1.0, 16.0),
    st.sampled_from(["link_bandwidth", "pcie_bandwidth", "network_bandwidth", "network_latency"]),
)
def test_a_faster_link_never_slows_a_step(case: tuple[str, str, dict[str, Any]], gpu: str, times: float, part: str) -> None:
    task, model, fields = case
    workload, shape = workload_and_shape(task, model, **fields)
    plain = fabric_of(GPUS[gpu])
    value = getattr(plain, part)
    faster = replace(plain, **{part: value / times if part == "network_latency" else value * times})
    assert wall(workload, shape, gpu, faster) <= wall(workload, shape, gpu, plain) * (1 + 1e-9)


@few
@given(
    st.sampled_from(KINDS), gpus, st.floats(1.0, 1e10), st.floats(1.0, 100.0), st.sampled_from([(2, 2), (4, 4), (8, 8), (16, 8)])
)
def test_more_bytes_never_take_less(kind: CollectiveKind, gpu: str, size: float, times: float, ranks: tuple[int, int]) -> None:
    fabric, ring = fabric_of(GPUS[gpu]), Communicator(*ranks)
    less, more = (float(collective_cost(kind, bytes_, ring, [fabric], "vllm").seconds[0, 0]) for bytes_ in (size, size * times))
    assert 0 < less <= more * (1 + 1e-9)


@few
@given(work, gpus)
def test_a_group_is_never_faster_than_its_physics(case: tuple[str, str, dict[str, Any]], gpu: str) -> None:
    """A rank's FLOPs over its peak and bytes over its bandwidth, and not less than nothing for messages."""
    task, model, fields = case
    workload, shape = workload_and_shape(task, model, **fields)
    grid = evaluate_group(workload, shape, Devices.of([GPUS[gpu]], [fabric_of(GPUS[gpu])]))
    assert grid.breakdown.wall[0, 0] >= grid.floor[0, 0]
    assert grid.breakdown.communication[0, 0] >= 0
    assert grid.breakdown.hidden[0, 0] >= 0


@pytest.mark.parametrize("zero", [1, 2, 3])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "bert-large", "resnet50", "vit_l_16"])
@pytest.mark.sweep(3)
def test_adding_gpus_never_raises_memory_with_sharded_states(model: str, zero: int) -> None:
    """Pure bf16: no more on the device. Under autocast, the default, the segments of the allocator vary, but no tensor grows."""
    needs, tensors = [], []
    for gpus_ in (2, 4, 8, 16, 64):
        workload, shape = workload_and_shape("train", model, gpus=gpus_, batch=2 * gpus_, parallel={"dp": gpus_, "zero": zero})
        needs.append(estimate_memory(replace(workload, precision="bf16"), shape).device.value)
        tensors.append(estimate_memory(workload, shape).allocated.value)
    assert all(after <= before for before, after in pairwise(needs))
    assert all(after <= before for before, after in pairwise(tensors))


@pytest.mark.parametrize("axis", ["tp", "pp"])
@pytest.mark.parametrize("task", ["batch", "train"])
def test_cutting_a_model_further_never_raises_memory(task: str, axis: str) -> None:
    needs = []
    for degree in (1, 2, 4, 8):
        workload, shape = workload_and_shape(task, "llama-3.1-8b", gpus=degree, batch=8, seq_in=1024, parallel={axis: degree})
        needs.append(estimate_memory(workload, shape, GPUS["h100-sxm"]).allocated.value)
    assert all(after <= before * 1.001 for before, after in pairwise(needs))


@pytest.mark.parametrize(
    ("gpu", "degrees"), [("h100-sxm", (1, 2, 4, 8)), ("a100-sxm-80gb", (1, 2, 4, 8)), ("b200", (1, 2, 4, 8))]
)
def test_within_a_switched_node_more_gpus_never_slow_a_large_model(gpu: str, degrees: tuple[int, ...]) -> None:
    times = []
    for degree in degrees:
        workload, shape = workload_and_shape("batch", "llama-2-70b", gpus=degree, batch=16, parallel={"tp": degree})
        times.append(wall(workload, shape, gpu, fabric_of(GPUS[gpu])))
    assert all(after < before for before, after in pairwise(times))


DENSE = ["llama-3.1-8b", "llama-3.1-70b", "qwen3-32b", "mistral-7b"]
SWITCHED = ["h100-sxm", "h200-sxm", "a100-sxm-80gb", "b200", "gb200"]


@few
@given(
    st.sampled_from(DENSE),
    st.sampled_from(SWITCHED),
    st.sampled_from(["vllm", "sglang", "tensorrt-llm", "cuda-graphs"]),
    st.integers(1, 32),
    st.sampled_from([2025, 2026]),
)
def test_two_gpus_on_nvlink_are_not_slower_than_one_while_weights_dominate(
    model: str, gpu: str, engine: str, batch: int, year: int
) -> None:
    fields = {"batch": batch, "seq_in": 512, "engine": engine, "year": year, "precision": "bf16"}
    one, two = (
        wall(*workload_and_shape("decode", model, gpus=tp, parallel={"tp": tp}, **fields), gpu, fabric_of(GPUS[gpu]))
        for tp in (1, 2)
    )
    assert two <= one


@few
@given(st.sampled_from(DENSE), st.sampled_from(SWITCHED), st.sampled_from(["vllm", "sglang", "tensorrt-llm"]), st.integers(1, 64))
def test_graphs_of_today_lose_a_few_percent_to_the_slowest_of_eight(model: str, gpu: str, engine: str, batch: int) -> None:
    """Waiting for other GPUs and for the host to call them; a host fast enough to launch any step in time."""
    fields = {"batch": batch, "seq_in": 512, "engine": engine, "host_speed": 10.0}
    one, eight = (
        evaluate_group(
            *workload_and_shape("decode", model, gpus=tp, parallel={"tp": tp}, **fields), Devices.of([GPUS[gpu]], [fabric])
        )
        for tp in (1, 8)
        for fabric in [fabric_of(GPUS[gpu])]
    )
    waiting = float(eight.breakdown.waiting[0, 0]) - float(one.breakdown.waiting[0, 0])
    assert waiting <= 0.03 * float(eight.breakdown.wall[0, 0])
