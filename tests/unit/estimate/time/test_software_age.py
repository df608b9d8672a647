"""A GPU newer than the software named: said in a warning, and the range is wider, under every engine."""

from __future__ import annotations

from math import log
from typing import Any

import pytest

from whichgpu.api.workloads.estimate import estimate
from whichgpu.estimate.time.software_age import NEWER_GPU_LOG_RANGE

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
    widths = [log(one.high / one.value) for one in (before.time, after.time)]
    assert widths[0] - widths[1] == pytest.approx(NEWER_GPU_LOG_RANGE[1])
    assert before.time.low / before.time.value <= after.time.low / after.time.value + 1e-9
