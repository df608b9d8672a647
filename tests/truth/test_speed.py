"""Measured steps as facts: the estimate must stay near them and its ranges must hold, also without the full measurements.

Each line of measured_steps.jsonl: whose measurement (the sources `speed-h200` and `results-…` of the catalog), seconds, request.
"""

from __future__ import annotations

import json
from math import log
from pathlib import Path
from statistics import median

import pytest

from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.workloads.estimate import EstimateAnswer, estimate_workload
from whichgpu.workload.spelling import from_object

ROWS = [json.loads(line) for line in (Path(__file__).parent / "measured_steps.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def answers() -> list[tuple[str, float, EstimateAnswer]]:
    lookups = lookup_cache()
    return [(row["source"], row["seconds"], estimate_workload(from_object(row["request"]), lookups)) for row in ROWS]


def test_the_median_error_is_small(answers: list[tuple[str, float, EstimateAnswer]]) -> None:
    errors = [abs(answer.time.value / seconds - 1) for _, seconds, answer in answers if answer.time]
    assert len(errors) == len(ROWS)
    assert median(errors) < 0.08


def test_no_row_is_off_by_half(answers: list[tuple[str, float, EstimateAnswer]]) -> None:
    far = [
        (source, answer.request["model"])
        for source, seconds, answer in answers
        if answer.time and abs(log(answer.time.value / seconds)) > log(1.6)
    ]
    assert not far


def test_nine_ranges_of_ten_hold(answers: list[tuple[str, float, EstimateAnswer]]) -> None:
    inside = [answer.time.low <= seconds <= answer.time.high for _, seconds, answer in answers if answer.time]
    assert sum(inside) / len(inside) >= 0.85


def test_measured_gpu_is_labelled_as_measured(answers: list[tuple[str, float, EstimateAnswer]]) -> None:
    assert {(answer.tier, answer.new_on) for _, _, answer in answers} == {("measured", ())}
    assert {answer.basis for _, _, answer in answers} == {"calibrated"}
