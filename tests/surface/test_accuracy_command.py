"""`whichgpu accuracy`: left-out errors and coverage for a corner of the measurements."""

from __future__ import annotations

from statistics import median

import pytest

import whichgpu as wg
from tests.surface.cli import assert_refused, assert_refused_json, call
from whichgpu.estimate.time.accuracy_pairs import accuracy_pairs

SCORE_FIELDS = {"group", "rows", "mean", "median", "p90", "bias", "inside"}


def test_the_table_is_that_of_the_pairs() -> None:
    document = call("accuracy", "--gpu", "T4", "--by", "task", "--json").json()
    pairs = [pair for pair in accuracy_pairs() if pair.gpu == "t4"]
    assert document["total"]["rows"] == len(pairs) == sum(score["rows"] for score in document["scores"])
    assert document["total"]["median"] == pytest.approx(median(abs(pair.error) for pair in pairs), abs=1e-3)
    assert set(document["total"]) == SCORE_FIELDS
    assert {score["group"] for score in document["scores"]} == {pair.task for pair in pairs}
    assert document["sources"]


def test_worst_first() -> None:
    answer = wg.accuracy(by="engine", worst=5)
    assert [score.median for score in answer.scores] == sorted((score.median for score in answer.scores), reverse=True)
    assert len(answer.worst) == 5
    ratios = [pair.distance for pair in answer.worst]
    assert ratios == sorted(ratios, reverse=True)


def test_filters_of_engine_and_model() -> None:
    answer = wg.accuracy(engine="vllm", model="llama", worst=500)
    assert {pair.engine for pair in answer.worst} == {"vllm"}
    assert all("llama" in pair.model for pair in answer.worst)


def test_text_and_forms() -> None:
    reply = call("accuracy", "--task", "train", "--by", "gpu", "--worst", "2")
    assert len(reply.tsv()[0]) == 6
    assert "inside the 90% ranges" in reply.err
    assert reply.err.count("predicted, ") == 2
    assert set(call("accuracy", "--by", "task", "--csv").csv()[0]) == SCORE_FIELDS


def test_nothing_measured_is_exit_1_with_a_hint() -> None:
    assert assert_refused_json(call("accuracy", "--gpu", "T4", "--engine", "llama.cpp", "--json"), 1)["hint"]


@pytest.mark.parametrize(
    ("flags", "choice"),
    [
        (("--gpu", "H101"), "H100"),
        (("--engine", "vlm"), "vllm"),
        (("--model", "lamma-3.1-8b"), "llama-3.1-8b"),
        (("--task", "trane"), "train"),
        (("--by", "gpuz"), "gpu"),
        (("--left-out", "sources"), "source"),
    ],
)
def test_unknown_names_are_exit_2_with_the_nearest(flags: tuple[str, ...], choice: str) -> None:
    assert choice in assert_refused_json(call("accuracy", *flags, "--json"), 2)["choices"]
    assert_refused(call("accuracy", *flags), 2)
