"""`estimate serve` under a load: rate or trace, objectives, limits, saturation, the curve, and errors in the one shape."""

from __future__ import annotations

import importlib.util
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.surface.cli import assert_refused, assert_refused_json, call
from whichgpu.api.workloads.serve import serve
from whichgpu.base.messages import english
from whichgpu.surface.charts.serving import curve_chart, curve_lines

WORDS = ("estimate", "serve", "llama-3.1-8b", "--gpu", "h100-sxm", "--in", "500", "--out", "100")
FIGURE = {"value", "low", "high", "unit", "basis", "sources"}


def answered(*argv: str) -> Any:
    done = call(*argv, "--json")
    assert done.code == 0, done.out
    return done.json()


document = cache(answered)  # Many tests compare with the same answer.


def test_rate_gives_latencies_with_ranges_and_the_capacity() -> None:
    answer = document(*WORDS, "--rate", "5/s")
    serving = answer["serving"]
    for name in ("ttft", "tpot", "latency"):
        assert set(serving[name]) == {"p50", "p90", "p99", "mean"}
        for figure in serving[name].values():
            assert set(figure) == FIGURE
            assert 0 < figure["low"] <= figure["value"] <= figure["high"]
        assert serving[name]["p50"]["value"] <= serving[name]["p90"]["value"] <= serving[name]["p99"]["value"]
    assert answer["tpot"] == answer["time"] == serving["tpot"]["p50"]
    assert answer["ttft"] == serving["ttft"]["p50"]
    assert answer["throughput"]["value"] == pytest.approx(500, rel=0.05)
    assert answer["throughput"]["unit"] == "output tokens/s"
    assert serving["ttft_no_load"]["value"] < serving["ttft"]["p50"]["value"]
    assert serving["sustainable_rate"]["value"] > 5
    assert serving["saturated"] is False
    assert serving["limits"]["max_batched_tokens"] == 8192
    assert [point["rate"] for point in serving["curve"]] == sorted(point["rate"] for point in serving["curve"])
    assert answer["request"]["rate"] == 5


def test_the_same_seed_says_the_same() -> None:
    one, again, other = (
        answered(*WORDS, "--rate", "5/s", "--count", "500", "--seed", seed)["serving"] for seed in ("1", "1", "2")
    )
    assert one == again
    assert one["ttft"] != other["ttft"]


def test_overload_is_flagged_with_the_capacity() -> None:
    overload = (*WORDS, "--rate", "500/s", "--count", "3000")
    answer = document(*overload)
    assert answer["serving"]["saturated"] is True
    assert any("saturated" in warning for warning in answer["warnings"])
    assert answer["serving"]["answered_rate"]["value"] < 100
    first = call(*overload).err.splitlines()[0]
    assert first.startswith("1x h100-sxm does not keep up with 500 requests/s: saturation at about ")
    assert "keep up" not in call(*WORDS, "--rate", "5/s").err.splitlines()[0]


def test_objectives_give_goodput_and_the_rate_they_allow() -> None:
    serving = document(*WORDS, "--rate", "5/s", "--ttft", "300ms", "--tpot", "15ms")["serving"]
    assert 0 <= serving["met"] <= 1
    assert serving["goodput"]["value"] <= serving["answered_rate"]["value"] + 1e-9
    assert 0 < serving["allowed_rate"]["value"] <= serving["sustainable_rate"]["value"]
    assert "p95" in serving["ttft"]


def test_limits_can_be_set_and_are_shown() -> None:
    flags = ("--max-sequences", "2", "--max-batched-tokens", "256", "--no-chunked-prefill", "--memory-share", "0.5")
    tight, usual = document(*WORDS, "--rate", "5/s", *flags)["serving"], document(*WORDS, "--rate", "5/s")["serving"]
    assert (tight["limits"]["max_sequences"], tight["limits"]["max_batched_tokens"]) == (2, 256)
    assert tight["limits"]["chunked_prefill"] is False
    assert tight["sustainable_rate"]["value"] < usual["sustainable_rate"]["value"] / 2


@pytest.mark.long
def test_spread_lengths_and_bursts_make_tails_longer() -> None:
    even = document(*WORDS, "--rate", "10/s")["serving"]
    uneven = document(*WORDS, "--rate", "10/s", "--in-spread", "1.0", "--out-spread", "1.0", "--burstiness", "4")["serving"]
    assert uneven["ttft"]["p99"]["value"] > 1.5 * even["ttft"]["p99"]["value"]
    weighted = document(*WORDS, "--rate", "2/s", "--in-histogram", "100:1,300:1", "--out-histogram", "50:1")["serving"]
    assert (weighted["load"]["mean_prompt"], weighted["load"]["mean_output"]) == (200, 50)


def test_few_requests_are_warned_of() -> None:
    answer = document(*WORDS, "--rate", "5/s", "--count", "200")
    assert any("p99" in warning and "200" not in warning.split()[0] for warning in answer["warnings"])
    assert answer["serving"]["load"]["requests"] == 200


@pytest.mark.long
def test_replicas_raise_the_capacity() -> None:
    one = document(*WORDS, "--rate", "5/s")["serving"]["sustainable_rate"]["value"]
    words = ("estimate", "serve", "llama-3.1-8b", "--gpu", "4xh100-sxm", "--dp", "4", "--in", "500", "--out", "100")
    four = document(*words, "--rate", "5/s")["serving"]
    assert four["copies"] == 4
    assert four["sustainable_rate"]["value"] == pytest.approx(4 * one, rel=0.25)


def test_a_trace_is_served_at_its_rate_or_another(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("time,prompt,output\n" + "".join(f"{0.5 * step},{100 + step % 7},{20 + step % 5}\n" for step in range(300)))
    own = document("estimate", "serve", "llama-3.1-8b", "--gpu", "h100-sxm", "--trace", str(trace))
    assert own["request"]["rate"] == pytest.approx(2.0)
    assert own["request"]["seq_in"] == 103
    assert own["serving"]["load"]["trace"] == "trace.csv"
    faster = document("estimate", "serve", "llama-3.1-8b", "--gpu", "h100-sxm", "--trace", str(trace), "--rate", "20/s")
    assert faster["serving"]["answered_rate"]["value"] == pytest.approx(20, rel=0.1)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("time,prompt,output\n0,5,5\n-1,5,5\n", 3),
        ("time,prompt\n0,5\n", 1),
        ("time,prompt,output\n0,NaN,5\n", 2),
        ("time,prompt,output\n5,5,5\n4,5,5\n", 3),
        ("time,prompt,output\n", 1),
        ("time,prompt,output\n0,5,1e300\n", 2),
    ],
)
def test_bad_traces_are_errors_that_name_the_line(tmp_path: Path, text: str, line: int) -> None:
    trace = tmp_path / "bad.csv"
    trace.write_text(text)
    words = ("estimate", "serve", "llama-3.1-8b", "--gpu", "h100-sxm", "--trace", str(trace))
    assert_refused(call(*words), 2)
    error = assert_refused_json(call(*words, "--json"), 2)
    assert error["kind"] == "bad-trace"
    assert f"bad.csv, line {line}:" in error["message"]


@pytest.mark.parametrize(
    "words",
    [
        (*WORDS, "--seed", "3"),  # neither rate nor trace
        (*WORDS, "--rate", "5/s", "--burstiness", "-1"),
        (*WORDS, "--rate", "5/s", "--in-histogram", "5:x"),
        (*WORDS, "--rate", "5/s", "--memory-share", "1.5"),
        (*WORDS, "--rate", "5/s", "--max-sequences", "0"),
        (*WORDS, "--trace", "/nowhere/trace.csv"),
        (*WORDS, "--rate", "0/s"),
        ("estimate", "train", "llama-3.1-8b", "--gpu", "h100-sxm", "--seed", "3"),
        ("estimate", "--requests", "-", "--seed", "3"),
    ],
)
def test_invalid_requests_are_refused(words: tuple[str, ...]) -> None:
    assert_refused(call(*words), 2)


def test_lengths_alone_need_a_rate(tmp_path: Path) -> None:
    trace = tmp_path / "lengths.csv"
    trace.write_text("num_prefill_tokens,num_decode_tokens\n100,10\n200,20\n")
    words = ("estimate", "serve", "llama-3.1-8b", "--gpu", "h100-sxm", "--trace", str(trace))
    assert assert_refused_json(call(*words, "--json"), 2)["kind"] == "no-rate"
    assert document(*words, "--rate", "2/s", "--count", "100")["serving"]["load"]["requests"] == 100


def test_a_model_that_leaves_no_room_still_has_an_answer() -> None:
    answer = document("estimate", "serve", "llama-3.1-70b", "--gpu", "h100-sxm", "--rate", "1/s")
    assert answer["fits"] == "no"
    assert "serving" not in answer
    assert any("no memory left" in warning for warning in answer["warnings"])


def test_best_layout_under_a_load_sustains_it() -> None:
    """Alone a request is fastest over all GPUs; many are served by replicas, which a single step does not show.

    All-reduces over PCIe were estimated too slow before they were fitted on measured ones: pairs of GPUs have the shorter time
    between tokens up to 20 requests/s, and sustain 42 at most.
    """
    words = ("estimate", "serve", "llama-3.1-8b", "--gpu", "l40s", "--gpus", "4", "--in", "500", "--out", "100", "--best-layout")
    answer = document(*words, "--rate", "40/s")
    alone, saturated = (document(*words, *more)["request"]["parallel"] for more in ((), ("--rate", "999/s", "--count", "3000")))
    assert (alone["tp"], alone["dp"]) == (4, 1)
    assert (answer["request"]["parallel"]["dp"], saturated["dp"]) == (4, 4)
    assert answer["serving"]["copies"] == 4
    assert answer["serving"]["saturated"] is False


def test_histograms_bring_their_means() -> None:
    answer = document(*WORDS[:5], "--rate", "2/s", "--in-histogram", "100:1,300:1", "--out-histogram", "50:1,100:3")
    assert (answer["request"]["seq_in"], answer["request"]["seq_out"]) == (200, 88)


def test_trace_with_shared_prefixes_reports_the_hit_rate(tmp_path: Path) -> None:
    lines = [
        json.dumps({"timestamp": 500 * turn, "input_length": 2048, "output_length": 20, "hash_ids": [0, 1, 2, 1000 + turn]})
        for turn in range(200)
    ]
    (tmp_path / "alike.jsonl").write_text("\n".join(lines) + "\n")
    words = ("estimate", "serve", "llama-3.1-8b", "--gpu", "l40s", "--trace", str(tmp_path / "alike.jsonl"))
    reply = call(*words)
    assert "75% of the input tokens hit the prefix cache" in reply.err
    assert "hit the prefix cache" not in call(*words, "--no-prefix-caching").err
    serving = document(*words)["serving"]
    assert (
        serving["sustainable_rate"]["value"]
        > 1.5 * document(*words, "--no-prefix-caching")["serving"]["sustainable_rate"]["value"]
    )


def test_requests_with_a_rate_are_served_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    line = {"task": "serve", "model": "llama-3.1-8b", "gpu": "h100-sxm", "seq_in": 200, "seq_out": 50}
    file.write_text("".join(json.dumps({**line, "rate": rate}) + "\n" for rate in (1, 20)))
    slow, fast = (json.loads(each) for each in call("estimate", "--requests", str(file)).out.splitlines())
    assert slow["tpot"]["value"] < fast["tpot"]["value"]
    assert slow["throughput"]["value"] == pytest.approx(50, rel=0.1)


def test_text_output_has_sentences_and_a_table() -> None:
    done = call(*WORDS, "--rate", "5/s")
    assert done.code == 0
    assert "At 5 requests/s" in done.err
    assert "Saturation:" in done.err
    assert "Engine limits: 8192 tokens per step" in done.err
    parts = {row[0] for row in done.tsv()}
    assert {"first token, p99", "between tokens, p50", "sustainable request rate"} <= parts


def test_the_curve_is_a_chart_and_lines() -> None:
    answer = serve("llama-3.1-8b", gpu="h100-sxm", seq_in=300, seq_out=50, rate=2.0)
    assert answer.serving is not None
    spec = curve_chart(answer, english())
    values = spec["data"]["values"]
    assert len(values) == 9 * len(answer.serving.curve)
    assert {"throughput", "rate", "metric", "percentile", "seconds", "saturated"} <= set(values[0])
    json.dumps(spec)
    lines = curve_lines(answer.serving.curve, english().text)
    assert len(lines) == 1 + len(answer.serving.curve)
    assert "█" in lines[1]
    assert lines[-1].endswith("saturated")
    assert curve_lines((), english().text) == []


@pytest.mark.skipif(importlib.util.find_spec("vl_convert") is None, reason="vl-convert-python is not installed")
def test_the_curve_is_written_as_a_picture(tmp_path: Path) -> None:
    picture = tmp_path / "curve.svg"
    assert call(*WORDS, "--rate", "5/s", "--plot", str(picture)).code == 0
    assert picture.read_text().startswith("<svg")


def test_unknown_plot_format_is_refused() -> None:
    assert_refused(call(*WORDS, "--rate", "5/s", "--plot", "curve.txt"), 2)


def test_a_share_of_the_memory_without_room_for_a_cache_does_not_fit() -> None:
    words = (*WORDS, "--rate", "2/s", "--memory-share")
    none = document(*words, "0.1")
    assert none["fits"] == "no"
    assert none["usable"] < 10 * 2**30
    assert [one for one in none["warnings"] if "no memory left for the KV cache" in one]
    some = document(*words, "0.5")
    assert (some["fits"], some["memory_device"]["value"]) == ("fits", some["usable"])


@pytest.mark.parametrize("task", ["serve", "train"])
def test_a_pipeline_has_no_more_stages_than_layers(task: str) -> None:
    words = ("estimate", task, "llama-3.1-8b", "--gpu", "h100-sxm")
    reply = call(*words, "--pp", "1000")
    assert_refused(reply, 2)
    assert "at most 32 stages" in reply.err
    assert call(*words, "--pp", "32").code == 0
