"""Result files of load-testing tools, in the shapes these tools write: the step each of them measured, by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from whichgpu.measure.load_tests.formats import is_load_test, read_load_tests
from whichgpu.measure.load_tests.load_test import MAX_SHARE_OF_MEAN, MAX_SHARE_OF_MEDIAN_GAP, LoadTest, UnusableFile

# 100 requests of 1,000 + 101 tokens in 50 s, 20 ms per token: 2 requests/s x 100 gaps x 20 ms = 4 decoding at once.
VLLM: dict[str, Any] = {
    "date": "20261101-101500", "endpoint_type": "openai", "backend": "openai", "model_id": "meta-llama/Llama-3.1-8B-Instruct",
    "num_prompts": 100, "request_rate": "inf", "max_concurrency": 4, "duration": 50.0, "completed": 100,
    "total_input_tokens": 100_000, "total_output_tokens": 10_100, "output_throughput": 202.0, "mean_ttft_ms": 80.0,
    "mean_tpot_ms": 20.0, "median_tpot_ms": 19.5, "mean_itl_ms": 20.0, "median_itl_ms": 18.0, "p99_itl_ms": 60.0,
}  # fmt: skip
SGLANG = {name: value for name, value in VLLM.items() if name not in ("model_id", "date", "endpoint_type")} | {
    "backend": "sglang", "dataset_name": "random", "concurrency": 4.2, "accept_length": None
}  # fmt: skip
GUIDELLM = {
    "benchmarks": [
        {
            "metrics": {
                "requests_per_second": {"successful": {"mean": 2.0}},
                "prompt_token_count": {"successful": {"mean": 1000.0, "count": 100}},
                "output_token_count": {"successful": {"mean": 101.0, "count": 100}},
                "inter_token_latency_ms": {"successful": {"mean": 20.0, "median": 19.0}},
            }
        }
    ]
}
# As inference-perf writes a stage (inference_perf/reportgen/base.py); earlier releases have `prompt_len` for `prompt_tokens`.
INFERENCE_PERF: dict[str, Any] = {
    "load_summary": {"count": 100, "requested_rate": 2.0, "achieved_rate": 2.0},
    "successes": {
        "count": 100,
        "latency": {"time_per_output_token": {"mean": 0.020, "median": 0.019}, "time_to_first_token": {"mean": 0.08}},
        "throughput": {"requests_per_sec": 2.0, "output_tokens_per_sec": 202.0, "input_tokens_per_sec": 2000.0},
        "prompt_tokens": {"total": 100_000.0, "mean": 1000.0},
        "output_len": {"mean": 101.0},
        "output_tokens": {"total": 10_100.0, "mean": 101.0},
    },
    "failures": {"count": 0},
}
AIPERF = {
    "request_throughput": {"unit": "requests/sec", "avg": 2.0},
    "request_count": {"avg": 100.0},
    "inter_token_latency": {"unit": "ms", "avg": 20.0, "p50": 19.0},
    "input_sequence_length": {"avg": 1000.0},
    "output_sequence_length": {"avg": 101.0},
    "input_config": {"endpoint": {"model_names": ["Qwen/Qwen3-8B"]}},
    "start_time": "2026-11-01T10:00:00Z",
}
LLAMA_ROW = {
    "gpu_info": "NVIDIA GeForce RTX 4090", "model_filename": "/m/Llama-3.1-8B-Instruct-Q4_K_M.gguf", "n_prompt": 512, "n_gen": 0,
    "n_depth": 0, "test_time": "2026-10-02T08:00:00Z", "avg_ts": 5120.0, "samples_ts": [5000.0, 5240.0],
}  # fmt: skip
MLPERF = """================================================
MLPerf Results Summary
================================================
SUT name : PySUT
Scenario : Offline
Mode     : PerformanceOnly
Samples per second: 2000
Result is : VALID
  Min duration satisfied : Yes
"""
PRINTED = """============ Serving Benchmark Result ============
Successful requests:                     100
Benchmark duration (s):                  50.00
Total input tokens:                      100000
Total generated tokens:                  10100
Mean TPOT (ms):                          20.00
Median TPOT (ms):                        19.50
Median ITL (ms):                         18.00
==================================================
"""


def changed(name: str, value: object, **more: object) -> dict[str, Any]:
    """A stage of inference-perf with another value of its successes."""
    return INFERENCE_PERF | {"successes": INFERENCE_PERF["successes"] | {name: value} | more}


def read(document: object) -> LoadTest:
    [test] = read_load_tests((document if isinstance(document, str) else json.dumps(document)).encode())
    return test


@pytest.mark.parametrize(
    ("document", "tool", "seconds", "share"),
    [
        (VLLM, "vllm bench serve", 0.018, MAX_SHARE_OF_MEDIAN_GAP),
        (SGLANG, "sglang.bench_serving", 0.018, MAX_SHARE_OF_MEDIAN_GAP),
        (json.dumps(SGLANG) + "\n", "sglang.bench_serving", 0.018, MAX_SHARE_OF_MEDIAN_GAP),
        (PRINTED, "vllm bench serve", 0.018, MAX_SHARE_OF_MEDIAN_GAP),
        (PRINTED.replace("Successful", "Backend: sglang\nSuccessful"), "sglang.bench_serving", 0.018, MAX_SHARE_OF_MEDIAN_GAP),
        (GUIDELLM, "guidellm", 0.019, MAX_SHARE_OF_MEAN),
        (INFERENCE_PERF, "inference-perf", 0.019, MAX_SHARE_OF_MEAN),
        (changed("prompt_tokens", None, prompt_len={"mean": 1000.0}), "inference-perf", 0.019, MAX_SHARE_OF_MEAN),
        (AIPERF, "aiperf", 0.019, MAX_SHARE_OF_MEAN),
    ],
)
def test_a_loaded_server_gives_its_decode_step(document: object, tool: str, seconds: float, share: float) -> None:
    test = read(document)
    assert (test.tool, test.task, test.batch, test.seq_in) == (tool, "decode", 4, 1050)
    assert test.seconds == pytest.approx(seconds)
    assert test.low <= test.seconds <= test.high
    assert test.prefill_rate == pytest.approx(2.0)
    assert (test.prompt_tokens, test.max_prefill_share) == (1000, share)
    assert is_load_test((document if isinstance(document, str) else json.dumps(document)).encode())


def test_files_that_the_user_describes_are_no_records_but_a_record() -> None:
    assert not is_load_test(b"\0\1")
    assert is_load_test(b"\0\1", is_described=True)
    assert is_load_test(b"{broken", is_described=True)
    assert not is_load_test(b'{"where": {}, "digest": ""}', is_described=True)


def test_names_and_days_are_read_where_the_file_has_them() -> None:
    assert (read(VLLM).model, read(VLLM).engine, read(VLLM).day) == ("meta-llama/Llama-3.1-8B-Instruct", "vllm", "2026-11-01")
    assert (read(SGLANG).model, read(SGLANG).engine) == (None, "sglang")
    assert (read(AIPERF).model, read(AIPERF).day) == ("Qwen/Qwen3-8B", "2026-11-01")


def test_llama_bench_rows_are_a_prefill_and_a_decode_step() -> None:
    rows = [LLAMA_ROW, LLAMA_ROW | {"n_prompt": 0, "n_gen": 128, "n_depth": 1000, "avg_ts": 100.0, "samples_ts": []}]
    prefill, decode = read_load_tests(json.dumps(rows).encode())
    assert (prefill.task, prefill.seconds, prefill.seq_in, prefill.batch) == ("prefill", 0.1, 512, 1)
    assert (prefill.low, prefill.high) == (512 / 5240, 512 / 5000)
    assert (decode.task, decode.seconds, decode.seq_in) == ("decode", 0.01, 1064)
    assert (decode.model, decode.precision, decode.gpu, decode.engine) == (
        "Llama-3.1-8B-Instruct", "q4_k_m", "NVIDIA GeForce RTX 4090", "llama.cpp"
    )  # fmt: skip


def test_mlperf_is_seconds_per_sample() -> None:
    assert (read(MLPERF).task, read(MLPERF).seconds, read(MLPERF).batch) == ("forward", 0.0005, None)
    single = MLPERF.replace("Offline", "SingleStream") + "50.00 percentile latency (ns)   : 2000000\n"
    assert (read(single).seconds, read(single).batch) == (0.002, 1)


def test_samples_that_no_run_can_have_are_ignored() -> None:
    usual = read(LLAMA_ROW)
    for samples in ([10**400, float("inf"), 1e-300, None], 7, "x"):
        odd = read(LLAMA_ROW | {"samples_ts": samples})
        assert (odd.low, odd.high) == (usual.seconds, usual.seconds)


@pytest.mark.parametrize(
    "document",
    [
        "",
        "{",
        "[]",
        "7",
        "\x00",
        {"benchmarks": [7]},
        {"benchmarks": []},
        VLLM | {"duration": 0},
        VLLM | {"completed": -1},
        VLLM | {"completed": 10**400},
        VLLM | {"model_id": ["meta-llama/Llama-3.1-8B"]},
        VLLM | {"model_id": None},
        VLLM | {"output_throughput": 1e300},
        VLLM | {"mean_ttft_ms": -1.0},
        VLLM | {"request_rate": -1.0},
        VLLM | {"p99_itl_ms": float("nan")},
        VLLM | {"failed": 101},
        VLLM | {"duration": 1e-320},
        LLAMA_ROW | {"avg_ts": 10**400},
        VLLM | {"mean_tpot_ms": float("nan"), "mean_itl_ms": None},
        VLLM | {"total_output_tokens": 100},
        SGLANG | {"accept_length": 2.5},
        VLLM | {"spec_decode_acceptance_length": 2.5},
        PRINTED.replace("Median ITL", "Acceptance length: 2.50\nMedian ITL"),
        AIPERF | {"inter_token_latency": {"unit": "furlong", "avg": 1.0}},
        changed("output_tokens", {"mean": 57.0}),  # counted by the client's tokenizer
        changed("latency", {"time_per_output_token": None}),  # not streamed
        changed("throughput", {}),
        LLAMA_ROW | {"n_gen": 3},
        LLAMA_ROW | {"n_depth": 3},
        LLAMA_ROW | {"avg_ts": "fast"},
        MLPERF.replace("VALID", "INVALID"),
        MLPERF.replace("Samples per second", "Tokens per second"),
        MLPERF.replace("Offline", "Server"),
        PRINTED.replace("Benchmark duration", "Duration"),
    ],
)
def test_files_without_a_step_say_why(document: object) -> None:
    with pytest.raises(UnusableFile, match=r"\w"):
        read(document)
