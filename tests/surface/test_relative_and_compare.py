"""Speed against another GPU: `gpus --relative-to`, and `compare` with a task and a model."""

from __future__ import annotations

from typing import Any

import pytest

import whichgpu as wg
from tests.surface.cli import assert_refused, assert_refused_json, call
from whichgpu.api.facts.relative_speed import precision_for
from whichgpu.catalog.store import Catalog

INDICES = ("cnn-training", "transformer-training", "llm-inference", "vision-inference", "image-generation")
FOUR = ["V100 SXM 16GB", "A100 SXM 40GB", "H100 SXM", "H200 SXM"]
DECODE = ["--task", "decode", "--model", "llama-3.2-1b", "--batch", "8", "--precision", "fp16"]


def document(*argv: str) -> Any:
    reply = call(*argv, "--json")
    assert reply.code == 0, reply.err or reply.out
    return reply.json()


def test_every_gpu_has_every_index_against_a_v100() -> None:
    indices = document("gpus", "--relative-to", "V100 SXM 16GB")["relative"]
    assert indices["against"] == "v100-sxm-16gb"
    assert {item["index"] for item in indices["mix"]} == set(INDICES)
    rows = {row["gpu"]: row["relative"] for row in indices["rows"]}
    assert len(rows) == len(Catalog().gpus)
    rated = [gpu.id for gpu in Catalog().gpus if gpu.peaks]
    assert [id for id in rated if set(rows[id]) != set(INDICES)] == []
    for figures in rows.values():
        for figure in figures.values():
            assert 0 < figure["low"] <= figure["value"] <= figure["high"]
            assert figure["unit"] == "x"
            assert figure["basis"] in ("calibrated", "modelled")
    assert all(figure["value"] == figure["low"] == figure["high"] == 1 for figure in rows["v100-sxm-16gb"].values())


def test_against_another_the_ratios_turn_round() -> None:
    there, back = (
        document("gpus", gpu, "--relative-to", other)["relative"]["rows"][0]["relative"]
        for gpu, other in (("T4", "H200 SXM"), ("H200 SXM", "T4"))
    )
    for index in INDICES:
        assert there[index]["value"] * back[index]["value"] == pytest.approx(1)


@pytest.mark.parametrize("index", INDICES)
def test_the_line_of_data_centre_gpus_rises(index: str) -> None:
    names = ["K80", "T4", "V100 SXM 16GB", "A100 SXM 80GB", "H100 SXM", "B200"]
    against = wg.gpus(names, relative_to="T4").relative
    assert against is not None
    values = [row.relative[index].value for row in against.rows]
    assert values == sorted(values)


def test_tables_show_an_index_a_column_and_sort_by_it() -> None:
    reply = call("gpus", *FOUR, "--relative-to", "V100 SXM 16GB", "--sort", "-relative.llm-inference")
    assert reply.code == 0
    table = reply.tsv()
    assert table[0] == ["name", "CNN training", "transformer training", "LLM inference", "vision inference", "image generation"]
    assert [row[0] for row in table[1:]] == list(reversed(FOUR))
    assert table[-1][3] == "1x"
    assert "reference mix" in reply.err
    header = call("gpus", "T4", "--relative-to", "V100 SXM 16GB", "--csv").csv()[0]
    assert "relative.cnn-training" in header
    assert "memory_bytes" in header


def test_reference_must_be_exactly_one_gpu() -> None:
    assert_refused(call("gpus", "T4", "--relative-to", "V100"), 2)
    assert "V100 SXM 16GB" in assert_refused_json(call("gpus", "--relative-to", "V100", "--json"), 2)["choices"]
    assert_refused(call("gpus", "T4", "--relative-to", "V100 SXM 16GB", "--sort", "relative.nonsense"), 2)


def test_each_gpu_runs_in_the_best_precision_it_has() -> None:
    gpus, training = Catalog().gpu_by_id, ("amp-bf16", "amp-fp16", "fp32")
    best = {"h200-sxm": "amp-bf16", "v100-sxm-16gb": "amp-fp16", "t4": "amp-fp16", "k80": "fp32", "gtx-1080-ti": "fp32"}
    assert {id: precision_for(gpus[id], training) for id in best} == best


def test_compare_shows_speed_with_a_task_and_a_model() -> None:
    table = call("compare", *FOUR, *DECODE).tsv()
    rows = {row[0]: row[1:] for row in table}
    assert table[0][1:] == FOUR
    assert all(" ms (" in cell for cell in rows["time"])
    assert all("output tokens/s" in cell for cell in rows["throughput"])
    assert rows["relative to the first"][0] == "1x"
    numbers = [float(cell.rstrip("x")) for cell in rows["relative to the first"]]
    assert numbers == sorted(numbers)
    comparison = document("compare", *FOUR, *DECODE)
    assert [column["name"] for column in comparison["speed"]] == FOUR
    assert comparison["speed"][0]["estimate"]["time"]["unit"] == "s"
    assert comparison["speed"][1]["relative"] == pytest.approx(
        comparison["speed"][0]["estimate"]["time"]["value"] / comparison["speed"][1]["estimate"]["time"]["value"]
    )


def test_one_that_cannot_does_not_cost_the_others_but_all_failing_is_an_error() -> None:
    reply = call("compare", "H100 SXM", "MI300X", *DECODE, "--engine", "tensorrt-llm")
    assert reply.code == 0
    assert "MI300X: TensorRT-LLM does not run on MI300X" in reply.err
    comparison = document("compare", "H100 SXM", "MI300X", *DECODE, "--engine", "tensorrt-llm")["speed"]
    assert comparison[0]["estimate"]
    assert comparison[1]["estimate"] is None
    assert comparison[1]["problem"]
    assert_refused(call("compare", "MI300X", "MI250X", *DECODE, "--engine", "tensorrt-llm"), 2)


def test_speed_needs_both_a_task_and_a_model() -> None:
    for flags in (["--task", "decode"], ["--model", "resnet50"], ["--batch", "8"]):
        assert_refused(call("compare", "T4", "L4", *flags), 2)


def test_without_them_it_compares_facts_as_before() -> None:
    table = call("compare", "T4", "L4").tsv()
    assert "time" not in [row[0] for row in table]
    assert "speed" not in document("compare", "T4", "L4")


def test_machines_are_compared_by_their_gpu() -> None:
    flags = ["--task", "train", "--model", "resnet50", "--batch", "64", "--precision", "amp-fp16"]
    rows = {row[0]: row[1:] for row in call("compare", "p3.2xlarge", "g4dn.xlarge", *flags).tsv()}
    assert rows["relative to the first"][0] == "1x"
    assert float(rows["relative to the first"][1].rstrip("x")) < 1


def test_a_comparison_of_speed_states_the_batch_it_assumed() -> None:
    message = call("compare", "T4", "A10", "--task", "train", "--model", "resnet50").err
    assert "Batch 32. Assumptions: " in message
    assert "gpu t4" not in message
    seven = call("compare", "T4", "A10", "--task", "train", "--model", "resnet50", "--batch", "7").err
    assert "Batch 7." in seven
    assert "train of resnet50, all with batch 32: T4 1x, A10 " in message.splitlines()[0]
    assert "all with batch 7: T4 1x" in seven.splitlines()[0]
