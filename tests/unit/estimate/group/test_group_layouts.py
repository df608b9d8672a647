"""Legal layouts, what they need, and the search over them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from whichgpu.api.workloads.layouts import layouts
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.fit import required_memory
from whichgpu.estimate.group.fabric import fabric_of
from whichgpu.estimate.group.layout_memory import LayoutMemory, apply_layout
from whichgpu.estimate.group.layout_search import screen_layouts, time_best_layouts
from whichgpu.estimate.group.layouts import legal_layouts
from whichgpu.estimate.group.step import Devices
from whichgpu.estimate.memory.dispatch import estimate_memory
from whichgpu.workload.models import find_model
from whichgpu.workload.shapes import Shape, Transformer
from whichgpu.workload.spelling import fill_defaults, from_object
from whichgpu.workload.workload import Parallel, Workload

CATALOG = Catalog()
GPUS = CATALOG.gpu_by_id


def workload_and_shape(task: str, model: str, **fields: Any) -> tuple[Workload, Shape]:
    shape = find_model(model, CATALOG)
    return fill_defaults(from_object({"task": task, "model": model, **fields}).workload, shape), shape


def devices(*names: str) -> Devices:
    gpus = [GPUS[name] for name in names]
    return Devices.of(gpus, [fabric_of(gpu) for gpu in gpus])


@pytest.mark.parametrize("gpus", [1, 2, 6, 8, 16])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "mixtral-8x7b", "bert-large"])
def test_every_layout_uses_every_gpu_and_divides_evenly(model: str, gpus: int) -> None:
    workload, shape = workload_and_shape("train", model, batch=gpus)
    assert isinstance(shape, Transformer)
    parallels = list(legal_layouts(workload, shape, gpus, max(1, gpus // 8)))
    assert len(set(parallels)) == len(parallels) > 0
    for layout in parallels:
        assert layout.dp * layout.tp * layout.pp * layout.cp == gpus
        assert shape.heads % layout.tp == 0
        assert layout.pp <= shape.layers
        assert layout.tp <= 8
        assert layout.dp % layout.ep == 0
        assert shape.experts is None or shape.experts.count % layout.ep == 0
        assert layout.zero == 0 or layout.dp > 1
        assert layout.chunks == 1 or (layout.pp > 1 and shape.layers % (layout.pp * layout.chunks) == 0)


def test_networks_that_see_are_copied_only() -> None:
    workload, shape = workload_and_shape("train", "resnet50")
    assert {(layout.dp, layout.tp, layout.pp) for layout in legal_layouts(workload, shape, 8)} == {(8, 1, 1)}


@pytest.mark.parametrize(
    ("layout", "micro", "rounds", "checkpointing"),
    [
        (Parallel(dp=8, zero=3), 2, 4, "none"),
        (Parallel(dp=8, zero=2), 2, 4, "none"),
        (Parallel(dp=8, zero=1), 1, 8, "full"),
        (Parallel(dp=2, tp=4, sp=True, zero=1), 4, 8, "none"),
        (Parallel(dp=4, pp=2, zero=1), 1, 16, "none"),
    ],
)
def test_needs_on_lines_are_near_those_counted(layout: Parallel, micro: int, rounds: int, checkpointing: str) -> None:
    workload, shape = workload_and_shape("train", "llama-3.1-8b", gpus=8, batch=64, seq_in=2048)
    exact_request = apply_layout(workload, layout, micro, rounds, checkpointing)
    exact = required_memory(estimate_memory(exact_request, shape), exact_request).value
    lined = LayoutMemory(workload, shape).of(layout, checkpointing, np.array([float(micro)]), np.array([float(rounds)]))[0]
    assert lined == pytest.approx(exact, rel=0.12)


@pytest.mark.parametrize("micro", [1, 4, 64])
def test_screened_memory_of_moe_over_eight_ranks_is_near_the_exact_one(micro: int) -> None:
    """Its gradients are so large that with few sequences the end of backward is the peak, with many the loss."""
    workload, shape = workload_and_shape("train", "mixtral-8x7b", gpus=8, batch=64, seq_in=1024, precision="bf16")
    layout = Parallel(tp=8, sp=True)
    exact_request = apply_layout(workload, layout, micro, 1, "full")
    lined = LayoutMemory(workload, shape).of(layout, "full", np.array([float(micro)]), np.ones(1))[0]
    assert lined == pytest.approx(required_memory(estimate_memory(exact_request, shape), exact_request).value, rel=0.12)


@pytest.mark.parametrize("checkpointing", ["none", "full"])
@pytest.mark.parametrize("zero", [2, 3])
@pytest.mark.parametrize("precision", ["bf16", "amp-bf16"])
def test_zero_of_a_large_model_is_counted_at_its_own_peak(checkpointing: str, zero: int, precision: str) -> None:
    """70B parameters over 64 GPUs: without ZeRO the fullest moment is the end of backward, with it one before that."""
    workload, shape = workload_and_shape("train", "llama-3.1-70b", gpus=64, batch=128, seq_in=2048, precision=precision)
    layout = Parallel(dp=64, zero=zero)
    exact_request = apply_layout(workload, layout, 2, 1, checkpointing)
    estimate = estimate_memory(exact_request, shape)
    lined = LayoutMemory(workload, shape).of(layout, checkpointing, np.array([2.0]), np.ones(1))[0]
    assert (
        0.95 * estimate.allocated.value <= lined <= 1.1 * required_memory(estimate, exact_request).value
    )  # between live and held
    assert isinstance(shape, Transformer)
    if checkpointing == "none":  # what all layers keep for backward is there at once, whatever is sharded
        few, more = (
            estimate_memory(exact_request, replace(shape, layers=layers)).parts["activations"].value for layers in (2, 4)
        )
        assert estimate.parts["activations"].value == pytest.approx(few + (more - few) / 2 * (shape.layers - 2), rel=0.02)


def test_refined_layouts_fit_and_are_near_their_screening_estimate() -> None:
    workload, shape = workload_and_shape("train", "llama-3.1-8b", gpus=8, batch=64, seq_in=2048)
    group = devices("h100-sxm", "l40s")
    layouts = screen_layouts(workload, shape, group, 8)
    assert layouts.seconds.shape == (2, len(layouts.candidates))
    for gpu in (0, 1):
        best = time_best_layouts(workload, shape, group, layouts, gpu)
        assert best
        for one in best:
            place = layouts.candidates.index(one.candidate)
            assert one.seconds == pytest.approx(layouts.seconds[gpu, place], rel=0.12)
            assert one.candidate.micro_batch * one.candidate.accumulation * one.candidate.parallel.dp == 64


def test_a_model_too_large_for_one_gpu_is_cut() -> None:
    """70B parameters in 16 bits are 131 GiB: no layout of eight 48 GB cards holds a copy on one or two of them."""
    rows = layouts("batch", "llama-3.1-70b", "l40s", 8, batch=16)
    assert rows
    assert all(row.parallel.tp * row.parallel.pp >= 4 for row in rows)
    assert list(rows) == sorted(rows, key=lambda row: (row.fits != "fits", row.seconds))


def test_small_networks_are_copied_and_need_no_checkpointing() -> None:
    (best, *_) = layouts("train", "resnet50", "a100-sxm-40gb", 8, batch=2048)
    assert (best.parallel.dp, best.checkpointing) == (8, "none")
    assert best.micro_batch * best.accumulation * 8 == 2048


def test_slow_links_are_spared_tensor_parallelism_in_training() -> None:
    """Over PCIe activations are dearer than stages or shards; over NVLink tensor parallelism may pay."""
    (best, *_) = layouts("train", "llama-3.1-8b", "l40s", 8, batch=64, seq_in=2048)
    assert best.parallel.tp == 1


def test_no_layout_if_nothing_fits() -> None:
    assert layouts("train", "llama-3.1-405b", "rtx-4090", 8) == ()
