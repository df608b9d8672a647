"""The page of what was measured on a GPU, made from the files a run leaves: its numbers, its verdicts, and what is left out."""

from __future__ import annotations

import json
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

pytest.importorskip("scipy")
from calibration.fit_steps import Example

from benchmarks import accuracy_own, own_page
from whichgpu.api.workloads.estimate import estimate
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.calibration import load_calibration
from whichgpu.estimate.time.curves.parameters import parameters
from whichgpu.estimate.time.own_corrections import with_own_corrections
from whichgpu.measure.bench.step_cases import step_cases
from whichgpu.measure.fit import example
from whichgpu.measure.record import MeasuredMachine, MicroResult, PredictedTime, Record, StepResult, with_digest
from whichgpu.measure.records import write_record

GPU = "h200-sxm"
SLOWER = 1.2


def micro(kind: str, dtype: str, rate: float, unit: str, share: float | None = None) -> MicroResult:
    return MicroResult(f"{kind}-{dtype}", kind, dtype, {}, 1.0, 1.0, 1.0, 9, rate, unit, share)


@pytest.fixture(scope="module")
def record(catalog: Catalog) -> Record:
    """Every step takes a fifth longer than is shipped; the products nearly reach what plain loops do."""
    timed = []
    for case in step_cases(catalog.gpu_by_id[GPU]):
        figure = estimate(catalog=catalog, own=False, **case.request).time
        assert figure is not None
        seconds = figure.value * SLOWER
        predicted = PredictedTime(figure.value, figure.low, figure.high, figure.basis)
        timed.append(StepResult(case.id, case.request, seconds, seconds * 0.99, seconds * 1.01, 8, predicted))
    operators = (
        micro("copy", "fp32", 4.1e12, "B/s", 0.85),
        micro("gemm", "bf16", 500e12, "FLOP/s", 0.5),
        micro("gemm", "bf16", 750e12, "FLOP/s", 0.76),
        micro("gemm", "fp16", 600e12, "FLOP/s", 0.6),
    )
    where = MeasuredMachine(GPU, 1, "580.1", None, {"torch": "2.11.0"})
    return with_digest(Record("2026-11-19T10:11:12Z", where, operators, tuple(timed)))


def folder_of(path: Path, record: Record, **files: Any) -> Path:
    write_record(record, path / "record.json")
    for name, content in files.items():
        if name == "verify":
            (path / "verify.jsonl").write_text("\n".join(json.dumps(one) for one in content))
        else:
            (path / f"{name}.json").write_text(json.dumps(content))
    return path


def cells(lines: list[str], start: str) -> list[str]:
    return [cell.strip() for cell in next(line for line in lines if line.startswith(f"| {start}")).strip("|").split("|")]


def test_peaks_are_the_best_of_each_and_judged_at_95_percent(record: Record, tmp_path: Path) -> None:
    plain = [
        {"id": "a", "kind": "copy", "dtype": "fp32", "median": 4.0e12, "best": 4.2e12, "unit": "B/s"},
        {"id": "b", "kind": "copy", "dtype": "fp32", "median": 4.2e12, "best": 4.2e12, "unit": "B/s"},
        {"id": "c", "kind": "gemm", "dtype": "bf16", "median": 760e12, "best": 790e12, "unit": "FLOP/s"},
        {"id": "d", "kind": "gemm", "dtype": "fp16", "median": 700e12, "best": 700e12, "unit": "FLOP/s"},
        {"id": "e", "kind": "gemm", "dtype": "fp8", "median": 1300e12, "best": 1300e12, "unit": "FLOP/s"},
    ]
    lines = list(own_page.reach_lines(record, folder_of(tmp_path, record, plain=plain)))
    assert cells(lines, "copy fp32") == ["copy fp32", "4,200 GB/s", "4,100 GB/s", "97.6%", "4,200 GB/s", "4,100 GB/s", "85%"]
    bf16 = ["gemm bf16", "790 TFLOP/s", "750 TFLOP/s", "94.9%", "760 TFLOP/s", "750 TFLOP/s", "76%"]
    assert cells(lines, "gemm bf16") == bf16
    assert cells(lines, "gemm fp8")[2] == "not run"
    assert lines[-2] == "1 of 3 are at 95% or more of what PyTorch reaches; the least is 85.7%."


def test_measured_steps_are_next_to_predictions_and_outliers_marked(record: Record) -> None:
    first = record.steps[0]
    assert first.predicted is not None
    strayed = replace(first, id="strayed", seconds=first.predicted.high * 2)
    lines = list(own_page.step_lines(replace(record, steps=(first, strayed)), [first.seconds, first.seconds]))
    row = cells(lines, first.id)
    assert (row[5], row[6], row[8]) == ("inside", "-17%", "+0%")
    assert cells(lines, "strayed")[5] == "**outside**"
    assert any(line == "2 steps, 1 inside the range." for line in lines)


def test_claims_watch_and_diagnosis(record: Record, tmp_path: Path) -> None:
    time = {"value": 0.010, "low": 0.009, "high": 0.011, "basis": "measured"}
    good = {"ok": True, "claim": {"time": time}, "measured": {"seconds": 0.0125}, "inside": False}
    refused = {"ok": False, "error": {"message": "it is about another GPU"}}
    rows = [
        {"claim": "estimate a", "reply": good, "without": {"time": {**time, "value": 0.015}}},
        {"claim": "estimate b", "reply": refused, "without": None},
    ]
    watched = {"readings": 100, "every": 0.2, "usual_every": 2.0, "cpu_per_reading": 0.001, "rss": 50 << 20}
    watched |= {"gpu_before": 1 << 30, "gpu_during": 1 << 30, "gpu_processes": 0}
    verdict = {"id": "memory", "sure": True, "because": ["load 100%"]}
    loads = {"copy": {"expected": ["memory"], "running": [verdict]}, "held": {"expected": ["stalled"], "running": []}}
    folder = folder_of(tmp_path, record, verify=rows, watch=watched, diagnosis=loads)
    claims = list(own_page.verify_lines(folder))
    assert cells(claims, "`estimate a`")[1:] == ["12.5", "10", "9 – 11", "**outside**", "-20.0%", "+20.0%"]
    assert cells(claims, "`estimate b`")[1] == "refused: it is about another GPU"
    assert "0.050% of one core" in " ".join(own_page.watch_lines(folder))
    diagnosed = list(own_page.diagnosis_lines(folder))
    assert cells(diagnosed, "copy")[2] == "memory"
    assert cells(diagnosed, "held")[2] == "**nothing**"


def test_files_that_are_not_there_leave_their_sections_out(record: Record, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, record)
    for section in (own_page.verify_lines, own_page.watch_lines, own_page.diagnosis_lines):
        assert list(section(folder)) == []
    assert list(own_page.reach_lines(record, folder)) == []


def rows_of(catalog: Catalog, record: Record) -> list[Example]:
    """Unseen steps, which on this machine take a fifth longer, too."""
    entries = []
    for task, model, fields in (
        ("train", "resnet50", {"engine": "pytorch", "batch": 64, "precision": "amp-bf16"}),
        ("decode", "llama-3.1-8b", {"engine": "cuda-graphs", "batch": 8, "seq_in": 2048, "precision": "bf16"}),
    ):
        request: dict[str, Any] = {"task": task, "model": model, "gpu": GPU, **fields}
        figure = estimate(catalog=catalog, own=False, **request).time
        assert figure is not None
        one = example(StepResult(model, request, figure.value * SLOWER, 1.0, 1.0, 1), catalog.gpu_by_id[GPU], catalog)
        groups = {"source": "h200-decode" if task == "decode" else "h200-train", "task": "train-vision"}
        entries.append(Example(one.seconds, one.terms, one.floors, one.setting, one.host, groups))
    return entries


def test_errors_before_and_after_are_those_of_the_two_fits(record: Record, catalog: Catalog) -> None:
    rows, bare = rows_of(catalog, record), load_calibration()
    actual = np.log([one.seconds for one in rows])
    own = accuracy_own.own_of(record, bare, catalog)
    before = accuracy_own.predicted(rows, bare) - actual
    after = accuracy_own.predicted(rows, with_own_corrections(bare, {GPU: (own,)})) - actual
    assert before == pytest.approx(-log(SLOWER), abs=1e-6)
    assert np.abs(after).max() < 0.25 * log(SLOWER)
    lines = list(accuracy_own.error_lines(accuracy_own.Compared(rows, before, after, before, own, bare, 7), record, True))
    assert cells(lines, "decode")[1:3] == ["1", "16.7%"]
    assert cells(lines, "**all**")[1:3] == ["2", "16.7%"]
    assert any("100% of the rows come nearer" in line for line in lines)


def test_other_curves_are_used_and_put_back(tmp_path: Path) -> None:
    shipped = dict(parameters())
    file = tmp_path / "curves.csv"
    file.write_text("name,value\n" + "".join(f"{name},{2 * value}\n" for name, value in shipped.items()))
    accuracy_own.use_curves(file)
    try:
        assert all(parameters()[name] == 2 * value for name, value in shipped.items())
    finally:
        accuracy_own.use_curves(None)
    assert parameters() == shipped


def test_the_page_keeps_the_words_around_its_tables(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    accuracy_own.put(["first"], file)
    assert file.read_text().startswith("# What was measured")
    file.write_text(file.read_text() + "\nWritten by hand.\n")
    accuracy_own.put(["second"], file)
    text = file.read_text()
    assert "second" in text
    assert "first" not in text
    assert text.endswith("\nWritten by hand.\n")
