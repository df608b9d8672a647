"""Published serving runs as requests: layout, time per output token, and why rows are left out."""

from __future__ import annotations

import pytest
from evidence.published import Published
from evidence.reasons import Reason
from evidence.runs.served import Run, layout_of, row_result
from msgspec.structs import replace

from whichgpu.catalog.evidence import Measurement

ROW = Published(
    line=2, source="aic-silicon", path="a@b:c", date="2025-10-29", gpu="H100 SXM 80GB", gpus=2, task="serve",
    framework="sglang 0.5.1.post1", model="Qwen/Qwen3-32B", precision=" (gemm  moe )", batch=64, seq_in=1024, seq_out=128,
    metric="ms TPOT", value=30.0, notes="", trust="medium",
)  # fmt: skip
RUN = Run(ROW, "TP2 PP1 aDP1 moeTP2 EP1", ())


def result(run: Run) -> Measurement:
    measurement = row_result(run)
    assert isinstance(measurement, Measurement)
    return measurement


@pytest.mark.parametrize(
    ("text", "gpus", "layout"),
    [
        ("TP8 PP1 aDP1 moeTP8 EP1", 8, {"tp": 8}),
        ("TP1 PP1 aDP4 moeTP1 EP4", 4, {"dp": 4, "ep": 4}),
        ("TP1 PP1 aDP4 moeTP4 EP1", 4, {"dp": 4, "ep": 4}),
        ("DEP2 (attention DP + EP)", 2, {"dp": 2, "ep": 2}),
        ("TP4 --ep-size 4", 4, {"tp": 4, "ep": 4}),
        ("TP8 --enable-expert-parallel", 8, {"tp": 8, "ep": 8}),
        ("TP1 -pp 2", 2, {"pp": 2}),
        ("TP2 PP1 aDP moeTP1 EP0", 2, {"tp": 2}),
        ("TP1", 1, {}),
        ("TP2", 8, None),
    ],
)
def test_layouts(text: str, gpus: int, layout: dict[str, int] | None) -> None:
    assert layout_of(replace(RUN, row=replace(ROW, gpus=gpus), layout=text)) == layout


def test_a_request_takes_its_first_token_and_the_others() -> None:
    alone, waited = result(RUN), result(replace(RUN, ttft=2.53))
    assert (alone.seconds, alone.throughput_only) == (0.03, False)
    assert waited.seconds == pytest.approx((2.53 + 127 * 0.03) / 128)
    assert waited.throughput_only
    assert waited.request["batch"] == 64
    assert (waited.request["engine"], waited.request["year"], waited.request["precision"]) == ("sglang", 2025, "bf16")


def test_prompts_sent_at_once_are_a_decode_step_of_half_of_them() -> None:
    row = replace(
        ROW, source="lambda-vllm", framework="vLLM 0.5.4 (CI)", model="Meta-Llama-3-8B-Instruct", precision="bf16", gpus=1,
        batch=40, seq_in=200, seq_out=100, metric="ms ITL (median)", value=11.0,
    )  # fmt: skip
    measurement = result(Run(row, "TP1", ()))
    assert (measurement.kind, measurement.seconds, measurement.request["batch"], measurement.request["seq_in"]) == (
        "decode",
        0.011,
        20,
        269,
    )
    assert row_result(Run(replace(row, batch=320), "TP1", ())) is Reason.QUEUED


def test_maximum_load_has_no_batch() -> None:
    row = replace(
        ROW, source="trtllm-2026", task="throughput", framework="TensorRT-LLM 1.2+", model="gpt-oss-120b", precision="FP8",
        gpus=4, batch=None, metric="output tokens/s/GPU", value=5000.0,
    )  # fmt: skip
    measurement = result(Run(row, "DEP4 (attention DP + EP)", ()))
    assert (measurement.kind, measurement.request["precision"]) == ("max-load", "mxfp4")
    assert "kv_precision" not in measurement.request
    assert result(Run(replace(row, gpu="B200 SXM 180GB"), "DEP4 (attention DP + EP)", ())).request["kv_precision"] == "fp8"
    assert measurement.seconds == pytest.approx(1 / 20000)
    assert "batch" not in measurement.request


@pytest.mark.parametrize(
    ("flags", "changes", "reason"),
    [
        (("speculative-not-stated",), {}, Reason.SPECULATIVE),
        (("attention-dp", "two-values"), {}, Reason.TWO_VALUES),
        (("burst",), {}, Reason.BURST),
        ((), {"task": "serve-disagg"}, Reason.DISAGGREGATED),
        ((), {"metric": "ms TTFT"}, Reason.TWIN),
        ((), {"batch": None}, Reason.NO_BATCH),
        ((), {"batch": 4096}, Reason.QUEUED),
        ((), {"gpus": 4}, Reason.NO_LAYOUT),
        ((), {"model": "unheard/of"}, Reason.UNKNOWN_NETWORK),
    ],
)
def test_reasons(flags: tuple[str, ...], changes: dict[str, object], reason: Reason) -> None:
    assert row_result(replace(RUN, row=replace(ROW, **changes), flags=flags)) is reason
