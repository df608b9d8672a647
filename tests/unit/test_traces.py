"""Traces in the shapes others publish; every bad line is an error that names it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import SHARED
from whichgpu.base.errors import UsageError
from whichgpu.workload.traces import read_trace

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
GOOD = "2023-11-16 18:17:03.9799600,4808,10\n"
TRACES = SHARED / "traces"


def written(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_dates_become_seconds_from_the_first(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, AZURE + GOOD + "2023-11-16 18:17:04.4799600,100,20"))
    assert list(trace.times) == pytest.approx([0, 0.5])
    assert (list(trace.prompts), list(trace.outputs)) == ([4808, 100], [10, 20])
    assert trace.rate == pytest.approx(2.0)


def test_milliseconds_and_blocks_of_json_lines(tmp_path: Path) -> None:
    text = (
        '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n\n'
        '{"timestamp": 250, "input_length": 700, "output_length": 0, "hash_ids": [0, 2]}\n'
    )
    trace = read_trace(written(tmp_path, text))
    assert list(trace.times) == [0, 0.25]
    assert list(trace.outputs) == [5, 1]  # an answer has a token at least
    assert [list(one) for one in trace.hashes] == [[0, 1], [0, 2]]
    assert trace.hash_tokens == 512


def test_lengths_alone_have_no_times(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, "num_prefill_tokens,num_decode_tokens,pd_ratio\n10,5,2.0\n20,5,4.0\n"))
    assert not trace.timed
    assert trace.rate is None
    assert len(trace) == 2


@pytest.mark.parametrize(
    ("header", "times", "read"),
    [
        ("prompt_tokens,output_tokens", ("", ""), []),
        ("time,prompt_tokens,completion_tokens", ("3,", "3.5,"), [0, 0.5]),
        ("Timestamp,Input_Tokens,Output_Tokens", ("2026-01-01 10:00:00,", "2026-01-01 10:00:02,"), [0, 2]),
        ("arrival_time,input_tokens,generated_tokens", ("0,", "1,"), [0, 1]),
        ("prompt,output", ("", ""), []),
    ],
)
def test_columns_may_be_called_as_usual(tmp_path: Path, header: str, times: tuple[str, str], read: list[float]) -> None:
    trace = read_trace(written(tmp_path, f"{header}\n{times[0]}100,5\n{times[1]}200,7\n"))
    assert list(trace.times) == pytest.approx(read)
    assert (list(trace.prompts), list(trace.outputs)) == ([100, 200], [5, 7])


BAD = {
    "empty": ("", 1, "no requests"),
    "only a header": (AZURE, 1, "no requests"),
    "a column is missing": ("TIMESTAMP,ContextTokens\n2023-11-16 18:17:03,5\n", 1, "GeneratedTokens"),
    "no known column": ("a,b,c\n1,2,3\n", 1, "missing"),
    "unordered": (AZURE + GOOD + "2023-11-16 18:17:02,5,5\n", 3, "earlier"),
    "no date": (AZURE + GOOD + "yesterday,5,5\n", 3, "yesterday"),
    "negative tokens": (AZURE + GOOD + "2023-11-16 18:17:05,-5,5\n", 3, "negative"),
    "no prompt": (AZURE + GOOD + "2023-11-16 18:17:05,0,5\n", 3, "ContextTokens"),
    "half a token": (AZURE + GOOD + "2023-11-16 18:17:05,5,2.5\n", 3, "GeneratedTokens"),
    "not a number": (AZURE + GOOD + "2023-11-16 18:17:05,nan,5\n", 3, "nan"),
    "infinite": (AZURE + GOOD + "2023-11-16 18:17:05,5,inf\n", 3, "inf"),
    "huge": (AZURE + GOOD + "2023-11-16 18:17:05,5,99999999999999999999\n", 3, "too large"),
    "nothing": (AZURE + GOOD + "2023-11-16 18:17:05,,5\n", 3, "ContextTokens"),
    "too few cells": (AZURE + GOOD + "2023-11-16 18:17:05,5\n", 3, "2 cells"),
    "an open quote": (AZURE + GOOD + '"2023-11-16 18:17:05,5,5\n', 3, "CSV"),
    "negative time": ('{"timestamp": -1, "input_length": 6, "output_length": 5}\n', 1, "negative"),
    "no time": ('{"timestamp": null, "input_length": 6, "output_length": 5}\n', 1, "timestamp"),
    "no end of time": ('{"timestamp": 1e30, "input_length": 6, "output_length": 5}\n', 1, "too large"),
    "a column less later": (
        '{"timestamp": 0, "input_length": 6, "output_length": 5}\n{"timestamp": 0, "input_length": 6}\n', 2, "output_length",
    ),
    "not JSON": ('{"timestamp": 0, "input_length": 6, "output_length": 5}\n{"timesta\n', 2, "JSON"),
    "a list": ('{"timestamp": 0, "input_length": 6, "output_length": 5}\n[1]\n', 2, "JSON"),
    "blocks that are none": ('{"timestamp": 0, "input_length": 6, "output_length": 5, "hash_ids": "x"}\n', 1, "hash_ids"),
    "a number for text": ('{"timestamp": 0, "input_length": true, "output_length": 5}\n', 1, "input_length"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_trace_names_the_line(tmp_path: Path, name: str) -> None:
    text, line, word = BAD[name]
    with pytest.raises(UsageError) as caught:
        read_trace(written(tmp_path, text))
    assert caught.value.kind == "bad-trace"
    assert f"trace.csv, line {line}:" in str(caught.value)
    assert word in str(caught.value)
    assert caught.value.hint


def test_a_file_that_is_none_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(UsageError) as caught:
            read_trace(path)
        assert caught.value.kind == "trace-unreadable"


def test_bytes_that_are_no_text_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(AZURE.encode() + bytes(range(256)) + b"\n")
    with pytest.raises(UsageError, match="line"):
        read_trace(path)


@pytest.mark.skipif(not TRACES.is_dir(), reason="the published traces are not beside this checkout")
@pytest.mark.parametrize(
    ("name", "requests", "rate"),
    [
        ("AzureLLMInferenceTrace_conv.csv", 19366, 5.53),
        ("AzureLLMInferenceTrace_code.csv", 8819, 2.57),
        ("conversation_trace.jsonl", 12031, 3.4),
        ("arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv", 28257, None),
    ],
)
def test_published_traces_are_read_as_they_stand(name: str, requests: int, rate: float | None) -> None:
    trace = read_trace(TRACES / name)
    assert len(trace) == requests
    assert trace.rate == (pytest.approx(rate, rel=0.01) if rate else None)
    assert np.min(trace.prompts) >= 1
    assert len(trace.hashes) == (requests if name.endswith("jsonl") else 0)
