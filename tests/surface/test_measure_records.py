"""Load tests become records that are checked, used, listed and forgotten."""

from __future__ import annotations

import json
from math import log
from pathlib import Path
from typing import Any

import pytest

from tests.surface.cli import assert_refused, assert_refused_json, call
from tests.unit.measure.load_tests.test_formats import AIPERF, GUIDELLM, LLAMA_ROW, MLPERF, SGLANG, VLLM
from whichgpu.api.workloads.estimate import estimate

INT8 = "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8"
CLAIM = ("--verify", "estimate serve llama-3.1-8b --gpu h100-sxm --engine vllm")
DECODE: dict[str, Any] = {
    "task": "decode",
    "model": "llama-3.1-8b",
    "gpu": "h100-sxm",
    "engine": "vllm",
    "batch": 4,
    "seq_in": 1050,
}


def written(folder: Path, document: object, name: str = "result.json") -> str:
    path = folder / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


def scaled(factor: float, document: dict[str, Any] = VLLM) -> dict[str, Any]:
    """The same load test with times per token of a factor times the shipped estimate."""
    figure = estimate(own=False, **DECODE).time
    assert figure is not None
    times = {name: figure.value * factor * 1e3 for name in document if name.endswith(("tpot_ms", "itl_ms"))}
    requests = document["completed"]
    # As many requests at once as before: the rate falls as tokens take longer.
    return (
        document | times | {"duration": requests * (document["total_output_tokens"] / requests - 1) * figure.value * factor / 4}
    )


def test_a_file_of_too_many_load_tests_is_refused_before_any_is_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whichgpu.api.measure.load_tests.estimate_workload", lambda *_: pytest.fail("estimated"))
    path = written(tmp_path, [VLLM] * 501)
    assert assert_refused_json(call("measure", "--import", path, *CLAIM, "--json"), 2)["kind"] == "load-test-unusable"
    path = written(tmp_path, VLLM | {"completed": 10**400})
    assert assert_refused_json(call("measure", "--import", path, *CLAIM, "--json"), 2)["kind"] == "load-test-unusable"


def test_a_load_test_changes_estimates_is_named_in_them_listed_and_forgotten(tmp_path: Path) -> None:
    reply = call("measure", "--import", written(tmp_path, scaled(1.3)), *CLAIM, "--json")
    assert reply.code == 0, reply.err
    answer = json.loads(reply.out)
    [step] = answer["record"]["steps"]
    assert step["seconds"] / step["predicted"]["value"] == pytest.approx(1.3)
    assert (step["request"]["batch"], step["request"]["precision"]) == (4, "bf16")
    before, after = estimate(own=False, **DECODE), estimate(**DECODE)
    assert before.time is not None
    assert after.time is not None
    assert 1.1 < after.time.value / before.time.value < 1.35
    widths = [[log(end / one.time.value) for end in (one.time.low, one.time.high)] for one in (before, after) if one.time]
    assert widths[0][0] - 1e-9 <= widths[1][0] < 0 < widths[1][1] <= widths[0][1] + 1e-9  # One step does not widen a range.
    [row] = json.loads(call("measure", "--records", "--json").out)["records"]
    assert row["id"] in after.sources
    assert row["id"] not in before.sources
    assert [row["id"] in str(one.warnings) for one in (before, after)] == [False, True]  # The text of answers and reports.
    assert (row["origin"], row["gpu"], row["steps"], row["used_for"]) == ("imported", "h100-sxm", 1, ["vllm/decode"])
    assert row["ratio"] == pytest.approx(1.3)
    text = call("measure", "--records")
    assert text.tsv()[1] == [row["id"], "imported", "h100-sxm", "1", "vllm/decode", "1.3"]
    forgotten = call("measure", "--forget", row["id"][-8:])
    assert (forgotten.code, forgotten.err) == (0, f"Forgot {row['id']}.\n")
    assert call("measure", "--records").code == 1
    last = estimate(**DECODE).time
    assert last is not None
    assert last.value == before.time.value


@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_too_fast_is_as_wrong_as_too_slow(factor: float, tmp_path: Path) -> None:
    refused = assert_refused_json(call("measure", "--import", written(tmp_path, scaled(factor)), *CLAIM, "--json"), 2)
    assert refused["kind"] == "load-test-unusable"
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("document", "claim", "kind"),
    [
        (SGLANG, "estimate serve llama-3.1-8b --gpu h100-sxm", "sglang/decode"),
        (GUIDELLM, "estimate serve llama-3.1-8b --gpu h100-sxm --engine vllm", "vllm/decode"),
        (AIPERF, "estimate serve qwen3-8b --gpu h100-sxm --engine sglang", "sglang/decode"),
        ([LLAMA_ROW], "", "llama.cpp/prefill"),
        (VLLM | {"model_id": INT8}, "estimate serve llama-3.1-8b --gpu h100-sxm --engine vllm --precision=int8", "vllm/decode"),
        (MLPERF, "estimate forward resnet50 --gpu t4 --engine tensorrt --batch 16 --precision int8", "tensorrt/forward"),
    ],
)
def test_each_tool_s_file_becomes_a_record(document: object, claim: str, kind: str, tmp_path: Path) -> None:
    words = ("--verify", claim) if claim else ()
    reply = call("measure", "--import", written(tmp_path, document), *words)
    assert reply.code == 0, reply.err
    [row] = json.loads(call("measure", "--records", "--json").out)["records"]
    assert row["used_for"] == [kind]


def test_prefills_that_took_most_of_the_time_leave_no_decode_step(tmp_path: Path) -> None:
    busy = VLLM | {"total_input_tokens": 3_000_000, "duration": 50.0}
    refused = assert_refused_json(call("measure", "--import", written(tmp_path, busy), *CLAIM, "--json"), 2)
    assert "prefills took" in refused["message"]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (VLLM, ()),  # No GPU in the file and none here.
        (VLLM, ("--verify", "estimate serve llama-3.1-8b --gpu h100-sxm --gpus 2")),
        (VLLM | {"model_id": "Qwen/Qwen2.5-72B-Instruct"}, CLAIM),  # The file says that it measured another model.
        (VLLM | {"model_id": "me/mine"}, ("--verify", "estimate serve no-such --gpu h100-sxm")),
        (VLLM | {"model_id": "me/mine"}, CLAIM),  # Nobody knows that this is the user's model.
        (VLLM | {"backend": "tensorrt-llm"}, CLAIM),  # The file names another engine,
        (SGLANG, CLAIM),
        (VLLM | {"backend": "lmdeploy"}, CLAIM),  # or one that is not known.
        *((VLLM | {"date": date}, CLAIM) for date in ("0000-01-01", "9999-12-31", "20991231-000000", "20261399", "soon", 0)),
        *((VLLM | {"median_itl_ms": value}, CLAIM) for value in (1e300, -1.0, float("nan"))),
        (VLLM | {"model_id": INT8}, ("--verify", "estimate serve llama-3.1-8b --gpu h100-sxm --engine vllm --precision fp8")),
        ([LLAMA_ROW], ("--verify", "estimate prefill llama-3.1-8b --gpu h100-sxm")),  # It says that it ran on another GPU,
        ([LLAMA_ROW], ("--verify", "estimate prefill llama-3.1-8b --gpu rtx-4090 --engine vllm")),  # and with llama.cpp.
        ("[{}]", CLAIM),
        ("", CLAIM),
    ],
)
def test_unusable_files_are_refused_with_the_reason(document: object, words: tuple[str, ...], tmp_path: Path) -> None:
    assert_refused(call("measure", "--import", written(tmp_path, document), *words), 2)


def test_a_file_without_a_gpu_gets_the_words_that_name_one(tmp_path: Path) -> None:
    path = written(tmp_path, scaled(1.3))
    hint = assert_refused_json(call("measure", "--import", path, "--json"), 2)["hint"]
    claim = hint.partition('--verify "')[2].partition('"')[0]
    assert claim == "estimate serve llama-3.1-8b --gpu h100-sxm"
    assert call("measure", "--import", path, "--verify", claim).code == 0


def test_an_imported_record_acts_on_its_own_engine_only(tmp_path: Path) -> None:
    assert call("measure", "--import", written(tmp_path, scaled(1.3)), *CLAIM).code == 0
    others: tuple[dict[str, Any], ...] = (
        {"task": "finetune", "model": "llama-3.1-8b", "gpu": "h100-sxm", "engine": "pytorch", "lora_rank": 16},
        {**DECODE, "engine": "sglang"},
    )
    for request in others:
        before, after = estimate(own=False, **request), estimate(**request)
        assert (after.time, after.sources) == (before.time, before.sources)


def test_records_are_kept_in_the_folder_of_the_user_s_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHICHGPU_DATA", str(tmp_path / "mine"))
    assert call("measure", "--import", written(tmp_path, scaled(1.3)), *CLAIM).code == 0
    assert len(list((tmp_path / "mine" / "records" / "imported").iterdir())) == 1
    shipped, own = estimate(own=False, **DECODE).time, estimate(**DECODE).time
    assert shipped is not None
    assert own is not None
    assert own.value > shipped.value


def test_records_and_forget_refuse_what_is_not_there(tmp_path: Path) -> None:
    assert call("measure", "--records").code == 1
    assert_refused(call("measure", "--forget", "nothing"), 2)
    assert_refused(call("measure", "--records", "--forget", "x"), 2)
    assert_refused(call("measure", "--records", "--verify", "estimate serve gpt2"), 2)
    folder = tmp_path / "data" / "whichgpu" / "records" / "own"
    folder.mkdir(parents=True)
    (folder / "broken.json").write_text("{")
    assert call("measure", "--records").tsv()[1][0] == "broken"
    assert call("measure", "--forget", "broken").code == 0
    assert not list(folder.iterdir())
