"""`whichgpu engines`: the software a request can name, and what is known of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import whichgpu as wg
from tests.surface.cli import assert_refused, assert_refused_json, call, rows
from whichgpu.api.facts import engines
from whichgpu.catalog.engines.registry import engine_ids

FIELDS = {"id", "name", "maker", "what", "tasks", "precisions", "first_release", "evidence", "sources", "checked"}


def test_all_engines_are_listed_with_their_facts() -> None:
    engines = rows("engines")
    assert [row["id"] for row in engines] == list(engine_ids())
    for row in engines:
        assert set(row) >= FIELDS
        assert set(row["evidence"]) == {"rows", "gpus", "tasks", "years", "sources"}
        assert row["sources"]


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("vllm", ["vllm"]),
        ("VLLM", ["vllm"]),
        ("trtllm", ["tensorrt-llm"]),
        ("tensorrt", ["tensorrt"]),
        ("torch", ["pytorch"]),
        ("DeepSpeed", ["pytorch"]),
        ("Megatron-LM", ["ngc"]),
        ("ollama", ["llama.cpp"]),
        ("llamacpp", ["llama.cpp"]),
        ("pytorch", ["pytorch"]),
    ],
)
def test_names_and_their_synonyms(name: str, ids: list[str]) -> None:
    assert [row["id"] for row in rows("engines", name)] == ids


def test_search_words_filter_the_list() -> None:
    training = [row["id"] for row in rows("engines", "train")]
    assert {"pytorch", "ngc", "tensorflow", "mxnet"} <= set(training)
    assert not {"vllm", "tensorrt", "llama.cpp"} & set(training)


def test_several_names_keep_their_order() -> None:
    assert [row["id"] for row in rows("engines", "sglang", "vllm")] == ["sglang", "vllm"]


def test_unknown_names_get_the_nearest() -> None:
    assert_refused(call("engines", "vlm"), 2)
    assert "vllm" in assert_refused_json(call("engines", "vlm", "--json"), 2)["choices"]
    assert set(assert_refused_json(call("engines", "zzz", "--json"), 2)["choices"]) == set(engine_ids())


def test_one_engine_is_described_in_full_with_its_sources() -> None:
    reply = call("engines", "tensorrt-llm")
    assert reply.code == 0
    facts = dict(line for line in reply.tsv() if len(line) == 2)
    assert facts["lowest compute capability"] == "8.0"
    assert "https://" in reply.err


def test_every_form() -> None:
    table = call("engines", "--csv").csv()
    assert len(table) == len(engine_ids()) + 1
    assert {"id", "evidence.rows", "evidence.tasks.decode"} <= set(table[0])
    assert len(call("engines", "--markdown").markdown()) == len(engine_ids()) + 2
    assert [row[0] for row in call("engines").tsv()[1:]] == list(engine_ids())
    newest = [row["first_release"] for row in rows("engines", "--sort", "-first_release")]
    assert newest == sorted(newest, reverse=True)


def test_the_same_in_python() -> None:
    assert [row.id for row in wg.engines().engines] == list(engine_ids())
    assert wg.engines("vllm").engines[0].name == "vLLM"


def test_evidence_of_an_engine_comes_from_the_calibration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    evidence = {
        "vllm": {
            "rows": 12,
            "gpus": ["h100-sxm"],
            "tasks": {"decode": 7, "prefill": 5},
            "years": [2024, 2025],
            "sources": ["truth-h200"],
        }
    }
    monkeypatch.setattr(engines, "_evidence", lambda: evidence)
    row = rows("engines", "vllm")[0]
    assert row["evidence"] == evidence["vllm"]
    assert "12 measurements on 1 GPU models" in call("engines", "vllm").err
    assert rows("engines", "mxnet")[0]["evidence"] == {"rows": 0, "gpus": [], "tasks": {}, "years": [], "sources": []}


def test_day_before_all_records_has_no_engines_and_models() -> None:
    for command in ("engines", "models"):
        error = assert_refused_json(call(command, "--catalog-as-known", "2020-01-01", "--json"), 1)
        assert error["kind"] == f"no-{command[:-1]}"
