"""Counting without the allocator's pools gives the same parts, and a lower bound of the bytes on the device."""

from __future__ import annotations

from typing import Any

import pytest

from whichgpu.catalog.store import Catalog
from whichgpu.estimate.memory.dispatch import estimate_memory, minimum_training_memory
from whichgpu.estimate.memory.training.transformer import allocated_parts, transformer_parts
from whichgpu.workload.models import find_model
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.spelling import fill_defaults, from_object

CATALOG = Catalog()


@pytest.mark.parametrize(
    "fields",
    [{}, {"lora_rank": 16}, {"checkpointing": "full"}, {"accumulation": 4, "batch": 16}, {"gpus": 8, "parallel": "zero=3,dp=8"}],
)
@pytest.mark.parametrize("model", ["bert-large", "mixtral-8x7b"])
def test_the_same_parts(model: str, fields: dict[str, Any]) -> None:
    shape = find_model(model, CATALOG)
    assert isinstance(shape, Transformer)
    task = "finetune" if "lora_rank" in fields else "train"
    workload = fill_defaults(from_object({"task": task, "model": model, "batch": 8, **fields}).workload, shape)
    assert allocated_parts(workload, shape) == transformer_parts(workload, shape)[0]
    assert 0.0 < minimum_training_memory(workload, shape) < estimate_memory(workload, shape).device.low
