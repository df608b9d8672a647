"""Traces in the shapes others publish; every bad line is an error that names it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import SHARED
from whichgpu.base.errors import UsageError
from whichgpu.base.messages import english
from whichgpu.workload.traces import reader
from whichgpu.workload.traces.reader import check_trace, read_trace

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


@pytest.mark.parametrize(
    "text",
    [
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n"
        "45.5,GPT-4,417,0,417,API log\n",
        "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n0,2,0,1.5,1,472,18\n"
        "1,2,0,42.0,1,417,1\n",
    ],
    ids=["BurstGPT", "Splitwise"],
)
def test_published_columns_are_read_as_they_are(tmp_path: Path, text: str) -> None:
    trace = read_trace(written(tmp_path, text))
    assert list(trace.times) == pytest.approx([0, 40.5])
    assert (list(trace.prompts), list(trace.outputs)) == ([472, 417], [18, 1])


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
    "not a date": (AZURE + GOOD + "yesterday,5,5\n", 3, "yesterday"),
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
    "a column twice": ("time,prompt,output,prompt\n0,5,5,6\n", 1, "columns that appear twice: prompt"),
    "a key twice": ('{"time": 0, "prompt": 6, "output": 5, "prompt": 7}\n', 1, "columns that appear twice: prompt"),
    "a cell more": (AZURE + GOOD + "2023-11-16 18:17:05,5,5,5\n2023-11-16 18:17:05,5\n", 3, "4 cells"),
    "negative after many": ("time,prompt,output\n" + "1,5,5\n" * 300_000 + "2,5,-5\n" + "3,5,5\n", 300_002, "negative"),
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


def test_a_pipe_or_a_device_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        for read in (read_trace, check_trace):
            with pytest.raises(UsageError, match="not a regular file") as caught:
                read(path)
            assert caught.value.hint
            assert "save" in english().render(caught.value.hint)


def test_too_many_requests_are_an_error_with_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_REQUESTS", 1000)
    path = written(tmp_path, "time,prompt,output\n" + "1,5,5\n" * 1001)
    with pytest.raises(UsageError, match="line 1002: more than 1,000 requests") as caught:
        read_trace(path)
    assert caught.value.hint
    assert "part of it" in english().render(caught.value.hint)
    assert len(read_trace(written(tmp_path, "time,prompt,output\n" + "1,5,5\n" * 1000))) == 1000


def test_a_line_without_end_is_refused_after_a_piece_of_it(tmp_path: Path) -> None:
    path = written(tmp_path, "time,prompt,output\n1,5,5\n" + "9" * 5_000_000)
    with pytest.raises(UsageError, match="line 3: longer than"):
        read_trace(path)


@pytest.mark.parametrize(
    ("header", "line"),
    [
        ("time,prompt,output", "{at}.5,{n},{m}"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens", "2023-10-29 0{hour}:59:{second:02}.1234567,{n},{m}"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens", "2024-05-10 0{hour}:59:{second:02}.5+00:00,{n},{m}"),
        ("Timestamp,other,input_tokens,output_tokens", "2026-01-01T0{hour}:59:{second:02}Z,é,{n},{m}.0"),
        ("prompt,output", "{n}, {m}"),
        ("", '{{"timestamp": {at}, "input_length": {n}, "output_length": {m}, "hash_ids": [{n}, {m}]}}'),
        ("", '{{"time": {at}.25, "prompt": {n}, "output": {m}, "more": "x"}}'),
    ],
)
def test_lines_parsed_in_bulk_equal_lines_parsed_singly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str, line: str
) -> None:
    lines = [line.format(at=at, hour=at // 60, second=at % 60, n=1 + at * 7 % 900, m=at * 3 % 40) for at in range(300)]
    path = written(tmp_path, "\r\n".join(([header] if header else []) + lines))
    calls: list[int] = []
    one = reader._TraceReader._one

    def counted(self: Any, number: int, text: str) -> None:
        calls.append(number)
        one(self, number, text)

    monkeypatch.setattr(reader._TraceReader, "_one", counted)
    together = read_trace(path)
    assert not calls
    monkeypatch.setattr(reader._TraceReader, "_grown", lambda *_: False)
    assert read_trace(path) == together
    assert len(calls) == 300


def test_bytes_read_are_reported(tmp_path: Path) -> None:
    progress: list[float] = []
    read_trace(written(tmp_path, "time,prompt,output\n" + "1,5,5\n" * 1_000_000), progress.append)
    assert progress == sorted(progress)
    assert len(progress) > 2
    assert progress[-1] == 1.0


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
def test_published_traces_are_read_unmodified(name: str, requests: int, rate: float | None) -> None:
    trace = read_trace(TRACES / name)
    assert len(trace) == requests
    assert trace.rate == (pytest.approx(rate, rel=0.01) if rate else None)
    assert np.min(trace.prompts) >= 1
    assert len(trace.hashes) == (requests if name.endswith("jsonl") else 0)


def test_repeated_trace_is_read_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "time,prompt,output\n1,5,5\n")
    first = reader.cached_trace(path)
    assert reader.cached_trace(tmp_path / "." / "trace.csv") is first
    written(tmp_path, "time,prompt,output\n1,5,5\n2,6,6\n")
    assert len(reader.cached_trace(path)) == 2
    monkeypatch.setattr(reader, "MAX_CACHED_TRACES", 2)
    for place in range(4):
        reader.cached_trace(written(tmp_path, "time,prompt,output\n1,5,5\n", f"{place}.csv"))
    assert len(reader._CACHE) <= 2
