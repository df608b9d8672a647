"""`whichgpu evidence`: search of the measurements that estimates rest on."""

from __future__ import annotations

import pytest

import whichgpu as wg
from tests.surface.cli import assert_refused, assert_refused_json, call
from whichgpu.catalog.evidence import evidence_sources

FIELDS = {
    "source",
    "date",
    "gpu",
    "software",
    "model",
    "precision",
    "batch",
    "seq_in",
    "seq_out",
    "layout",
    "measured",
    "unit",
    "licence",
    "url",
}


def test_rows_have_the_request_the_time_and_the_source() -> None:
    document = call("evidence", "H100", "llama", "--json").json()
    assert document["matching"] > len(document["evidence"]) == 20
    assert document["rows"] >= document["matching"]
    for row in document["evidence"]:
        assert set(row) >= FIELDS
        assert "H100" in row["gpu"]
        assert row["measured"] > 0
        assert row["unit"] == "s"
        source = evidence_sources()[row["source"]]
        assert (row["url"], row["licence"]) == (source.url, source.licence)
        assert row["date"]


def test_all_words_must_occur_in_any_order_and_as_one_argument() -> None:
    orders = [call("evidence", *words, "--json").json() for words in (("llama", "H100"), ("H100", "LLAMA"), ("h100 llama",))]
    assert orders[0] == orders[1] == orders[2]


def test_whole_runs_come_before_operators() -> None:
    rows = wg.evidence("h200", limit="all").evidence
    tasks = [row.task == "operator" for row in rows]
    assert tasks == sorted(tasks)
    assert True in tasks
    assert False in tasks


@pytest.mark.parametrize(
    ("flags", "field", "values"),
    [
        (("--gpu", "H100"), "gpu", {"H100 SXM", "H100 PCIe", "H100 NVL"}),
        (("--task", "decode"), "task", {"decode"}),
        (("--precision", "fp8"), "precision", {"fp8"}),
        (("--source", "argonne"), "source", {"argonne"}),
        (("--model", "llama-2-7b"), "model", {"llama-2-7b"}),
    ],
)
def test_filters(flags: tuple[str, ...], field: str, values: set[str]) -> None:
    rows = call("evidence", *flags, "--limit", "all", "--json").json()["evidence"]
    assert rows
    assert {row[field] for row in rows} <= values


def test_an_engine_is_known_by_its_synonyms_also_with_a_version() -> None:
    rows = wg.evidence(engine="trtllm", limit="all").evidence
    assert {row.software.split()[0] for row in rows} == {"tensorrt-llm", "trtllm"}


def test_limit_and_sort() -> None:
    rows = wg.evidence(gpu="A100", task="batch", sort="-measured", limit=5).evidence
    assert len(rows) == 5
    assert [row.measured for row in rows] == sorted((row.measured for row in rows), reverse=True)
    dates = [row.date for row in wg.evidence(gpu="H200", task="decode", sort="date", limit=50).evidence]
    assert dates == sorted(dates)


def test_nothing_found_is_exit_1_with_the_count_of_each_filter() -> None:
    reply = call("evidence", "--gpu", "T4", "--engine", "sglang")
    assert_refused(reply, 1)
    assert "--gpu alone matches" in reply.err
    assert assert_refused_json(call("evidence", "no-such-word-anywhere", "--json"), 1)["kind"] == "no-evidence"
    assert assert_refused_json(call("evidence", "--model", "gpt2", "--gpu", "T4", "--json"), 1)["hint"]


@pytest.mark.parametrize(
    ("flags", "kind", "choice"),
    [
        (("--gpu", "H101"), "unknown-gpu", "H100"),
        (("--engine", "vlm"), "unknown-engine", "vllm"),
        (("--model", "lamma-3.1-8b"), "unknown-model", "llama-3.1-8b"),
        (("--task", "decoding"), "unknown-task", "decode"),
        (("--precision", "fp9"), "unknown-precision", "fp8"),
        (("--source", "argone"), "unknown-evidence-source", "argonne"),
        (("--sort", "bach"), "unknown-field", "batch"),
    ],
)
def test_unknown_filter_value_exits_2_with_the_nearest_names(flags: tuple[str, ...], kind: str, choice: str) -> None:
    error = assert_refused_json(call("evidence", *flags, "--json"), 2)
    assert error["kind"] == kind
    assert choice in error["choices"]
    assert_refused(call("evidence", *flags), 2)


def test_forms() -> None:
    reply = call("evidence", "--gpu", "MI300X", "--limit", "3")
    assert [len(row) for row in reply.tsv()] == [6, 6, 6, 6]
    assert "licence:" in reply.err
    assert len(call("evidence", "--gpu", "MI300X", "--limit", "3", "--markdown").markdown()) == 5
    table = call("evidence", "--gpu", "MI300X", "--limit", "3", "--csv").csv()
    assert {"measured", "licence", "path"} <= set(table[0])
    assert_refused(call("evidence", "--as-of", "2024-01-01"), 2)
    assert_refused(call("evidence", "--limit", "0"), 2)
