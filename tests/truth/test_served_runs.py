"""Single measured runs of servers under load, each with its source; tolerances are those of docs/evidence/accuracy-serving.md."""

from __future__ import annotations

from typing import Any

import pytest

from whichgpu.api.workloads.load import LoadOptions
from whichgpu.api.workloads.serve import serve

# model, GPUs, fields, then means as printed: seconds to the first token, between tokens, output tokens a second.
# NVIDIA, TensorRT-LLM 0.14 performance overview, online serving of Llama 3.1 on H100 at an offered rate, 500 requests each:
# output tokens a second are those of the whole run, to the last token of the last request. No run at a rate was fitted on.
REQUESTS = 500
ONLINE: list[Any] = [
    ("llama-3.1-8b", 1, {"rate": 8, "seq_in": 467, "seq_out": 256}, 0.026, 0.009, 1959),
    ("llama-3.1-8b", 1, {"rate": 16, "seq_in": 467, "seq_out": 256}, 0.030, 0.011, 3765),
    ("llama-3.1-8b", 1, {"rate": 8, "seq_in": 467, "seq_out": 16}, 0.022, 0.007, 126),
    ("llama-3.1-70b", 4, {"rate": 4, "seq_in": 467, "seq_out": 256}, 0.068, 0.024, 973),
    ("llama-3.1-70b", 4, {"rate": 8, "seq_in": 467, "seq_out": 256}, 0.092, 0.032, 1860),
    ("llama-3.1-70b", 4, {"rate": 8, "seq_in": 467, "seq_out": 16}, 0.071, 0.024, 126),
    ("llama-3.1-70b", 4, {"rate": 16, "seq_in": 467, "seq_out": 16}, 0.109, 0.038, 248),
]


@pytest.mark.parametrize(("model", "gpus", "fields", "ttft", "tpot", "throughput"), ONLINE)
def test_a_server_at_a_rate(model: str, gpus: int, fields: dict[str, Any], ttft: float, tpot: float, throughput: float) -> None:
    """Throughput of the run within 5%, time between tokens within 20%, first token within 30%."""
    layout: dict[str, Any] = {"gpus": gpus, "parallel": {"tp": gpus}, "engine": "tensorrt-llm", "year": 2024, "precision": "bf16"}
    answer = serve(model, LoadOptions(curve=False), gpu="h100-sxm", **layout, **fields)
    assert answer.serving is not None
    result = answer.serving
    rate, tokens = fields["rate"], fields["seq_out"]
    assert result.throughput.value == pytest.approx(rate * tokens, rel=0.02)
    last_request = result.ttft["mean"].value + (tokens - 1) * result.tpot["mean"].value
    assert REQUESTS * tokens / (REQUESTS / rate + last_request) == pytest.approx(throughput, rel=0.05)
    assert result.tpot["mean"].value == pytest.approx(tpot, rel=0.20)
    assert result.ttft["mean"].value == pytest.approx(ttft, rel=0.30)
    assert not result.saturated


def test_capacity_of_measured_servers() -> None:
    """The same at an unbounded rate: 37 requests/s of 467 tokens in and 256 out."""
    fields: dict[str, Any] = {
        "engine": "tensorrt-llm",
        "year": 2024,
        "precision": "bf16",
        "seq_in": 467,
        "seq_out": 256,
        "rate": 64,
    }
    answer = serve("llama-3.1-8b", LoadOptions(curve=False), gpu="h100-sxm", **fields)
    assert answer.serving is not None
    assert answer.serving.saturated
    assert answer.serving.sustainable_rate.low < 37 < answer.serving.sustainable_rate.high
    assert answer.serving.sustainable_rate.value == pytest.approx(37, rel=0.25)
