"""Seed 003 ends: know the limits of the GPUs you have, and give each its best role in the cluster."""

from __future__ import annotations

import pytest

from tests.serving_cases import CATALOG, workload_and_shape
from whichgpu.base.messages import english
from whichgpu.decide.roles.assign import assign_roles
from whichgpu.decide.roles.cluster import GpuKind, ModelLoad
from whichgpu.estimate.serving.curve import Objectives
from whichgpu.estimate.serving.load import Lengths, Load

CLUSTER = {"v100-sxm-16gb": 8, "a100-sxm-80gb": 4, "h100-sxm": 2}


def served(model: str, rate: float) -> ModelLoad:
    workload, shape = workload_and_shape(model)
    load = Load(rate, Lengths(1000, 0.8), Lengths(200, 0.6), 1500)
    return ModelLoad(model, workload, shape, load, Objectives(2.0, 0.1, 90))


@pytest.mark.long
@pytest.mark.parametrize("large", ["llama-3.1-70b", "llama-3.1-405b"])
def test_every_gpu_of_a_mixed_cluster_gets_a_role_or_a_reason(large: str) -> None:
    kinds = [GpuKind(CATALOG.gpu_by_id[gpu], count) for gpu, count in CLUSTER.items()]
    answer = assign_roles(kinds, [served("llama-3.1-8b", 10.0), served("llama-2-13b", 3.0), served(large, 1.0)])
    for gpu, count in CLUSTER.items():
        at_work = sum(one.gpus for one in answer.groups if one.gpu == gpu)
        idle = [one for one in answer.idle if one.gpu == gpu]
        assert at_work + sum(one.gpus for one in idle) == count
        assert all(one.reasons for one in idle)
    assert all(one.precision == "fp16" for one in answer.groups if one.gpu == "v100-sxm-16gb")  # it has no bf16
    models = {one.model for one in answer.models}
    if large == "llama-3.1-70b":  # Two H100 hold it and serve 2.71 times the load; with four A100 for it all serve 2.53 times.
        assert models == {"llama-3.1-8b", "llama-2-13b", large}
        assert {one.gpu for one in answer.groups if one.model == large} == {"h100-sxm"}
        assert answer.times.value > 1
    else:  # nothing here holds it, and the others are served all the same
        assert models == {"llama-3.1-8b", "llama-2-13b"}
        assert any(f"{large} is not served" in english().render(one) for one in answer.warnings)
