"""Fixed batches: the sizes tried, the size chosen, and refusals with how far they miss."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from whichgpu.base.figure import Figure
from whichgpu.base.units import GIB
from whichgpu.catalog.store import Catalog
from whichgpu.decide.configurations import fixed_batch
from whichgpu.decide.configurations.configuration import Configuration, Infeasibility, WorkloadRequest
from whichgpu.decide.configurations.fixed_batch import evaluate_batches
from whichgpu.estimate.offline import SAMPLES
from whichgpu.estimate.time.calibration import load_calibration
from whichgpu.workload.models import find_model
from whichgpu.workload.shapes import Mlp
from whichgpu.workload.workload import Workload


def question(workload: Workload, *stated: str) -> Any:
    return SimpleNamespace(workload=workload, stated=frozenset(stated), shape=Mlp("mlp:8x8", (8, 8)))


def sizes(workload: Workload, gpus: int, *stated: str) -> list[float]:
    return [float(size) for size in fixed_batch._sizes(question(workload, *stated), workload, gpus)]


def test_without_a_batch_several_are_tried_and_training_takes_the_default() -> None:
    assert sizes(Workload("batch", "m"), 2) == SAMPLES.tolist()
    assert sizes(Workload("train", "m"), 2) == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0]  # the default, and its halvings
    assert sizes(Workload("train", "m", accumulation=2), 2, "accumulation") == [128.0]


@pytest.mark.parametrize(
    ("task", "batch", "gpus", "tried"),
    [
        ("train", 64, 4, [2, 4, 8, 16]),
        ("train", 4, 4, [1]),
        ("train", 12, 2, [3, 6]),
        ("train", 10, 4, []),
        ("train", 2, 4, []),
        ("batch", 10, 4, [3]),
        ("batch", 2, 4, [1]),
    ],
)
def test_training_batch_divides_evenly_and_inference_batch_need_not(task: str, batch: int, gpus: int, tried: list[float]) -> None:
    assert sizes(Workload(task, "m", batch=batch), gpus, "batch") == tried  # type: ignore[arg-type]


def test_micro_batch_is_used_as_requested() -> None:
    assert sizes(Workload("train", "m", batch=64, micro_batch=8), 3, "batch", "micro_batch") == [8.0]


def test_accumulation_steps_add_up_to_the_requested_batch() -> None:
    tried = np.array([2.0, 4.0, 8.0])
    training = Workload("train", "m", batch=64, accumulation=3)
    assert fixed_batch._rounds(question(training, "batch"), training, tried, 4).tolist() == [8.0, 4.0, 2.0]
    assert fixed_batch._rounds(question(training, "accumulation"), training, tried, 4).tolist() == [3.0] * 3
    assert fixed_batch._rounds(question(training), training, tried, 4).tolist() == [
        64.0,
        32.0,
        16.0,
    ]  # of the default share of 128
    run = Workload("batch", "m", batch=64, accumulation=3)
    assert fixed_batch._rounds(question(run, "batch"), run, tried, 4).tolist() == [1.0] * 3


def test_only_the_largest_batches_per_memory_size_are_tried() -> None:
    need = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    assert fixed_batch._largest(need, np.array([4.5])).tolist() == [False, False, True, True, False]
    assert fixed_batch._largest(need, np.array([1.5, 5.0, 5.0])).tolist() == [True, False, False, True, True]
    assert not fixed_batch._largest(need, np.array([0.5])).any()


def needs(*gib: float, spread: float = 0.1) -> list[Figure]:
    return [Figure(size * GIB, size * GIB * (1 - spread), size * GIB * (1 + spread), "B", "modelled") for size in gib]


def best(
    workload: Workload, room_gib: float, seconds: list[float], memory: list[Figure], *stated: str
) -> Configuration | Infeasibility:
    tried, times = np.array([1.0, 8.0, 32.0])[: len(seconds)], np.array(seconds)
    return fixed_batch._best(
        question(workload, *stated), workload, room_gib * GIB, tried, memory, times, np.zeros(len(times)), 0.5 * times, 2
    )


def test_fastest_that_fits_is_chosen() -> None:
    configuration = best(Workload("batch", "m"), 10.0, [0.1, 0.2, 0.4], needs(1, 4, 9.5))
    assert isinstance(configuration, Configuration)
    assert (configuration.batch, configuration.seconds, configuration.fits, configuration.bound) == (16, 0.2, "fits", "bandwidth")
    assert configuration.curve == ((2, 0.1, 20.0), (16, 0.2, 80.0), (64, 0.4, 160.0))
    assert (configuration.capacity, configuration.ttft, configuration.micro_batch) == (None, None, None)


def test_tight_fit_is_chosen_if_none_fits_surely_else_refused() -> None:
    configuration = best(Workload("batch", "m"), 10.0, [0.1], needs(9.5))
    assert isinstance(configuration, Configuration)
    assert configuration.fits == "tight"
    assert best(Workload("batch", "m"), 10.0, [0.1, 0.2], needs(15, 30)) == Infeasibility("memory", 0.5)


def test_a_service_answers_within_its_limit_after_the_batch_before_it() -> None:
    service = Workload("serve", "m", ttft_max=0.5)
    configuration = best(service, 10.0, [0.1, 0.2, 0.4], needs(1, 2, 3))
    assert isinstance(configuration, Configuration)
    assert configuration.batch == 16  # of 32 a sample would wait 0.8 s
    assert configuration.ttft == configuration.seconds == 0.2
    assert configuration.capacity == pytest.approx(0.7 * 80.0)
    refused = best(Workload("serve", "m", ttft_max=0.1), 10.0, [0.1, 0.2, 0.4], needs(1, 2, 3))
    assert refused == Infeasibility("latency", pytest.approx(1.0))  # type: ignore[arg-type]
    whenever = best(Workload("serve", "m"), 10.0, [0.1, 0.2, 0.4], needs(1, 2, 3))
    assert isinstance(whenever, Configuration)
    assert whenever.batch == 64


@pytest.mark.parametrize("task", ["train", "batch"])
def test_a_net_too_large_or_a_batch_that_cannot_be_shared_is_refused_on_every_group(catalog: Catalog, task: Any) -> None:
    group = SimpleNamespace(gpu=catalog.gpu_by_id["t4"], gpus=3, machines=1, precision=None)
    shape = find_model("mlp:100000x100000x100000x10", catalog)
    workload = Workload(task, "m", precision="fp32", batch=30, optimizer="sgd", engine="pytorch")
    request = WorkloadRequest(workload, frozenset({"batch"}), shape, load_calibration(), workload)
    configurations = evaluate_batches(request, [group])  # type: ignore[list-item]
    assert isinstance(configurations[0], Infeasibility)
    assert configurations[0].reason == "memory"
    assert configurations[0].short > 1.0
    odd = Workload("train", "m", precision="fp32", batch=31, optimizer="sgd", engine="pytorch")
    (refused,) = evaluate_batches(WorkloadRequest(odd, frozenset({"batch"}), shape, load_calibration(), odd), [group])  # type: ignore[list-item]
    assert refused == Infeasibility("layout", np.inf)
