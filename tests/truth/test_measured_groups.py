"""Single measured steps of groups, each with its source; the tolerance is that of the page docs/evidence/accuracy-many.md."""

from __future__ import annotations

from typing import Any

import pytest

from whichgpu.api.workloads.estimate import estimate

MPT_7B = {"model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32, "vocab_size": 50368, "max_seq_len": 2048}
# task, model, GPU, fields, seconds, where it was printed
MEASURED: list[tuple[str, Any, str, dict[str, Any], float, str]] = [
    ("train", "resnet50", "a100-sxm-80gb",
     {"gpus": 8, "batch": 2048, "precision": "amp-fp16", "engine": "ngc", "year": 2020, "include_optimizer_step": False},
     2048 / 16621, "NVIDIA DeepLearningExamples, ResNet-50 v1.5 on a DGX A100"),
    ("train", "resnet50", "v100-sxm-16gb",
     {"gpus": 8, "batch": 2048, "precision": "amp-fp16", "engine": "ngc", "year": 2020, "include_optimizer_step": False},
     2048 / 8322, "the same on a DGX-1"),
    ("train", MPT_7B, "a100-sxm-40gb",
     {"gpus": 128, "nodes": 16, "batch": 2304, "seq_in": 2048, "precision": "bf16", "engine": "pytorch", "year": 2023,
      "checkpointing": "full", "parallel": {"dp": 128, "zero": 3}, "network": "roce", "network_gbps": 200},
     10.175, "MosaicML llm-foundry, MPT-7B on 128 GPUs over RoCE"),
    ("decode", "llama-2-70b", "h100-sxm",
     {"gpus": 8, "batch": 16, "seq_in": 576, "precision": "fp16", "engine": "vllm", "year": 2023, "parallel": {"tp": 8}},
     0.0342, "Splitwise, Llama-2-70B on a DGX H100"),
    ("prefill", "llama-2-70b", "a100-sxm-80gb",
     {"gpus": 4, "batch": 1, "seq_in": 1024, "precision": "fp16", "engine": "vllm", "year": 2023, "parallel": {"tp": 4},
      "host_speed": 0.65},
     0.2271, "Splitwise, Llama-2-70B on four A100"),
]  # fmt: skip


@pytest.mark.parametrize(("task", "model", "gpu", "fields", "seconds", "source"), MEASURED, ids=[row[-1] for row in MEASURED])
def test_measured_steps_lie_in_the_range_and_within_a_quarter(
    task: str, model: Any, gpu: str, fields: dict[str, Any], seconds: float, source: str
) -> None:
    answer = estimate(task, model, gpu=gpu, **fields)
    assert answer.time is not None
    assert answer.time.low <= seconds <= answer.time.high
    assert answer.time.value == pytest.approx(seconds, rel=0.25)
    assert answer.tier == "measured"
