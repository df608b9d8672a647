"""The documents on several GPUs: when data parallelism pays, what PCIe costs, how clusters and inference scale."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from whichgpu.api.workloads.estimate import estimate
from whichgpu.base.messages import english
from whichgpu.estimate.group.scaling import Scaling


def rate(task: str, model: str, gpu: str, gpus: int, **fields: Any) -> float:
    answer = estimate(task, model, gpu=gpu, gpus=gpus, **fields)
    assert answer.throughput is not None
    return answer.throughput.value


def efficiency(task: str, model: str, gpu: str, gpus: int, batch: int, **fields: Any) -> float:
    """Scaling efficiency of `gpus` replicas with `batch` samples each, relative to one."""
    one = rate(task, model, gpu, 1, batch=batch, **{name: value for name, value in fields.items() if name != "nodes"})
    return rate(task, model, gpu, gpus, batch=batch * gpus, parallel={"dp": gpus}, **fields) / one / gpus


# 2015-11-19: "CNNs share weights, so data parallelism works and several GPUs are useful"; a fully connected network of the
# document's own size has far more weights for each sample.


@pytest.mark.parametrize("gpu", ["gtx-titan-x", "gtx-980"])
def test_2015_data_parallel_pays_for_convolutional_networks(gpu: str) -> None:
    cnn = efficiency("train", "resnet50", gpu, 4, 32, precision="fp32", year=2016)
    dense = efficiency("train", "mlp:9000x4000x4000x32", gpu, 4, 128, precision="fp32", year=2016)
    assert cnn > 0.85
    assert dense < cnn - 0.3
    assert 4 * dense < 2.2  # four cards are worth two


@pytest.mark.parametrize("model", ["alexnet", "resnet18"])
def test_2015_one_gpu_is_enough_for_10_to_15_gb_of_data(model: str) -> None:
    """15 GB are 136,000 images of ImageNet's mean 110 KB: ninety times through them takes one card of the day less than a day."""
    images = 15e9 / 110e3
    assert 90 * images / rate("train", model, "gtx-titan-x", 1, batch=128, precision="fp32", year=2016) < 24 * 3600


def test_2015_a_small_batch_is_slower_on_two_gpus_than_on_one() -> None:
    """Its step is shorter than the all-reduce of the document's own network."""
    small = efficiency("train", "mlp:9000x4000x4000x32", "gtx-titan-x", 2, 16, precision="fp32", year=2016)
    assert 2 * small < 1.0


def test_2015_a_cluster_is_bound_by_its_network() -> None:
    """Two machines of two GPUs: over a home or office network VGG's all-reduce dominates, over InfiniBand far less."""
    fields: dict[str, Any] = {"precision": "fp32", "year": 2016}
    slow = efficiency("train", "vgg16", "gtx-titan-x", 4, 32, nodes=2, network="ethernet", network_gbps=0.5, **fields)
    fast = efficiency("train", "vgg16", "gtx-titan-x", 4, 32, nodes=2, network="infiniband", network_gbps=28, **fields)
    assert slow < 0.3 < 0.7 < fast
    answer = estimate(
        "train", "vgg16", gpu="gtx-titan-x", gpus=4, nodes=2, batch=128, network="ethernet", network_gbps=0.5, **fields
    )
    assert answer.bound == "interconnect"


def test_2015_data_parallel_over_infiniband_scales_well() -> None:
    """Two machines joined by InfiniBand do as well as one of four GPUs."""
    fields: dict[str, Any] = {"precision": "fp32", "year": 2016}
    together = efficiency("train", "vgg16", "gtx-titan-x", 4, 32, **fields)
    fast = efficiency("train", "vgg16", "gtx-titan-x", 4, 32, nodes=2, network="infiniband", network_gbps=28, **fields)
    assert fast == pytest.approx(together, abs=0.1)


# 2021-05-16: "Do not use many GPUs of a G4 instance: it connects them by PCIe, not NVLink; take P3 for distributed training."


@pytest.mark.parametrize("model", ["bert-large", "vgg16"])
def test_2021_pcie_scales_worse_than_nvlink(model: str) -> None:
    fields: dict[str, Any] = {"precision": "amp-fp16", "year": 2021}
    if model == "bert-large":
        fields["seq_in"] = 128
    pcie = efficiency("train", model, "v100-sxm-16gb", 4, 8, interconnect="pcie", **fields)
    nvlink = efficiency("train", model, "v100-sxm-16gb", 4, 8, interconnect="cube-mesh", **fields)
    assert pcie < nvlink - 0.1


@pytest.mark.parametrize(("model", "fields"), [("bert-large", {"seq_in": 128}), ("vgg16", {})])
def test_2021_communication_on_g4dn_takes_over_twice_that_on_p3(model: str, fields: dict[str, Any]) -> None:
    """g4dn.12xlarge and p3.8xlarge have four GPUs each: the collectives of the same step take over twice as long on the first.

    Their share of the step is about the same on both, since the T4's own work takes three times as long, so it is not compared.
    """
    seconds = {}
    for name in ("g4dn.12xlarge", "p3.8xlarge"):
        answer = estimate("train", model, gpu=name, precision="amp-fp16", parallel={"dp": 4}, batch=32, **fields)
        assert answer.group is not None
        seconds[name] = answer.group.communication.value + answer.group.hidden
    assert seconds["g4dn.12xlarge"] > 2 * seconds["p3.8xlarge"]


# 2024-04-08: "With llama2, inference time fell in proportion to the number of GPUs: 10 s on one, about 5 s on two."


@pytest.mark.parametrize(("model", "gpu"), [("llama-2-13b", "a100-sxm-80gb"), ("llama-2-70b", "h200-sxm")])
def test_2024_llama_2_on_two_gpus_takes_about_half_the_time(model: str, gpu: str) -> None:
    """LLM-Inference-Bench measured 1.43 to 1.55 times for the 7B model, 1.98 for the 70B one; a larger share is work there."""
    one, two = (rate("batch", model, gpu, count, batch=8, engine="tensorrt-llm") for count in (1, 2))
    assert 1.5 < two / one < 2.1


def a_whole_node() -> tuple[Scaling, list[str]]:
    """How Llama-2-70B scales over eight A100s, and its notes."""
    fields: dict[str, Any] = {"batch": 64, "seq_in": 2048, "engine": "tensorrt-llm"}
    answer = estimate("prefill", "llama-2-70b", gpu="a100-sxm-80gb", gpus=8, **fields)
    assert answer.group is not None
    assert answer.group.scaling is not None
    return answer.group.scaling, [english().render(warning) for warning in answer.warnings]


def test_2024_a_whole_node_gets_six_tenths_of_its_gpus_done() -> None:
    assert next(point for point in a_whole_node()[0].points if point.gpus == 8).efficiency > 0.6


def test_2024_scaling_holds_within_a_node_and_stops_there() -> None:
    """Within a node each doubling brings over 1.4 times; over a network between nodes it does not, and the answer says so."""
    scaling, notes = a_whole_node()
    inside = [point for point in scaling.points if point.gpus <= 8]
    assert all(after.speed / before.speed > 1.4 for before, after in pairwise(inside))
    assert scaling.stops == 8
    assert any("stops at 8 GPUs" in line for line in notes)
