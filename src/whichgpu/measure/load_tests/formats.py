"""Readers of result files: vllm bench serve, SGLang bench_serving, GuideLLM, inference-perf, AIPerf, llama-bench, MLPerf.

Each returns the steps in a document, or None if it is not of its format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from whichgpu.measure.load_tests.load_test import LoadTest, UnusableFile, is_usable, needed, number, served_decode_step
from whichgpu.workload.config_files.model_names import gguf_parts

Tests = tuple[LoadTest, ...]
MAX_TOKEN_MISMATCH = 0.02  # Largest share by which a client may count other tokens than the server (assumed).
MLPERF_MARK = "MLPerf Results Summary"
# Engines by the names that load-testing tools give their backends.
ENGINE_OF_BACKEND = {
    "vllm": "vllm", "vllm-chat": "vllm", "sglang": "sglang", "sglang-native": "sglang", "sglang-oai": "sglang",
    "sglang-oai-chat": "sglang", "trt": "tensorrt-llm", "tensorrt-llm": "tensorrt-llm", "trtllm": "tensorrt-llm",
    "llama.cpp": "llama.cpp",
}  # fmt: skip
ANY_SERVER = "openai"  # Start of the names of backends that any engine may be behind.
# Lines of the block that vllm bench serve and SGLang bench_serving print, and their names in the JSON file.
PRINTED = {
    "successful requests": "completed", "benchmark duration (s)": "duration", "total input tokens": "total_input_tokens",
    "total generated tokens": "total_output_tokens", "mean tpot (ms)": "mean_tpot_ms", "median tpot (ms)": "median_tpot_ms",
    "mean itl (ms)": "mean_itl_ms", "median itl (ms)": "median_itl_ms", "accept length": "accept_length",
    "acceptance length": "accept_length",
}  # fmt: skip
FIGURES = ("_ms", "_throughput", "request_rate", "failed")  # Ends of the names of figures in the JSON file.
VLLM_TOOL = "vllm bench serve"
PRINTED_MARK = "Serving Benchmark Result"
_LINE = re.compile(r"^\s*([A-Za-z0-9][A-Za-z0-9 .()/]*?)\s*:\s*(\S.*?)\s*$", re.MULTILINE)


def read_load_tests(content: bytes) -> Tests:
    """Return the measured steps in a result file of any known tool; raise `UnusableFile` if there are none."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise UnusableFile("the file is not text") from problem
    if MLPERF_MARK in text:
        return _mlperf(text)
    if PRINTED_MARK in text:
        return _printed(text)
    tests: list[LoadTest] = []
    why = "no known format"
    for document in _documents(text):
        for read in READERS:
            try:
                steps = read(document)
            except UnusableFile as problem:
                why = str(problem)
                break
            if steps is not None:
                tests += steps
                break
    if not tests:
        raise UnusableFile(why)
    return tuple(tests)


def is_load_test(content: bytes, is_described: bool = False) -> bool:
    """Whether a file may be the result of a load-testing tool, and not a record of `measure`.

    If the user describes the test (`is_described`), any file that is not a record may be.
    """
    head = content.lstrip()[:1]
    if head == b"{":
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):
            return is_described or b"\n" in content.strip()  # One document per line, as SGLang writes.
        return not (isinstance(document, dict) and "where" in document and "digest" in document)
    return is_described or head == b"[" or MLPERF_MARK.encode() in content or PRINTED_MARK.encode() in content


def _documents(text: str) -> Sequence[Any]:
    """Return the JSON documents of a file: one, a list of them, or one per line."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        try:
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        except (ValueError, RecursionError) as problem:
            raise UnusableFile("the file is not JSON") from problem
    return document if isinstance(document, list) else [document]


def _bench_serving(document: Any) -> Tests | None:
    """Read a result of vllm bench serve or SGLang bench_serving, which share most names."""
    if not isinstance(document, Mapping) or "total_output_tokens" not in document or "completed" not in document:
        return None
    _check_figures(document)
    completed, duration = needed(document, "completed"), needed(document, "duration")
    if (number(document, "failed") or 0) > completed:
        raise UnusableFile("more requests failed than completed")
    tokens_out = needed(document, "total_output_tokens") / completed
    tokens_in = needed(document, "total_input_tokens") / completed
    mean = needed(document, "mean_tpot_ms", "mean_itl_ms") / 1e3
    gap = number(document, "median_itl_ms")
    median = gap or number(document, "median_tpot_ms")
    tool = VLLM_TOOL if "model_id" in document else "sglang.bench_serving"
    test = served_decode_step(
        tool, completed / duration, tokens_in, tokens_out, mean, median and median / 1e3, gap is not None, completed
    )
    stated = _engine(document)
    engine = stated or ("vllm" if "model_id" in document else None)
    accepted = number(document, "accept_length", "spec_decode_acceptance_length")
    if accepted is not None and accepted > 1.01:
        raise UnusableFile("speculative decoding: a token is not a decode step")
    certain = ("engine",) if stated else ()
    model, day = _text(document.get("model_id")), _day(document.get("date"))
    return (replace(test, engine=engine, certain=certain, model=model, day=day),)


def _check_figures(document: Mapping[str, Any]) -> None:
    """Raise if a figure of bench_serving is one that no load test can have, also one that is not used here."""
    for name, value in document.items():
        if name == "request_rate" and value == float("inf"):  # All requests are sent at once.
            continue
        if name.endswith(FIGURES):
            number(document, name)
    if "model_id" in document and _text(document["model_id"]) is None:
        raise UnusableFile("model_id is no name of a model")


def _guidellm(document: Any) -> Tests | None:
    """Read the benchmarks of a GuideLLM report."""
    if not isinstance(document, Mapping) or not isinstance(document.get("benchmarks"), list):
        return None
    tests = []
    for one in document["benchmarks"]:
        metrics = one.get("metrics") if isinstance(one, Mapping) else None
        if not isinstance(metrics, Mapping):
            raise UnusableFile("a benchmark has no metrics")

        def successful(name: str, metrics: Mapping[str, Any] = metrics) -> Mapping[str, Any]:
            values = metrics.get(name)
            inner = values.get("successful") if isinstance(values, Mapping) else None
            return inner if isinstance(inner, Mapping) else {}

        gap = successful("inter_token_latency_ms")
        rate = needed(successful("requests_per_second"), "mean")
        read, written = (needed(successful(name), "mean") for name in ("prompt_token_count", "output_token_count"))
        count = number(successful("output_token_count"), "count") or number(gap, "count") or 1.0
        median = number(gap, "median")
        mean = needed(gap, "mean") / 1e3
        tests.append(served_decode_step("guidellm", rate, read, written, mean, median and median / 1e3, False, count))
    return tuple(tests)


def _inference_perf(document: Any) -> Tests | None:
    """Read a stage or summary of requests of inference-perf (Kubernetes SIG); a client's count of tokens is not believed."""
    successes = document.get("successes") if isinstance(document, Mapping) else None
    if not isinstance(successes, Mapping) or "load_summary" not in document:
        return None

    def values(name: str, parent: Mapping[str, Any] = successes) -> Mapping[str, Any]:
        inner = parent.get(name)
        return inner if isinstance(inner, Mapping) else {}

    throughput, latency = values("throughput"), values("latency")
    rate = needed(throughput, "requests_per_sec")
    written = needed(throughput, "output_tokens_per_sec") / rate  # These are the tokens by which its times were divided.
    by_server = number(values("output_tokens"), "mean")
    if by_server is not None and abs(written / by_server - 1) > MAX_TOKEN_MISMATCH:
        raise UnusableFile("its times are per token of the client's tokenizer: run it with use_server_output_tokens")
    read = needed(values("prompt_tokens") or values("prompt_len"), "mean")
    per_token = values("time_per_output_token", latency)
    median = number(per_token, "median") or number(per_token, "p50")
    count = number(successes, "count") or 1.0
    return (served_decode_step("inference-perf", rate, read, written, needed(per_token, "mean"), median, False, count),)


def _aiperf(document: Any) -> Tests | None:
    """Read a summary of genai-perf or AIPerf."""
    if not isinstance(document, Mapping) or "inter_token_latency" not in document or "request_throughput" not in document:
        return None

    def values(name: str) -> Mapping[str, Any]:
        inner = document.get(name)
        return inner if isinstance(inner, Mapping) else {}

    gap = values("inter_token_latency")
    unit = {"ms": 1e-3, "sec": 1.0, "s": 1.0, "us": 1e-6, "ns": 1e-9}.get(str(gap.get("unit", "ms")))
    if unit is None:
        raise UnusableFile(f"unknown unit {str(gap.get('unit'))[:20]}")
    median = number(gap, "p50")
    read, written = (needed(values(f"{name}_sequence_length"), "avg") for name in ("input", "output"))
    rate, count = needed(values("request_throughput"), "avg"), number(values("request_count"), "avg") or 1.0
    test = served_decode_step("aiperf", rate, read, written, needed(gap, "avg") * unit, median and median * unit, False, count)
    return (replace(test, model=_aiperf_model(document.get("input_config")), day=_day(document.get("start_time"))),)


def _aiperf_model(settings: Any) -> str | None:
    settings = settings if isinstance(settings, Mapping) else {}
    endpoint = settings.get("endpoint")
    names = settings.get("model_names") or (endpoint.get("model_names") if isinstance(endpoint, Mapping) else None)
    return _text(names[0]) if isinstance(names, list) and names else None


def _llama_bench(document: Any) -> Tests | None:
    """Read a row of llama-bench: the prefill of a prompt, or the decode of tokens after a context of `n_depth`."""
    if not isinstance(document, Mapping) or "n_prompt" not in document or "avg_ts" not in document:
        return None
    prompt, generated, depth = (int(number(document, name) or 0) for name in ("n_prompt", "n_gen", "n_depth"))
    rate = needed(document, "avg_ts")
    if bool(prompt) == bool(generated):
        raise UnusableFile("a row of both prompt and generation")
    if prompt and depth:
        raise UnusableFile("a prompt after a context")
    stated = document.get("samples_ts")
    samples = [value for value in stated if is_usable(value)] if isinstance(stated, list) else []
    per_step = prompt or 1
    low, high = per_step / max([rate, *samples]), per_step / min([rate, *samples])
    model, precision = gguf_parts(_text(document.get("model_filename")) or "")
    return (
        LoadTest(
            "llama-bench", "prefill" if prompt else "decode", per_step / rate, low, high, max(1, len(samples)), 1,
            prompt or max(1, depth + generated // 2), model or None, "llama.cpp", _text(document.get("gpu_info")),
            precision, _day(document.get("test_time")), certain=("engine", "precision"),
        ),
    )  # fmt: skip


def _mlperf(text: str) -> Tests:
    """Read a LoadGen summary of a model without output tokens: the time of a forward pass of one sample."""
    values = {name.strip().lower(): value for name, value in _LINE.findall(text)}
    if values.get("result is") != "VALID":
        raise UnusableFile("the result is not VALID")
    scenario = values.get("scenario", "").lower()
    if "tokens per second" in values:
        raise UnusableFile("tokens per second of whole requests are no step")
    if scenario == "offline":
        seconds = 1.0 / _float(values, "samples per second")
        return (LoadTest("mlperf", "forward", seconds, seconds, seconds, 1),)
    if scenario == "singlestream":
        seconds = _float(values, "50.00 percentile latency (ns)") / 1e9
        return (LoadTest("mlperf", "forward", seconds, seconds, seconds, 1, 1),)
    raise UnusableFile(f"scenario {scenario[:40]}")


def _printed(text: str) -> Tests:
    """Read the block of results that vllm bench serve and SGLang bench_serving print."""
    values = {name.strip().lower(): value for name, value in _LINE.findall(text)}
    document = {field: _float(values, name) for name, field in PRINTED.items() if name in values}
    tests = _bench_serving({"completed": None, "total_output_tokens": None, "backend": values.get("backend"), **document})
    assert tests is not None
    return tests if "backend" in values else tuple(replace(one, tool=VLLM_TOOL) for one in tests)  # SGLang names the backend.


def _float(values: Mapping[str, str], name: str) -> float:
    try:
        return needed({name: float(values[name].replace(",", ""))}, name)
    except (KeyError, ValueError) as problem:
        raise UnusableFile(f"no {name}") from problem


def _text(value: Any) -> str | None:
    return value[:200] if isinstance(value, str) and value else None


def _day(value: Any) -> str | None:
    """Return the day in a time as tools write it: 20260131-093000 or 2026-01-31T09:30:00Z; None if there is no time.

    Days that no calendar has are left to the checks of a record; any other text is no time.
    """
    if value is None:
        return None
    match = re.match(r"(\d{4})-?(\d\d)-?(\d\d)", value) if isinstance(value, str) else None
    if match is None:
        raise UnusableFile("its date is none of a load test")
    return "-".join(match.groups())


def _engine(document: Mapping[str, Any]) -> str | None:
    """Return the engine that a result of bench_serving names; None if any server may be behind the backend."""
    backend = str(document.get("backend") or document.get("endpoint_type") or "").lower()
    if not backend or backend.startswith(ANY_SERVER):
        return None
    if backend not in ENGINE_OF_BACKEND:
        raise UnusableFile(f"backend {backend[:40]} is no engine that is known here")
    return ENGINE_OF_BACKEND[backend]


READERS: tuple[Callable[[Any], Tests | None], ...] = (_bench_serving, _guidellm, _inference_perf, _aiperf, _llama_bench)
