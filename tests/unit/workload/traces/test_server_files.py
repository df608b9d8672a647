"""Requests of a running server: lengths from its metrics, arrival times from its access log."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whichgpu.base.errors import UsageError
from whichgpu.decide.plan.question import RequestedModel
from whichgpu.decide.plan.traffic import model_traffic
from whichgpu.workload.traces.reader import check_trace, read_trace
from whichgpu.workload.traces.server_metrics import metric_lengths

NAMES = {
    "vllm": ("vllm:request_prompt_tokens", "vllm:request_generation_tokens"),
    "sglang": ("sglang:prompt_tokens_histogram", "sglang:generation_tokens_histogram"),
}
EDGES = (10, 100, 1000, 8000)


def metrics(engine: str, prompts: list[int], outputs: list[int], ranks: int = 1, model: str = "a/b") -> str:
    """Return metrics of a server whose ranks each had these requests, as its Prometheus client writes them."""
    text = "# HELP x y\n"
    for name, lengths in zip(NAMES[engine], (prompts, outputs), strict=True):
        text += f"# TYPE {name} histogram\n"
        for rank in range(ranks):
            labels = f'engine="{rank}",model_name="{model}"'
            for edge in (*EDGES, float("inf")):
                le = "+Inf" if edge == float("inf") else f"{edge:.1f}"
                text += f'{name}_bucket{{{labels},le="{le}"}} {float(sum(one <= edge for one in lengths))}\n'
            text += f"{name}_count{{{labels}}} {float(len(lengths))}\n{name}_sum{{{labels}}} {float(sum(lengths))}\n"
    return text


@settings(max_examples=15)
@given(
    engine=st.sampled_from(tuple(NAMES)),
    requests=st.lists(st.tuples(st.integers(1, 8000), st.integers(1, 8000)), min_size=20, max_size=60),
    ranks=st.integers(1, 3),
)
def test_lengths_from_metrics_have_their_mean_and_classes(engine: str, requests: list[tuple[int, int]], ranks: int) -> None:
    prompts, outputs = (list(lengths) for lengths in zip(*requests, strict=True))
    read = metric_lengths("m", 1, metrics(engine, prompts, outputs, ranks).splitlines())
    for original, lengths in zip((prompts, outputs), read, strict=True):
        assert len(lengths) == len(original) * ranks
        assert fmean(lengths) == pytest.approx(fmean(original), rel=0.03, abs=1.0)
        for low, high in pairwise((0, *EDGES)):
            assert sum(low < one <= high for one in lengths) == pytest.approx(
                ranks * sum(low < one <= high for one in original), abs=2 * ranks
            )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (metrics("vllm", [5], [5]).replace("request_prompt_tokens", "request_input_tokens"), "vllm:request_input_tokens"),
        ("# HELP up x\nup 1\n", "sglang:prompt_tokens_histogram (sglang 0.5.23)"),
        (metrics("vllm", [5], [5]) + metrics("vllm", [5], [5], model="c/d"), "c/d"),
        (metrics("sglang", [], []), "no requests"),
        ("# HELP x y\nvllm:broken\n", "line 2"),
    ],
)
def test_metrics_with_unknown_names_or_several_models_are_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "metrics.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        read_trace(path)
    assert words in str(refused.value)


def line(second: int, path: str = "/v1/chat/completions", status: int = 200, method: str = "POST") -> str:
    return f'10.0.0.1 - - [17/Nov/2026:10:00:{second:02} +0900] "{method} {path} HTTP/1.1" {status} 512 "-" "client"\n'


def test_an_access_log_gives_the_times_of_successful_generations(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    others = line(1, "/metrics", method="GET") + line(2, status=429) + line(2, "/v1/models", method="GET")
    path.write_text(line(5) + line(3) * 2 + others + line(9, "/v1/messages?beta=true"), encoding="utf-8")
    check_trace(path)
    trace = read_trace(path)
    assert [round(one, 2) for one in trace.times] == [0, 0.5, 2.25, 6.25]
    assert (len(trace), trace.has_lengths) == (4, False)


def test_a_plan_takes_the_lengths_of_the_request_for_logged_times(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_text("".join(line(second) for second in range(50)), encoding="utf-8")
    traffic = model_traffic(RequestedModel("m", {}, trace=path), None, 700, 90, 0)
    assert (traffic.prompt, traffic.output) == pytest.approx((700, 90))
    assert traffic.peak == pytest.approx(1.0)


@pytest.mark.parametrize("text", ["no log\n", line(1, "/v1/models"), line(1).replace("Nov", "Nim")])
def test_logs_without_requests_or_with_other_lines_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "access.log"
    path.write_text(text if text.startswith("10") and "Nim" not in text else line(1) + text, encoding="utf-8")
    with pytest.raises(UsageError):
        read_trace(path)
