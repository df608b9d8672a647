"""The measurements beside an estimate: the nearest ones, and what the model says there."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest

from tests.surface.cli import call
from whichgpu.api.workloads.estimate import estimate
from whichgpu.base.errors import WhichGpuError
from whichgpu.catalog.evidence import Measurement, measurements
from whichgpu.catalog.evidence_search.index import evidence_index
from whichgpu.estimate.time.left_out import COLUMNS, left_out_table

CONTRACT_FIELDS = {"source", "date", "gpu", "software", "measured", "estimated", "error"}


def near(task: str, model: str, **fields: Any) -> list[Any]:
    return list(estimate(task, model, **fields).evidence)


def test_every_estimate_has_the_nearest_measurements() -> None:
    reply = call("estimate", "decode", "llama-3.1-8b", "--gpu", "H100 SXM", "--engine", "vllm", "--json").json()
    assert 3 <= len(reply["evidence"]) <= 5
    for row in reply["evidence"]:
        assert set(row) >= CONTRACT_FIELDS
        assert row["error"] is None or row["error"] == pytest.approx(row["estimated"] / row["measured"] - 1, abs=0.002)
    assert 0 <= reply["evidence_error"] < 1


def test_text_has_them_only_on_request() -> None:
    words = ("estimate", "decode", "llama-3.1-8b", "--gpu", "H100 SXM")
    assert "Nearest measurements" not in call(*words).err
    text = call(*words, "--evidence").err
    assert text.count("measured, ") >= 3
    assert "in the median" in text


def test_without_a_gpu_there_are_none() -> None:
    assert estimate("decode", "llama-3.1-8b").evidence == ()


def test_a_measured_question_finds_itself_first() -> None:
    row = next(row for row in measurements() if row.source == "h200-decode")
    first = estimate(**{name: value for name, value in row.request.items() if name != "id"}).evidence[0]
    assert first.source == row.source
    assert first.measured == pytest.approx(row.seconds, rel=1e-5)
    assert first.differs_on == ()


def test_axes_count() -> None:
    served = near("serve", "llama-3.1-70b", gpu="MI300X", engine="vllm", batch=32)
    assert {row.gpu for row in served} == {"MI300X"}
    assert {row.task for row in served} <= {"serve", "batch"}
    trained = near("train", "resnet50", gpu="T4", batch=64)
    assert {row.task for row in trained} == {"train"}
    quantised = near("decode", "qwen2.5-7b", gpu="RTX 4090", precision="q4_k_m", engine="llama.cpp")
    assert {row.software.split()[0] for row in quantised} == {"llama.cpp"}
    assert {row.precision for row in quantised} == {"q4_k_m"}


def test_recommend_has_those_of_its_pick() -> None:
    reply = call("recommend", "batch", "llama-3.1-8b", "--gpu", "A100", "--samples", "1000", "--json").json()
    assert 3 <= len(reply["evidence"]) <= 5
    assert reply["evidence_error"] is not None


def _estimated(row: Measurement) -> float | None:
    """Seconds that the product estimates for a row; None if it refuses or times something else."""
    plain = not (row.pageable_copy_bytes or row.stochastic_depth or row.cached_tokens or row.micro_batch_tokens)
    if not plain or row.synchronises_after_forward or row.throughput_only or row.kind not in ("train", "forward", "decode"):
        return None
    try:
        time = estimate(own=False, **{name: value for name, value in row.request.items() if name != "id"}).time
    except WhichGpuError:
        return None
    return time.value if time else None


def test_stored_estimates_are_those_of_the_model() -> None:
    """A change of the model that moves its estimates needs `python -m calibration.left_out_table` (or `make refit`)."""
    rows, logs = measurements(), left_out_table().column("fit")
    differences = []
    for place in range(0, len(rows), 211):
        estimated = _estimated(rows[place]) if rows[place].kind != "op" else None
        if estimated is not None and logs[place] == logs[place]:
            stored = rows[place].seconds * float(2.718281828459045 ** logs[place])
            differences.append(abs(stored / estimated - 1))
    assert len(differences) > 10
    assert median(differences) < 0.01
    assert sum(one < 0.05 for one in differences) / len(differences) > 0.8


def test_the_table_of_errors_covers_the_measured_runs() -> None:
    index = evidence_index()
    fit = left_out_table().column("fit")
    assert len(fit) == len(index.operators)
    assert (fit[~index.operators] == fit[~index.operators]).mean() > 0.9
    assert not (fit[index.operators] == fit[index.operators]).any()
    for name in COLUMNS:
        assert len(left_out_table().column(name)) == len(fit)
