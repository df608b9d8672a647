"""The contract of `estimate` for many requests at once, and in other forms than JSON."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.surface.cli import Reply, call
from tests.surface.speed import CASES, CNN, LLM, estimate_lines, of
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.calibration import load_calibration


def test_a_file_of_mixed_tasks_is_answered_line_by_line(tmp_path: Path) -> None:
    common = {"gpu": "H200 SXM", "model": LLM}
    code, replies = estimate_lines(
        tmp_path,
        {"id": 1, "task": "decode", "batch": 8, "seq_in": 1024, **common},
        {"id": 2, "task": "train", "model": CNN, "batch": 64, "gpu": "V100 SXM 16GB"},
        {"id": 3, "task": "serve", "engine": "tensorrt-llm", **common, "gpu": "MI300X"},
        {"id": 4, "task": "prefill", **common, "gpu": "A100"},
        {"id": 5, "task": "forward", "model": "mlp:784x2048x10", "batch": 32, "gpu": "T4"},
        {"id": 6, "task": "serve", "rate": 1.5, **common},
        {"id": 7, "task": "decode", "model": LLM},
    )
    assert code == 0
    assert [reply["id"] for reply in replies] == [1, 2, 3, 4, 5, 6, 7]
    assert [reply["ok"] for reply in replies] == [True, True, False, False, True, True, True]
    assert [reply["throughput"]["unit"] for reply in replies if reply["ok"] and reply.get("throughput")] == [
        "output tokens/s",
        "samples/s",
        "samples/s",
        "output tokens/s",
    ]
    assert "time" not in replies[6]
    assert replies[2]["error"]["hint"]
    assert replies[0]["time"] == of("decode")["time"]


def test_the_echo_of_a_request_gives_the_same_time(tmp_path: Path) -> None:
    _, (first,) = estimate_lines(tmp_path, {"task": "train", "model": CNN, "batch": 64, "gpu": "H200 SXM"})
    _, (again,) = estimate_lines(tmp_path, first["request"])
    assert again["time"] == first["time"]


def test_a_model_by_its_config_is_timed_like_its_name(tmp_path: Path) -> None:
    config = next(model.config for model in Catalog().models if model.id == LLM)
    _, replies = estimate_lines(
        tmp_path, *({"task": "decode", "model": model, "gpu": "H200 SXM", "batch": 8} for model in (LLM, config))
    )
    assert replies[0]["time"]["value"] == pytest.approx(replies[1]["time"]["value"])


def _form(flag: str) -> Reply:
    reply = call("estimate", *CASES["decode"][0], "--gpu", "H200 SXM", *([flag] if flag else []))
    assert reply.code == 0
    return reply


def test_csv_has_the_fields_by_their_names_in_base_units() -> None:
    rows = {row[0]: row for row in _form("--csv").csv()}
    for name in ("time", "time_device", "throughput"):
        assert float(rows[name][1]) == pytest.approx(of("decode")[name]["value"], rel=1e-3)


@pytest.mark.parametrize("flag", ["", "--markdown"])
def test_tables_show_time_and_throughput_with_units(flag: str) -> None:
    reply = _form(flag)
    text = reply.out.lower()
    assert "time" in text
    assert "tokens/s" in text
    assert " ms" in text


def test_the_first_words_are_the_answer_with_its_time() -> None:
    first = " ".join(_form("").err.splitlines()[:2])
    assert "ms" in first
    assert "tokens/s" in first
    assert LLM in first


def test_the_sentence_says_when_its_numbers_were_made() -> None:
    """The day of the fit behind the time, and the day the GPU's facts were last checked; JSON has both."""
    time, memory = _form("").err.splitlines()[:2]
    gpu = next(gpu for gpu in Catalog().gpus if gpu.name == "H200 SXM")
    fitted = load_calibration().provenance["date"]
    assert re.search(rf"Time model calibrated {fitted}\.$", time)
    assert f"(checked {gpu.checked})" in memory
    assert (of("decode")["calibrated"], of("decode")["checked"]) == (fitted, gpu.checked)


def test_memory_over_several_gpus_is_labelled_per_gpu() -> None:
    reply = call("estimate", "train", "llama-3.1-8b", "--gpu", "H200 SXM", "--gpus", "4")
    assert "on each of 4 GPUs" in reply.err
    assert "on each" not in _form("").err
