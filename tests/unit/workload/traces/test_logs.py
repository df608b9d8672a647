"""Logs of OpenAI-compatible servers and gateways as traffic: one reply per line, with the token counts of its usage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from whichgpu.base.errors import UsageError
from whichgpu.workload.traces.reader import read_trace

USAGE = {"prompt_tokens": 700, "completion_tokens": 40, "total_tokens": 740, "prompt_tokens_details": {"cached_tokens": 0}}


def log(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "rows",
    [
        [{"id": "x", "object": "chat.completion", "created": 1_760_000_000 + at, "usage": USAGE} for at in (0, 2, 2, 6)],
        [{"startTime": f"2026-10-09T08:53:{20 + at}Z", "model": "m", "usage": USAGE} for at in (0, 2, 2, 6)],
        [{"timestamp": 5.0 + at, "response": {"id": "x", "usage": USAGE}} for at in (0, 2, 2, 6)],
        [{"@timestamp": 20.0 + at, "body": {"usage": {"input_tokens": 700, "output_tokens": 40}}} for at in (0, 2, 2, 6)],
    ],
)  # fmt: skip
def test_a_log_of_replies_is_a_trace(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    trace = read_trace(log(tmp_path / "log.jsonl", *rows))
    assert list(trace.times) == [0, 2, 2, 6]
    assert (set(trace.prompts), set(trace.outputs)) == ({700}, {40})


def test_columns_of_the_line_itself_come_first(tmp_path: Path) -> None:
    trace = read_trace(log(tmp_path / "log.jsonl", {"time": 0, "prompt_tokens": 5, "completion_tokens": 6, "usage": USAGE}))
    assert (trace.prompts[0], trace.outputs[0]) == (5, 6)


@pytest.mark.parametrize(
    "row",
    [{"created": 9, "usage": None}, {"created": 9, "usage": {}}, {"created": 9, "usage": {"prompt_tokens": 7}}, {"created": 9}],
)
def test_a_reply_without_counts_names_its_line(tmp_path: Path, row: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="line 2"):
        read_trace(log(tmp_path / "log.jsonl", {"created": 8, "usage": USAGE}, row))


def test_fifty_thousand_replies_are_read(tmp_path: Path) -> None:
    rows = ({"created": at, "usage": USAGE} for at in range(50_000))
    assert len(read_trace(log(tmp_path / "log.jsonl", *rows))) == 50_000
