"""One user's chat: the same seconds between tokens and to the first token as `estimate` gives for a single sequence."""

from __future__ import annotations

from typing import Any

import pytest

import whichgpu

GPU = "rtx-4090"


@pytest.mark.parametrize(("model", "seq_in"), [("llama-3.1-8b", 512), ("llama-3.1-8b", 4096), ("qwen3-14b", 2048)])
def test_time_between_tokens_of_one_user_has_no_prefill(model: str, seq_in: int) -> None:
    lengths: dict[str, Any] = {"seq_in": seq_in, "seq_out": 128, "precision": "fp8"}
    best = whichgpu.recommend("serve", model, mode="me", gpu=[GPU], gpus=1, **lengths).answer
    load = whichgpu.estimate("serve", model, gpu=GPU, engine="vllm", rate=0.001, **lengths).serving
    assert best.tpot is not None
    assert best.ttft is not None
    assert load is not None
    assert best.tpot.value == pytest.approx(load.tpot["p50"].value, rel=0.02)
    assert best.ttft.value == pytest.approx(load.ttft["p50"].value, rel=0.1)
