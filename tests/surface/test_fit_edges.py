"""Edges of `fit` and `estimate` that once broke: help with braces, half characters, impossible layouts, native precisions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.surface.cli import assert_refused, call, terminal
from whichgpu.surface.cli.main import main


@pytest.mark.parametrize("command", ["fit", "estimate", "models"])
def test_help_shows_its_examples(command: str) -> None:
    reply = call(command, "--help")
    assert reply.code == 0
    assert "whichgpu" in reply.out


def test_one_broken_character_does_not_cost_the_other_requests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    requests = tmp_path / "requests.jsonl"
    requests.write_text('{"id":"\\ud800","task":"serve","model":"gpt2"}\n{"id":2,"task":"serve","model":"gpt2"}\n')
    assert main(["estimate", "--requests", str(requests)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["ok"] for line in lines] == [True, True]


def test_a_file_of_requests_never_runs_a_model_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marker = tmp_path / "ran"
    (tmp_path / "evil.py").write_text(f"open({str(marker)!r}, 'w')\ndef make(): pass\n")
    requests = tmp_path / "requests.jsonl"
    requests.write_text('{"task":"train","model":"python:evil:make"}\n')
    assert main(["estimate", "--requests", str(requests)]) == 2
    assert not json.loads(capsys.readouterr().out)["ok"]
    assert not marker.exists()


def test_tensor_parallel_must_divide_the_heads() -> None:
    assert_refused(call("fit", "llama-3-8b", "--tp", "3", "--gpu", "T4"), 2)


def test_models_are_counted_in_the_precision_they_are_published_in() -> None:
    document = call("fit", "gpt-oss-120b", "--gpu", "H100-SXM", "--json").json()
    assert document["request"]["precision"] == "mxfp4"
    assert document["gpus"][0]["fits"] == "fits"
    assert call("fit", "deepseek-v3", "--gpu", "H200-SXM", "--gpus", "8", "--json").json()["request"]["precision"] == "fp8"


def test_integers_beyond_float_precision_have_a_range() -> None:
    assert call("fit", "t5-base", "--task", "prefill", "--batch", "1000000000", "--in", "1000000000", "--gpu", "T4").code == 1


def test_a_gpu_needs_the_same_by_name_and_among_all() -> None:
    words = ("fit", "resnet50", "--task", "train", "--batch", "256", "--json")
    among = next(row for row in call(*words).json()["gpus"] if row["gpu_name"] == "T4")
    by_name = call(*words, "--gpu", "T4").json()["gpus"][0]
    assert (among["needed"], among["largest_batch"]) == (by_name["needed"], by_name["largest_batch"])


def test_gpus_that_fit_come_first() -> None:
    reply = call("fit", "llama-3.1-70b", "--precision", "int4")
    header, *rows = [line.split("\t") for line in reply.out.splitlines()]
    verdicts = [row[header.index("verdict")] for row in rows]
    assert verdicts == sorted(verdicts, key=("fits", "tight", "no").index)
    assert len(set(verdicts)) > 1


def test_remedies_name_their_columns() -> None:
    message = call("fit", "llama-3.1-70b", "--gpu", "RTX 4090").err
    assert "fits with this change alone" in message
    assert "CUDA context" not in call("fit", "llama-3.1-8b", "--gpu", "MI300X").err


def test_a_terminal_shows_forty_of_all_gpus() -> None:
    output = terminal("fit", "llama-3.1-8b", env={"COLUMNS": "160"}).out
    assert "The first 40 of " in output
    assert output.count(" fits ") >= 40
