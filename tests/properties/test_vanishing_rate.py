"""A server that is hardly loaded takes as long for a token as a decode step of one sequence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.serving_cases import CATALOG, workload_and_shape
from whichgpu.api.workloads.estimate import estimate
from whichgpu.estimate.serving.server import server_of

IN, OUT = 1000, 201


@pytest.mark.sweep(4)
@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
@pytest.mark.parametrize(
    ("model", "gpu", "gpus"),
    [
        ("llama-3.1-8b", "h200-sxm", 1),
        ("llama-3.1-8b", "l4", 1),
        ("llama-3.1-70b", "h100-sxm", 4),
        ("qwen3-30b-a3b", "h200-sxm", 1),
        ("gpt-oss-20b", "h100-sxm", 1),
        ("gpt-oss-120b", "b200", 2),
        ("deepseek-v2-lite", "a100-sxm-80gb", 1),
        ("deepseek-v3", "h200-sxm", 8),
        ("gemma-3-27b", "h100-sxm", 2),
    ],
)
def test_serving_one_request_now_and_then_equals_decoding_it(engine: str, model: str, gpu: str, gpus: int) -> None:
    layout: dict[str, Any] = {"gpus": gpus, "parallel": {"tp": gpus}} if gpus > 1 else {}
    workload, shape = workload_and_shape(model, engine=engine, seq_in=IN, seq_out=OUT, **layout)
    server = server_of(workload, shape, CATALOG.gpu_by_id[gpu])
    outcome = server.run([(100.0 * number, IN, OUT, ()) for number in range(3)])
    tpot = float(np.median((outcome.finished - outcome.first) / (OUT - 1)))
    step = estimate("decode", model, gpu=gpu, batch=1, seq_in=IN + OUT // 2, engine=engine, own=False, **layout).time
    assert step is not None
    assert tpot == pytest.approx(step.value, rel=0.02)
