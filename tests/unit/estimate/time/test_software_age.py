"""A GPU newer than the software named: said in a warning, and the range is wider, under every engine."""

from __future__ import annotations

from math import log
from typing import Any

import pytest

from whichgpu.api.workloads.estimate import estimate
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.software_age import NEWER_GPU_LOG_RANGE, widened
from whichgpu.workload.spelling import from_object

CASES = [
    ("pytorch", "train", {}), ("pytorch-compile", "train", {}), ("ngc", "train", {}), ("tensorflow", "train", {}),
    ("mxnet", "train", {}), ("cuda-graphs", "decode", {}), ("tensorrt", "prefill", {}), ("vllm", "decode", {}),
    ("sglang", "decode", {}), ("tensorrt-llm", "decode", {}), ("llama.cpp", "decode", {"precision": "q8_0"}),
    ("vllm", "decode", {"gpus": 2}), ("pytorch", "train", {"gpus": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("engine", "task", "more"), CASES)
def test_the_warning_and_the_wider_range(engine: str, task: str, more: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"gpu": "B200", "engine": engine, "batch": 8, "seq_in": 128, "own": False, **more}
    before, after = (estimate(task, "llama-3.2-1b", year=year, **fields) for year in (2023, 2025))
    assert [one.id == "warning.gpu-newer" for one in before.warnings].count(True) == 1
    assert not any(one.id == "warning.gpu-newer" for one in after.warnings)
    assert before.time is not None
    assert after.time is not None
    request = from_object({"task": task, "model": "llama-3.2-1b", "year": 2023}).workload
    assert widened((-0.2, 0.3), request, Catalog().gpu_by_id["b200"]) == pytest.approx((-0.3, 0.9))
    slow = [log(one.high / one.value) for one in (before.time, after.time)]
    fast = [log(one.value / one.low) for one in (before.time, after.time)]
    # The evidence of the two years differs as well, by less than a quarter of the term; a low end may be the physical floor.
    assert slow[0] - slow[1] > 0.75 * NEWER_GPU_LOG_RANGE[1]
    assert fast[0] >= fast[1]
