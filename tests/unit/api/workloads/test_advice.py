"""Advice that accompanies the speed of a workload."""

from __future__ import annotations

import pytest

from whichgpu.api.workloads.advice import Advice, advice
from whichgpu.base.errors import UsageError
from whichgpu.base.figure import Figure
from whichgpu.base.messages import english
from whichgpu.catalog.store import Catalog
from whichgpu.workload.models import find_model
from whichgpu.workload.spelling import fill_defaults
from whichgpu.workload.workload import Workload

RATE = Figure(1154.0, 1000.0, 1300.0, "samples/s", "calibrated", ("truth-h200",))


def about(catalog: Catalog, workload: Workload, throughput: Figure | None = RATE, user_fields: tuple[str, ...] = ()) -> Advice:
    shape = find_model(workload.model, catalog)
    gpu = catalog.gpu_by_id.get((workload.gpu or "").lower())
    return advice(fill_defaults(workload, shape), shape, gpu, throughput, catalog, user_fields)


def warning_texts(advice: Advice) -> list[str]:
    return [english().render(message) for message in advice.warnings]


def test_image_training_has_the_required_loading_rate(catalog: Catalog) -> None:
    advice = about(catalog, Workload("train", "resnet50", gpu="h200-sxm"))
    assert len(warning_texts(advice)) == 1
    assert "about 9 vCPUs" in warning_texts(advice)[0]
    assert "dali-pytorch-demo" in advice.sources


def test_a_machine_by_name_brings_its_own_threads(catalog: Catalog) -> None:
    """A p3.2xlarge has 8 vCPUs for its V100."""
    text = warning_texts(about(catalog, Workload("train", "resnet50", gpu="p3.2xlarge")))[0]
    assert text.startswith("the host's 8 vCPUs may be too few to feed it")


@pytest.mark.parametrize(
    "workload",
    [
        Workload("train", "llama-3.2-1b", gpu="h200-sxm"),
        Workload("forward", "resnet50", gpu="h200-sxm"),
        Workload("train", "mlp:784x2048x10", gpu="h200-sxm"),
    ],
    ids=["text", "no training", "rows"],
)
def test_no_advice_if_data_loading_is_no_bottleneck(workload: Workload, catalog: Catalog) -> None:
    assert about(catalog, workload) == Advice()


def test_without_a_rate_no_advice_on_data_loading(catalog: Catalog) -> None:
    assert about(catalog, Workload("train", "resnet50"), None) == Advice()


def test_low_precision_has_its_accuracy_loss(catalog: Catalog) -> None:
    advice = about(catalog, Workload("forward", "bert-large", gpu="t4", precision="int8"))
    assert "6.43%" in warning_texts(advice)[0]
    assert "mlperf-inference-bert" in advice.sources


def test_an_engine_named_that_cannot_is_refused(catalog: Catalog) -> None:
    with pytest.raises(UsageError):
        about(catalog, Workload("train", "resnet50", gpu="h200-sxm", engine="vllm"), user_fields=("engine",))
